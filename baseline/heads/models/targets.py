"""Targets of heads: metric and folds of each kind of answer, and the models that compete in an edition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Literal

import numpy as np

from algorithm.heads.documents import Head, LinearHead
from baseline.heads.cohort import Floats, HeadCohort, Numbers, area_under_curve, c_index, class_accuracy
from baseline.heads.models.classes import (
    ClassRule,
    find_operating_point,
    fit_logistic,
    fit_multinomial,
    fit_platt,
    make_staging_rule,
    predict_classes,
    predict_most_frequent,
)
from baseline.heads.models.forest import fit_class_forest, fit_risk_forest
from baseline.heads.models.risk import (
    describe_slope_problem,
    estimate_baseline_survival,
    fit_cox,
    fit_shipped_cox,
    fit_signs,
    log_hazard_slope,
    make_unfitted_heads,
)
from baseline.heads.models.selection import (
    FOREST,
    INNER_FOLDS,
    MIN_SCARCE_FOR_ALL,
    MIN_SCARCE_FOR_FOREST,
    RIDGE,
    SIGNS,
    Candidate,
    Family,
    FitSettings,
    Setting,
    make_centre_folds,
    make_stratified_folds,
)
from baseline.heads.models.terms import Transforms, use_unchanged
from baseline.release.cases import event_key
from contract.editions import Algorithm, AnswerSpec, ClinicalVariable, Edition
from contract.editions.answers import RULES, ClassValue
from contract.editions.inputs import RT_DOSE
from contract.errors import MetricError

# C-index and area under the curve of random scores.
CHANCE: Final = 0.5
# Minimum distance of an expert of stages from chance, absolute and as a fraction of the best expert's distance.
MIN_SKILL: Final = 0.02
MIN_SKILL_FRACTION: Final = 0.95

# Transform of each feature; skewed quantities are log-transformed. Among the training patients there are a few dozen
# relapses and a dozen patients with negative HPV status, so that the first family of each kind has a handful of
# features. Features that do not exist in an edition are left out.
_VOLUME: Final[Transforms] = {"total_volume_ml": "log1p"}
RISK_FEATURES: Final[Transforms] = {
    **_VOLUME,
    **use_unchanged(("gtvn_count", "age_years", "tobacco", "performance_status", "hpv_status")),
}
CLASS_FEATURES: Final[Transforms] = {
    **use_unchanged(("gtvn_cold_share",)),
    **_VOLUME,
    **use_unchanged(("age_years", "gender", "tobacco")),
}
# Features that define the stages of tumours and nodes, and the stages by the rules themselves: a sum of features cannot
# follow the limits of the rules. Counts are log-transformed: the step from one node to several matters most.
_LENGTHS: Final = ("gtvp_diameter_mm", "gtvn_largest_diameter_mm")
_PLACES: Final = ("gtvp_bone_contact", "gtvp_air_contact", "gtvn_bilateral", "gtvn_contralateral")
_COUNTS: Final = ("gtvn_count", "gtvn_count_5mm")
STAGE_FEATURES: Final[Transforms] = {
    **dict.fromkeys(("gtvp_volume_ml", *_COUNTS), "log1p"),
    **use_unchanged((*RULES, *_LENGTHS, *_PLACES)),
}
# Titles of the comparators by their names in the records.
COMPARATORS: Final = {
    "tumour_volume": "tumour volume alone",
    "suv_max": "SUVmax alone",
    "clinical": "clinical variables alone",
    "rule": "7th edition's rule on the mask",
    "most_frequent": "most frequent class",
}

_Kind = Literal["risk", "two classes", "more classes"]
_FAMILIES: Final[Mapping[_Kind, tuple[Family, ...]]] = {
    "risk": (
        Family("Cox, few features", fit_cox, RIDGE, RISK_FEATURES, fit_shipped=fit_shipped_cox),
        Family("Cox, all features", fit_cox, RIDGE[:-1], min_scarce=MIN_SCARCE_FOR_ALL, fit_shipped=fit_shipped_cox),
        Family("signs, all features", fit_signs, SIGNS, min_scarce=MIN_SCARCE_FOR_ALL),
        Family("forest, all features", fit_risk_forest, FOREST, min_scarce=MIN_SCARCE_FOR_FOREST, needs_slope=True),
    ),
    "two classes": (
        Family("logistic, few features", fit_logistic, RIDGE, CLASS_FEATURES),
        Family("logistic, all features", fit_logistic, RIDGE, min_scarce=MIN_SCARCE_FOR_ALL),
        Family("forest, all features", fit_class_forest, FOREST, min_scarce=MIN_SCARCE_FOR_FOREST),
    ),
    "more classes": (
        Family("multinomial, stages by rule", fit_multinomial, RIDGE, use_unchanged(RULES)),
        Family("multinomial, few features", fit_multinomial, RIDGE, STAGE_FEATURES),
        Family("multinomial, all features", fit_multinomial, RIDGE, min_scarce=MIN_SCARCE_FOR_ALL),
    ),
}


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
        """Return the words of messages for the outcome that `count_scarce` counts."""

    @abstractmethod
    def selection_metric(self, cohort: HeadCohort, scores: Floats) -> float:
        """Compute the metric that selects models."""

    def weigh_candidates(self, candidates: Sequence[Candidate], _cohort: HeadCohort) -> list[float]:
        """Return the weight of each candidate, the squared distance of its metric from chance.

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
        """Count the patients with the outcome that every fold needs, from the strata of the patients."""

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

        A time gets its baseline hazard; two classes get threshold and calibration. With more classes the highest score
        wins, because tuned boundaries gained nothing (docs/heads.md).
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
        """Compute the answer that replaces a failed prediction: the most frequent class, or the median of the answers.

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
            raise MetricError(self.name, "patients of one class", "patients of several classes")
        return value

    def weigh_candidates(self, candidates: Sequence[Candidate], cohort: HeadCohort) -> list[float]:
        """Return weight 1 for candidates whose distance from chance is at least 0.02 and 95% of the best distance.

        The others have weight 0. Stages follow a rule, and models without the features of the rule make the ensemble
        worse on phantoms (docs/heads.md).
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


