"""Targets of heads by kind of answer: metric, folds, and the parts learnt from out-of-fold scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np

from algorithm.heads.documents import Head, LinearHead
from baseline.heads.cohort import Floats, HeadCohort, Numbers, area_under_curve, c_index, class_accuracy
from baseline.heads.models.classes import find_operating_point, fit_platt, predict_classes
from baseline.heads.models.risk import describe_slope_problem, estimate_baseline_survival, log_hazard_slope
from baseline.heads.models.selection import INNER_FOLDS, Candidate, Family, make_centre_folds, make_stratified_folds
from baseline.release.cases import event_key
from contract.editions import AnswerSpec, ClinicalVariable
from contract.editions.answers import ClassValue
from contract.errors import MetricError

# Predicts class numbers of the second cohort's patients, and may learn from the first cohort.
ClassRule = Callable[[HeadCohort, HeadCohort], Numbers]
# C-index and area under the curve of random scores.
CHANCE: Final = 0.5
# Minimum distance of an expert of stages from chance, absolute and as a fraction of the best expert's distance.
MIN_SKILL: Final = 0.02
MIN_SKILL_FRACTION: Final = 0.95


@dataclass(frozen=True)
class Target(ABC):
    """One answer that a head predicts.

    Attributes:
        answer: Declaration of the answer.
        title: Title in reports.
        families: Competing families of models.
        comparators: Models that papers report for comparison, by name.
        clinical: Clinical variables of the edition.
        with_dose: Whether inference may get a dose.
        rules: Comparators without a model, by name.
        fitted: Features that were fitted to outcomes.
        fallback_family: Family that answers if no competing family is better than chance; None for the best of them.
    """

    # Title of the metric that selects models.
    selection_title: ClassVar[str]

    answer: AnswerSpec
    title: str
    families: tuple[Family, ...]
    comparators: Mapping[str, Family]
    clinical: tuple[ClinicalVariable, ...]
    with_dose: bool
    rules: Mapping[str, ClassRule] = field(default_factory=dict)
    fitted: tuple[str, ...] = ()
    fallback_family: Family | None = None

    @property
    def name(self) -> str:
        return self.answer.head

    @property
    def metric(self) -> str:
        return "c_index" if self.answer.kind == "risk" else "balanced_accuracy"

    @property
    @abstractmethod
    def scarce_outcome(self) -> str:
        """Return the words for the outcome that `count_scarce` counts, for messages."""

    @abstractmethod
    def selection_metric(self, cohort: HeadCohort, scores: Floats) -> float:
        """Compute the metric that selects models."""

    def weigh_candidates(self, candidates: Sequence[Candidate], _cohort: HeadCohort) -> list[float]:
        """Weigh the candidates of the ensemble by the squared distance of their metrics from chance.

        A candidate that is not better than chance has the weight 0 and takes no part.
        """
        return [max(candidate.metric - CHANCE, 0.0) ** 2 for candidate in candidates]

    def estimate_slope(self, _cohort: HeadCohort, _scores: Floats) -> float:
        """Estimate the factor that turns the scores of an ensemble into the scale of the answer."""
        return 1.0

    def find_slope_problem(self, _cohort: HeadCohort, _scores: Floats) -> str | None:
        """Describe the assumption that `estimate_slope` made; None if it made no assumption."""
        return None

    @abstractmethod
    def assign_strata(self, cohort: HeadCohort) -> Numbers:
        """Return the stratum of each patient; folds have equal parts of each stratum."""

    @abstractmethod
    def count_scarce_strata(self, strata: Numbers) -> int:
        """Count the patients with the outcome that every fold needs by the patients' strata."""

    def count_scarce(self, cohort: HeadCohort) -> int:
        """Count the cohort's patients with the outcome that every fold needs."""
        return self.count_scarce_strata(self.assign_strata(cohort))

    def select_families(self, cohort: HeadCohort) -> list[Family]:
        """Select the first family, and the other families for which the cohort is large enough."""
        scarce = self.count_scarce(cohort)
        return [*self.families[:1], *(family for family in self.families[1:] if scarce >= family.min_scarce)]

    def drop_fitted_features(self, cohort: HeadCohort) -> tuple[Target, HeadCohort]:
        """Drop fitted features, which learnt from outcomes of held-out patients, from the target and the cohort.

        A family without features, or with the features of an earlier family, does not compete.
        """
        families: list[Family] = []
        for family in self.families:
            transforms = family.transforms or {}
            remaining = {name: transform for name, transform in transforms.items() if name not in self.fitted}
            if len(remaining) == len(transforms):
                families.append(family)
            elif remaining and remaining not in [earlier.transforms for earlier in families]:
                families.append(replace(family, transforms=remaining))
        return replace(self, families=tuple(families), fitted=()), cohort.drop_features(self.fitted)

    def check(self, cohort: HeadCohort, min_scarce: int) -> None:
        """Require `min_scarce` patients with the scarcer outcome.

        Raises:
            MetricError: There are fewer.
        """
        scarce = self.count_scarce(cohort)
        if scarce < min_scarce:
            raise MetricError(self.name, f"{scarce} training patients {self.scarce_outcome}", f"at least {min_scarce}")

    def make_folds(self, cohort: HeadCohort, rng: np.random.Generator) -> list[Numbers]:
        """Make the folds of the selection.

        With at least three centres each centre is a fold, provided that both outcomes remain without the centre.
        Otherwise the folds are balanced.
        """
        strata = self.assign_strata(cohort)
        if len(set(cohort.centres)) > 2:
            folds = make_centre_folds(cohort)
            if all(self.count_scarce_strata(np.delete(strata, fold)) > 1 for fold in folds):
                return folds
        return self.make_balanced_folds(cohort, INNER_FOLDS, rng)

    def make_balanced_folds(self, cohort: HeadCohort, folds: int, rng: np.random.Generator) -> list[Numbers]:
        """Make folds balanced by outcome and centre, at most one for each patient with the scarcer outcome."""
        count = min(folds, self.count_scarce(cohort))
        return make_stratified_folds(cohort, self.assign_strata(cohort).tolist(), count, rng)

    def complete_head(self, head: Head, cohort: HeadCohort, scores: Floats, rng: np.random.Generator) -> Head:
        """Add the parts of a head that are learnt from out-of-fold scores.

        A time gets its baseline hazard, two classes get threshold and calibration. Of more classes the highest score
        wins: tuned boundaries gained nothing (docs/heads.md).
        """
        if head.classes:
            return head
        if self.answer.is_binary:
            if isinstance(head, LinearHead):
                head = head.model_copy(update={"scale": f"{head.scale} of {name_positive_class(self.answer)}"})
            positive = cohort.outcomes.positive
            learnt = {
                "threshold": find_operating_point(positive, scores, rng),
                "calibration": fit_platt(positive, scores),
            }
            return head.model_copy(update=learnt)
        if self.answer.direction == "time":
            return head.model_copy(update={"survival": estimate_baseline_survival(cohort.outcomes, scores)})
        return head

    def compute_fallback(self, head: Head, cohort: HeadCohort, scores: Floats) -> float | ClassValue:
        """Compute the answer in place of a failed prediction: the most frequent class, or the median of the answers.

        `scores` are out-of-fold scores of the training patients.
        """
        if self.answer.kind == "class":
            return self.answer.classes[cohort.outcomes.find_most_frequent_class()]
        survival = head.survival
        answers = scores if survival is None else [survival.restricted_mean(score) for score in scores]
        return float(np.median(answers))


