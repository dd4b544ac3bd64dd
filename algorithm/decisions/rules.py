"""The rules on lesions as plain data, and the verdict that they give on a measured lesion."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from contract.errors import ModelPackageError

# Largest value of each rule that is a share or a probability; every other rule is a number from 0.
_SHARES: Final = ("foreground_threshold", "gtvp_threshold", "one_label_share")
_LARGEST: Final = 1e6


@dataclass(frozen=True)
class Decisions:
    """Rules on the lesions of a mask. The defaults change nothing.

    A lesion is a 26-connected component of one label. Mean and maximum probability are of the foreground (GTVp plus
    GTVn), since a lesion with an uncertain label is still a lesion.

    Attributes:
        foreground_threshold: a voxel is foreground if the larger of its two foreground probabilities exceeds
            t / (1 - t) times that of the background; 0.5 is the argmax.
        gtvp_threshold: a foreground voxel is GTVp if p(GTVp) / (p(GTVp) + p(GTVn)) reaches this.
        one_label_share: touching lesions of both labels become one lesion of the label with more probability, if the
            other label's share of it is below this.
        largest_gtvp_only: of the GTVp that pass the other rules, only the largest stays.
        gtvp_volume_ml: smallest GTVp.
        gtvp_mean_probability: lowest mean probability of a GTVp.
        gtvp_max_probability: lowest maximum probability of a GTVp.
        gtvn_volume_ml: smallest GTVn.
        gtvn_mean_probability: lowest mean probability of a GTVn.
        gtvn_max_probability: lowest maximum probability of a GTVn.
        gtvn_suv_max: lowest SUVmax of a GTVn.
        gtvn_suv_peak: lowest SUVpeak of a GTVn.
        gtvn_distance_mm: largest distance of a GTVn from the primary, between centres; None for any.
        gtvn_contralateral_probability: lowest mean probability of a GTVn on the other side than the primary.
    """

    foreground_threshold: float = 0.5
    gtvp_threshold: float = 0.5
    one_label_share: float = 0.0
    largest_gtvp_only: bool = False
    gtvp_volume_ml: float = 0.0
    gtvp_mean_probability: float = 0.0
    gtvp_max_probability: float = 0.0
    gtvn_volume_ml: float = 0.0
    gtvn_mean_probability: float = 0.0
    gtvn_max_probability: float = 0.0
    gtvn_suv_max: float = 0.0
    gtvn_suv_peak: float = 0.0
    gtvn_distance_mm: float | None = None
    gtvn_contralateral_probability: float = 0.0

    @property
    def thresholds(self) -> tuple[float, float]:
        """Thresholds of foreground and of GTVp against GTVn, on which the components depend."""
        return self.foreground_threshold, self.gtvp_threshold

    def as_json(self) -> dict[str, Any]:
        """Only the rules that differ from the default, as plain data."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value != DEFAULTS[name]}


DEFAULTS: Final[Mapping[str, Any]] = {field.name: field.default for field in fields(Decisions)}
NO_DECISIONS: Final = Decisions()
# The rules in words, for the log, the record and the report.
WORDS: Final[Mapping[str, str]] = {
    "foreground_threshold": "threshold of the foreground",
    "gtvp_threshold": "threshold of GTVp against GTVn",
    "one_label_share": "one label for touching lesions if the other label's share is below",
    "largest_gtvp_only": "largest GTVp only",
    "gtvp_volume_ml": "GTVp, minimum volume in ml",
    "gtvp_mean_probability": "GTVp, minimum mean probability",
    "gtvp_max_probability": "GTVp, minimum of the maximum probability",
    "gtvn_volume_ml": "GTVn, minimum volume in ml",
    "gtvn_mean_probability": "GTVn, minimum mean probability",
    "gtvn_max_probability": "GTVn, minimum of the maximum probability",
    "gtvn_suv_max": "GTVn, minimum SUVmax",
    "gtvn_suv_peak": "GTVn, minimum SUVpeak",
    "gtvn_distance_mm": "GTVn, maximum distance from the primary in mm",
    "gtvn_contralateral_probability": "contralateral GTVn, minimum mean probability",
}


def read_decisions(content: Any, name: str) -> Decisions:
    """Check the rules of a manifest or file, which is called `name` in messages.

    Raises:
        ModelPackageError: no object, an unknown rule, or a value that the rule cannot have.
    """
    if not isinstance(content, dict):
        raise ModelPackageError(name, f"decisions {content!r}", "an object of rules")
    for rule, value in content.items():
        if rule not in DEFAULTS:
            raise ModelPackageError(name, f"decisions: unknown rule {rule!r}", f"rules of {', '.join(DEFAULTS)}")
        if expected := _why_not(rule, value):
            raise ModelPackageError(name, f"decisions: {rule} {value!r}", expected)
    return Decisions(**content)


def _why_not(rule: str, value: Any) -> str:
    """The expected range if a rule's value is not valid, else empty."""
    if isinstance(DEFAULTS[rule], bool):
        return "" if isinstance(value, bool) else "true or false"
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "a number"
    if rule.endswith("_threshold"):
        return "" if 0 < value < 1 else "a number between 0 and 1"
    largest = 1.0 if rule in _SHARES or rule.endswith("_probability") else _LARGEST
    return "" if 0 <= value <= largest else f"a number from 0 to {largest:g}"
