"""Multi-task logistic regression as a head of a risk: a hazard in discrete time, with weights for each interval.

Yu and others, Learning patient-specific cancer survival distributions as a sequence of dependent regressors, NIPS 2011.
The winner of HECKTOR 2021's outcome prediction used it. The weights are stored as plain arrays.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import minimize
from scipy.special import logsumexp

Floats = npt.NDArray[np.float64]
FILE = "mtlr.npz"
# The maximum number of interval ends, at quantiles of the event times.
MOST_ENDS = 8
# Weight of the penalty on squared weights and on their squared changes between intervals.
PENALTY = 0.1


def interval_ends(days: Floats, event: npt.NDArray[np.bool_]) -> Floats:
    """Ends of all intervals but the last, which is open: quantiles of the event times in days, ascending."""
    inner = np.linspace(0, 1, MOST_ENDS + 2)[1:-1]
    ends = np.unique(np.quantile(days[event], inner)) if event.any() else np.zeros(0)
    return np.asarray(ends[ends > 0], dtype=np.float64)


def possible_intervals(ends: Floats, days: Floats, event: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The intervals in which each patient's event can lie, shape (patients, ends + 1).

    An interval includes its end. After censoring, the event lies in any interval that ends later.
    """
    observed, first = np.searchsorted(ends, days, side="left"), np.searchsorted(ends, days, side="right")
    intervals = np.arange(len(ends) + 1)
    return np.where(event[:, None], intervals == observed[:, None], intervals >= first[:, None])


def log_probabilities(values: Floats, weights: Floats) -> Floats:
    """Logarithm of the probability of an event in each interval, shape (patients, ends + 1).

    The last column of `values` is ones; `weights` has shape (ends, columns). The score of an event in interval j is the
    sum of the regressors of ends j and later, which are the ends that such a patient does not reach without an event.
    """
    scores = np.zeros((len(values), len(weights) + 1))
    scores[:, :-1] = np.cumsum((values @ weights.T)[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(scores - logsumexp(scores, axis=1, keepdims=True))


def loss(flat: Floats, values: Floats, possible: npt.NDArray[np.bool_], penalty: float) -> tuple[float, Floats]:
    """Mean negative log likelihood with the penalty, and its gradient.

    `possible` are the intervals in which each patient's event can lie.
    """
    weights = flat.reshape(possible.shape[1] - 1, values.shape[1])
    logs = log_probabilities(values, weights)
    allowed = logsumexp(np.where(possible, logs, -np.inf), axis=1, keepdims=True)
    towards = np.exp(logs) - np.where(possible, np.exp(logs - allowed), 0.0)
    slope = np.cumsum(towards, axis=1)[:, :-1].T @ values / len(values)
    own, changes = weights.copy(), np.diff(weights, axis=0)
    own[:, -1] = 0.0  # the intercepts are not penalised
    changes[:, -1] = 0.0
    slope += penalty * own
    slope[1:] += penalty * changes
    slope[:-1] -= penalty * changes
    total = -float(allowed.mean()) + penalty / 2 * float((own**2).sum() + (changes**2).sum())
    return total, slope.ravel()


class Head:
    """MTLR as a head; a higher prediction means an earlier event."""

    kinds = ("risk",)

    def __init__(self, target: Any = None) -> None:
        self.target = target
        self.names: list[str] = []
        self.fill, self.mean, self.sd, self.ends = np.zeros(0), np.zeros(0), np.ones(0), np.zeros(0)
        self.weights = np.zeros((0, 1))

    def fit(self, features: pd.DataFrame, outcomes: pd.DataFrame, rng: np.random.Generator) -> None:
        """Fit on patients in rows; `outcomes` has the columns `days` and `event`. The fit is deterministic."""
        del rng
        days, event = outcomes["days"].to_numpy(float), outcomes["event"].to_numpy(bool)
        self.names = list(features.columns)
        self.fill = np.nan_to_num(features.median().to_numpy(float))
        filled = self._filled(features)
        self.mean, spread = filled.mean(0), filled.std(0)
        self.sd = np.where(spread > 0, spread, 1.0)
        self.ends = interval_ends(days, event)
        possible = possible_intervals(self.ends, days, event)
        values = self._values(features)
        start = np.zeros(len(self.ends) * values.shape[1])
        fitted = minimize(loss, start, (values, possible, PENALTY), jac=True, method="L-BFGS-B")
        self.weights = fitted.x.reshape(len(self.ends), values.shape[1])

    def survival(self, features: pd.DataFrame) -> Floats:
        """Probability of no event up to each of `ends`, shape (patients, ends)."""
        probabilities = np.exp(log_probabilities(self._values(features), self.weights))
        return np.asarray(1 - np.cumsum(probabilities, axis=1)[:, :-1])

    def predict(self, features: pd.DataFrame) -> Floats:
        """The risk of each patient: minus the expected days without an event up to the last of `ends`."""
        before = np.hstack([np.ones((len(features), 1)), self.survival(features)])
        after = before[:, 1:]
        widths = np.diff(self.ends, prepend=0.0)
        return np.asarray(-((before[:, :-1] + after) / 2 * widths).sum(1))

    def save(self, folder: Path) -> None:
        """Write the weights into `folder`."""
        arrays = {key: getattr(self, key) for key in ("fill", "mean", "sd", "ends", "weights")}
        np.savez(folder / FILE, names=np.array(self.names), **arrays)

    @classmethod
    def load(cls, folder: Path) -> Head:
        """Read what `save` wrote."""
        head = cls()
        with np.load(folder / FILE, allow_pickle=False) as stored:
            head.names = stored["names"].tolist()
            for key in ("fill", "mean", "sd", "ends", "weights"):
                setattr(head, key, stored[key])
        return head

    def _filled(self, features: pd.DataFrame) -> Floats:
        values = features.reindex(columns=self.names).to_numpy(float)
        return np.where(np.isnan(values), self.fill, values)

    def _values(self, features: pd.DataFrame) -> Floats:
        """Standardised features, clipped at four standard deviations, and a last column of ones."""
        scaled = np.clip((self._filled(features) - self.mean) / self.sd, -4, 4)
        return np.hstack([scaled, np.ones((len(scaled), 1))])
