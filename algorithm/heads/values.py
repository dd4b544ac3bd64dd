"""Values of answers: risks and classes from heads, and T and N stages from the features of a mask.

Stages follow the 7th edition of the AJCC/UICC manual (oropharynx).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from algorithm.heads.documents import Cubes, Faults, Features, Head, SinglePatient
from algorithm.heads.parts import Survival
from contract.editions import AnswerSpec
from contract.editions.answers import RULES, ClassValue
from contract.errors import ModelPackageError


def check_head(answer: AnswerSpec, head: Head, name: str) -> None:
    """Check that a head can give an answer.

    Raises:
        ModelPackageError: A risk with several scores, a time without `survival`, a class whose head has other
            classes, or no threshold for two classes.
    """
    if head.classes:
        expected = [str(value) for value in answer.classes]
        if sorted(head.classes) != sorted(expected):
            wanted = f"classes {', '.join(expected)}" if expected else "one score for a risk"
            raise ModelPackageError(f"head {name!r}", f"classes {', '.join(head.classes)}", wanted)
    elif answer.kind == "class" and not answer.is_binary:
        raise ModelPackageError(f"head {name!r}", "one score", f"a score for each of {len(answer.classes)} classes")
    elif answer.kind == "class" and head.threshold is None:
        raise ModelPackageError(f"head {name!r}", "no threshold", "a number on the logit's scale")
    elif answer.direction == "time" and head.survival is None:
        raise ModelPackageError(f"head {name!r}", "no survival", "a baseline hazard, for an answer in days")


@dataclass(frozen=True)
class HeadAnswer:
    """The answer of a head.

    Attributes:
        value: The risk, the days or the class.
        score: The head's score, or the score of each class.
        probability: Calibrated, of the second of two classes; None for other answers, or without calibration. The
            threshold is chosen for balanced accuracy, so the second class may be given well below or above 0.5.
        note: What the days of a time mean, with the predicted median; empty for other answers.
    """

    value: float | ClassValue
    score: float | dict[str, float]
    probability: float | None = None
    note: str = ""


def compute_head_answer(
    answer: AnswerSpec,
    head: Head,
    features: Features,
    cubes: Cubes | None = None,
    *,
    excluded: Collection[ClassValue] = (),
    faults: Faults | None = None,
) -> HeadAnswer:
    """Return a risk or class answer by a head that `check_head` accepts; missing features take their training medians.

    A risk is the head's score, higher for earlier recurrence, or in the direction "time" the expected days without
    recurrence, which fall in the score (`Survival.restricted_mean`). Of two classes the second is given where the score
    reaches the head's threshold, which training chose for balanced accuracy; of more classes the one with the highest
    score, of equal scores the lower class. A class of `excluded` is never given; at least one class must be left.

    Experts of an ensemble that fail are left out and added to `faults`; without it their fault is raised.

    Raises:
        ModelPackageError: The head's code fails.
    """
    classes = [value for value in answer.classes if value not in excluded]
    scores = head.scores(SinglePatient(features, cubes), faults)[0]
    if head.classes:
        by_class = dict(zip(head.classes, scores.tolist(), strict=True))
        return HeadAnswer(max(classes, key=lambda value: by_class[str(value)]), by_class)
    score = float(scores)
    if answer.kind == "class":
        value = answer.classes[head.threshold is not None and score >= head.threshold]
        probability = None if head.calibration is None else head.calibration.probability(score)
        return HeadAnswer(value if value in classes else classes[0], score, probability)
    if answer.direction == "time" and head.survival is not None:
        return HeadAnswer(head.survival.restricted_mean(score), score, note=_time_note(answer, head.survival, score))
    return HeadAnswer(score, score)


def _time_note(answer: AnswerSpec, survival: Survival, score: float) -> str:
    horizon, median = survival.horizon_days, survival.median(score)
    shown = f"after {horizon:.0f} days" if median is None else f"{median:.0f} days"
    return (
        f"{answer.name}: {survival.restricted_mean(score):.0f} days is the mean without recurrence within "
        f"{horizon:.0f} days, not a time to recurrence; the predicted median is {shown}. The order of patients "
        "transfers to new centres, the days do not"
    )


# Upper limits of T1 and T2, and of N1 and N2, in mm of the largest diameter.
T_LIMITS_MM: Final = (20.0, 40.0)
N_LIMITS_MM: Final = (30.0, 60.0)
# Minimum share of the primary's surface in contact with bone for an invasion. A primary that is only next to the
# mandible or the spine touches them with less.
INVASION_SHARE: Final = 0.05

# The feature of a structure, and its value if the mask has no lesion of it.
_ABSENT: Final[Mapping[str, tuple[str, float | None]]] = {"GTVp": ("gtvp_diameter_mm", None), "GTVn": ("gtvn_count", 0)}
# Stages that a rule's answer has with a primary only.
ONLY_WITH_PRIMARY: Final[Mapping[str, tuple[str, ...]]] = {"t_stage_7th": ("T4",)}


def find_absent_structures(features: Features) -> frozenset[str]:
    """Return the structures without a lesion in the measured mask; none if no mask was measured."""
    return frozenset(name for name, (key, value) in _ABSENT.items() if key in features and features[key] == value)


def find_possible_classes(
    answer: AnswerSpec, absent: Collection[str], *, segmented: bool = True
) -> tuple[ClassValue, ...]:
    """Return the classes that remain possible for an answer if the mask lacks the structures in `absent`.

    The class of an absent structure in `AnswerSpec.without` is the only one left; the class of a present one is left
    out. T4 is left out without a primary, unless nothing was `segmented`.
    """
    for structure, value in answer.without.items():
        if structure in absent:
            return (value,)
    excluded = set(answer.without.values())
    if segmented and "GTVp" in absent:
        excluded |= set(ONLY_WITH_PRIMARY.get(answer.rule or "", ()))
    return tuple(value for value in answer.classes if value not in excluded)


def derive_stage(rule: str, features: Features) -> str | None:
    """Return the stage that a rule of `contract.editions.answers.RULES` gives.

    None if the features do not show it: T without a primary tumour, N without a mask. Imaging shows neither T0 nor the
    invasion of soft tissue, so that some T4 tumours are staged too low. HPV does not change N in the 7th edition.

    Raises:
        KeyError: No such rule.
    """
    return _STAGES[rule](features)


def stage_features(features: Features) -> dict[str, float | None]:
    """Return the stage number of each rule, by the rule's name; None if the features do not determine it."""
    stages = {rule: derive_stage(rule, features) for rule in RULES}
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
    """Return whether nodes lie on the other side than the primary or, without a primary, on both sides."""
    contralateral = features.get("gtvn_contralateral")
    return bool(features.get("gtvn_bilateral") if contralateral is None else contralateral)


_STAGES: Final[Mapping[str, Callable[[Features], str | None]]] = {"t_stage_7th": _t_stage, "n_stage_7th": _n_stage}
