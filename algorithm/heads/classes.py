"""Heads of answers with more than two classes, one head for each, and the reader of heads of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from algorithm.heads.experts import ClassExpertHead, ExpertHead, parse_experts
from algorithm.heads.linear import LinearHead, Term, parse_head
from algorithm.heads.trees import TreeHead, parse_trees
from contract.errors import ModelPackageError


@dataclass(frozen=True)
class ClassHead:
    """A head for each class, by the class's value as text."""

    classes: Mapping[str, LinearHead | TreeHead]

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


Head = LinearHead | ClassHead | TreeHead | ExpertHead | ClassExpertHead
# Heads with a score for each class.
CLASS_HEADS: Final = (ClassHead, ClassExpertHead)


def read_head(content: Any, name: str) -> Head:
    """Read a head from JSON: a linear head, trees, `{"classes": {"T1": <head>, ...}}` with two classes or more, or
    `{"experts": [...]}`, an average of heads.

    Raises `ModelPackageError`.
    """
    if isinstance(content, dict) and "experts" in content:
        return parse_experts(content, name, read_head)
    if not isinstance(content, dict) or "classes" not in content:
        return _read_single(content, name)
    classes = content["classes"]
    if set(content) != {"classes"} or not isinstance(classes, dict) or len(classes) < 2:
        expected = "`classes` alone, with a head for each of two or more"
        raise ModelPackageError(name, "not a head of classes", expected)
    return ClassHead({value: _read_single(head, f"{name} {value}") for value, head in classes.items()})


def _read_single(content: Any, name: str) -> LinearHead | TreeHead:
    is_trees = isinstance(content, dict) and "trees" in content
    return parse_trees(content, name) if is_trees else parse_head(content, name)
