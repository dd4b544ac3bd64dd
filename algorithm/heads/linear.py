"""Prediction heads as plain data: a weighted sum of standardised features.

The same record serves the proportional-hazards risk and the HPV logit. Every head states what it does with a
missing value: it takes the training median (`fill`). A head may bring scale corrections for the centres it was trained
on; a patient of any other centre gets none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from contract.errors import ModelPackageError

TRANSFORMS: Final = ("identity", "log1p")
# Standardised features are held to this many standard deviations: a freak value must not decide alone.
CLIP_SD: Final = 4.0
# Sums of terms of this size are still finite.
LARGEST_NUMBER: Final = 1e100
# Where the logistic function is 0 or 1 to double precision.
LARGEST_LOGIT: Final = 700.0
# Earlier versions measured the network's encoder. A head that needs it would answer from training medians alone.
_ENCODER_FEATURE: Final = "encoder_"


@dataclass(frozen=True)
class CentreShift:
    """How a centre's standardised values differ: they are moved back by `(value - shift) / scale`."""

    shift: float
    scale: float


@dataclass(frozen=True)
class Term:
    """One feature's part: `weight * clip((transform(value) - mean) / sd)`; a missing value is `fill`ed.

    `centres` holds the shift of each training centre where the head was harmonised; a filled value is not shifted.
    """

    feature: str
    transform: str
    fill: float
    mean: float
    sd: float
    weight: float
    centres: Mapping[str, CentreShift] = field(default_factory=dict)

    def standardised(self, value: float | None, centre: str | None = None) -> float:
        """The feature in training standard deviations, held to +-4."""
        missing = value is None or not math.isfinite(value)
        known = self.fill if value is None or missing else value
        moved = math.log1p(max(known, 0.0)) if self.transform == "log1p" else known
        scaled = (moved - self.mean) / self.sd
        move = None if missing or centre is None else self.centres.get(centre)
        if move is not None:
            scaled = (scaled - move.shift) / move.scale
        return max(-CLIP_SD, min(CLIP_SD, scaled))

    def as_json(self) -> dict[str, Any]:
        """The record of one term; `centres` only where there are any."""
        plain = {key: value for key, value in vars(self).items() if key != "centres"}
        return plain | ({"centres": {name: vars(move) for name, move in self.centres.items()}} if self.centres else {})


@dataclass(frozen=True)
class Calibration:
    """From a score to a probability: the logistic function of `slope * score + offset` (Platt 1999)."""

    slope: float
    offset: float

    def probability(self, score: float) -> float:
        """Between 0 and 1."""
        logit = self.slope * score + self.offset
        return 1 / (1 + math.exp(-max(-LARGEST_LOGIT, min(LARGEST_LOGIT, logit))))


@dataclass(frozen=True)
class LinearHead:
    """`intercept` plus the terms' sum; `threshold` splits the score into classes where the head has one, and
    `calibration` makes it a probability where the head has that.
    """

    kind: str
    intercept: float
    terms: tuple[Term, ...]
    threshold: float | None
    calibration: Calibration | None = None

    def score(self, features: Mapping[str, float | None], centre: str | None = None) -> float:
        """The linear predictor, always finite; a feature that is absent counts as missing.

        `centre` is the patient's, as the training data names it; None or one that is unknown changes nothing.
        """
        return self.intercept + sum(t.weight * t.standardised(features.get(t.feature), centre) for t in self.terms)

    def missing(self, features: Mapping[str, float | None]) -> tuple[Term, ...]:
        """The terms whose feature is missing, so that its `fill` counts."""
        return tuple(term for term in self.terms if features.get(term.feature) is None)

    def as_json(self) -> dict[str, Any]:
        """The record that `parse_head` reads."""
        record = {
            "kind": self.kind,
            "intercept": self.intercept,
            "threshold": self.threshold,
            "terms": [term.as_json() for term in self.terms],
        }
        return record | ({} if self.calibration is None else {"calibration": vars(self.calibration)})


def parse_head(content: Any, name: str) -> LinearHead:
    """Read a head from JSON; `calibration` and a term's `centres` may be absent.

    Raises:
        ModelPackageError: a field is absent, of another type, or not finite, or a feature is the network encoder's.
    """
    try:
        terms = tuple(_parse_term(term, name) for term in content["terms"])
        threshold, calibration = content["threshold"], content.get("calibration")
        head = LinearHead(
            str(content["kind"]),
            _finite(content["intercept"], name),
            terms,
            None if threshold is None else _finite(threshold, name),
            None if calibration is None else _parse_calibration(calibration, name),
        )
    except (KeyError, TypeError, AttributeError) as problem:
        raise ModelPackageError(name, f"not a head ({type(problem).__name__}: {problem})") from None
    return head


def _parse_term(term: Mapping[str, Any], name: str) -> Term:
    if term["transform"] not in TRANSFORMS:
        raise ModelPackageError(name, f"transform {term['transform']!r}", f"one of {', '.join(TRANSFORMS)}")
    if str(term["feature"]).startswith(_ENCODER_FEATURE):
        raise ModelPackageError(
            f"{name}",
            f"found the encoder feature {term['feature']!r}, which is no longer measured",
            "a feature of docs/features.md (fit the heads again)",
        )
    numbers = {key: _finite(term[key], name) for key in ("fill", "mean", "sd", "weight")}
    _check_positive(numbers["sd"], "sd", term, name)
    centres = {str(code): _parse_shift(move, term, name) for code, move in term.get("centres", {}).items()}
    return Term(str(term["feature"]), str(term["transform"]), **numbers, centres=centres)


def _parse_shift(move: Mapping[str, Any], term: Mapping[str, Any], name: str) -> CentreShift:
    shift, scale = (_finite(move[key], name) for key in ("shift", "scale"))
    _check_positive(scale, "scale", term, name)
    return CentreShift(shift, scale)


def _parse_calibration(content: Mapping[str, Any], name: str) -> Calibration:
    return Calibration(_finite(content["slope"], name), _finite(content["offset"], name))


def _check_positive(value: float, what: str, term: Mapping[str, Any], name: str) -> None:
    if value <= 0:
        raise ModelPackageError(name, f"{what} {value} of {term['feature']}", "a positive number")


def _finite(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST_NUMBER:
        raise ModelPackageError(name, f"found {str(value)[:40]}", "a finite number")
    return float(value)
