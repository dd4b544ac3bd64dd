"""The edition's own score of masks, for any postprocessing rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from baseline.heads.metrics import mask_task
from baseline.postprocessing.lesions import COUNTS, STAGING_RULES, Floats, PatientLesions
from baseline.release.cases import ReleaseCase
from contract.editions import Answer, Edition
from contract.packages import NO_RULES, PostprocessingRules
from evaluation.editions.document import Lexicographic, Scheme
from evaluation.editions.profile import TaskProfile, profile_of
from evaluation.metrics.classification import many_classes_metrics
from evaluation.metrics.lesions import f1_agg_metric
from evaluation.metrics.overlap import (
    WeightedMetric,
    WeightedSum,
    dsc_agg_metric,
    dsc_of_case,
    mean_metric,
    on_cohort,
)
from evaluation.metrics.rules import MaskRules

SCORE: Final = "score"
_MEASURED: Final = ("gtvp_dsc_mean", "gtvn_dsc_mean", "gtvp_dsc_agg", "gtvn_dsc_agg", "gtvn_f1_agg")
_PARTS: Final = {"dsc_agg_mean": {"gtvp_dsc_agg": 0.5, "gtvn_dsc_agg": 0.5}}
# Reported whether or not the edition ranks by them.
_ALWAYS: Final = ("gtvn_f1_agg", "gtvn_dsc_agg")
_TITLES: Final = {
    SCORE: "Score, as far as masks change it",
    "gtvn_f1_agg": "GTVn aggregated F1",
    "gtvn_dsc_agg": "GTVn aggregated DSC",
}


@dataclass(frozen=True)
class StageReference:
    """The rule of a stage, its classes, and the reference of each patient as a number of them, -1 if unknown."""

    rule: str
    classes: tuple[str, ...]
    codes: Floats


@dataclass(frozen=True)
class MaskScore:
    """Metrics that the rules can change, with their weight in the edition's score.

    The parts of a Borda count have equal weights, so that 2025's score is half of GTVp's mean DSC, a quarter of GTVn's
    aggregated DSC and a quarter of its aggregated F1. Stages are those of the 7th edition's rule on the mask; a metric
    of another answer, such as the C-index, counts as constant.
    """

    weights: Mapping[str, float]
    titles: Mapping[str, str]
    rules: MaskRules
    stages: Mapping[str, StageReference]


def score_of(edition: Edition, cases: Sequence[ReleaseCase]) -> MaskScore:
    """The score of the edition's task with a mask, over `cases`."""
    task = profile_of(edition).task(mask_task(edition))
    rules = next(one.rules for one in task.answers.values() if one.answer.kind == "mask")
    if not isinstance(rules, MaskRules):
        raise TypeError(f"{edition.name}: rules of a mask expected")
    weights: dict[str, float] = {}
    stages: dict[str, StageReference] = {}
    for name, weight in _weights(task.ranking.schemes[task.ranking.official], task).items():
        metric = task.metrics.get(name)
        measure = name if metric is None or metric.metric is None else metric.metric.name
        answer = None if metric is None else task.answers[metric.answer].answer
        if answer is not None and answer.kind == "class" and answer.rule in STAGING_RULES:
            reference = _reference(answer, cases)
            if len(set(reference.codes) - {-1}) > 1:  # a single class cannot be told apart
                stages[name], weights[name] = reference, weight
        for part, share in _PARTS.get(measure, {measure: 1.0}).items():
            if part in _MEASURED:
                weights[part] = weights.get(part, 0.0) + weight * share
    titles = {**_TITLES, **{name: metric.title for name, metric in task.metrics.items()}}
    return MaskScore(weights, titles, rules, stages)


def _reference(answer: Answer, cases: Sequence[ReleaseCase]) -> StageReference:
    classes = tuple(map(str, answer.classes))
    codes = [classes.index(str(value)) if (value := case.outcome(answer)) in answer.classes else -1 for case in cases]
    return StageReference(answer.rule, classes, np.array(codes, dtype=np.float64))


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
        self.centres = np.array([patient.centre for patient in patients])
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
        metrics = {name: self._metric(name, columns) for name in dict.fromkeys((*self.score.weights, *_ALWAYS))}
        total = WeightedSum([(weight, metrics[name]) for name, weight in self.score.weights.items()])
        return {SCORE: total, **metrics}

    def total(self, rules: PostprocessingRules) -> WeightedMetric:
        """The score after the rules as a function of the patients' weights."""
        if rules not in self._totals:
            self._totals[rules] = self.metrics(self.counts(rules))[SCORE]
        return self._totals[rules]

    def _metric(self, name: str, columns: Mapping[str, Floats]) -> WeightedMetric:
        if name in self.score.stages:
            return _stage_metric(self.score.stages[name], columns)
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
        dsc = [dsc_of_case(int(c), int(r), int(p), failed=False, rule=rule) for c, r, p in cases]
        return mean_metric(np.array(dsc, dtype=np.float64))  # None, a patient that does not count, becomes NaN


def _stage_metric(reference: StageReference, columns: Mapping[str, Floats]) -> WeightedMetric:
    """Balanced accuracy over the patients with a known stage; a mask without a stage is wrong."""
    stage = columns[reference.rule] - int(reference.classes[0][1:])
    known = np.flatnonzero(reference.codes >= 0)
    answered = np.where(np.isnan(stage), -1.0, stage)[known].astype(np.intp)
    metric = many_classes_metrics(reference.codes[known].astype(np.intp), answered, len(reference.classes))
    return on_cohort(metric["balanced_accuracy"], known, reference.codes.size)