class RiskTarget(Target):
    """A risk, or a time that falls with the risk."""

    selection_title = "C-index"

    @property
    def scarce_outcome(self) -> str:
        return f"with a {event_key(self.answer)}"

    def selection_metric(self, cohort: HeadCohort, scores: Floats) -> float:
        return c_index(cohort.outcomes, scores)

    def estimate_slope(self, cohort: HeadCohort, scores: Floats) -> float:
        """Fit a Cox regression on the scores, which become a log partial hazard."""
        return log_hazard_slope(scores, cohort)

    def find_slope_problem(self, cohort: HeadCohort, scores: Floats) -> str | None:
        return describe_slope_problem(scores, cohort)

    def assign_strata(self, cohort: HeadCohort) -> Numbers:
        """Return 1 for a patient with an event, otherwise 0."""
        return cohort.outcomes.positive.astype(np.int64)

    def count_scarce_strata(self, strata: Numbers) -> int:
        return int(strata.sum())


class BinaryTarget(Target):
    """A class with two values."""

    selection_title = "area under the curve"

    @property
    def scarce_outcome(self) -> str:
        return "of the rarer class"

    def selection_metric(self, cohort: HeadCohort, scores: Floats) -> float:
        return area_under_curve(cohort.outcomes, scores)

    def assign_strata(self, cohort: HeadCohort) -> Numbers:
        """Return 1 for a patient of the negative class, otherwise 0."""
        return (~cohort.outcomes.positive).astype(np.int64)

    def count_scarce_strata(self, strata: Numbers) -> int:
        negative = int(strata.sum())
        return min(negative, len(strata) - negative)


