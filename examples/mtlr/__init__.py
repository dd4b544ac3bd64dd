"""Multi-task logistic regression (MTLR) as a head for risks: a model in discrete time with weights for each interval.

The method is from Yu et al., Learning patient-specific cancer survival distributions as a sequence of dependent
regressors, NIPS 2011. The winner of HECKTOR 2021's outcome prediction used it. The weights are stored as plain arrays,
so that loading the file runs no code.
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
# Maximum number of interval ends, which are quantiles of the event times.
MAX_ENDS = 8
# Weight of the penalty on squared weights and on their squared changes between intervals.
PENALTY = 0.1


def compute_interval_ends(days: Floats, event: npt.NDArray[np.bool_]) -> Floats:
    """Compute the interval ends: quantiles of the event times in days, in ascending order; empty without an event.

    The last interval is open, so it has no end.
    """
    inner = np.linspace(0, 1, MAX_ENDS + 2)[1:-1]
    ends = np.unique(np.quantile(days[event], inner)) if event.any() else np.zeros(0)
    return np.asarray(ends[ends > 0], dtype=np.float64)


def find_possible_intervals(ends: Floats, days: Floats, event: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Find the intervals that can contain each patient's event, shape (patients, ends + 1).

    An interval includes its end. The event of a censored patient can lie in any interval that ends after the
    censoring.
    """
    event_interval = np.searchsorted(ends, days, side="left")[:, None]
    first_possible = np.searchsorted(ends, days, side="right")[:, None]
    intervals = np.arange(len(ends) + 1)
    return np.where(event[:, None], intervals == event_interval, intervals >= first_possible)


def log_probabilities(values: Floats, weights: Floats) -> Floats:
    """Compute the log probability of an event in each interval, shape (patients, ends + 1).

    The last column of `values` is ones, and `weights` has shape (ends, columns). The score of an event in interval j is
    the sum of the regressors of end j and all later ends, by which the event has occurred. The last interval has the
    score 0.
    """
    scores = np.zeros((len(values), len(weights) + 1))
    scores[:, :-1] = np.cumsum((values @ weights.T)[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(scores - logsumexp(scores, axis=1, keepdims=True))


def compute_loss(
    flat_weights: Floats, values: Floats, possible: npt.NDArray[np.bool_], penalty: float
) -> tuple[float, Floats]:
    """Compute the mean negative log likelihood plus the penalty, and the gradient of this sum.

    `possible` is the result of `find_possible_intervals`.
    """
    weights = flat_weights.reshape(possible.shape[1] - 1, values.shape[1])
    log_probability = log_probabilities(values, weights)
    log_likelihood = logsumexp(np.where(possible, log_probability, -np.inf), axis=1, keepdims=True)
    score_gradient = np.exp(log_probability) - np.where(possible, np.exp(log_probability - log_likelihood), 0.0)
    gradient = np.cumsum(score_gradient, axis=1)[:, :-1].T @ values / len(values)
    # The intercepts, in the last column, are not penalised.
    penalised = weights.copy()
    penalised[:, -1] = 0.0
    changes = np.diff(weights, axis=0)
    changes[:, -1] = 0.0
    gradient += penalty * penalised
    gradient[1:] += penalty * changes
    gradient[:-1] -= penalty * changes
    total = -float(log_likelihood.mean()) + penalty / 2 * float((penalised**2).sum() + (changes**2).sum())
    return total, gradient.ravel()


class Head:
    """MTLR as a head. A higher prediction means an earlier event."""

    kinds = ("risk",)

    def __init__(self, target: Any = None) -> None:
        """Create a head for the answer `target`, which has a `name`."""
        self.target = target
        self.names: list[str] = []
        self.fill = np.zeros(0)
        self.mean = np.zeros(0)
        self.sd = np.ones(0)
        self.ends = np.zeros(0)
        self.weights = np.zeros((0, 1))

    def fit(self, features: pd.DataFrame, outcomes: pd.DataFrame, rng: np.random.Generator) -> None:
        """Fit the head; each row is a patient, and `outcomes` has the columns `days` and `event`."""
        del rng  # The fit is deterministic.
        days = outcomes["days"].to_numpy(float)
        event = outcomes["event"].to_numpy(bool)
        self.names = list(features.columns)
        self.fill = np.nan_to_num(features.median().to_numpy(float))
        complete = self._fill_missing(features)
        self.mean = complete.mean(0)
        sd = complete.std(0)
        self.sd = np.where(sd > 0, sd, 1.0)
        self.ends = compute_interval_ends(days, event)
        possible = find_possible_intervals(self.ends, days, event)
        values = self._standardise(features)
        start = np.zeros(len(self.ends) * values.shape[1])
        result = minimize(compute_loss, start, (values, possible, PENALTY), jac=True, method="L-BFGS-B")
        self.weights = result.x.reshape(len(self.ends), values.shape[1])

    def predict_survival(self, features: pd.DataFrame) -> Floats:
        """Predict the probability of no event up to each interval end, shape (patients, ends)."""
        probabilities = np.exp(log_probabilities(self._standardise(features), self.weights))
        return np.asarray(1 - np.cumsum(probabilities, axis=1)[:, :-1])

    def predict(self, features: pd.DataFrame) -> Floats:
        """Predict the risk of each patient: minus the expected days without an event up to the last interval end."""
        before = np.hstack([np.ones((len(features), 1)), self.predict_survival(features)])
        after = before[:, 1:]
        widths = np.diff(self.ends, prepend=0.0)
        return np.asarray(-((before[:, :-1] + after) / 2 * widths).sum(1))

    def save(self, folder: Path) -> None:
        """Write the weights into `folder`."""
        arrays = {key: getattr(self, key) for key in ("fill", "mean", "sd", "ends", "weights")}
        np.savez(folder / FILE, names=np.array(self.names), **arrays)

    @classmethod
    def load(cls, folder: Path) -> Head:
        """Read the head that `save` wrote."""
        head = cls()
        with np.load(folder / FILE, allow_pickle=False) as stored:
            head.names = stored["names"].tolist()
            for key in ("fill", "mean", "sd", "ends", "weights"):
                setattr(head, key, stored[key])
        return head

    def _fill_missing(self, features: pd.DataFrame) -> Floats:
        """Order the features as in the fit, and replace missing values by medians."""
        values = features.reindex(columns=self.names).to_numpy(float)
        return np.where(np.isnan(values), self.fill, values)

    def _standardise(self, features: pd.DataFrame) -> Floats:
        """Standardise the features, clip them at four standard deviations, and append a column of ones."""
        scaled = np.clip((self._fill_missing(features) - self.mean) / self.sd, -4, 4)
        return np.hstack([scaled, np.ones((len(scaled), 1))])
