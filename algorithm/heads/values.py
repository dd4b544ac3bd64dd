"""The values of answers: risks and classes from heads, and T and N stages from the features of a mask.

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
        probability: Calibrated probability of the second of two classes; None for other answers, or without
            calibration. The head's threshold is chosen for balanced accuracy, so it may be far from 0.5.
        note: Explanation of an answer in days, with the predicted median; empty for other answers.
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
    """Predict a risk or class with a head that `check_head` accepts; missing features take their training medians.

    A risk is the head's score, higher for earlier recurrence. A risk declared as a time is the expected days without
    recurrence, which decrease with the score (`Survival.restricted_mean`). Of two classes the second is chosen if the
    score reaches the head's threshold, which was selected for balanced accuracy in training. Of more classes the one
    with the highest score is chosen; of equal scores the first one.

    Args:
        answer: Declaration of the answer.
        head: The head.
        features: Features of the patient by name; None for a missing value.
        cubes: Cuts the cubes around the tumour; None without images.
        excluded: Classes that are never chosen; at least one class must be left.
        faults: Collects the errors of experts of an ensemble, which are left out; None raises such an error.

    Raises:
        ModelPackageError: The code of a custom head fails.
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
# Minimum fraction of the primary's surface in contact with bone that counts as invasion. A primary that only lies next
# to the mandible or the spine has less contact.
INVASION_FRACTION: Final = 0.05

# For each structure a feature, and the value that shows that the mask has no lesion of the structure.
_ABSENT: Final[Mapping[str, tuple[str, float | None]]] = {"GTVp": ("gtvp_diameter_mm", None), "GTVn": ("gtvn_count", 0)}
# Stages that a rule gives only if there is a primary.
ONLY_WITH_PRIMARY: Final[Mapping[str, tuple[str, ...]]] = {"t_stage_7th": ("T4",)}


def find_absent_structures(features: Features) -> frozenset[str]:
    """Return the names of the structures without a lesion in the measured mask; empty if no mask was measured."""
    return frozenset(name for name, (key, value) in _ABSENT.items() if key in features and features[key] == value)


def find_possible_classes(
    answer: AnswerSpec, absent: Collection[str], *, segmented: bool = True
) -> tuple[ClassValue, ...]:
    """Return the classes that are possible for an answer if the structures `absent` are not in the mask.

    `AnswerSpec.without` declares the class of a patient without a structure. If the structure is absent, only this
    class is possible; if it is present, this class is excluded. T4 is excluded without a primary, unless `segmented` is
    False.
    """
    for structure, value in answer.without.items():
        if structure in absent:
            return (value,)
    excluded = set(answer.without.values())
    if segmented and "GTVp" in absent:
        excluded |= set(ONLY_WITH_PRIMARY.get(answer.rule or "", ()))
    return tuple(value for value in answer.classes if value not in excluded)


def derive_stage(rule: str, features: Features) -> str | None:
    """Derive a stage from features by a rule of `contract.editions.answers.RULES`.

    Imaging shows neither T0 nor the invasion of soft tissue, so some T4 tumours are staged too low. HPV status does not
    change N in the 7th edition.

    Returns:
        The stage; None if the features do not determine it: T without a primary tumour, N without a mask.

    Raises:
        KeyError: The rule does not exist.
    """
    return _STAGES[rule](features)


def stage_features(features: Features) -> dict[str, float | None]:
    """Return the number of each rule's stage, by the name of the rule; None if the features do not determine it."""
    stages = {rule: derive_stage(rule, features) for rule in RULES}
    return {rule: None if stage is None else float(stage[1:]) for rule, stage in stages.items()}


def _t_stage(features: Features) -> str | None:
    diameter = features.get("gtvp_diameter_mm")
    if diameter is None:
        return None
    if (features.get("gtvp_bone_contact") or 0.0) >= INVASION_FRACTION:
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
    """Return whether a node lies contralateral to the primary or, without a primary, whether nodes are bilateral."""
    contralateral = features.get("gtvn_contralateral")
    return bool(features.get("gtvn_bilateral") if contralateral is None else contralateral)


_STAGES: Final[Mapping[str, Callable[[Features], str | None]]] = {"t_stage_7th": _t_stage, "n_stage_7th": _n_stage}
