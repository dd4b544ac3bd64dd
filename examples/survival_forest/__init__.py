"""A random forest as a head of a risk: regression on pseudo-values of the mean time without an event.

A pseudo-value says what a patient contributes to the Kaplan-Meier estimate, also if the time is censored (Andersen and
others, Biometrika 2003). The forest is stored as plain arrays, so that loading it runs no code of a file.
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
# Share of the follow-up times up to which the mean time is computed: later ones hang on a few patients.
HORIZON = 0.9


def restricted_mean(days: Floats, event: npt.NDArray[np.bool_], horizon: float) -> float:
    """Area under the Kaplan-Meier curve from 0 to `horizon`."""
    steps = np.unique(days[event & (days < horizon)])
    at_risk = (days[None] >= steps[:, None]).sum(1)
    events = ((days[None] == steps[:, None]) & event[None]).sum(1)
    survival = np.concatenate([[1.0], np.cumprod(1 - events / at_risk)])
    return float((survival * np.diff(np.concatenate([[0.0], steps, [horizon]]))).sum())


def pseudo_values(days: Floats, event: npt.NDArray[np.bool_], horizon: float | None = None) -> Floats:
    """n times the mean time of all n patients, less n - 1 times that of all but one; shape (patients,)."""
    until = float(np.quantile(days, HORIZON)) if horizon is None else horizon
    count, whole = len(days), restricted_mean(days, event, until)
    without = [restricted_mean(np.delete(days, i), np.delete(event, i), until) for i in range(count)]
    return count * whole - (count - 1) * np.array(without)


class Head:
    """The head: a higher prediction is an earlier event."""

    kinds = ("risk",)

    def __init__(self, target: Any = None) -> None:
        self.target = target
        self.names: list[str] = []
        self.fill: Floats = np.zeros(0)
        self.trees: list[dict[str, npt.NDArray[Any]]] = []

    def fit(self, features: pd.DataFrame, outcomes: pd.DataFrame, rng: np.random.Generator) -> None:
        """Fit on patients in rows; `outcomes` has the columns `days` and `event`."""
        self.names = list(features.columns)
        self.fill = np.nan_to_num(features.median().to_numpy(float))
        values = pseudo_values(outcomes["days"].to_numpy(float), outcomes["event"].to_numpy(bool))
        forest = RandomForestRegressor(
            100, min_samples_leaf=5, max_features=1 / 3, random_state=int(rng.integers(2**31)), n_jobs=1
        )
        forest.fit(self._table(features), values)
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
        """The risk of each patient: minus the expected time without an event, in days."""
        table, rows = self._table(features), np.arange(len(features))
        total = np.zeros(len(features))
        for tree in self.trees:
            node = np.zeros(len(features), dtype=int)
            while (inner := tree["left"][node] >= 0).any():
                goes_left = table[rows, tree["feature"][node]] <= tree["threshold"][node]
                node = np.where(inner, np.where(goes_left, tree["left"][node], tree["right"][node]), node)
            total += tree["value"][node]
        return -total / max(len(self.trees), 1)

    def save(self, folder: Path) -> None:
        """Write the forest into `folder`."""
        arrays = {f"{key}_{number}": array for number, tree in enumerate(self.trees) for key, array in tree.items()}
        np.savez_compressed(folder / FILE, names=np.array(self.names), fill=self.fill, **arrays)

    @classmethod
    def load(cls, folder: Path) -> Head:
        """Read what `save` wrote."""
        head = cls()
        with np.load(folder / FILE, allow_pickle=False) as stored:
            head.names, head.fill = stored["names"].tolist(), stored["fill"]
            count = sum(name.startswith("left_") for name in stored.files)
            keys = ("left", "right", "feature", "threshold", "value")
            head.trees = [{key: stored[f"{key}_{number}"] for key in keys} for number in range(count)]
        return head

    def _table(self, features: pd.DataFrame) -> npt.NDArray[np.float32]:
        """The features in the order of the fit, medians for missing ones, in scikit-learn's precision."""
        values = features.reindex(columns=self.names).to_numpy(float)
        return np.where(np.isnan(values), self.fill, values).astype(np.float32)
