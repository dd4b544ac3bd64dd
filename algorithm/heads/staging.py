"""T and N stages from the features of a mask, by the 7th edition of the AJCC/UICC manual (oropharynx)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from algorithm.heads.documents import Features
from contract.editions import Answer
from contract.editions.declaration import RULES, ClassValue

# Upper limits of T1 and T2, and of N1 and N2, in mm of the largest diameter.
T_LIMITS_MM: Final = (20.0, 40.0)
N_LIMITS_MM: Final = (30.0, 60.0)
# Minimum share of the primary's surface in contact with bone for an invasion. A primary that only lies beside the
# mandible or the spine touches them with less.
INVASION_SHARE: Final = 0.05

# The feature of a structure, and its value if the mask has no lesion of it.
_ABSENT: Final[Mapping[str, tuple[str, float | None]]] = {"GTVp": ("gtvp_diameter_mm", None), "GTVn": ("gtvn_count", 0)}
# Stages that a rule's answer has with a primary only.
ONLY_WITH_PRIMARY: Final[Mapping[str, tuple[str, ...]]] = {"t_stage_7th": ("T4",)}


def absent_structures(features: Features) -> frozenset[str]:
    """The structures of which the measured mask has no lesion; none if no mask was measured."""
    return frozenset(name for name, (key, value) in _ABSENT.items() if key in features and features[key] == value)


def classes_left(answer: Answer, absent: Collection[str], *, segmented: bool = True) -> tuple[ClassValue, ...]:
    """The classes that a mask without the structures in `absent` leaves to a class answer, in training and inference.

    The class of an absent structure in `Answer.without` is the only one left; that of a present one is left out. T4 is
    left out without a primary, unless nothing was `segmented`.
    """
    for structure, value in answer.without.items():
        if structure in absent:
            return (value,)
    excluded = set(answer.without.values())
    if segmented and "GTVp" in absent:
        excluded |= set(ONLY_WITH_PRIMARY.get(answer.rule or "", ()))
    return tuple(value for value in answer.classes if value not in excluded)


def staged(rule: str, features: Features) -> str | None:
    """The stage that a rule of `contract.editions.declaration.RULES` gives.

    None if the features do not show it: T without a primary tumour, N without a mask. Imaging shows neither T0 nor the
    invasion of soft tissue, so that some T4 tumours are staged too low. HPV does not change N in the 7th edition.

    Raises:
        KeyError: no such rule.
    """
    return _STAGES[rule](features)


def stage_features(features: Features) -> dict[str, float | None]:
    """The number in the stage of each rule, by the name of the rule; None where the features do not show it."""
    stages = {rule: staged(rule, features) for rule in RULES}
    return {rule: None if stage is None else float(stage[1:]) for rule, stage in stages.items()}


def _t_stage(features: Features) -> str | None:
    diameter = features.get("gtvp_diameter_mm")
    if diameter is None:
        return None
    if (features.get("gtvp_bone_contact") or 0.0) >= INVASION_SHARE:
        return "T4"
    return f"T{1 + sum(diameter > limit for limit in T_LIMITS_MM)}"


def _n_stage(features: Features) -> str | None:
    count = features.get("gtvn_count")
    if count is None:
        return None
    if count == 0:
        return "N0"
    diameters = (features.get(f"gtvn_{which}_diameter_mm") for which in ("largest", "second"))
    diameter = max(value or 0.0 for value in diameters)
    if diameter > N_LIMITS_MM[1]:
        return "N3"
    several = (features.get("gtvn_count_5mm") or count) > 1
    return "N2" if several or diameter > N_LIMITS_MM[0] or _is_across(features) else "N1"


def _is_across(features: Features) -> bool:
    """True for nodes on the other side than the primary; without a primary, for nodes on both sides."""
    contralateral = features.get("gtvn_contralateral")
    return bool(features.get("gtvn_bilateral") if contralateral is None else contralateral)


_STAGES: Final[Mapping[str, Callable[[Features], str | None]]] = {"t_stage_7th": _t_stage, "n_stage_7th": _n_stage}
