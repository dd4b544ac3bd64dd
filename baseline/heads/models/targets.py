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
from baseline.heads.models.classes import fit_logistic, fit_multinomial, predicted
from baseline.heads.models.kinds import BinaryTarget, ClassRule, ManyClassesTarget, RiskTarget, Target
from baseline.heads.models.risk import fit_cox, fit_shipped_cox, fit_signs, unfitted
from baseline.heads.models.selection import LEAST_FOR_ALL, RIDGE, SIGNS, Family, FitPath, Setting
from baseline.heads.models.terms import Transforms, unchanged
from contract.editions import Algorithm, AnswerSpec, Edition
from contract.editions.answers import RULES
from contract.editions.inputs import RT_DOSE

# feature -> transform; skewed quantities are logarithmised. With a few dozen relapses and a dozen HPV negatives in
# the training patients, the first family of each kind has a handful of features. Features that an edition lacks are
# left out.
_VOLUME: Final[Transforms] = {"total_volume_ml": "log1p"}
RISK_FEATURES: Final[Transforms] = {
    **_VOLUME,
    **unchanged(("gtvn_count", "age_years", "tobacco", "performance_status", "hpv_status")),
}
CLASS_FEATURES: Final[Transforms] = {
    **unchanged(("gtvn_cold_share",)),
    **_VOLUME,
    **unchanged(("age_years", "gender", "tobacco")),
}
# What the stages of tumours and nodes are defined by, and the stages by the rules themselves, whose limits a sum of
# features cannot follow. Counts are logarithmised: one node or several matters most.
_LENGTHS: Final = ("gtvp_diameter_mm", "gtvn_largest_diameter_mm")
_PLACES: Final = ("gtvp_bone_contact", "gtvp_air_contact", "gtvn_bilateral", "gtvn_contralateral")
_COUNTS: Final = ("gtvn_count", "gtvn_count_5mm")
STAGE_FEATURES: Final[Transforms] = {
    **dict.fromkeys(("gtvp_volume_ml", *_COUNTS), "log1p"),
    **unchanged((*RULES, *_LENGTHS, *_PLACES)),
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
        Family("Cox, all features", fit_cox, RIDGE[:-1], least_scarce=LEAST_FOR_ALL, fit_shipped=fit_shipped_cox),
        Family("signs, all features", fit_signs, SIGNS, least_scarce=LEAST_FOR_ALL),
    ),
    "two classes": (
        Family("logistic, few features", fit_logistic, RIDGE, CLASS_FEATURES),
        Family("logistic, all features", fit_logistic, RIDGE, least_scarce=LEAST_FOR_ALL),
    ),
    "more classes": (
        Family("multinomial, stages by rule", fit_multinomial, RIDGE, unchanged(RULES)),
        Family("multinomial, few features", fit_multinomial, RIDGE, STAGE_FEATURES),
        Family("multinomial, all features", fit_multinomial, RIDGE, least_scarce=LEAST_FOR_ALL),
    ),
}


def targets_of(edition: Edition) -> tuple[Target, ...]:
    """A target for every risk and class of an edition, in order."""
    return tuple(
        _target(edition, algorithm, answer) for algorithm in edition.algorithms for answer in algorithm.head_specs
    )


def _target(edition: Edition, algorithm: Algorithm, answer: AnswerSpec) -> Target:
    kind = _kind(answer)
    return _TARGETS[kind](
        answer,
        algorithm.title if len(algorithm.answers) == 1 else answer.socket.title,
        _FAMILIES[kind],
        _comparators(kind, unchanged(clinical_names(edition.clinical))),
        edition.clinical,
        with_dose=RT_DOSE in (*algorithm.inputs, *algorithm.optional_inputs),
        rules=_rules(answer) if kind == "more classes" else {},
    )


def _comparators(kind: _Kind, clinical: Transforms) -> dict[str, Family]:
    if kind == "more classes":
        return {"clinical": Family("clinical variables", fit_multinomial, RIDGE, clinical, sees_mask=False)}
    risk = kind == "risk"
    single: tuple[FitPath, tuple[Setting, ...]] = (unfitted, ({},)) if risk else (fit_logistic, RIDGE[:1])
    several: tuple[FitPath, tuple[Setting, ...]] = (fit_cox, RIDGE) if risk else (fit_logistic, RIDGE)
    return {
        "tumour_volume": Family("tumour volume", *single, _VOLUME),
        "suv_max": Family("SUVmax", *single, unchanged(("suv_max",))),
        "clinical": Family(
            "clinical variables", *several, clinical, sees_mask=False, fit_shipped=fit_shipped_cox if risk else None
        ),
    }


def with_custom_features(target: Target, features: Collection[str], fitted: Collection[str] = ()) -> Target:
    """The target with one more candidate: its family of most chosen features, with an entrant's own ones added.

    Those that are `fitted` to outcomes are among the features.
    Families of all features have them already, but need more patients.
    """
    if not features:
        return target
    chosen = max((one for one in target.families if one.transforms), key=lambda one: len(one.transforms or ()))
    transforms = {**(chosen.transforms or {}), **unchanged(features)}
    family = replace(chosen, name=f"{chosen.name}, own features", transforms=transforms)
    return replace(target, families=(*target.families, family), fitted=(*target.fitted, *fitted))


def _kind(answer: AnswerSpec) -> _Kind:
    return "risk" if answer.kind == "risk" else "two classes" if answer.is_binary else "more classes"


def _rules(answer: AnswerSpec) -> dict[str, ClassRule]:
    rule = {"rule": staging_rule(answer.rule)} if answer.rule else {}
    return rule | {"most_frequent": most_frequent}


def most_frequent(train: HeadCohort, cohort: HeadCohort) -> Numbers:
    """The most frequent class of the training patients for everybody."""
    return np.full(len(cohort.ids), train.outcomes.most_frequent(), dtype=np.int64)


def staging_rule(rule: str) -> ClassRule:
    """The stage by `rule`, or the most frequent class of the training patients that the mask leaves possible."""
    return partial(_stages, rule)


def _stages(rule: str, train: HeadCohort, cohort: HeadCohort) -> Numbers:
    names = cohort.outcomes.classes
    counts = np.bincount(train.outcomes.values, minlength=len(names)).astype(np.float64)
    usual = predicted(np.tile(counts, (len(cohort.ids), 1)), cohort.possible).tolist()
    stages = [derive_stage(rule, row) for row in cohort.rows()]
    pairs = zip(stages, usual, strict=True)
    return np.array([names.index(stage) if stage in names else other for stage, other in pairs], dtype=np.int64)
