"""Rules on lesions that raise the edition's score, and their gains for patients who were not used to choose them.

The lesions of the out-of-fold masks are measured once, so that their removal needs no images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.masks.postprocessing import LesionMeasures, find_removal_reasons
from baseline.postprocessing.record import SCORE, GainInterval, RuleGain
from contract import labels
from contract.editions import Edition
from contract.errors import HecktorError
from contract.packages import NO_RULES, PostprocessingRules
from evaluation.editions.document import Lexicographic, RowScheme, Scheme
from evaluation.editions.profile import TaskProfile, build_profile
from evaluation.metrics.lesions import f1_agg_metric, label_components, match_one_to_one
from evaluation.metrics.overlap import (
    Difference,
    Overlap,
    WeightedMetric,
    WeightedSum,
    dsc_agg_metric,
    mean_metric,
    score_overlap,
)
from evaluation.metrics.rules import MaskRules
from evaluation.statistics import DEFAULT_BOOTSTRAPS
from evaluation.statistics.bootstrap import estimate

_Labels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]

# Columns of `PatientLesions.counts`.
COUNTS: Final = ("gtvp_common", "gtvp_predicted", "gtvn_common", "gtvn_predicted", "nodes", "true_nodes")
_CONNECTIVITY: Final = 26
_MASK_METRICS: Final = ("gtvp_dsc_mean", "gtvn_dsc_mean", "gtvp_dsc_agg", "gtvn_dsc_agg", "gtvn_f1_agg")
_PARTS: Final = {"dsc_agg_mean": {"gtvp_dsc_agg": 0.5, "gtvn_dsc_agg": 0.5}}
# A rule must raise the masks' part of the score by this fraction of the weights of masks, and by more than the standard
# deviation of its gain.
MIN_GAIN: Final = 0.001
# The cross-fitted gain must exceed this number of its standard deviations, so that at most one in twenty null cohorts,
# on which rules have no effect, gets a rule (`tests/baseline/postprocessing/null_cohorts.py`).
MIN_GAIN_DEVIATIONS: Final = 2.5
_VOLUMES_ML: Final = (0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0)
# Limits of each rule, in the order in which the rules are fitted.
LIMITS: Final[Mapping[str, tuple[float, ...]]] = {
    "gtvp_volume_ml": _VOLUMES_ML,
    "gtvn_volume_ml": _VOLUMES_ML,
    "gtvn_suv_max": (1.5, 2.0, 2.5, 3.0, 3.5, 4.0),
    "gtvn_total_ml": (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 15.0, 25.0),
}
_SEED, _DRAWS = 2025, 200


@dataclass(frozen=True)
class LesionTable:
    """Measures of each lesion, and its overlap with the reference.

    Attributes:
        measures: Measures of the lesions, without their voxels.
        common: Number of voxels in the same label of the reference, (lesions,).
        node_iou: IoU with each reference node; 0 for a GTVp, (lesions, nodes).
    """

    measures: LesionMeasures
    common: npt.NDArray[np.intp]
    node_iou: Floats


@dataclass(frozen=True)
class PatientLesions:
    """The lesions of one patient, and the size of the reference: voxels, nodes, mm3 of a voxel."""

    patient_id: str
    centre: str
    voxel_mm3: float
    gtvp_voxels: int
    gtvn_voxels: int
    nodes: int
    table: LesionTable

    def count(self, rules: PostprocessingRules, mask_rules: MaskRules) -> tuple[float, ...]:
        """Count the `COUNTS` of the mask after the rules; nodes are matched as in the evaluation."""
        table, measures = self.table, self.table.measures
        remains = np.array([not reason for reason in find_removal_reasons(measures, rules)], dtype=np.bool_)
        primary, node = (remains & (measures.label == label) for label in labels.FOREGROUND)
        iou = table.node_iou[node]
        limit = mask_rules.iou_threshold
        lesion, reference = np.nonzero(iou > limit if mask_rules.iou_strict else iou >= max(limit, 1e-9))
        is_unique = len(lesion) == len(set(lesion)) and len(reference) == len(set(reference))
        true_nodes = len(lesion) if is_unique else len(match_one_to_one(reference, lesion, iou[lesion, reference]))
        return (
            float(table.common[primary].sum()),
            float(measures.voxels[primary].sum()),
            float(table.common[node].sum()),
            float(measures.voxels[node].sum()),
            float(np.count_nonzero(node)),
            float(true_nodes),
        )


def make_lesion_table(measures: LesionMeasures, reference: _Labels) -> LesionTable:
    """Make the table of lesions with their overlap with the reference, (z, y, x)."""
    nodes, count = label_components(reference == labels.GTVN, _CONNECTIVITY)
    inside = measures.numbers > 0
    lesion = measures.numbers[inside] - 1
    label = measures.label[lesion]
    size = len(measures.label)
    common = np.bincount(lesion[reference[inside] == label], minlength=size)
    pairs = np.zeros((size, count + 1), dtype=np.intp)
    np.add.at(pairs, (lesion, nodes[inside]), label == labels.GTVN)
    node_voxels = np.bincount(nodes.ravel(), minlength=count + 1)[1:]
    iou = pairs[:, 1:] / np.maximum(measures.voxels[:, None] + node_voxels - pairs[:, 1:], 1)
    return LesionTable(replace(measures, numbers=measures.numbers[:0]), common, iou)


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

    @property
    def min_gain(self) -> float:
        """Return the minimum gain that counts, relative to the weights of masks, whose sum differs between editions."""
        return MIN_GAIN * sum(self.weights.values())


def find_mask_task(edition: Edition) -> str:
    """Find the name of the edition's first task with a mask."""
    for algorithm in edition.algorithms:
        if algorithm.mask_spec is not None:
            return algorithm.name
    raise HecktorError(f"edition {edition.name}: found no mask among its answers, expected one")


