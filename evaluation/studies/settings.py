"""The default edition's rules, for studies that compare masks."""

from __future__ import annotations

from contract.tasks import SEGMENTATION
from evaluation.editions.profile import DEFAULT_EDITION, load_edition
from evaluation.editions.rules import SegmentationRules


def default_rules() -> SegmentationRules:
    """How the default edition compares masks."""
    rules = load_edition(DEFAULT_EDITION).profile(SEGMENTATION).rules
    if not isinstance(rules, SegmentationRules):
        raise TypeError("masks have the rules of segmentation")
    return rules
