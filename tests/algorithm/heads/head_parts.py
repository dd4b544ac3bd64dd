"""Short forms of heads for tests."""

from __future__ import annotations

from typing import Any

from algorithm.heads.documents import LinearHead, Term


def term(feature: str, weight: float = 1.0, **more: Any) -> Term:
    """A term whose standardised value is the value itself, up to 4; a missing one counts as 0."""
    return Term(
        **{"feature": feature, "transform": "identity", "fill": 0.0, "mean": 0.0, "sd": 1.0, "weight": weight, **more}
    )


def linear(*terms: Term, intercept: float = 0.0, kind: str = "test", **more: Any) -> LinearHead:
    """A linear head."""
    return LinearHead(kind=kind, intercept=intercept, terms=terms, **more)
