"""Expected recurrence-free days from a log partial hazard and a baseline cumulative hazard."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from contract.errors import ModelPackageError

MOST_STEPS: Final = 64
# The hazard ratio exp(score) and its products with any hazard that a head may hold stay finite.
LARGEST_SCORE: Final = 300.0


@dataclass(frozen=True)
class Survival:
    """Baseline cumulative hazard of a patient with score 0, from 0 on day 0 to the last day, the horizon.

    `days` ascend from above 0; `cumulative_hazard` holds the hazard on each of them and is linear between them.
    """

    days: tuple[float, ...]
    cumulative_hazard: tuple[float, ...]

    @property
    def horizon_days(self) -> float:
        """The longest time that an answer can be."""
        return self.days[-1]

    def restricted_mean(self, score: float) -> float:
        """Expected recurrence-free days within the horizon, always finite and above 0.

        The integral of exp(-H0(t) exp(score)) over t from 0 to the horizon, which falls strictly in the score as long
        as it differs from its limits, 0 and the horizon, in double precision.
        """
        ratio = math.exp(max(-LARGEST_SCORE, min(LARGEST_SCORE, score)))
        steps = pairwise(zip((0.0, *self.days), (0.0, *self.cumulative_hazard), strict=True))
        return sum((end - start) * _mean_survival(ratio * low, ratio * high) for (start, low), (end, high) in steps)

    def as_json(self) -> dict[str, Any]:
        return {"days": list(self.days), "cumulative_hazard": list(self.cumulative_hazard)}


def _mean_survival(low: float, high: float) -> float:
    """Mean of exp(-h) for h from `low` to `high`."""
    growth = high - low
    return math.exp(-low) * (-math.expm1(-growth) / growth if growth > 0 else 1.0)


def checked_survival(survival: Survival, name: str) -> Survival:
    """The survival itself.

    Raises:
        ModelPackageError: lists of different length, none or too many steps, or values that do not ascend from 0.
    """
    days, hazard = survival.days, survival.cumulative_hazard
    if len(days) != len(hazard) or not 0 < len(days) <= MOST_STEPS:
        found = f"survival with {len(days)} days and {len(hazard)} values of cumulative_hazard"
        raise ModelPackageError(name, found, f"the same number of both, 1 to {MOST_STEPS}")
    rising = hazard[0] > 0 and all(low <= high for low, high in pairwise(hazard))
    if not rising or any(low >= high for low, high in pairwise((0.0, *days))):
        raise ModelPackageError(name, "survival that does not rise", "ascending days and hazards above 0")
    return survival
