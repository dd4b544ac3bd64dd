"""Cohorts of patients with known outcomes and features, and the evaluation's metrics on cohorts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from algorithm.heads.documents import Cubes, Features
from algorithm.heads.values import find_absent_structures, find_possible_classes
from baseline.release.cases import ReleaseCase, event_key
from contract.editions import AnswerSpec
from contract.errors import MetricError
from evaluation.metrics.classification import auc_metric, make_binary_metrics, make_multiclass_metrics
from evaluation.metrics.overlap import WeightedMetric
from evaluation.metrics.survival import SurvivalCohort, c_index_metric

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
# Reads the images around the tumours from patient IDs, number of voxels along each axis, and spacing in mm.
Images = Callable[[Sequence[str], int, float], npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of a cohort, shape (patients,).

    Attributes:
        values: Class numbers. For a risk 1 is an event and 0 is censoring.
        times_days: Follow-up of a risk; empty for a class.
        classes: Names of the classes by number; empty for a risk.
    """

    values: Numbers
    times_days: Floats = field(default_factory=lambda: np.zeros(0))
    classes: tuple[str, ...] = ()

    @property
    def positive(self) -> Flags:
        """Return whether each patient has an event, or the second of two classes."""
        return np.asarray(self.values == 1)

    def pick(self, numbers: Numbers) -> Outcomes:
        times_days = self.times_days[numbers] if self.times_days.size else self.times_days
        return Outcomes(self.values[numbers], times_days, self.classes)

    def find_most_frequent_class(self) -> int:
        """Find the number of the most frequent class, or the lowest number among equally frequent classes."""
        return int(np.bincount(self.values, minlength=len(self.classes)).argmax())


@dataclass(frozen=True)
class HeadCohort:
    """Patients with their features and outcomes, all in the same order.

    Attributes:
        ids: Patient IDs.
        centres: Centre code of each patient.
        features: Table with one row for each patient; NaN is a missing value.
        outcomes: Outcomes of the patients.
        possible: Whether the patient's mask leaves the class possible, shape (patients, classes); empty if the masks
            leave all classes possible.
        images: Function that reads the images around the tumours; None if there are no images.
    """

    ids: tuple[str, ...]
    centres: tuple[str, ...]
    features: pd.DataFrame
    outcomes: Outcomes
    possible: Flags = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))
    images: Images | None = None

    @property
    def cubes(self) -> Cubes | None:
        """Return the function that reads the images around the tumours of these patients."""
        return None if self.images is None else partial(self.images, self.ids)

    def pick(self, numbers: Numbers) -> HeadCohort:
        return HeadCohort(
            tuple(self.ids[n] for n in numbers),
            tuple(self.centres[n] for n in numbers),
            self.features.iloc[numbers].reset_index(drop=True),
            self.outcomes.pick(numbers),
            self.possible[numbers] if self.possible.size else self.possible,
            self.images,
        )

    def select_undecided(self) -> HeadCohort:
        """Select the patients from whom a head can learn.

        The mask leaves several classes possible, and the true class is among them.
        """
        if not self.possible.size:
            return self
        is_possible = self.possible[np.arange(len(self.ids)), self.outcomes.values]
        return self.pick(np.flatnonzero(is_possible & (self.possible.sum(1) > 1)))

    def hide_mask(self) -> HeadCohort:
        """Return the cohort for models that do not see the mask: all classes are possible."""
        return replace(self, possible=np.zeros((0, 0), dtype=np.bool_))

    def drop_features(self, features: Sequence[str]) -> HeadCohort:
        """Return the cohort without some features."""
        return replace(self, features=self.features.drop(columns=list(features), errors="ignore"))

    def values(self, features: Sequence[str]) -> Floats:
        """Return features as columns, shape (patients, features); NaN is missing."""
        return self.features.reindex(columns=list(features)).to_numpy(np.float64)

    def to_rows(self) -> list[Features]:
        records = self.features.to_dict("records")
        return [{str(k): None if np.isnan(v) else float(v) for k, v in record.items()} for record in records]


def make_feature_table(rows: Sequence[Features]) -> pd.DataFrame:
    """Make a table with a row for each patient, NaN where a feature is missing.

    Columns are in the order of their first appearance.
    """
    return pd.DataFrame(list(rows), index=range(len(rows)), dtype=np.float64)


