"""Patients whose outcome is known, with features and outcomes, in one order; the evaluation's metrics on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from algorithm.heads.documents import Cubes, Features
from algorithm.heads.values import absent_structures, find_possible_classes
from baseline.release.cases import ReleaseCase, event_key
from contract.editions import AnswerSpec
from contract.errors import MetricError
from evaluation.metrics.classification import auc_metric, binary_metrics, many_classes_metrics
from evaluation.metrics.overlap import WeightedMetric
from evaluation.metrics.survival import SurvivalCohort, c_index_metric

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
Images = Callable[[Sequence[str], int, float], npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of a cohort, shape (patients,).

    `values` are class numbers; for a risk 1 is an event and 0 censoring, and `times_days` is the follow-up. A class
    has no times; `classes` are its names by number.
    """

    values: Numbers
    times_days: Floats = field(default_factory=lambda: np.zeros(0))
    classes: tuple[str, ...] = ()

    @property
    def positive(self) -> Flags:
        """True for an event, or for the second of two classes."""
        return np.asarray(self.values == 1)

    def pick(self, numbers: Numbers) -> Outcomes:
        times_days = self.times_days[numbers] if self.times_days.size else self.times_days
        return Outcomes(self.values[numbers], times_days, self.classes)

    def most_frequent(self) -> int:
        """Number of the most frequent class, of equally frequent ones the lowest."""
        return int(np.bincount(self.values, minlength=len(self.classes)).argmax())


@dataclass(frozen=True)
class HeadCohort:
    """Patients in one order: IDs, centre codes, outcomes, and a table of features (NaN is missing), one row each.

    `possible`, shape (patients, classes), is False for the classes that a patient's mask rules out; empty if it rules
    out none. `images` gives the images around the tumours of patients by their IDs; None for none.
    """

    ids: tuple[str, ...]
    centres: tuple[str, ...]
    features: pd.DataFrame
    outcomes: Outcomes
    possible: Flags = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))
    images: Images | None = None

    @property
    def cubes(self) -> Cubes | None:
        """The images around the tumours of these patients."""
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

    def undecided(self) -> HeadCohort:
        """The patients from whom a head can learn: several classes are possible, and the true one is among them."""
        if not self.possible.size:
            return self
        is_possible = self.possible[np.arange(len(self.ids)), self.outcomes.values]
        return self.pick(np.flatnonzero(is_possible & (self.possible.sum(1) > 1)))

    def without_mask(self) -> HeadCohort:
        """The same patients, for models that do not see the mask: it rules out no class."""
        return replace(self, possible=np.zeros((0, 0), dtype=np.bool_))

    def without(self, features: Sequence[str]) -> HeadCohort:
        """The same patients without these features."""
        return replace(self, features=self.features.drop(columns=list(features), errors="ignore"))

    def values(self, features: Sequence[str]) -> Floats:
        """Features as columns, shape (patients, features); NaN is missing."""
        return self.features.reindex(columns=list(features)).to_numpy(np.float64)

    def rows(self) -> list[Features]:
        records = self.features.to_dict("records")
        return [{str(k): None if np.isnan(v) else float(v) for k, v in record.items()} for record in records]


def feature_table(rows: Sequence[Features]) -> pd.DataFrame:
    """A row for each patient, NaN where a feature is missing; columns in the order of their first appearance."""
    return pd.DataFrame(list(rows), index=range(len(rows)), dtype=np.float64)


def outcomes_of(answer: AnswerSpec, cases: Sequence[ReleaseCase]) -> Outcomes:
    """Outcomes of patients for whom every column of the answer is known."""
    rows = [{event_key(answer): case.outcome(answer)} for case in cases]
    if answer.kind == "risk":
        days = [case.outcomes[answer.columns["time"]] for case in cases]
        rows = [row | {f"{answer.name}_days": number} for row, number in zip(rows, days, strict=True)]
    return outcomes_in(answer, rows)


