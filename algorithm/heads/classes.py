"""Heads of answers with more than two classes, one linear head for each, and the reader of heads of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from algorithm.heads.experts import ClassExpertHead, ExpertHead, parse_experts
from algorithm.heads.linear import LinearHead, Term, parse_head
from contract.errors import ModelPackageError


@dataclass(frozen=True)
class ClassHead:
    """A linear head for each class, by the class's value as text."""

    classes: Mapping[str, LinearHead]

    def scores(self, features: Mapping[str, float | None], centre: str | None = None) -> dict[str, float]:
        """The linear predictor of each class; only their order has a meaning."""
        return {name: head.score(features, centre) for name, head in self.classes.items()}

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, each once."""
        return tuple(dict.fromkeys(name for head in self.classes.values() for name in head.features))

    def missing(self, features: Mapping[str, float | None]) -> tuple[Term, ...]:
        """The terms whose feature is missing, each feature once."""
        terms = {term.feature: term for head in self.classes.values() for term in head.missing(features)}
        return tuple(terms.values())

    def as_json(self) -> dict[str, Any]:
        return {"classes": {name: head.as_json() for name, head in self.classes.items()}}


Head = LinearHead | ClassHead | ExpertHead | ClassExpertHead
# Heads with a score for each class.
CLASS_HEADS: Final = (ClassHead, ClassExpertHead)


def read_head(content: Any, name: str) -> Head:
    """Read a head from JSON: a linear head, `{"classes": {"T1": <linear head>, ...}}` with two classes or more, or
    `{"experts": [...]}`, an average of heads.

    Raises `ModelPackageError`.
    """
    if isinstance(content, dict) and "experts" in content:
        return parse_experts(content, name, read_head)
    if not isinstance(content, dict) or "classes" not in content:
        return parse_head(content, name)
    classes = content["classes"]
    if set(content) != {"classes"} or not isinstance(classes, dict) or len(classes) < 2:
        expected = "`classes` alone, with a linear head for each of two or more"
        raise ModelPackageError(name, "not a head of classes", expected)
    return ClassHead({value: parse_head(head, f"{name} {value}") for value, head in classes.items()})