def collect_outcomes(answer: AnswerSpec, cases: Sequence[ReleaseCase]) -> Outcomes:
    """Collect the outcomes of patients for whom every column of the answer is known."""
    rows = [{event_key(answer): case.get_outcome(answer)} for case in cases]
    if answer.kind == "risk":
        days = [case.outcomes[answer.columns["time"]] for case in cases]
        rows = [row | {f"{answer.name}_days": number} for row, number in zip(rows, days, strict=True)]
    return parse_outcomes(answer, rows)


def make_outcome_rows(answer: AnswerSpec, outcomes: Outcomes) -> list[dict[str, Any]]:
    """Make the records of `cross_validation.json`, one for each patient."""
    if answer.kind == "risk":
        pairs = zip(outcomes.times_days.tolist(), outcomes.positive.tolist(), strict=True)
        return [{f"{answer.name}_days": days, event_key(answer): event} for days, event in pairs]
    return [{answer.name: answer.classes[value]} for value in outcomes.values]


def parse_outcomes(answer: AnswerSpec, rows: Sequence[Mapping[str, Any]]) -> Outcomes:
    """Parse the records that `make_outcome_rows` made."""
    if answer.kind == "risk":
        times = np.array([row[f"{answer.name}_days"] for row in rows], dtype=np.float64)
        return Outcomes(np.array([int(row[event_key(answer)]) for row in rows], dtype=np.int64), times)
    values = np.array([answer.classes.index(row[answer.name]) for row in rows], dtype=np.int64)
    return Outcomes(values, classes=tuple(map(str, answer.classes)))


def mark_possible_classes(answer: AnswerSpec, rows: Sequence[Features]) -> Flags:
    """Make `HeadCohort.possible` of an answer from the features of each patient's mask."""
    possible_of = [find_possible_classes(answer, find_absent_structures(row)) for row in rows]
    possible = np.array([[value in classes for value in answer.classes] for classes in possible_of], dtype=np.bool_)
    return np.zeros((0, 0), dtype=np.bool_) if possible.all() else possible


def make_weighted_c_index(outcomes: Outcomes, risks: Floats) -> WeightedMetric:
    """Make Harrell's C-index of risks (higher for earlier recurrence) as a function of case weights."""
    return c_index_metric(SurvivalCohort(outcomes.times_days, outcomes.positive, risks), "non_concordant")


def make_weighted_balanced_accuracy(outcomes: Outcomes, answers: Flags) -> WeightedMetric:
    """Make the balanced accuracy of binary answers as a function of case weights."""
    return make_binary_metrics(outcomes.positive, answers == outcomes.positive)["balanced_accuracy"]


def make_weighted_class_accuracy(outcomes: Outcomes, answers: Numbers) -> WeightedMetric:
    """Make the balanced accuracy of class numbers as a function of case weights.

    It is the mean recall of the classes that occur.
    """
    codes = answers.astype(np.intp)
    metrics = make_multiclass_metrics(outcomes.values.astype(np.intp), codes, len(outcomes.classes))
    return metrics["balanced_accuracy"]


def c_index(outcomes: Outcomes, risks: Floats) -> float:
    """Compute Harrell's C-index of risks (higher for earlier recurrence); ties of risks count half.

    Raises:
        MetricError: No two patients are comparable.
    """
    value = _evaluate_unweighted(make_weighted_c_index(outcomes, risks), len(risks))
    if np.isnan(value):
        raise MetricError("C-index", f"no comparable pair among {len(risks)} patients")
    return value


def balanced_accuracy(outcomes: Outcomes, answers: Flags) -> float:
    """Compute the mean of sensitivity and specificity; NaN if a class does not occur."""
    return _evaluate_unweighted(make_weighted_balanced_accuracy(outcomes, answers), len(answers))


def class_accuracy(outcomes: Outcomes, answers: Numbers) -> float:
    """Compute the mean recall of the classes that occur; NaN for a single class."""
    return _evaluate_unweighted(make_weighted_class_accuracy(outcomes, answers), len(answers))


def area_under_curve(outcomes: Outcomes, scores: Floats) -> float:
    """Compute the probability that a positive patient scores higher than a negative patient; ties count half.

    Raises:
        MetricError: One of the classes is empty.
    """
    positive = outcomes.positive
    value = _evaluate_unweighted(auc_metric(positive, scores), len(scores))
    if np.isnan(value):
        raise MetricError("area under the curve", f"{int(positive.sum())} of {len(positive)} positive", "both classes")
    return value


def _evaluate_unweighted(metric: WeightedMetric, patients: int) -> float:
    return float(metric(np.ones((1, patients)))[0])
