"""Prediction heads as plain data: a weighted sum of standardised features.

The same record serves a proportional-hazards risk and a logit. A missing value takes the training median (`fill`).
A head may hold scale corrections for the centres of its training data; patients of other centres get none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from algorithm.heads.survival import Survival, checked_survival
from contract.errors import ModelPackageError

TRANSFORMS: Final = ("identity", "log1p")
# Standardised features are clipped to this many standard deviations, so that one extreme value cannot decide alone.
CLIP_SD: Final = 4.0
# Sums of terms of this size are still finite.
LARGEST_NUMBER: Final = 1e100
# The logistic function is 0 or 1 to double precision beyond this.
LARGEST_LOGIT: Final = 700.0
# Earlier versions measured the network's encoder. A head that needs it would use training medians alone.
_ENCODER_FEATURE: Final = "encoder_"


@dataclass(frozen=True)
class CentreShift:
    """Correction of a centre's standardised values: `(value - shift) / scale`."""

    shift: float
    scale: float


@dataclass(frozen=True)
class Term:
    """One feature's contribution: `weight * clip((transform(value) - mean) / sd)`; `fill` replaces a missing value.

    `centres` holds the shift of each training centre if the head was harmonised; a filled value is not shifted.
    """

    feature: str
    transform: str
    fill: float
    mean: float
    sd: float
    weight: float
    centres: Mapping[str, CentreShift] = field(default_factory=dict)

    def standardised(self, value: float | None, centre: str | None = None) -> float:
        """The feature in training standard deviations, clipped to +-4."""
        missing = value is None or not math.isfinite(value)
        known = self.fill if value is None or missing else value
        transformed = math.log1p(max(known, 0.0)) if self.transform == "log1p" else known
        scaled = (transformed - self.mean) / self.sd
        correction = None if missing or centre is None else self.centres.get(centre)
        if correction is not None:
            scaled = (scaled - correction.shift) / correction.scale
        return max(-CLIP_SD, min(CLIP_SD, scaled))

    def as_json(self) -> dict[str, Any]:
        record = asdict(self)
        if not self.centres:
            del record["centres"]
        return record


@dataclass(frozen=True)
class Calibration:
    """From a score to a probability: the logistic function of `slope * score + offset` (Platt 1999)."""

    slope: float
    offset: float

    def probability(self, score: float) -> float:
        logit = self.slope * score + self.offset
        return 1 / (1 + math.exp(-max(-LARGEST_LOGIT, min(LARGEST_LOGIT, logit))))


@dataclass(frozen=True)
class LinearHead:
    """`intercept` plus the sum of the terms.

    Optional parts: `threshold` splits the score into two classes, `calibration` turns it into a probability, and
    `survival` turns it into days.
    """

    kind: str
    intercept: float
    terms: tuple[Term, ...]
    threshold: float | None
    calibration: Calibration | None = None
    survival: Survival | None = None

    def score(self, features: Mapping[str, float | None], centre: str | None = None) -> float:
        """The linear predictor, always finite; an absent feature counts as missing.

        `centre` is the patient's centre as the training data names it; None or an unknown centre changes nothing.
        """
        return self.intercept + sum(t.weight * t.standardised(features.get(t.feature), centre) for t in self.terms)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, each once."""
        return tuple(dict.fromkeys(term.feature for term in self.terms))

    def missing(self, features: Mapping[str, float | None]) -> tuple[Term, ...]:
        """The terms whose feature is missing, so that their `fill` is used; each feature once."""
        terms = {term.feature: term for term in self.terms if features.get(term.feature) is None}
        return tuple(terms.values())

    def as_json(self) -> dict[str, Any]:
        terms = [term.as_json() for term in self.terms]
        record = {"kind": self.kind, "intercept": self.intercept, "threshold": self.threshold, "terms": terms}
        record |= {} if self.calibration is None else {"calibration": vars(self.calibration)}
        return record | ({} if self.survival is None else {"survival": self.survival.as_json()})


def parse_head(content: Any, name: str) -> LinearHead:
    """Read a linear head from JSON; `calibration`, `survival` and a term's `centres` may be absent.

    Raises:
        ModelPackageError: a field is absent, of another type, or not finite, a survival does not rise, or a feature is
            the network encoder's.
    """
    try:
        terms = tuple(_parse_term(term, name) for term in content["terms"])
        threshold = content["threshold"]
        return LinearHead(
            str(content["kind"]),
            checked_number(content["intercept"], name),
            terms,
            None if threshold is None else checked_number(threshold, name),
            parse_calibration(content.get("calibration"), name),
            parse_survival(content.get("survival"), name),
        )
    except KeyError as problem:
        raise ModelPackageError(name, f"no {problem}", "a head") from None
    except (TypeError, AttributeError) as problem:
        raise ModelPackageError(name, f"not a head ({type(problem).__name__}: {problem})") from None


def parse_calibration(content: Mapping[str, Any] | None, name: str) -> Calibration | None:
    """The optional `calibration` of a head. Raises `ModelPackageError` for a value that is no finite number."""
    if content is None:
        return None
    return Calibration(*(checked_number(content[key], name) for key in ("slope", "offset")))


def parse_survival(content: Mapping[str, Any] | None, name: str) -> Survival | None:
    """The optional `survival` of a head. Raises `ModelPackageError` if its values are not finite or do not rise."""
    if content is None:
        return None
    days, hazard = (tuple(checked_number(v, name) for v in content[key]) for key in ("days", "cumulative_hazard"))
    return checked_survival(Survival(days, hazard), name)


def _parse_term(term: Mapping[str, Any], name: str) -> Term:
    if term["transform"] not in TRANSFORMS:
        raise ModelPackageError(name, f"transform {term['transform']!r}", f"one of {', '.join(TRANSFORMS)}")
    if str(term["feature"]).startswith(_ENCODER_FEATURE):
        fault = f"the encoder feature {term['feature']!r}, which is no longer measured"
        raise ModelPackageError(name, fault, "a feature of docs/features.md (fit the heads again)")
    numbers = {key: checked_number(term[key], name) for key in ("fill", "mean", "sd", "weight")}
    check_positive(numbers["sd"], "sd", f" of {term['feature']}", name)
    centres = {str(code): _parse_shift(shift, term, name) for code, shift in term.get("centres", {}).items()}
    return Term(str(term["feature"]), str(term["transform"]), **numbers, centres=centres)


def _parse_shift(content: Mapping[str, Any], term: Mapping[str, Any], name: str) -> CentreShift:
    shift, scale = (checked_number(content[key], name) for key in ("shift", "scale"))
    check_positive(scale, "scale", f" of {term['feature']}", name)
    return CentreShift(shift, scale)


def check_positive(value: float, what: str, of: str, name: str) -> None:
    """Raise `ModelPackageError` unless the value is above 0; the message shows `what`, the value and `of`."""
    if value <= 0:
        raise ModelPackageError(name, f"{what} {value}{of}", "a positive number")


def checked_number(value: Any, name: str) -> float:
    """The value as a float. Raises `ModelPackageError` for anything but a finite number of at most 1e100."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST_NUMBER:
        raise ModelPackageError(name, f"found {str(value)[:40]}", "a finite number")
    return float(value)
