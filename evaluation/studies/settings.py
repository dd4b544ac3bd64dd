"""The default edition's rules, for studies that compare masks."""

from __future__ import annotations

from contract.tasks import SEGMENTATION
from evaluation.edition import DEFAULT_EDITION, load_edition
from evaluation.rules import SegmentationRules


def default_rules() -> SegmentationRules:
    """How the default edition compares masks."""
    rules = load_edition(DEFAULT_EDITION).profile(SEGMENTATION).rules
    if not isinstance(rules, SegmentationRules):
        raise TypeError("masks have the rules of segmentation")
    return rules
