"""The edition's own score of masks, as far as the rules on lesions can change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from algorithm.decisions.rules import Decisions
from baseline.decisions.cohort import Cohort, Counts
from baseline.decisions.tables import Floats
from baseline.heads.metrics import mask_task
from baseline.release.cases import ReleaseCase
from contract.editions import Answer, Edition
from evaluation.editions.profile import load_profile
from evaluation.editions.schemes import Lexicographic, Scheme
from evaluation.editions.task import TaskProfile
from evaluation.metrics.classification import many_classes_metrics
from evaluation.metrics.lesions import f1_agg_metric
from evaluation.metrics.overlap import WeightedMetric, dsc_agg_metric, mean_metric, on_cohort, weighted_sum_metric
from evaluation.metrics.rules import EMPTY_RULES, MaskRules

# Rules of the staging whose number the tables give.
_STAGES: Final = ("t_stage_7th", "n_stage_7th")
_SEGMENTATION: Final = ("gtvp_dsc_mean", "gtvn_dsc_mean", "gtvp_dsc_agg", "gtvn_dsc_agg", "gtvn_f1_agg")
_SEED, _DRAWS = 2025, 200
_PARTS: Final = {"dsc_agg_mean": {"gtvp_dsc_agg": 0.5, "gtvn_dsc_agg": 0.5}}


@dataclass(frozen=True)
class StageReference:
    """The reference stage of each patient as a code of the answer's classes, -1 where unknown."""

    rule: str
    classes: tuple[str, ...]
    codes: Floats


@dataclass(frozen=True)
class Score:
    """Metrics that the rules can change, with their weight in the edition's score.

    In a Borda count the parts have equal weights, so that 2025's score is half of GTVp's mean DSC, a quarter of GTVn's
    aggregated DSC and a quarter of its aggregated F1. A metric that the tables do not give, such as the C-index, is
    taken as constant and left out. `empty` is the rule for a label without voxels, by "gtvp" and "gtvn".
    """

    weights: Mapping[str, float]
    titles: Mapping[str, str]
    rules: MaskRules
    stages: Mapping[str, StageReference]

    @property
    def with_stages(self) -> bool:
        """True if stages count."""
        return bool(self.stages)

    def metrics(self, cohort: Cohort, counts: Counts) -> dict[str, WeightedMetric]:
        """Each metric of one setting, whose counts have one row, as a function of the patients' weights."""
        every: dict[str, WeightedMetric] = {}
        for name in dict.fromkeys((*self.weights, "gtvn_f1_agg", "gtvn_dsc_agg")):
            every[name] = self._metric(name, cohort, counts)
        return every

    def total(self, metrics: Mapping[str, WeightedMetric]) -> WeightedMetric:
        """The weighted sum of the metrics that count."""
        return weighted_sum_metric([(weight, metrics[name]) for name, weight in self.weights.items()])

    def _metric(self, name: str, cohort: Cohort, counts: Counts) -> WeightedMetric:
        if name in self.stages:
            return _stage_metric(self.stages[name], counts)
        common, predicted, reference = (
            (counts.gtvp_common[0], counts.gtvp_predicted[0], cohort.gtvp_voxels)
            if name.startswith("gtvp")
            else (counts.gtvn_common[0], counts.gtvn_predicted[0], cohort.gtvn_voxels)
        )
        if name.endswith("dsc_mean"):
            return mean_metric(_dsc(common, predicted, reference, getattr(self.rules, f"{name[:4]}_empty")))
        if name == "gtvn_f1_agg":
            true, nodes = counts.true_nodes[0], counts.nodes[0]
            return f1_agg_metric(true, nodes - true, cohort.nodes - true)
        mm3 = cohort.voxel_mm3
        return dsc_agg_metric(common * mm3, reference * mm3, predicted * mm3)


