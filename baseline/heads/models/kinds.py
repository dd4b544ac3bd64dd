"""Targets of heads by kind of answer: metric, folds, and the parts learnt from out-of-fold scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from algorithm.heads.documents import Head, LinearHead
from baseline.heads.cohort import Floats, HeadCohort, Numbers, area_under_curve, c_index, class_accuracy
from baseline.heads.models.classes import platt, predicted, stable_threshold
from baseline.heads.models.risk import baseline_survival, log_hazard_slope, slope_notice
from baseline.heads.models.selection import INNER_FOLDS, Candidate, Family, centre_folds, make_stratified_folds
from baseline.release.cases import event_key
from contract.editions import AnswerSpec, ClinicalVariable
from contract.editions.answers import ClassValue
from contract.errors import MetricError

# Class numbers of the second cohort's patients, by a rule that may learn from the first cohort.
ClassRule = Callable[[HeadCohort, HeadCohort], Numbers]
# Minimum distance of an expert of stages from chance, absolute and as a share of the best one's.
LEAST_SKILL: Final = 0.02
LEAST_SHARE: Final = 0.95


@dataclass(frozen=True)
class Target(ABC):
    """One answer that a head predicts.

    `families` compete; a later one must beat the first. `comparators` are the models that papers report alongside,
    `rules` comparators without a model. `clinical` are the edition's variables; `with_dose` is True if inference may
    get a dose. `fitted` are features that were fitted to outcomes.
    """

    answer: AnswerSpec
    title: str
    families: tuple[Family, ...]
    comparators: Mapping[str, Family]
    clinical: tuple[ClinicalVariable, ...]
    with_dose: bool
    rules: Mapping[str, ClassRule] = field(default_factory=dict)
    fitted: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.answer.head

    @property
    def metric(self) -> str:
        return "c_index" if self.answer.kind == "risk" else "balanced_accuracy"

    @property
    @abstractmethod
    def scarce_outcome(self) -> str:
        """The outcome that `scarce` counts, for messages."""

    @abstractmethod
    def selection_metric(self, cohort: HeadCohort, scores: Floats) -> float:
        """The metric by which models are selected."""

    def experts(self, candidates: Sequence[Candidate], _cohort: HeadCohort) -> tuple[Candidate, ...]:
        """The candidates that take part in the ensemble: all of them."""
        return tuple(candidates)

    def slope(self, _cohort: HeadCohort, _scores: Floats) -> float:
        """Factor that turns the scores of an ensemble into the scale of the answer."""
        return 1.0

    def slope_notice(self, _cohort: HeadCohort, _scores: Floats) -> str | None:
        """The assumption that `slope` had to make, None for none."""
        return None

    @abstractmethod
    def stratum(self, cohort: HeadCohort) -> Numbers:
        """The group of each patient that folds share out evenly."""

    @abstractmethod
    def scarce_of(self, stratum: Numbers) -> int:
        """Number of patients with the outcome that every fold needs."""

    def scarce(self, cohort: HeadCohort) -> int:
        """Number of the cohort's patients with the outcome that every fold needs."""
        return self.scarce_of(self.stratum(cohort))

    def competing(self, cohort: HeadCohort) -> list[Family]:
        """The first family, and those for which the cohort is large enough."""
        scarce = self.scarce(cohort)
        return [f for number, f in enumerate(self.families) if number == 0 or scarce >= f.least_scarce]

    def without_fitted(self, cohort: HeadCohort) -> tuple[Target, HeadCohort]:
        """The target and the cohort without fitted features, which learnt from outcomes of patients who are held out.

        A family that is left without a feature, or equals an earlier one, does not compete.
        """
        families: list[Family] = []
        for family in self.families:
            names = {name: how for name, how in (family.transforms or {}).items() if name not in self.fitted}
            if len(names) == len(family.transforms or ()):
                families.append(family)
            elif names and names not in [one.transforms for one in families]:
                families.append(replace(family, transforms=names))
        return replace(self, families=tuple(families), fitted=()), cohort.without(self.fitted)

    def check(self, cohort: HeadCohort, least: int) -> None:
        """Require `least` patients with the scarcer outcome.

        Raises:
            MetricError: there are fewer.
        """
        scarce = self.scarce(cohort)
        if scarce < least:
            raise MetricError(self.name, f"{scarce} training patients {self.scarce_outcome}", f"at least {least}")

    def folds(self, cohort: HeadCohort, rng: np.random.Generator) -> list[Numbers]:
        """Folds of the selection: one for each of at least three centres, if both outcomes remain; or stratified."""
        stratum = self.stratum(cohort)
        if len(set(cohort.centres)) > 2:
            folds = centre_folds(cohort)
            if all(self.scarce_of(np.delete(stratum, fold)) > 1 for fold in folds):
                return folds
        return self.stratified(cohort, INNER_FOLDS, rng)

    def stratified(self, cohort: HeadCohort, folds: int, rng: np.random.Generator) -> list[Numbers]:
        """Folds balanced by outcome and centre, fewer if an outcome is scarcer."""
        return make_stratified_folds(cohort, self.stratum(cohort).tolist(), min(folds, self.scarce(cohort)), rng)

    def finish(self, head: Head, cohort: HeadCohort, scores: Floats, rng: np.random.Generator) -> Head:
        """The head with the parts that are learnt from out-of-fold scores.

        A time gets its baseline hazard, two classes get threshold and calibration. Of more classes the highest score
        wins: tuned boundaries gained nothing (docs/heads.md).
        """
        if head.classes:
            return head
        if self.answer.is_binary:
            if isinstance(head, LinearHead):
                head = head.model_copy(update={"scale": f"{head.scale} of {positive_name(self.answer)}"})
            positive = cohort.outcomes.positive
            learnt = {"threshold": stable_threshold(positive, scores, rng), "calibration": platt(positive, scores)}
            return head.model_copy(update=learnt)
        if self.answer.direction == "time":
            return head.model_copy(update={"survival": baseline_survival(cohort.outcomes, scores)})
        return head

    def fallback(self, head: Head, cohort: HeadCohort, scores: Floats) -> float | ClassValue:
        """The answer in place of a failed prediction: the most frequent class, or the median of the answers.

        `scores` are out-of-fold scores of the training patients.
        """
        if self.answer.kind == "class":
            return self.answer.classes[cohort.outcomes.most_frequent()]
        survival = head.survival
        answers = scores if survival is None else [survival.restricted_mean(score) for score in scores]
        return float(np.median(answers))