class ManyClassesTarget(Target):
    """A class with more than two values; the mask may rule out or decide some of them."""

    selection_title = "balanced accuracy"

    @property
    def scarce_outcome(self) -> str:
        return "outside the most frequent class"

    def selection_metric(self, cohort: HeadCohort, scores: Floats) -> float:
        value = class_accuracy(cohort.outcomes, predict_classes(scores, cohort.possible))
        if np.isnan(value):
            raise MetricError(self.name, "patients of one class", "of several")
        return value

    def weigh_candidates(self, candidates: Sequence[Candidate], cohort: HeadCohort) -> list[float]:
        """Weigh alike the candidates whose distance from chance is at least 0.02 and 95% of the best one's distance.

        The others have the weight 0. Stages follow a rule, and models without the features of the rule make the
        ensemble worse on phantoms (docs/heads.md).
        """
        chance = 1 / len(np.unique(cohort.outcomes.values))
        best = max(candidate.metric for candidate in candidates)
        floor = chance + max(MIN_SKILL, MIN_SKILL_FRACTION * (best - chance))
        return [float(candidate.metric >= floor) for candidate in candidates]

    def assign_strata(self, cohort: HeadCohort) -> Numbers:
        """Return the class number."""
        return cohort.outcomes.values

    def count_scarce(self, cohort: HeadCohort) -> int:
        """Count only patients whose class the mask leaves open."""
        return self.count_scarce_strata(self.assign_strata(cohort.select_undecided()))

    def count_scarce_strata(self, strata: Numbers) -> int:
        return len(strata) - int(np.bincount(strata).max(initial=0))


def name_positive_class(answer: AnswerSpec) -> str:
    """Name the second of two classes: "HPV positive", or the class itself."""
    positive = answer.classes[1]
    return f"{answer.name.upper()} positive" if positive is True else str(positive)


def describe_direction(answer: AnswerSpec, head: Head) -> str:
    """Describe the meaning of the answers of a head."""
    if answer.kind == "class":
        classes = ", ".join(map(str, answer.classes))
        decided = [f"{value} is given exactly where the mask has no {name}" for name, value in answer.without.items()]
        return ". ".join([f"The answer is one of {classes}", *decided]) + "."
    if head.survival is None:
        return "The answer is a risk: higher means earlier recurrence."
    horizon = head.survival.days[-1]
    return (
        f"The answer is a time: the expected days without recurrence within {horizon:.0f} days, the longest follow-up "
        "of the training. Higher means later recurrence. It is not the time to recurrence. The order of patients "
        "transfers to new centres, days do not: 0.6 to 2 times as many events occurred in real ones as days implied."
    )


def with_families(target: Target, families: Sequence[Family]) -> Target:
    """Return the target with these families as the only competitors, which answer even if they are without skill."""
    return replace(target, families=tuple(families), fallback_family=None)
