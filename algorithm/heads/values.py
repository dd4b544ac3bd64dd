"""Values of answers from heads, by the answer's kind: a risk or a class."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from algorithm.heads.documents import Cubes, Faults, Features, Head, OnePatient
from algorithm.heads.parts import Survival
from contract.editions import Answer
from contract.editions.declaration import ClassValue
from contract.errors import ModelPackageError


def check_head(answer: Answer, head: Head, name: str) -> None:
    """Check that a head can give an answer.

    Raises:
        ModelPackageError: a risk with several scores, a time without `survival`, a class whose head has other
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
    """What a head answers.

    Attributes:
        value: the risk, the days or the class.
        score: the head's score, or that of each class.
        probability: calibrated, of the second of two classes; None for other answers, or without calibration. The
            threshold is chosen for balanced accuracy, so the second class may be given well below or above 0.5.
        note: what the days of a time mean, with the predicted median; empty for other answers.
    """

    value: float | ClassValue
    score: float | dict[str, float]
    probability: float | None = None
    note: str = ""


def head_answer(
    answer: Answer,
    head: Head,
    features: Features,
    cubes: Cubes | None = None,
    *,
    excluded: Collection[ClassValue] = (),
    faults: Faults | None = None,
) -> HeadAnswer:
    """A risk or class answer by a head that `check_head` accepts; missing features take their training medians.

    A risk is the head's score, higher for earlier recurrence, or in the direction "time" the expected days without
    recurrence, which fall in the score (`Survival.restricted_mean`). Of two classes the second is given where the score
    reaches the head's threshold, which training chose for balanced accuracy; of more classes the one with the highest
    score, of equal scores the lower class. A class of `excluded` is never given; at least one class must be left.

    Experts of an ensemble that fail are left out and added to `faults`; without it their fault is raised.

    Raises:
        ModelPackageError: the head's code fails.
    """
    classes = [value for value in answer.classes if value not in excluded]
    scores = head.scores(OnePatient(features, cubes), faults)[0]
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


def _time_note(answer: Answer, survival: Survival, score: float) -> str:
    horizon, median = survival.horizon_days, survival.median(score)
    shown = f"after {horizon:.0f} days" if median is None else f"{median:.0f} days"
    return (
        f"{answer.name}: {survival.restricted_mean(score):.0f} days is the mean without recurrence within "
        f"{horizon:.0f} days, not a time to recurrence; the predicted median is {shown}. The order of patients "
        "transfers to new centres, the days do not"
    )