class RiskTarget(Target):
    """A risk, or a time that falls with it."""

    @property
    def scarce_outcome(self) -> str:
        return f"with a {event_key(self.answer)}"

    def selection_metric(self, cohort: HeadCohort, scores: Floats) -> float:
        return c_index(cohort.outcomes, scores)

    def slope(self, cohort: HeadCohort, scores: Floats) -> float:
        """Cox regression on the scores alone: they become a log partial hazard."""
        return log_hazard_slope(scores, cohort)

    def slope_notice(self, cohort: HeadCohort, scores: Floats) -> str | None:
        return slope_notice(scores, cohort)

    def stratum(self, cohort: HeadCohort) -> Numbers:
        """1 for a patient with an event."""
        return cohort.outcomes.positive.astype(np.int64)

    def scarce_of(self, stratum: Numbers) -> int:
        return int(stratum.sum())


class BinaryTarget(Target):
    """A class with two values."""

    @property
    def scarce_outcome(self) -> str:
        return "of the rarer class"

    def selection_metric(self, cohort: HeadCohort, scores: Floats) -> float:
        return area_under_curve(cohort.outcomes, scores)

    def stratum(self, cohort: HeadCohort) -> Numbers:
        """1 for a patient of the negative class."""
        return (~cohort.outcomes.positive).astype(np.int64)

    def scarce_of(self, stratum: Numbers) -> int:
        inside = int(stratum.sum())
        return min(inside, len(stratum) - inside)


class ManyClassesTarget(Target):
    """A class with more than two values, some of which the mask may decide."""

    @property
    def scarce_outcome(self) -> str:
        return "outside the most frequent class"

    def selection_metric(self, cohort: HeadCohort, scores: Floats) -> float:
        value = class_accuracy(cohort.outcomes, predicted(scores, cohort.possible))
        if np.isnan(value):
            raise MetricError(self.name, "patients of one class", "of several")
        return value

    def experts(self, candidates: Sequence[Candidate], cohort: HeadCohort) -> tuple[Candidate, ...]:
        """The candidates with at least 95% of the best one's distance from chance, and 0.02.

        Stages follow a rule, and models without its features make the ensemble worse on phantoms (docs/heads.md). For
        risks and two classes such a floor changed nothing on nine real cohorts.
        """
        chance = 1 / len(np.unique(cohort.outcomes.values))
        best = max(candidate.metric for candidate in candidates)
        floor = chance + max(LEAST_SKILL, LEAST_SHARE * (best - chance))
        return tuple(candidate for candidate in candidates if candidate.metric >= floor)

    def stratum(self, cohort: HeadCohort) -> Numbers:
        """The class."""
        return cohort.outcomes.values

    def scarce(self, cohort: HeadCohort) -> int:
        """Counts only patients whose class the mask leaves open."""
        return self.scarce_of(self.stratum(cohort.undecided()))

    def scarce_of(self, stratum: Numbers) -> int:
        return len(stratum) - int(np.bincount(stratum).max(initial=0))


def positive_name(answer: AnswerSpec) -> str:
    """Name of the second of two classes: "HPV positive", or the class itself."""
    positive = answer.classes[1]
    return f"{answer.name.upper()} positive" if positive is True else str(positive)


def direction_in_words(answer: AnswerSpec, head: Head) -> str:
    """The meaning of the answers of a head."""
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


def only(target: Target, families: Sequence[Family]) -> Target:
    """The target with these families as the only competitors."""
    return replace(target, families=tuple(families))