def list_mask_metric_titles(edition: Edition) -> dict[str, str]:
    """List the titles of the ranked metrics of masks, in order, by name without the mask's prefix."""
    task = build_profile(edition).find_task(find_mask_task(edition))
    profiles = [task.answers[answer.name] for answer in task.algorithm.answers if answer.kind == "mask"]
    names = {f"{profile.prefix}{name}": name for profile in profiles for name in profile.metrics}
    return {names[name]: metric.title for name, metric in task.metrics.items() if name in names}


def make_mask_score(edition: Edition) -> MaskScore:
    """Make the score of the edition's task with a mask."""
    task = build_profile(edition).find_task(find_mask_task(edition))
    rules = next(profile.rules for profile in task.answers.values() if profile.answer.kind == "mask")
    if not isinstance(rules, MaskRules):
        raise TypeError(f"{edition.name}: expected the rules of a mask")
    weights: dict[str, float] = {}
    for name, weight in _collect_weights(task.ranking.schemes[task.ranking.official], task).items():
        metric = task.metrics.get(name)
        measure = name if metric is None or metric.metric is None else metric.metric.name
        for part, share in _PARTS.get(measure, {measure: 1.0}).items():
            if part in _MASK_METRICS:
                weights[part] = weights.get(part, 0.0) + weight * share
    titles = {SCORE: "Official score, only the metrics of masks"}
    titles |= {name: metric.title for name, metric in task.metrics.items()}
    return MaskScore(weights, titles, rules)


def _collect_weights(scheme: Scheme, task: TaskProfile) -> dict[str, float]:
    """Collect the weight of each measured metric in a ranking; parts of ranks count equally, or by their weights."""
    if isinstance(scheme, RowScheme):
        scheme = scheme.metric
    if isinstance(scheme, str):
        return dict(task.metrics[scheme].terms) or {scheme: 1.0}
    parts = scheme.parts[:1] if isinstance(scheme, Lexicographic) else scheme.parts
    shares = getattr(scheme, "weights", ()) or (1.0,) * len(parts)
    result: dict[str, float] = {}
    for part, share in zip(parts, shares, strict=True):
        for name, weight in _collect_weights(part, task).items():
            result[name] = result.get(name, 0.0) + weight * share / sum(shares)
    return result


