"""Parts of heads as documents: bounded numbers, calibration and baseline hazard."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Final

from pydantic import AfterValidator, Field, model_validator

from contract.documents import Document

# Sums of terms of this size are still finite.
LARGEST_NUMBER: Final = 1e100
# The logistic function is 0 or 1 to double precision beyond this.
LARGEST_LOGIT: Final = 700.0
MOST_STEPS: Final = 64
# The hazard ratio exp(score) and its products with any hazard that a head may hold stay finite.
LARGEST_SCORE: Final = 300.0


def _bounded(value: float) -> float:
    if abs(value) >= LARGEST_NUMBER:
        raise ValueError(f"a number below {LARGEST_NUMBER:g}")
    return value


Number = Annotated[float, AfterValidator(_bounded)]
PositiveNumber = Annotated[Number, Field(gt=0)]


class Calibration(Document):
    """From a score to a probability: the logistic function of `slope * score + offset` (Platt 1999)."""

    slope: Number
    offset: Number

    def probability(self, score: float) -> float:
        logit = self.slope * score + self.offset
        return 1 / (1 + math.exp(-max(-LARGEST_LOGIT, min(LARGEST_LOGIT, logit))))


class Survival(Document):
    """Baseline cumulative hazard of a patient with score 0, from 0 on day 0 to the last day, the horizon.

    `days` ascend from above 0; `cumulative_hazard` holds the hazard on each of them and is linear between them.
    """

    days: Annotated[tuple[Number, ...], Field(min_length=1, max_length=MOST_STEPS)]
    cumulative_hazard: tuple[Number, ...]

    @model_validator(mode="after")
    def _rises(self) -> Survival:
        days, hazard = self.days, self.cumulative_hazard
        if len(days) != len(hazard):
            raise ValueError(f"as many values of cumulative_hazard ({len(hazard)}) as days ({len(days)})")
        is_rising = hazard[0] > 0 and all(low <= high for low, high in pairwise(hazard))
        if not is_rising or any(low >= high for low, high in pairwise((0.0, *days))):
            raise ValueError("ascending days and hazards above 0")
        return self

    @property
    def horizon_days(self) -> float:
        """Return the longest time that an answer can be."""
        return self.days[-1]

    def restricted_mean(self, score: float) -> float:
        """Return the expected recurrence-free days within the horizon, always finite and above 0.

        The integral of exp(-H0(t) exp(score)) over t from 0 to the horizon, which falls strictly in the score as long
        as it differs from its limits, 0 and the horizon, in double precision.
        """
        ratio = _hazard_ratio(score)
        return sum(
            (end - start) * _mean_survival(ratio * low, ratio * high) for (start, low), (end, high) in self._steps()
        )

    def median(self, score: float) -> float | None:
        """Return the day of the median recurrence of patients with this score, None if it is after the horizon."""
        half = math.log(2) / _hazard_ratio(score)
        for (start, low), (end, high) in self._steps():
            if high >= half:
                return start + (end - start) * (half - low) / (high - low)
        return None

    def _steps(self) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
        """Start and end of each linear part, each as day and hazard."""
        return pairwise(zip((0.0, *self.days), (0.0, *self.cumulative_hazard), strict=True))


def _hazard_ratio(score: float) -> float:
    return math.exp(max(-LARGEST_SCORE, min(LARGEST_SCORE, score)))


def _mean_survival(low: float, high: float) -> float:
    """Return the mean of exp(-h) for h from `low` to `high`."""
    growth = high - low
    return math.exp(-low) * (-math.expm1(-growth) / growth if growth > 0 else 1.0)
