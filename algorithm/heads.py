"""Prediction heads as plain data: a weighted sum of standardised features.

The same record serves the proportional-hazards risk and the HPV logit. Every head states what it does with a
missing value: it takes the training median (`fill`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from contract.errors import ModelPackageError

TRANSFORMS: Final = ("identity", "log1p")
# Standardised features are held to this many standard deviations: a freak value must not decide alone.
CLIP_SD: Final = 4.0
# Sums of terms of this size are still finite.
LARGEST_NUMBER: Final = 1e100


@dataclass(frozen=True)
class Term:
    """One feature's part: `weight * clip((transform(value) - mean) / sd)`; a missing value is `fill`ed."""

    feature: str
    transform: str
    fill: float
    mean: float
    sd: float
    weight: float

    def standardised(self, value: float | None) -> float:
        """The feature in training standard deviations, held to +-4."""
        known = self.fill if value is None or not math.isfinite(value) else value
        moved = math.log1p(max(known, 0.0)) if self.transform == "log1p" else known
        return max(-CLIP_SD, min(CLIP_SD, (moved - self.mean) / self.sd))


@dataclass(frozen=True)
class LinearHead:
    """`intercept` plus the terms' sum; `threshold` splits the score into classes where the head has one."""

    kind: str
    intercept: float
    terms: tuple[Term, ...]
    threshold: float | None

    def score(self, features: Mapping[str, float | None]) -> float:
        """The linear predictor, always finite; a feature that is absent counts as missing."""
        return self.intercept + sum(t.weight * t.standardised(features.get(t.feature)) for t in self.terms)

    def missing(self, features: Mapping[str, float | None]) -> tuple[Term, ...]:
        """The terms whose feature is missing, so that its `fill` counts."""
        return tuple(term for term in self.terms if features.get(term.feature) is None)

    def as_json(self) -> dict[str, Any]:
        """The record that `parse_head` reads."""
        return {
            "kind": self.kind,
            "intercept": self.intercept,
            "threshold": self.threshold,
            "terms": [vars(term) for term in self.terms],
        }


def parse_head(content: Any, name: str) -> LinearHead:
    """Read a head from JSON.

    Raises:
        ModelPackageError: a field is absent, of another type, or not finite.
    """
    try:
        terms = tuple(_parse_term(term, name) for term in content["terms"])
        threshold = content["threshold"]
        head = LinearHead(
            str(content["kind"]),
            _finite(content["intercept"], name),
            terms,
            None if threshold is None else _finite(threshold, name),
        )
    except (KeyError, TypeError) as problem:
        raise ModelPackageError(f"{name}: not a head ({type(problem).__name__}: {problem})") from None
    return head


def _parse_term(term: Mapping[str, Any], name: str) -> Term:
    if term["transform"] not in TRANSFORMS:
        raise ModelPackageError(f"{name}: transform {term['transform']!r}, expected one of {', '.join(TRANSFORMS)}")
    numbers = {key: _finite(term[key], name) for key in ("fill", "mean", "sd", "weight")}
    if numbers["sd"] <= 0:
        raise ModelPackageError(f"{name}: sd {numbers['sd']} of {term['feature']}, expected a positive number")
    return Term(str(term["feature"]), str(term["transform"]), **numbers)


def _finite(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST_NUMBER:
        raise ModelPackageError(f"{name}: found {str(value)[:40]}, expected a finite number")
    return float(value)