class MaskCohort:
    """Patients with a reference, and the score of their masks after rules; each setting is counted once."""

    def __init__(self, patients: Sequence[PatientLesions], score: MaskScore) -> None:
        self.patients, self.score = tuple(patients), score
        self._reference = {
            name: np.array([getattr(patient, name) for patient in patients], dtype=np.float64)
            for name in ("gtvp_voxels", "gtvn_voxels", "nodes", "voxel_mm3")
        }
        self._counts: dict[PostprocessingRules, Floats] = {}
        self._totals: dict[PostprocessingRules, WeightedMetric] = {}

    def count(self, rules: PostprocessingRules) -> Floats:
        """Count the `COUNTS` of each patient after the rules, (patients, counts)."""
        if rules not in self._counts:
            rows = [patient.count(rules, self.score.rules) for patient in self.patients]
            self._counts[rules] = np.array(rows, dtype=np.float64).reshape(-1, len(COUNTS))
        return self._counts[rules]

    def assemble(self, parts: Sequence[tuple[Floats, PostprocessingRules]]) -> Floats:
        """Assemble counts after different rules for groups of patients (boolean arrays); others stay unfiltered."""
        result = self.count(NO_RULES).copy()
        for group, rules in parts:
            members = group.astype(np.bool_)
            result[members] = self.count(rules)[members]
        return result

    def make_metrics(self, counts: Floats) -> dict[str, WeightedMetric]:
        """Make the score and each of its metrics as functions of the patients' weights."""
        columns = dict(zip(COUNTS, counts.T, strict=True))
        metrics = {name: self._make_metric(name, columns) for name in self.score.weights}
        total = WeightedSum([(weight, metrics[name]) for name, weight in self.score.weights.items()])
        return {SCORE: total, **metrics}

    def make_score(self, rules: PostprocessingRules) -> WeightedMetric:
        """Make the score after the rules as a function of the patients' weights."""
        if rules not in self._totals:
            self._totals[rules] = self.make_metrics(self.count(rules))[SCORE]
        return self._totals[rules]

    def _make_metric(self, name: str, columns: Mapping[str, Floats]) -> WeightedMetric:
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
        dsc = [score_overlap(Overlap(int(c), int(r), int(p)), failed=False, rule=rule).dsc for c, r, p in cases]
        return mean_metric(np.array(dsc, dtype=np.float64))  # None of a patient that does not count becomes NaN


def find_limit(cohort: MaskCohort, name: str, base: PostprocessingRules, members: Floats) -> PostprocessingRules:
    """Add the best limit of one rule to `base` for the patients with weight 1 in `members`, (patients,).

    The lowest of equally good limits is taken. If no limit gains enough, `base` is returned.
    """
    patients = len(members)
    samples = np.random.default_rng(_SEED).multinomial(patients, np.full(patients, 1 / patients), _DRAWS) * members
    candidates = [base.model_copy(update={name: limit}) for limit in LIMITS[name]]
    best = max(candidates, key=lambda rules: _score(cohort, rules, members))
    gain = _score(cohort, best, members) - _score(cohort, base, members)
    spread = np.nanstd(cohort.make_score(best)(samples) - cohort.make_score(base)(samples))
    return best if gain >= cohort.score.min_gain and gain > spread else base


def _score(cohort: MaskCohort, rules: PostprocessingRules, members: Floats) -> float:
    return float(cohort.make_score(rules)(members[None])[0])


@dataclass(frozen=True)
class FittedRules:
    """Rules of all patients, and of the patients without each group, by split and group (fold or centre).

    `decisions` has the reason why each rule was not accepted; it is empty for an accepted rule.
    """

    rules: PostprocessingRules
    by_group: Mapping[str, Mapping[str, PostprocessingRules]]
    decisions: Mapping[str, str]