def score_of(edition: Edition, cases: Sequence[ReleaseCase]) -> Score:
    """The score of the edition's task with a mask, over `cases`."""
    task = load_profile(edition.evaluation_profile).task(mask_task(edition))
    official = task.ranking.schemes[task.ranking.official]
    masks = [one for one in task.answers.values() if one.answer.kind == "mask"]
    rules = masks[0].rules
    if not isinstance(rules, MaskRules):
        raise TypeError(f"{edition.name}: rules of a mask expected")
    weights: dict[str, float] = {}
    stages: dict[str, StageReference] = {}
    for name, weight in _weights(official, task).items():
        metric = task.metrics.get(name)
        answer = None if metric is None else task.answers[metric.answer].answer
        measure = name if metric is None or metric.metric is None else metric.metric.name
        if answer is not None and answer.kind == "class" and answer.rule in _STAGES:
            reference = _reference(answer, cases)
            if len(set(reference.codes) - {-1}) > 1:  # with a single class nothing can be told apart
                stages[name], weights[name] = reference, weight
        for part, share in _PARTS.get(measure, {measure: 1.0}).items():
            if part in _SEGMENTATION:
                weights[part] = weights.get(part, 0.0) + weight * share
    titles = {name: metric.title for name, metric in task.metrics.items()}
    return Score(weights, titles, rules, stages)


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


def _reference(answer: Answer, cases: Sequence[ReleaseCase]) -> StageReference:
    classes = tuple(map(str, answer.classes))
    codes = [classes.index(str(value)) if (value := case.outcome(answer)) in answer.classes else -1 for case in cases]
    return StageReference(answer.rule, classes, np.array(codes, dtype=np.float64))


def _stage_metric(reference: StageReference, counts: Counts) -> WeightedMetric:
    stage = (counts.t_stage if reference.rule == "t_stage_7th" else counts.n_stage)[0]
    first = int(reference.classes[0][1:])
    known = np.flatnonzero(reference.codes >= 0)
    answered = np.where(np.isnan(stage), -1.0, stage - first)[known].astype(np.intp)
    metric = many_classes_metrics(reference.codes[known].astype(np.intp), answered, len(reference.classes))
    return on_cohort(metric["balanced_accuracy"], known, reference.codes.size)


def _dsc(common: Floats, predicted: Floats, reference: Floats, rule: str) -> Floats:
    """DSC of each patient, NaN for a patient that does not count."""
    without, with_voxels = (np.nan if value is None else value for value in EMPTY_RULES[rule])
    total = predicted + reference
    dsc = 2 * common / np.maximum(total, 1)
    dsc = np.where((reference == 0) & (predicted > 0), with_voxels, dsc)
    return np.where(total == 0, without, dsc)


class Evaluations:
    """Scores of settings under several weights of the patients; each setting is counted once."""

    def __init__(self, cohort: Cohort, score: Score) -> None:
        self.cohort, self.score = cohort, score
        patients = len(cohort.patients)
        rng = np.random.default_rng(_SEED)
        # Bootstrap samples as counts of each patient, for the uncertainty of a gain within the search.
        self.draws: Floats = rng.multinomial(patients, np.full(patients, 1 / patients), _DRAWS).astype(np.float64)
        self._counts: dict[Decisions, Counts] = {}
        self._totals: dict[Decisions, WeightedMetric] = {}

    @property
    def settings(self) -> int:
        """Number of settings that were counted."""
        return len(self._counts)

    def counts(self, settings: Sequence[Decisions]) -> None:
        """Count settings that are not known yet, those with the same thresholds together."""
        by_thresholds: dict[Any, list[Decisions]] = {}
        for setting in dict.fromkeys(settings):
            if setting not in self._counts:
                by_thresholds.setdefault(setting.thresholds, []).append(setting)
        for group in by_thresholds.values():
            counted = self.cohort.counts(group)
            self._counts |= {setting: counted.rows(slice(at, at + 1)) for at, setting in enumerate(group)}

    def of(self, setting: Decisions) -> Counts:
        """Counts of one setting, in one row."""
        self.counts([setting])
        return self._counts[setting]

    def total(self, setting: Decisions) -> WeightedMetric:
        """The edition's score of one setting."""
        if setting not in self._totals:
            self._totals[setting] = self.score.total(self.score.metrics(self.cohort, self.of(setting)))
        return self._totals[setting]
