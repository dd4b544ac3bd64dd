"""Short forms of heads for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from algorithm.heads.documents import Faults, Features, Head, LinearHead, SinglePatient, Term


def term(feature: str, *weights: float, **more: Any) -> Term:
    """Return a term, of weight 1 by default, whose standardised value is the value itself, up to 4; a missing one is 0."""
    parts = {"feature": feature, "transform": "identity", "fill": 0.0, "mean": 0.0, "sd": 1.0}
    return Term(**{**parts, "weights": weights or (1.0,), **more})


def make_linear_head(*terms: Term, intercept: float = 0.0, scale: str = "test", **more: Any) -> LinearHead:
    """Make a linear head with one score."""
    return LinearHead(scale=scale, intercepts=(intercept,), terms=terms, **more)


def make_class_head(intercepts: Mapping[str, float], *terms: Term) -> LinearHead:
    """Make a linear head with a score for each class."""
    return LinearHead(scale="test", classes=tuple(intercepts), intercepts=tuple(intercepts.values()), terms=terms)


def score(head: Head, features: Features, faults: Faults | None = None) -> Any:
    """Return the score of one patient, or the scores by class."""
    values = head.scores(SinglePatient(features), faults)[0]
    return dict(zip(head.classes, values.tolist(), strict=True)) if head.classes else float(values)
