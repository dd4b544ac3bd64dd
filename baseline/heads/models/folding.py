"""The head of several experts: one linear head if every expert is linear, else a list of experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from algorithm.heads.classes import ClassHead, Head
from algorithm.heads.experts import AnyHead, ClassExpertHead, ClassScoreHead, Expert, ExpertHead, ScoreHead
from algorithm.heads.linear import LinearHead, Term
from algorithm.heads.trees import TreeHead
from baseline.heads.models.classes import NEVER
from baseline.heads.models.terms import MAY_BE_LEFT_OUT

# Name, mean and standard deviation of the scores, and head.
NamedExpert = tuple[str, float, float, AnyHead]


def average_of(experts: Sequence[NamedExpert]) -> Head:
    """The mean of the experts' standardised scores as a head; a single expert on its own scale is its own head."""
    heads = [head for *_, head in experts]
    if len(experts) == 1 and isinstance(heads[0], LinearHead | ClassHead | TreeHead):
        (_, mean, sd, _head) = experts[0]
        if (mean, sd) == (0.0, 1.0):
            return heads[0]
    if not any(map(_may_be_left_out, heads)):
        linear = [(mean, sd, head) for _, mean, sd, head in experts if isinstance(head, LinearHead)]
        of_classes = [
            (mean, sd, head) for _, mean, sd, head in experts if isinstance(head, ClassHead) and _is_linear(head)
        ]
        if len(linear) == len(experts):
            return folded(linear)
        if len(of_classes) == len(experts):
            return folded_classes(of_classes)
    return _listed(experts)


def folded(experts: Sequence[tuple[float, float, LinearHead]]) -> LinearHead:
    """One linear head whose score is the mean of (score - mean) / sd of the experts.

    Terms of equal feature, transform, mean, standard deviation, fill and centres are added up. Each standardised value
    is clipped before it is weighted, so the sum is exact.
    """
    share = 1 / len(experts)
    kinds = dict.fromkeys(head.kind for *_, head in experts)
    terms: dict[str, Term] = {}
    for _, sd, head in experts:
        for term in head.terms:
            key = repr(replace(term, weight=0.0))
            before = terms[key].weight if key in terms else 0.0
            terms[key] = replace(term, weight=before + share * term.weight / sd)
    intercept = sum(share * (head.intercept - mean) / sd for mean, sd, head in experts)
    return LinearHead(" and ".join(kinds), intercept, tuple(t for t in terms.values() if t.weight != 0), None)


def folded_classes(experts: Sequence[tuple[float, float, ClassHead]]) -> ClassHead:
    """One linear head for each class; a class without training patients still never wins."""
    classes: dict[str, LinearHead] = {}
    for name in experts[0][-1].classes:
        heads = [(mean, sd, one) for mean, sd, head in experts if isinstance(one := head.classes[name], LinearHead)]
        one = folded(heads)
        never = any(head.intercept <= NEVER for *_, head in heads)
        classes[name] = replace(one, intercept=NEVER, terms=()) if never else one
    return ClassHead(classes)


def _is_linear(head: AnyHead) -> TypeGuard[ClassHead]:
    return isinstance(head, ClassHead) and all(isinstance(one, LinearHead) for one in head.classes.values())


def _may_be_left_out(head: AnyHead) -> bool:
    return bool(head.features) and all(name.startswith(MAY_BE_LEFT_OUT) for name in head.features)


def _listed(experts: Sequence[NamedExpert]) -> ExpertHead | ClassExpertHead:
    scores = tuple(Expert(name, mean, sd, head) for name, mean, sd, head in experts if isinstance(head, ScoreHead))
    if len(scores) == len(experts):
        return ExpertHead(scores)
    return ClassExpertHead(
        tuple(Expert(name, mean, sd, head) for name, mean, sd, head in experts if isinstance(head, ClassScoreHead))
    )