def fit_rules(cohort: MaskCohort, groups_of: Mapping[str, Mapping[str, Sequence[str]]], seed: int) -> FittedRules:
    """Fit the rules one after the other; each is added to the rules that were accepted before it.

    A rule is accepted if its limit gains on all patients, and if its cross-fitted gain counts with folds and with
    centres: each patient is filtered by a limit that was found without the patient's group.

    Args:
        cohort: Patients with a reference.
        groups_of: Patient IDs by split and group.
        seed: Seed of the bootstrap samples.
    """
    names = np.array([patient.patient_id for patient in cohort.patients])
    everyone = np.ones(len(names))
    inside = {
        split: {group: np.isin(names, list(members)).astype(np.float64) for group, members in groups.items()}
        for split, groups in groups_of.items()
    }
    rules = NO_RULES
    by_group = {split: dict.fromkeys(groups, NO_RULES) for split, groups in groups_of.items()}
    decisions = {}
    for name in LIMITS:
        trial = find_limit(cohort, name, rules, everyone)
        if trial == rules:
            decisions[name] = "no limit gains enough"
            continue
        trial_by_group = {
            split: {
                group: find_limit(cohort, name, by_group[split][group], 1 - members)
                for group, members in groups.items()
            }
            for split, groups in inside.items()
        }
        decisions[name] = ""
        for split, groups in inside.items():
            before = assemble_counts(cohort, groups, by_group[split])
            after = assemble_counts(cohort, groups, trial_by_group[split])
            if problem := _find_problem(cohort, before, after, seed):
                decisions[name] = f"with limits found without the patient's {split[:-1]}, {problem}"
                break
        else:
            rules, by_group = trial, trial_by_group
    return FittedRules(rules, by_group, decisions)


def assemble_counts(
    cohort: MaskCohort, inside: Mapping[str, Floats], rules_of: Mapping[str, PostprocessingRules]
) -> Floats:
    """Assemble the counts of each group after the rules that were found without it."""
    return cohort.assemble([(inside[group], rules) for group, rules in rules_of.items()])


def _find_problem(cohort: MaskCohort, before: Floats, after: Floats, seed: int) -> str:
    """Find the reason why a cross-fitted gain does not count; empty if it counts."""
    patients = len(cohort.patients)
    gain = Difference(cohort.make_metrics(after)[SCORE], cohort.make_metrics(before)[SCORE])
    value = float(gain(np.ones((1, patients)))[0])
    samples = np.random.default_rng(seed).multinomial(patients, np.full(patients, 1 / patients), _DRAWS)
    needed = max(cohort.score.min_gain, MIN_GAIN_DEVIATIONS * float(np.nanstd(gain(samples.astype(np.float64)))))
    if value >= needed:
        return ""
    return f"the score changes by {value:+z.5f}, expected at least +{needed:.5f}"


def estimate_gains(cohort: MaskCohort, counts: Floats, seed: int) -> dict[str, RuleGain]:
    """Estimate the score and each metric, unfiltered and filtered, and the difference with its 95% interval.

    The interval is computed as in the test of two teams.
    """
    before, after = cohort.make_metrics(cohort.count(NO_RULES)), cohort.make_metrics(counts)
    everyone = np.ones((1, len(cohort.patients)))
    differences = {name: Difference(after[name], before[name]) for name in before}
    known = {name: metric for name, metric in differences.items() if np.isfinite(metric(everyone)[0])}
    drawn = estimate(known, len(cohort.patients), DEFAULT_BOOTSTRAPS, seed).by_metric
    return {
        name: RuleGain(
            unfiltered=float(before[name](everyone)[0]),
            filtered=float(after[name](everyone)[0]),
            difference=GainInterval(
                value=float(metric(everyone)[0]), ci95_low=drawn[name].ci95_low, ci95_high=drawn[name].ci95_high
            ),
        )
        for name, metric in known.items()
    }
