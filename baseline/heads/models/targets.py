"""The heads of an edition: competing models and comparators by kind of answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from algorithm.heads.measure import clinical_names
from baseline.heads.models.classes import fit_multinomial, fit_ordinal
from baseline.heads.models.kinds import BinaryTarget, ClassRule, ManyClassesTarget, RiskTarget, Target
from baseline.heads.models.logistic import fit_logistic
from baseline.heads.models.risk import fit_cox, fit_signs, unfitted
from baseline.heads.models.rules import most_frequent, staging_rule
from baseline.heads.models.selection import Family, FitPath, Setting
from contract.editions import Algorithm, Answer, Edition
from contract.editions.declaration import RT_DOSE, RULES

# feature -> transform; skewed quantities are logarithmised. With a few dozen relapses and a dozen HPV negatives in
# the training patients, the first family of each kind has a handful of features. Features that an edition lacks are
# left out.
_VOLUME: Final = {"total_volume_ml": "log1p"}
RISK_FEATURES: Final = _VOLUME | dict.fromkeys(
    ("gtvn_count", "age_years", "tobacco", "performance_status", "hpv_status"), "identity"
)
CLASS_FEATURES: Final = {"gtvn_cold_share": "identity", **_VOLUME} | dict.fromkeys(
    ("age_years", "gender", "tobacco"), "identity"
)
# What the stages of tumours and nodes are defined by, and the stages by the rules themselves, whose limits a sum of
# features cannot follow. Counts are logarithmised: one node or several matters most.
_LENGTHS: Final = ("gtvp_diameter_mm", "gtvn_largest_diameter_mm")
_PLACES: Final = ("gtvp_bone_contact", "gtvp_air_contact", "gtvn_bilateral", "gtvn_contralateral")
_COUNTS: Final = ("gtvn_count", "gtvn_count_5mm")
STAGE_FEATURES: Final = dict.fromkeys(("gtvp_volume_ml", *_COUNTS), "log1p") | dict.fromkeys(
    (*RULES, *_LENGTHS, *_PLACES), "identity"
)
# Names of the comparators in our records, with their titles.
COMPARATORS: Final = {
    "single_best": "single best model",
    "tumour_volume": "tumour volume alone",
    "suv_max": "SUVmax alone",
    "clinical": "clinical variables alone",
    "rule": "7th edition's rule on the mask",
    "most_frequent": "most frequent class",
}
# Minimum number of patients with the scarcer outcome for families that use all features, about sixty.
LEAST_FOR_ALL: Final = 20
PENALTIES: Final = (1.0, 0.3, 0.1, 0.03, 0.01)
_RIDGE: Final[tuple[Setting, ...]] = tuple({"penalty": penalty} for penalty in PENALTIES)
_LOGISTIC: Final[tuple[Setting, ...]] = tuple({"penalty": penalty} for penalty in PENALTIES)
_SIGNS: Final[tuple[Setting, ...]] = tuple({"least_effect": effect} for effect in (0.08, 0.04, 0.0))


_Kind = Literal["risk", "two classes", "more classes"]
_TARGETS: Final[Mapping[_Kind, type[Target]]] = {
    "risk": RiskTarget,
    "two classes": BinaryTarget,
    "more classes": ManyClassesTarget,
}
_FAMILIES: Final[Mapping[_Kind, tuple[Family, ...]]] = {
    "risk": (
        Family("Cox, few features", fit_cox, _RIDGE, RISK_FEATURES),
        Family("Cox, all features", fit_cox, _RIDGE[:-1], least_scarce=LEAST_FOR_ALL),
        Family("signs, all features", fit_signs, _SIGNS, least_scarce=LEAST_FOR_ALL),
    ),
    "two classes": (
        Family("logistic, few features", fit_logistic, _LOGISTIC, CLASS_FEATURES),
        Family("logistic, all features", fit_logistic, _LOGISTIC, least_scarce=LEAST_FOR_ALL),
    ),
    "more classes": (
        Family("ordinal, stages by rule", fit_ordinal, _LOGISTIC, dict.fromkeys(RULES, "identity")),
        Family("ordinal, few features", fit_ordinal, _LOGISTIC, STAGE_FEATURES),
        Family("multinomial, few features", fit_multinomial, _LOGISTIC, STAGE_FEATURES),
        Family("ordinal, all features", fit_ordinal, _LOGISTIC, least_scarce=LEAST_FOR_ALL),
        Family("multinomial, all features", fit_multinomial, _LOGISTIC, least_scarce=LEAST_FOR_ALL),
    ),
}


def targets_of(edition: Edition) -> tuple[Target, ...]:
    """A target for every risk and class of an edition, in order."""
    return tuple(_target(edition, algorithm, answer) for algorithm in edition.algorithms for answer in algorithm.heads)


def _target(edition: Edition, algorithm: Algorithm, answer: Answer) -> Target:
    kind: _Kind = "risk" if answer.kind == "risk" else "two classes" if answer.is_binary else "more classes"
    return _TARGETS[kind](
        answer,
        algorithm.title if len(algorithm.answers) == 1 else answer.socket.title,
        _FAMILIES[kind],
        _comparators(kind, dict.fromkeys(clinical_names(edition.clinical), "identity")),
        edition.clinical,
        with_dose=RT_DOSE in (*algorithm.inputs, *algorithm.optional_inputs),
        rules=_rules(answer) if kind == "more classes" else {},
    )


def _comparators(kind: _Kind, clinical: Mapping[str, str]) -> dict[str, Family]:
    if kind == "more classes":
        return {"clinical": Family("clinical variables", fit_multinomial, _LOGISTIC, clinical, sees_mask=False)}
    risk = kind == "risk"
    single: tuple[FitPath, tuple[Setting, ...]] = (unfitted, ({},)) if risk else (fit_logistic, _LOGISTIC[:1])
    several: tuple[FitPath, tuple[Setting, ...]] = (fit_cox, _RIDGE) if risk else (fit_logistic, _LOGISTIC)
    return {
        "tumour_volume": Family("tumour volume", *single, _VOLUME),
        "suv_max": Family("SUVmax", *single, {"suv_max": "identity"}),
        "clinical": Family("clinical variables", *several, clinical, sees_mask=False),
    }


def _rules(answer: Answer) -> dict[str, ClassRule]:
    rule = {"rule": staging_rule(answer.rule)} if answer.rule else {}
    return rule | {"most_frequent": most_frequent}
