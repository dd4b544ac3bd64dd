"""Search for rules on a fixed grid by the edition's own score, and their gains for patients that it has not seen."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from baseline.heads.metrics import mask_task
from baseline.postprocessing.lesions import COUNTS, THRESHOLDS, Floats, PatientLesions
from baseline.postprocessing.record import SCORE, GainInterval, RuleGain
from contract.editions import Edition
from contract.packages import NO_RULES, PostprocessingRules
from evaluation.editions.document import Lexicographic, Scheme
from evaluation.editions.profile import TaskProfile, profile_of
from evaluation.metrics.lesions import f1_agg_metric
from evaluation.metrics.overlap import (
    Difference,
    Overlap,
    WeightedMetric,
    WeightedSum,
    dsc_agg_metric,
    mean_metric,
    scores_of_case,
)
from evaluation.metrics.rules import MaskRules
from evaluation.statistics import DEFAULT_BOOTSTRAPS
from evaluation.statistics.bootstrap import estimate

_MEASURED: Final = ("gtvp_dsc_mean", "gtvn_dsc_mean", "gtvp_dsc_agg", "gtvn_dsc_agg", "gtvn_f1_agg")
_PARTS: Final = {"dsc_agg_mean": {"gtvp_dsc_agg": 0.5, "gtvn_dsc_agg": 0.5}}
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


@dataclass(frozen=True)
class MaskScore:
    """Metrics that the rules can change, with their weight in the edition's score.

    The parts of a Borda count have equal weights, so that 2025's score is half of GTVp's mean DSC, a quarter of GTVn's
    aggregated DSC and a quarter of its aggregated F1. A metric of another answer, such as a C-index or a stage's
    accuracy, counts as constant.
    """

    weights: Mapping[str, float]
    titles: Mapping[str, str]
    rules: MaskRules


def score_of(edition: Edition) -> MaskScore:
    """The score of the edition's task with a mask."""
    task = profile_of(edition).task(mask_task(edition))
    rules = next(one.rules for one in task.answers.values() if one.answer.kind == "mask")
    if not isinstance(rules, MaskRules):
        raise TypeError(f"{edition.name}: rules of a mask expected")
    weights: dict[str, float] = {}
    for name, weight in _weights(task.ranking.schemes[task.ranking.official], task).items():
        metric = task.metrics.get(name)
        measure = name if metric is None or metric.metric is None else metric.metric.name
        for part, share in _PARTS.get(measure, {measure: 1.0}).items():
            if part in _MEASURED:
                weights[part] = weights.get(part, 0.0) + weight * share
    titles = {SCORE: "Score, as far as masks change it"} | {name: one.title for name, one in task.metrics.items()}
    return MaskScore(weights, titles, rules)


def _weights(scheme: Scheme, task: TaskProfile) -> dict[str, float]:
    """The weight of each measured metric in a ranking; parts of ranks count equally, or by their weights."""
    if isinstance(scheme, str):
        return dict(task.metrics[scheme].terms) or {scheme: 1.0}
    parts = scheme.parts[:1] if isinstance(scheme, Lexicographic) else scheme.parts
    shares = getattr(scheme, "weights", ()) or (1.0,) * len(parts)
    result: dict[str, float] = {}
    for part, share in zip(parts, shares, strict=True):
        for name, weight in _weights(part, task).items():
            result[name] = result.get(name, 0.0) + weight * share / sum(shares)
    return result


class MaskCohort:
    """Patients with a reference, and the score of their masks after any rules; each setting is counted once."""

    def __init__(self, patients: Sequence[PatientLesions], score: MaskScore) -> None:
        self.patients, self.score = tuple(patients), score
        self._reference = {
            name: np.array([getattr(patient, name) for patient in patients], dtype=np.float64)
            for name in ("gtvp_voxels", "gtvn_voxels", "nodes", "voxel_mm3")
        }
        self._counts: dict[PostprocessingRules, Floats] = {}
        self._totals: dict[PostprocessingRules, WeightedMetric] = {}

    @property
    def settings(self) -> int:
        """Number of settings that were counted."""
        return len(self._counts)

    def counts(self, rules: PostprocessingRules) -> Floats:
        """`COUNTS` of each patient after the rules, (patients, counts)."""
        if rules not in self._counts:
            rows = [patient.counts(rules, self.score.rules) for patient in self.patients]
            self._counts[rules] = np.array(rows, dtype=np.float64).reshape(-1, len(COUNTS))
        return self._counts[rules]

    def assembled(self, parts: Sequence[tuple[Floats, PostprocessingRules]]) -> Floats:
        """Counts in which each group of patients, a boolean array, has rules of its own; other patients have none."""
        result = self.counts(NO_RULES).copy()
        for group, rules in parts:
            members = group.astype(np.bool_)
            result[members] = self.counts(rules)[members]
        return result

    def metrics(self, counts: Floats) -> dict[str, WeightedMetric]:
        """The score and each of its metrics as functions of the patients' weights."""
        columns = dict(zip(COUNTS, counts.T, strict=True))
        metrics = {name: self._metric(name, columns) for name in self.score.weights}
        total = WeightedSum([(weight, metrics[name]) for name, weight in self.score.weights.items()])
        return {SCORE: total, **metrics}

    def total(self, rules: PostprocessingRules) -> WeightedMetric:
        """The score after the rules as a function of the patients' weights."""
        if rules not in self._totals:
            self._totals[rules] = self.metrics(self.counts(rules))[SCORE]
        return self._totals[rules]

    def _metric(self, name: str, columns: Mapping[str, Floats]) -> WeightedMetric:
        label = name[:4]
        common, predicted = columns[f"{label}_common"], columns[f"{label}_predicted"]
        reference, mm3 = self._reference[f"{label}_voxels"], self._reference["voxel_mm3"]
        if name == "gtvn_f1_agg":
            true = columns["true_nodes"]
            return f1_agg_metric(true, columns["nodes"] - true, self._reference["nodes"] - true)
        if name.endswith("dsc_agg"):
            return dsc_agg_metric(common * mm3, reference * mm3, predicted * mm3)
        rule = getattr(self.score.rules, f"{label}_empty")
        cases = zip(common, reference, predicted, strict=True)
        dsc = [scores_of_case(Overlap(int(c), int(r), int(p)), failed=False, rule=rule).dsc for c, r, p in cases]
        return mean_metric(np.array(dsc, dtype=np.float64))  # None, a patient that does not count, becomes NaN


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
