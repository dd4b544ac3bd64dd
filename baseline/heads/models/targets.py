"""What heads predict, by kind of answer: competing models, comparators, metric and folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from algorithm.heads.linear import LinearHead
from algorithm.heads.measure import clinical_names
from baseline.heads.cohort import Flags, Floats, HeadCohort, Numbers
from baseline.heads.metrics import area_under_curve, c_index
from baseline.heads.models.logistic import fit_logistic, with_threshold
from baseline.heads.models.risk import fit_cox, fit_signs, unfitted
from baseline.heads.models.selection import INNER_FOLDS, Family, Setting, centre_folds, stratified_folds
from baseline.release.cases import event_key
from contract.editions import Answer, ClinicalVariable, Edition
from contract.editions.declaration import RT_DOSE
from contract.errors import MetricError

# feature -> transform; skewed quantities are logarithmised. With a few dozen relapses and a dozen HPV negatives in
# the training patients, the first family of each kind has a handful of features. Features that an edition lacks are
# left out.
_VOLUME: Final = {"total_volume_ml": "log1p"}
RISK_FEATURES: Final = _VOLUME | dict.fromkeys(("gtvn_count", "age_years", "tobacco", "performance_status"), "identity")
CLASS_FEATURES: Final = {"gtvn_cold_share": "identity", **_VOLUME} | dict.fromkeys(
    ("age_years", "gender", "tobacco"), "identity"
)
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
class Target:
    """One answer that a head predicts: a risk by Cox models and signs, a binary class by logistic models.

    `families` compete; a later one must beat the first. `comparators` are the models that papers report alongside.
    `clinical` are the edition's variables; `with_dose` is True if inference may get a dose.
    """

    answer: Answer
    title: str
    families: tuple[Family, ...]
    comparators: Mapping[str, Family]
    clinical: tuple[ClinicalVariable, ...]
    with_dose: bool

    @property
    def name(self) -> str:
        """Name of the head in the model package."""
        return self.answer.head

    @property
    def is_risk(self) -> bool:
        """True for a risk, False for a class."""
        return self.answer.kind == "risk"

    @property
    def metric(self) -> str:
        """The reported metric."""
        return "c_index" if self.is_risk else "balanced_accuracy"

    @property
    def positive_name(self) -> str:
        """Name of the positive class: "HPV positive", or the class itself."""
        positive = self.answer.classes[1]
        return f"{self.answer.name.upper()} positive" if positive is True else str(positive)

    def judge(self, cohort: HeadCohort, scores: Floats) -> float:
        """C-index or area under the curve, by which models are selected."""
        return (c_index if self.is_risk else area_under_curve)(cohort.outcomes, scores)

    def scarce(self, cohort: HeadCohort) -> int:
        """Number of patients with the outcome that every fold needs: events, or the rarer class."""
        return self._scarce(self._stratum(cohort))

    def competing(self, cohort: HeadCohort) -> list[Family]:
        """The first family, and those for which the cohort is large enough."""
        scarce = self.scarce(cohort)
        return [f for number, f in enumerate(self.families) if number == 0 or scarce >= f.least_scarce]

    def check(self, cohort: HeadCohort, least: int) -> None:
        """Require `least` patients with the scarcer outcome.

        Raises:
            MetricError: there are fewer, or a class has more than two values, for which there is no model.
        """
        if not self.is_risk and not self.answer.is_binary:
            raise MetricError(self.name, f"{len(self.answer.classes)} classes", "2: there is no model for more")
        scarce = self.scarce(cohort)
        if scarce < least:
            outcome = f"with a {event_key(self.answer)}" if self.is_risk else "of the rarer class"
            raise MetricError(self.name, f"{scarce} training patients {outcome}", f"at least {least}")

    def folds(self, cohort: HeadCohort, by_centre: bool, rng: np.random.Generator) -> list[Numbers]:
        """Inner folds: one per centre if requested and every fold keeps both outcomes, otherwise stratified."""
        stratum = self._stratum(cohort)
        if by_centre and len(set(cohort.centres)) > 2:
            folds = centre_folds(cohort)
            if all(self._scarce(np.delete(stratum, fold)) > 1 for fold in folds):
                return folds
        return self.stratified(cohort, INNER_FOLDS, rng)

    def stratified(self, cohort: HeadCohort, folds: int, rng: np.random.Generator) -> list[Numbers]:
        """Folds balanced by outcome and centre, fewer if an outcome is scarcer."""
        return stratified_folds(cohort, self._stratum(cohort).tolist(), min(folds, self.scarce(cohort)), rng)

    def finish(self, head: LinearHead, cohort: HeadCohort, scores: Floats, rng: np.random.Generator) -> LinearHead:
        """Add threshold and calibration, learnt from out-of-fold scores, to the head of a class."""
        if self.is_risk:
            return head
        named = replace(head, kind=f"{head.kind} of {self.positive_name}")
        return with_threshold(named, cohort.outcomes.positive, scores, rng)

    def _stratum(self, cohort: HeadCohort) -> Flags:
        """Patients with an event, or of the negative class."""
        return cohort.outcomes.positive if self.is_risk else ~cohort.outcomes.positive

    def _scarce(self, stratum: Flags) -> int:
        inside = int(stratum.sum())
        return inside if self.is_risk else min(inside, len(stratum) - inside)


_FAMILIES: Final[dict[str, tuple[Family, ...]]] = {
    "risk": (
        Family("Cox, few features", fit_cox, _RIDGE, RISK_FEATURES),
        Family("Cox, all features", fit_cox, _ELASTIC_NET, least_scarce=LEAST_FOR_ALL),
        Family("signs, all features", fit_signs, _SIGNS, least_scarce=LEAST_FOR_ALL),
    ),
    "class": (
        Family("logistic, few features", fit_logistic, _LOGISTIC, CLASS_FEATURES),
        Family("logistic, all features", fit_logistic, _LOGISTIC, least_scarce=LEAST_FOR_ALL),
    ),
}


def targets_of(edition: Edition) -> tuple[Target, ...]:
    """A target for every risk and class of an edition, in order."""
    clinical = dict.fromkeys(clinical_names(edition.clinical), "identity")
    several = {"risk": (fit_cox, _RIDGE), "class": (fit_logistic, _LOGISTIC)}
    single = {"risk": (unfitted, ({},)), "class": (fit_logistic, _LOGISTIC[:1])}
    comparators = {
        kind: {
            "tumour_volume": Family("tumour volume", *single[kind], _VOLUME),
            "suv_max": Family("SUVmax", *single[kind], {"suv_max": "identity"}),
            "clinical": Family("clinical variables", *several[kind], clinical),
        }
        for kind in _FAMILIES
    }
    return tuple(
        Target(
            answer,
            algorithm.title if len(algorithm.answers) == 1 else answer.socket.title,
            _FAMILIES[answer.kind],
            comparators[answer.kind],
            edition.clinical,
            with_dose=RT_DOSE in (*algorithm.inputs, *algorithm.optional_inputs),
        )
        for algorithm in edition.algorithms
        for answer in algorithm.heads
    )


def only(target: Target, families: Sequence[Family]) -> Target:
    """The target with these families as the only competitors."""
    return replace(target, families=tuple(families))
