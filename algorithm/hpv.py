"""HPV status from a logit and the threshold chosen in training for balanced accuracy."""

from __future__ import annotations

from algorithm.heads import LinearHead
from algorithm.measure import Features
from contract.errors import ModelPackageError


def hpv_positive(head: LinearHead, features: Features) -> bool:
    """True for HPV positive: the logit reaches the head's threshold. Missing variables take training medians.

    Raises:
        ModelPackageError: the head has no threshold.
    """
    if head.threshold is None:
        raise ModelPackageError("HPV head: no threshold, expected a number on the logit's scale")
    return head.score(features) >= head.threshold
