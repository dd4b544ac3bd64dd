"""What heads predict, by kind of answer: competing models, comparators, metric and folds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from algorithm.heads.linear import LinearHead, Term
from algorithm.heads.measure import clinical_names
from baseline.heads.cohort import Flags, Floats, HeadCohort, Numbers
from baseline.heads.metrics import area_under_curve, c_index
from baseline.heads.models.cox import KIND, fit_cox
from baseline.heads.models.logistic import fit_logistic, with_threshold
from baseline.heads.models.selection import INNER_FOLDS, Family, Setting, centre_folds, stratified_folds
from baseline.heads.models.signs import fit_signs
from baseline.heads.models.terms import weighted
from baseline.release.cases import event_key
from contract.editions import Answer, ClinicalVariable, Edition
from contract.editions.declaration import RT_DOSE
from contract.errors import MetricError

# feature -> transform; skewed quantities are logarithmised. With a few dozen relapses and a dozen HPV negatives in
# the training patients, the first family of each kind has a handful of features. Features that an edition lacks are
# left out.
RISK_FEATURES: Final[dict[str, str]] = {
    "total_volume_ml": "log1p",
    "gtvn_count": "identity",
    "age_years": "identity",
    "tobacco": "identity",
    "performance_status": "identity",
}
CLASS_FEATURES: Final[dict[str, str]] = {
    "gtvn_cold_share": "identity",
    "total_volume_ml": "log1p",
    "age_years": "identity",
    "gender": "identity",
    "tobacco": "identity",
}
VOLUME: Final[dict[str, str]] = {"total_volume_ml": "log1p"}
SUV_MAX: Final[dict[str, str]] = {"suv_max": "identity"}
# Names of the comparators in our records, with their titles.
COMPARATORS: Final = {
    "tumour_volume": "tumour volume alone",
    "suv_max": "SUVmax alone",
    "clinical": "clinical variables alone",
}
# Minimum number of patients with the scarcer outcome for families that use all features, about sixty.
LEAST_FOR_ALL: Final = 20
PENALTIES: Final = (1.0, 0.3, 0.1, 0.03, 0.01)
_RIDGE: Final[tuple[Setting, ...]] = tuple({"penalty": penalty, "l1_ratio": 0.0} for penalty in PENALTIES)
_ELASTIC_NET: Final[tuple[Setting, ...]] = tuple(
    {"penalty": penalty, "l1_ratio": ratio}
    for penalty, ratio in ((0.3, 0.5), (0.3, 0.0), (0.1, 0.5), (0.1, 0.0), (0.03, 0.5))
)
_LOGISTIC: Final[tuple[Setting, ...]] = tuple({"penalty": penalty} for penalty in PENALTIES)
_SIGNS: Final[tuple[Setting, ...]] = tuple({"least_effect": effect} for effect in (0.08, 0.04, 0.0))


@dataclass(frozen=True)
class Target(ABC):
    """One answer that a head predicts.

    `families` compete; a later one must beat the first. `comparators` are the models that papers report alongside.
    `clinical` are the edition's variables; `with_dose` is True if inference may get a dose.
    """

    answer: Answer
    title: str
    families: tuple[Family, ...]
    comparators: Mapping[str, Family]
    clinical: tuple[ClinicalVariable, ...]
    with_dose: bool
    metric: ClassVar[str]

    @property
    def name(self) -> str:
        """Name of the head in the model package."""
        return self.answer.head

    @abstractmethod
    def judge(self, cohort: HeadCohort, scores: Floats) -> float:
        """Metric of scores by which models are selected; higher is better."""

    @abstractmethod
    def stratum(self, cohort: HeadCohort) -> Flags:
        """Patients with the outcome that is balanced over the folds."""

    @abstractmethod
    def count_scarce(self, stratum: Flags) -> int:
        """Number of patients with the scarcer outcome that every fold needs."""

    @abstractmethod
    def scarce_name(self) -> str:
        """Description of these patients in messages."""

    @abstractmethod
    def finish(self, head: LinearHead, cohort: HeadCohort, scores: Floats, rng: np.random.Generator) -> LinearHead:
        """Complete a fitted head with what is learnt from out-of-fold scores."""

    def scarce(self, cohort: HeadCohort) -> int:
        """Number of patients with the scarcer outcome."""
        return self.count_scarce(self.stratum(cohort))

    def competing(self, cohort: HeadCohort) -> list[Family]:
        """The first family, and those for which the cohort is large enough."""
        scarce = self.scarce(cohort)
        return [f for number, f in enumerate(self.families) if number == 0 or scarce >= f.least_scarce]

    def check(self, cohort: HeadCohort, least: int) -> None:
        """Require `least` patients with the scarcer outcome.

        Raises:
            MetricError: there are fewer, or there is no model for this kind of answer.
        """
        if self.scarce(cohort) < least:
            found = f"{self.scarce(cohort)} training patients {self.scarce_name()}"
            raise MetricError(self.name, found, f"at least {least}")

    def folds(self, cohort: HeadCohort, by_centre: bool, rng: np.random.Generator) -> list[Numbers]:
        """Inner folds: one per centre if requested and every fold keeps both outcomes, otherwise stratified."""
        stratum = self.stratum(cohort)
        if by_centre and len(set(cohort.centres)) > 2:
            folds = centre_folds(cohort)
            if all(self.count_scarce(np.delete(stratum, fold)) > 1 for fold in folds):
                return folds
        return self.stratified(cohort, INNER_FOLDS, rng)

    def stratified(self, cohort: HeadCohort, folds: int, rng: np.random.Generator) -> list[Numbers]:
        """Folds balanced by outcome and centre, fewer if an outcome is scarcer."""
        return stratified_folds(cohort, self.stratum(cohort).tolist(), min(folds, self.scarce(cohort)), rng)


class RiskTarget(Target):
    """A risk: Cox models and signs, selected by C-index."""

    metric = "c_index"

    def judge(self, cohort: HeadCohort, scores: Floats) -> float:
        """C-index of risks."""
        return c_index(cohort.outcomes, scores)

    def stratum(self, cohort: HeadCohort) -> Flags:
        """Patients with an event."""
        return cohort.outcomes.positive

    def count_scarce(self, stratum: Flags) -> int:
        """Number of events."""
        return int(stratum.sum())

    def scarce_name(self) -> str:
        """Name of the event."""
        return f"with a {event_key(self.answer)}"

    def finish(
        self,
        head: LinearHead,
        cohort: HeadCohort,  # noqa: ARG002
        scores: Floats,  # noqa: ARG002
        rng: np.random.Generator,  # noqa: ARG002
    ) -> LinearHead:
        """The head itself: a risk needs no threshold."""
        return head


class ClassTarget(Target):
    """A binary class: logistic models, selected by the area under the curve, with threshold and calibration."""

    metric = "balanced_accuracy"

    def scarce_name(self) -> str:
        """The rarer class."""
        return "of the rarer class"

    def check(self, cohort: HeadCohort, least: int) -> None:
        """Require two classes and `least` patients of the rarer one.

        Raises:
            MetricError: another number of classes, for which there is no model, or too few patients.
        """
        if not self.answer.is_binary:
            raise MetricError(self.name, f"{len(self.answer.classes)} classes", "2: there is no model for more")
        super().check(cohort, least)

    def judge(self, cohort: HeadCohort, scores: Floats) -> float:
        """Area under the curve of scores for the positive class."""
        return area_under_curve(cohort.outcomes, scores)

    def stratum(self, cohort: HeadCohort) -> Flags:
        """Patients of the negative class."""
        return ~cohort.outcomes.positive

    def count_scarce(self, stratum: Flags) -> int:
        """Size of the rarer class."""
        return min(int(stratum.sum()), int((~stratum).sum()))

    def finish(self, head: LinearHead, cohort: HeadCohort, scores: Floats, rng: np.random.Generator) -> LinearHead:
        """Add threshold, calibration and the name of the positive class."""
        named = replace(head, kind=f"{head.kind} of {self.positive_name}")
        return with_threshold(named, cohort.outcomes.positive, scores, rng)

    @property
    def positive_name(self) -> str:
        """Name of the positive class: "HPV positive", or the class itself."""
        positive = self.answer.classes[1]
        return f"{self.answer.name.upper()} positive" if positive is True else str(positive)


def _unfitted(
    _cohort: HeadCohort, terms: Sequence[Term], settings: Sequence[Setting], _rng: np.random.Generator
) -> list[LinearHead]:
    """The single feature as a risk: only its scale is learnt."""
    return [LinearHead(KIND, 0.0, weighted(terms, np.ones(len(terms))), None) for _ in settings]


_RISK_FAMILIES: Final = (
    Family("Cox, few features", fit_cox, _RIDGE, RISK_FEATURES),
    Family("Cox, all features", fit_cox, _ELASTIC_NET, least_scarce=LEAST_FOR_ALL),
    Family("signs, all features", fit_signs, _SIGNS, least_scarce=LEAST_FOR_ALL),
)
_CLASS_FAMILIES: Final = (
    Family("logistic, few features", fit_logistic, _LOGISTIC, CLASS_FEATURES),
    Family("logistic, all features", fit_logistic, _LOGISTIC, least_scarce=LEAST_FOR_ALL),
)


def targets_of(edition: Edition) -> tuple[Target, ...]:
    """A target for every risk and class of an edition, in order."""
    clinical = dict.fromkeys(clinical_names(edition.clinical), "identity")
    kinds: Mapping[str, tuple[type[Target], tuple[Family, ...], dict[str, Family]]] = {
        "risk": (
            RiskTarget,
            _RISK_FAMILIES,
            {
                "tumour_volume": Family("tumour volume", _unfitted, ({},), VOLUME),
                "suv_max": Family("SUVmax", _unfitted, ({},), SUV_MAX),
                "clinical": Family("clinical variables", fit_cox, _RIDGE, clinical),
            },
        ),
        "class": (
            ClassTarget,
            _CLASS_FAMILIES,
            {
                "tumour_volume": Family("tumour volume", fit_logistic, _LOGISTIC[:1], VOLUME),
                "suv_max": Family("SUVmax", fit_logistic, _LOGISTIC[:1], SUV_MAX),
                "clinical": Family("clinical variables", fit_logistic, _LOGISTIC, clinical),
            },
        ),
    }
    targets: list[Target] = []
    for algorithm in edition.algorithms:
        for answer in algorithm.heads:
            target, families, comparators = kinds[answer.kind]
            title = algorithm.title if len(algorithm.answers) == 1 else answer.socket.title
            with_dose = RT_DOSE in algorithm.inputs or RT_DOSE in algorithm.optional_inputs
            targets.append(target(answer, title, families, comparators, edition.clinical, with_dose))
    return tuple(targets)


def only(target: Target, families: Sequence[Family]) -> Target:
    """The target with these families as the only competitors."""
    return replace(target, families=tuple(families))
