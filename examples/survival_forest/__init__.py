"""A random forest as a head for risks: regression on pseudo-values of the mean time without an event.

A pseudo-value is a patient's contribution to the Kaplan-Meier estimate. It also exists for a censored patient (Andersen
et al., Biometrika 2003). The forest is stored as plain arrays, so that loading the file runs no code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.ensemble import RandomForestRegressor

Floats = npt.NDArray[np.float64]
FILE = "forest.npz"
# The mean time is computed up to this quantile of the follow-up times, since few patients are followed longer.
HORIZON_QUANTILE = 0.9


def compute_restricted_mean(days: Floats, event: npt.NDArray[np.bool_], horizon: float) -> float:
    """Compute the area under the Kaplan-Meier curve from 0 to `horizon`: the mean time without an event up to then."""
    steps = np.unique(days[event & (days < horizon)])
    at_risk = (days[None] >= steps[:, None]).sum(1)
    events = ((days[None] == steps[:, None]) & event[None]).sum(1)
    survival = np.concatenate([[1.0], np.cumprod(1 - events / at_risk)])
    return float((survival * np.diff(np.concatenate([[0.0], steps, [horizon]]))).sum())


def compute_pseudo_values(days: Floats, event: npt.NDArray[np.bool_], horizon: float | None = None) -> Floats:
    """Compute the pseudo-value of each patient, shape (patients,).

    A pseudo-value is n times the mean time of all n patients, minus n - 1 times the mean time of the other patients.
    Without `horizon`, the mean times are computed up to a quantile of the follow-up times.
    """
    if horizon is None:
        horizon = float(np.quantile(days, HORIZON_QUANTILE))
    count = len(days)
    mean_of_all = compute_restricted_mean(days, event, horizon)
    means_without = [compute_restricted_mean(np.delete(days, i), np.delete(event, i), horizon) for i in range(count)]
    return count * mean_of_all - (count - 1) * np.array(means_without)


class Head:
    """The forest as a head. A higher prediction means an earlier event."""

    kinds = ("risk",)

    def __init__(self, target: Any = None) -> None:
        """Create a head for the answer `target`, which has a `name`."""
        self.target = target
        self.names: list[str] = []
        self.fill: Floats = np.zeros(0)
        self.trees: list[dict[str, npt.NDArray[Any]]] = []

    def fit(self, features: pd.DataFrame, outcomes: pd.DataFrame, rng: np.random.Generator) -> None:
        """Fit the head; each row is a patient, and `outcomes` has the columns `days` and `event`."""
        self.names = list(features.columns)
        self.fill = np.nan_to_num(features.median().to_numpy(float))
        values = compute_pseudo_values(outcomes["days"].to_numpy(float), outcomes["event"].to_numpy(bool))
        forest = RandomForestRegressor(
            100, min_samples_leaf=5, max_features=1 / 3, random_state=int(rng.integers(2**31)), n_jobs=1
        )
        forest.fit(self._fill_missing(features), values)
        self.trees = [
            {
                "left": tree.tree_.children_left,
                "right": tree.tree_.children_right,
                "feature": tree.tree_.feature,
                "threshold": tree.tree_.threshold,
                "value": tree.tree_.value[:, 0, 0],
            }
            for tree in forest.estimators_
        ]

    def predict(self, features: pd.DataFrame) -> Floats:
        """Predict the risk of each patient: minus the expected time without an event, in days."""
        table = self._fill_missing(features)
        rows = np.arange(len(features))
        total = np.zeros(len(features))
        for tree in self.trees:
            node = np.zeros(len(features), dtype=int)
            is_inner = tree["left"][node] >= 0
            while is_inner.any():
                goes_left = table[rows, tree["feature"][node]] <= tree["threshold"][node]
                node = np.where(is_inner, np.where(goes_left, tree["left"][node], tree["right"][node]), node)
                is_inner = tree["left"][node] >= 0
            total += tree["value"][node]
        return -total / max(len(self.trees), 1)

    def save(self, folder: Path) -> None:
        """Write the forest into `folder`."""
        arrays = {f"{key}_{number}": array for number, tree in enumerate(self.trees) for key, array in tree.items()}
        np.savez_compressed(folder / FILE, names=np.array(self.names), fill=self.fill, **arrays)

    @classmethod
    def load(cls, folder: Path) -> Head:
        """Read the head that `save` wrote."""
        head = cls()
        with np.load(folder / FILE, allow_pickle=False) as stored:
            head.names = stored["names"].tolist()
            head.fill = stored["fill"]
            count = sum(name.startswith("left_") for name in stored.files)
            keys = ("left", "right", "feature", "threshold", "value")
            head.trees = [{key: stored[f"{key}_{number}"] for key in keys} for number in range(count)]
        return head

    def _fill_missing(self, features: pd.DataFrame) -> npt.NDArray[np.float32]:
        """Order the features as in the fit and replace missing values by medians, in float32 as scikit-learn does."""
        values = features.reindex(columns=self.names).to_numpy(float)
        return np.where(np.isnan(values), self.fill, values).astype(np.float32)
