"""The heads of an edition: competing models and comparators by kind of answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Literal

import numpy as np

from algorithm.heads.measure import clinical_names
from algorithm.heads.values import derive_stage
from baseline.heads.cohort import HeadCohort, Numbers
from baseline.heads.models.classes import fit_logistic, fit_multinomial, predict_classes
from baseline.heads.models.forest import fit_class_forest, fit_risk_forest
from baseline.heads.models.kinds import BinaryTarget, ClassRule, ManyClassesTarget, RiskTarget, Target
from baseline.heads.models.risk import fit_cox, fit_shipped_cox, fit_signs, make_unfitted_heads
from baseline.heads.models.selection import (
    FOREST,
    MIN_SCARCE_FOR_ALL,
    MIN_SCARCE_FOR_FOREST,
    RIDGE,
    SIGNS,
    Family,
    FitSettings,
    Setting,
)
from baseline.heads.models.terms import Transforms, use_unchanged
from contract.editions import Algorithm, AnswerSpec, Edition
from contract.editions.answers import RULES
from contract.editions.inputs import RT_DOSE

# Transform of each feature; skewed quantities are logarithmised. The training patients have a few dozen relapses and a
# dozen negative HPV status, so that the first family of each kind has a handful of features. Features that an edition
# lacks are left out.
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
# follow the limits of the rules. Counts are logarithmised: the step from one node to several matters most.
_LENGTHS: Final = ("gtvp_diameter_mm", "gtvn_largest_diameter_mm")
_PLACES: Final = ("gtvp_bone_contact", "gtvp_air_contact", "gtvn_bilateral", "gtvn_contralateral")
_COUNTS: Final = ("gtvn_count", "gtvn_count_5mm")
STAGE_FEATURES: Final[Transforms] = {
    **dict.fromkeys(("gtvp_volume_ml", *_COUNTS), "log1p"),
    **use_unchanged((*RULES, *_LENGTHS, *_PLACES)),
}
# Names of the comparators in our records, with their titles.
COMPARATORS: Final = {
    "tumour_volume": "tumour volume alone",
    "suv_max": "SUVmax alone",
    "clinical": "clinical variables alone",
    "rule": "7th edition's rule on the mask",
    "most_frequent": "most frequent class",
}

_Kind = Literal["risk", "two classes", "more classes"]
_TARGETS: Final[Mapping[_Kind, type[Target]]] = {
    "risk": RiskTarget,
    "two classes": BinaryTarget,
    "more classes": ManyClassesTarget,
}
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


def make_targets(edition: Edition) -> tuple[Target, ...]:
    """Make a target for every risk and class of an edition, in order."""
    return tuple(
        _make_target(edition, algorithm, answer) for algorithm in edition.algorithms for answer in algorithm.head_specs
    )


def _make_target(edition: Edition, algorithm: Algorithm, answer: AnswerSpec) -> Target:
    kind = _find_kind(answer)
    comparators = _make_comparators(kind, use_unchanged(clinical_names(edition.clinical)))
    return _TARGETS[kind](
        answer,
        algorithm.title if len(algorithm.answers) == 1 else answer.socket.title,
        _FAMILIES[kind],
        comparators,
        edition.clinical,
        with_dose=RT_DOSE in (*algorithm.inputs, *algorithm.optional_inputs),
        rules=_make_rules(answer) if kind == "more classes" else {},
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

    Families of all features have the custom features already, but need more patients. `fitted` are the custom features
    that are fitted to outcomes.
    """
    if not features:
        return target
    selective = [family for family in target.families if family.transforms]
    largest = max(selective, key=lambda family: len(family.transforms or ()))
    transforms = {**(largest.transforms or {}), **use_unchanged(features)}
    family = replace(largest, name=f"{largest.name}, own features", transforms=transforms)
    return replace(target, families=(*target.families, family), fitted=(*target.fitted, *fitted))


def _find_kind(answer: AnswerSpec) -> _Kind:
    return "risk" if answer.kind == "risk" else "two classes" if answer.is_binary else "more classes"


def _make_rules(answer: AnswerSpec) -> dict[str, ClassRule]:
    rule = {"rule": make_staging_rule(answer.rule)} if answer.rule else {}
    return rule | {"most_frequent": predict_most_frequent}


def predict_most_frequent(train: HeadCohort, cohort: HeadCohort) -> Numbers:
    """Predict the most frequent class of the training patients for each patient."""
    return np.full(len(cohort.ids), train.outcomes.find_most_frequent_class(), dtype=np.int64)


def make_staging_rule(rule: str) -> ClassRule:
    """Make the rule that predicts the stage by `rule`.

    Without a stage it predicts the most frequent class of the training patients that the mask leaves possible.
    """
    return partial(_predict_stages, rule)


def _predict_stages(rule: str, train: HeadCohort, cohort: HeadCohort) -> Numbers:
    names = cohort.outcomes.classes
    counts = np.bincount(train.outcomes.values, minlength=len(names)).astype(np.float64)
    frequent = predict_classes(np.tile(counts, (len(cohort.ids), 1)), cohort.possible).tolist()
    stages = [derive_stage(rule, row) for row in cohort.to_rows()]
    pairs = zip(stages, frequent, strict=True)
    return np.array([names.index(stage) if stage in names else number for stage, number in pairs], dtype=np.int64)