def with_families(target: Target, families: Sequence[Family]) -> Target:
    """Return the target with these families as the only competitors, which answer even if they have no skill."""
    return replace(target, families=tuple(families), fallback_family=None)


_TARGETS: Final[Mapping[_Kind, type[Target]]] = {
    "risk": RiskTarget,
    "two classes": BinaryTarget,
    "more classes": ManyClassesTarget,
}


def make_targets(edition: Edition) -> tuple[Target, ...]:
    """Make a target for every risk and class of an edition, in order."""
    return tuple(
        _make_target(edition, algorithm, answer) for algorithm in edition.algorithms for answer in algorithm.head_specs
    )


def _make_target(edition: Edition, algorithm: Algorithm, answer: AnswerSpec) -> Target:
    from algorithm.heads.measure import clinical_names  # loads SimpleITK, which a table does not need

    kind: _Kind = "risk" if answer.kind == "risk" else "two classes" if answer.is_binary else "more classes"
    staging = {"rule": make_staging_rule(answer.rule)} if answer.rule else {}
    comparators = _make_comparators(kind, use_unchanged(clinical_names(edition.clinical)))
    return _TARGETS[kind](
        answer,
        algorithm.title if len(algorithm.answers) == 1 else answer.socket.title,
        _FAMILIES[kind],
        comparators,
        edition.clinical,
        with_dose=RT_DOSE in (*algorithm.inputs, *algorithm.optional_inputs),
        rules=staging | {"most_frequent": predict_most_frequent} if kind == "more classes" else {},
        fallback_family=None if kind == "more classes" else comparators["clinical"],
    )


def _make_comparators(kind: _Kind, clinical: Transforms) -> dict[str, Family]:
    if kind == "more classes":
        return {"clinical": Family("clinical variables", fit_multinomial, RIDGE, clinical, sees_mask=False)}
    risk = kind == "risk"
    single: tuple[FitSettings, tuple[Setting, ...]] = (
        (make_unfitted_heads, ({},)) if risk else (fit_logistic, RIDGE[:1])
    )
    several: tuple[FitSettings, tuple[Setting, ...]] = (fit_cox, RIDGE) if risk else (fit_logistic, RIDGE)
    return {
        "tumour_volume": Family("tumour volume", *single, _VOLUME),
        "suv_max": Family("SUVmax", *single, use_unchanged(("suv_max",))),
        "clinical": Family(
            "clinical variables", *several, clinical, sees_mask=False, fit_shipped=fit_shipped_cox if risk else None
        ),
    }


def with_custom_features(target: Target, features: Collection[str], fitted: Collection[str] = ()) -> Target:
    """Add a candidate with custom features: a copy of the family with the most selected features.

    Families of all features already have the custom features, but need more patients. `fitted` are the custom features
    that are fitted to outcomes.
    """
    if not features:
        return target
    selective = [family for family in target.families if family.transforms]
    largest = max(selective, key=lambda family: len(family.transforms or ()))
    transforms = {**(largest.transforms or {}), **use_unchanged(features)}
    family = replace(largest, name=f"{largest.name}, custom features", transforms=transforms)
    return replace(target, families=(*target.families, family), fitted=(*target.fitted, *fitted))
