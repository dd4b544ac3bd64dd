"""Search for rules on a fixed grid, and their gains for patients that the search has not seen."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from baseline.postprocessing.lesions import THRESHOLDS, Floats
from baseline.postprocessing.record import GainInterval, RuleGain
from baseline.postprocessing.score import MaskCohort
from contract.packages import NO_RULES, PostprocessingRules
from evaluation.metrics.overlap import Difference
from evaluation.statistics import DEFAULT_BOOTSTRAPS
from evaluation.statistics.bootstrap import estimate

# A rule must raise the score by this much, and by more than the standard deviation of its gain.
LEAST_GAIN: Final = 0.001
_VOLUMES_ML: Final = (0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0)
GRID: Final[Mapping[str, tuple[Any, ...]]] = {
    "largest_gtvp_only": (True,),
    "gtvp_volume_ml": _VOLUMES_ML,
    "gtvn_volume_ml": _VOLUMES_ML,
    "gtvn_mean_probability": tuple(round(0.5 + 0.025 * step, 3) for step in range(1, 18)),
    "gtvn_suv_max": (1.5, 2.0, 2.5, 3.0, 3.5, 4.0),
    "foreground_threshold": tuple(value for value in THRESHOLDS if value != NO_RULES.foreground_threshold),
}
# A lower threshold adds faint lesions and true borders; the rule on the probability then removes the faint lesions.
_MOVES: Final = (*((rule,) for rule in GRID), ("foreground_threshold", "gtvn_mean_probability"))
_SEED, _DRAWS = 2025, 200


def search(cohort: MaskCohort, members: Floats) -> PostprocessingRules:
    """The rules for the patients with weight 1 in `members`, (patients,); the defaults if nothing gains.

    Each step adds the rule and value, or pair of them, with the largest gain. Finally, rules that no longer gain beside
    the others are removed.
    """
    patients = len(members)
    samples = np.random.default_rng(_SEED).multinomial(patients, np.full(patients, 1 / patients), _DRAWS) * members
    current = NO_RULES
    while (better := _step(cohort, members, samples, current)) is not None:
        current = better
    for rule in current.as_json():
        without = current.model_copy(update={rule: getattr(NO_RULES, rule)})
        if _score(cohort, current, members) - _score(cohort, without, members) < LEAST_GAIN:
            current = without
    return current


def _step(
    cohort: MaskCohort, members: Floats, samples: Floats, current: PostprocessingRules
) -> PostprocessingRules | None:
    """The next setting with the largest certain gain, None if no rule gains enough."""
    before = _score(cohort, current, members)
    gain_of = {rules: _score(cohort, rules, members) - before for rules in _next(current)}
    for rules, gain in sorted(gain_of.items(), key=lambda one: -one[1]):
        if gain < LEAST_GAIN:
            break
        if gain > np.nanstd(cohort.total(rules)(samples) - cohort.total(current)(samples)):
            return rules
    return None


def _next(current: PostprocessingRules) -> Iterator[PostprocessingRules]:
    """The current setting with every value of one or two rules."""
    for move in _MOVES:
        for values in itertools.product(*(GRID[rule] for rule in move)):
            yield current.model_copy(update=dict(zip(move, values, strict=True)))


def _score(cohort: MaskCohort, rules: PostprocessingRules, members: Floats) -> float:
    return float(cohort.total(rules)(members[None])[0])


def cross_fitted(
    cohort: MaskCohort, groups: Mapping[str, Sequence[str]]
) -> tuple[Floats, dict[str, PostprocessingRules]]:
    """Counts in which each group has the rules that were found without it, and these rules by group.

    `groups` holds patient IDs by name; patients of no group stay unfiltered. A group that has no patient of the cohort
    gets the rules of all patients, none of whom is its own.
    """
    names = np.array([patient.patient_id for patient in cohort.patients])
    inside = {group: np.isin(names, list(members)).astype(np.float64) for group, members in groups.items()}
    rules = {group: search(cohort, 1 - members) for group, members in inside.items()}
    return cohort.assembled([(inside[group], one) for group, one in rules.items()]), rules


def gains(cohort: MaskCohort, counts: Floats, seed: int) -> dict[str, RuleGain]:
    """The score and each metric, unfiltered and filtered, and the difference with its 95% interval.

    The interval belongs to the test of two teams.
    """
    before, after = cohort.metrics(cohort.counts(NO_RULES)), cohort.metrics(counts)
    everyone = np.ones((1, len(cohort.patients)))
    differences = {name: Difference(after[name], before[name]) for name in before}
    known = {name: metric for name, metric in differences.items() if np.isfinite(metric(everyone)[0])}
    rng = np.random.default_rng(seed)
    drawn = estimate(known, len(cohort.patients), DEFAULT_BOOTSTRAPS, rng).by_metric
    return {
        name: RuleGain(
            unfiltered=float(before[name](everyone)[0]),
            filtered=float(after[name](everyone)[0]),
            difference=GainInterval(**asdict(drawn[name])),
        )
        for name in known
    }