def outcome_rows(answer: AnswerSpec, outcomes: Outcomes) -> list[dict[str, Any]]:
    """The outcomes as records of `cross_validation.json`, one for each patient."""
    if answer.kind == "risk":
        pairs = zip(outcomes.times_days.tolist(), outcomes.positive.tolist(), strict=True)
        return [{f"{answer.name}_days": days, event_key(answer): event} for days, event in pairs]
    return [{answer.name: answer.classes[value]} for value in outcomes.values]


def outcomes_in(answer: AnswerSpec, rows: Sequence[Mapping[str, Any]]) -> Outcomes:
    """The outcomes in the records that `outcome_rows` made."""
    if answer.kind == "risk":
        times = np.array([row[f"{answer.name}_days"] for row in rows], dtype=np.float64)
        return Outcomes(np.array([int(row[event_key(answer)]) for row in rows], dtype=np.int64), times)
    values = np.array([answer.classes.index(row[answer.name]) for row in rows], dtype=np.int64)
    return Outcomes(values, classes=tuple(map(str, answer.classes)))


def possible_classes(answer: AnswerSpec, rows: Sequence[Features]) -> Flags:
    """`HeadCohort.possible` of an answer, by the features of each patient's mask."""
    left = [find_possible_classes(answer, absent_structures(row)) for row in rows]
    possible = np.array([[value in one for value in answer.classes] for one in left], dtype=np.bool_)
    return np.zeros((0, 0), dtype=np.bool_) if possible.all() else possible


def make_weighted_c_index(outcomes: Outcomes, risks: Floats) -> WeightedMetric:
    """Harrell's C-index of risks (higher for earlier recurrence) as a function of case weights."""
    return c_index_metric(SurvivalCohort(outcomes.times_days, outcomes.positive, risks), "non_concordant")


def make_weighted_balanced_accuracy(outcomes: Outcomes, answers: Flags) -> WeightedMetric:
    """Balanced accuracy of binary answers as a function of case weights."""
    return binary_metrics(outcomes.positive, answers == outcomes.positive)["balanced_accuracy"]


def make_weighted_class_accuracy(outcomes: Outcomes, answers: Numbers) -> WeightedMetric:
    """Balanced accuracy of class numbers, the mean recall of the classes that occur, as a function of case weights."""
    codes = answers.astype(np.intp)
    metrics = many_classes_metrics(outcomes.values.astype(np.intp), codes, len(outcomes.classes))
    return metrics["balanced_accuracy"]


def c_index(outcomes: Outcomes, risks: Floats) -> float:
    """Harrell's C-index of risks (higher for earlier recurrence); ties of risks count half.

    Raises:
        MetricError: no two patients are comparable.
    """
    value = _of_everyone(make_weighted_c_index(outcomes, risks), len(risks))
    if np.isnan(value):
        raise MetricError("C-index", f"no comparable pair among {len(risks)} patients")
    return value


def balanced_accuracy(outcomes: Outcomes, answers: Flags) -> float:
    """Mean of sensitivity and specificity; NaN without both classes."""
    return _of_everyone(make_weighted_balanced_accuracy(outcomes, answers), len(answers))


def class_accuracy(outcomes: Outcomes, answers: Numbers) -> float:
    """Mean recall of the classes that occur; NaN for a single class."""
    return _of_everyone(make_weighted_class_accuracy(outcomes, answers), len(answers))


def area_under_curve(outcomes: Outcomes, scores: Floats) -> float:
    """Probability that a positive patient scores higher than a negative one; ties count half.

    Raises:
        MetricError: one of the classes is empty.
    """
    positive = outcomes.positive
    value = _of_everyone(auc_metric(positive, scores), len(scores))
    if np.isnan(value):
        raise MetricError("area under the curve", f"{int(positive.sum())} of {len(positive)} positive", "both classes")
    return value


def _of_everyone(metric: WeightedMetric, patients: int) -> float:
    return float(metric(np.ones((1, patients)))[0])
