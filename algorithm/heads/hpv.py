"""HPV status from a logit and the threshold chosen in training for balanced accuracy."""

from __future__ import annotations

from algorithm.heads.linear import LinearHead
from algorithm.heads.measure import Features
from contract.errors import ModelPackageError


def hpv_positive(head: LinearHead, features: Features, centre: str | None = None) -> bool:
    """True for HPV positive: the logit reaches the head's threshold. Missing variables take training medians.

    `centre` counts only where the head was harmonised and knows it.

    Raises:
        ModelPackageError: the head has no threshold.
    """
    if head.threshold is None:
        raise ModelPackageError("HPV head", "no threshold", "a number on the logit's scale")
    return head.score(features, centre) >= head.threshold


def hpv_probability(head: LinearHead, features: Features, centre: str | None = None) -> float | None:
    """The calibrated probability of HPV positive; None where the head has no calibration.

    The threshold is chosen for balanced accuracy, so a patient may count as positive well below or above 0.5.
    """
    return None if head.calibration is None else head.calibration.probability(head.score(features, centre))
