"""Equal-weight mean of experts: the candidates of the selection that pass a floor, on one scale.

The floor uses the folds of the selection alone, so that outer folds of a nested cross-validation stay unseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from algorithm.heads.classes import Head
from baseline.heads.cohort import Floats, HeadCohort
from baseline.heads.models.classes import NEVER
from baseline.heads.models.folding import average_of
from baseline.heads.models.kinds import Target
from baseline.heads.models.selection import Chosen, Setting, refit, single_best

# Minimum distance of an expert's metric from chance.
LEAST_SKILL: Final = 0.02
_LEAST_SD: Final = 1e-6


@dataclass(frozen=True)
class Average:
    """The experts of a mean, its out-of-fold scores and metric, and the single best model as a comparator.

    `scales` holds mean and standard deviation of each expert's out-of-fold scores, `slope` the factor that turns the
    mean of the standardised scores into a log partial hazard (1 for classes).
    """

    single: Chosen
    experts: tuple[Chosen, ...]
    scales: tuple[tuple[float, float], ...]
    slope: float
    scores: Floats
    metric: float

    @property
    def name(self) -> str:
        """Names of the experts."""
        names = " + ".join(expert.name for expert in self.experts)
        return f"mean of {names}" if len(self.experts) > 1 else names

    @property
    def setting(self) -> Setting:
        """The setting of a single expert, empty for a mean."""
        return self.experts[0].setting if len(self.experts) == 1 else {}

    @property
    def tried(self) -> Mapping[str, float]:
        """Selection metric of each candidate."""
        return self.single.tried

    def experts_as_json(self) -> list[dict[str, Any]]:
        """Name, setting and selection metric of each expert."""
        return [{"name": one.name, "setting": dict(one.setting), "metric": one.metric} for one in self.experts]


def average(target: Target, cohort: HeadCohort, candidates: Sequence[Chosen]) -> Average:
    """The mean of the candidates that pass the floor; the single best model if fewer than two pass.

    Of a family and its harmonised form only the one that `single_best` prefers takes part.
    """
    single = single_best(candidates)
    experts = passing(candidates, single, target.chance(cohort), target.least_share)
    if len(experts) < 2:
        return Average(single, (single,), ((0.0, 1.0),), 1.0, single.scores, single.metric)
    scales = tuple(scale_of(expert.scores) for expert in experts)
    standardised = [(expert.scores - mean) / sd for expert, (mean, sd) in zip(experts, scales, strict=True)]
    scores = np.mean(standardised, axis=0)
    slope = target.slope(cohort, scores) or 1.0
    return Average(single, experts, scales, slope, slope * scores, target.judge(cohort, scores))


def passing(candidates: Sequence[Chosen], single: Chosen, chance: float, least_share: float) -> tuple[Chosen, ...]:
    """The candidates that pass the floor, in order; a harmonised one only if it is the single best model.

    The floor is 0.02 above `chance`, and at least `least_share` of the distance from chance to the best candidate.
    """
    rivals = [one for one in candidates if one.name == single.name or not one.harmonised]
    if single.harmonised:
        rivals = [one for one in rivals if one.harmonised or one.family.name != single.family.name]
    best = max(one.metric for one in rivals)
    floor = chance + max(LEAST_SKILL, least_share * (best - chance))
    return tuple(one for one in rivals if one.metric >= floor)


def scale_of(scores: Floats) -> tuple[float, float]:
    """Mean and standard deviation of scores; 1 in place of the latter for constant scores.

    Of scores of classes the mean is 0, since a mean of each class would move the boundaries between classes, and the
    standard deviation is that of the classes' scores around each patient's own mean. Classes without training patients
    do not count.
    """
    if scores.ndim == 1:
        return float(scores.mean()), _divisor(float(scores.std()))
    fitted = scores[:, (scores > NEVER / 2).all(0)]
    return 0.0, _divisor(float((fitted - fitted.mean(1, keepdims=True)).std()))


def _divisor(sd: float) -> float:
    """The standard deviation, 1 for constant scores."""
    return sd if sd > _LEAST_SD else 1.0


def fit_average(chosen: Average, cohort: HeadCohort, rng: np.random.Generator) -> tuple[Head, Head]:
    """The mean, and the single best model, fitted on the whole cohort."""
    heads = {expert.name: refit(cohort, expert, rng) for expert in chosen.experts}
    single = heads.get(chosen.single.name) or refit(cohort, chosen.single, rng)
    alone = average_of([(chosen.single.name, 0.0, 1.0, single)])
    if len(chosen.experts) < 2:
        return alone, alone
    experts = [
        (name, mean, sd / chosen.slope, head)
        for (name, head), (mean, sd) in zip(heads.items(), chosen.scales, strict=True)
    ]
    return average_of(experts), alone
