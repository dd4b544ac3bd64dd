"""Candidates that a training asks for: boosted trees, and the outcome network's answers as features."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from algorithm.outcome.plan import OutcomeTask
from baseline.heads.models.classes import fit_multinomial
from baseline.heads.models.kinds import BinaryTarget, RiskTarget, Target
from baseline.heads.models.logistic import fit_logistic
from baseline.heads.models.risk import fit_cox
from baseline.heads.models.selection import Family, FitPath, Setting
from baseline.heads.models.trees import TREES, fit_class_trees, fit_classes_trees, fit_survival_trees

OUTCOME_NETWORK: Final = "outcome network"
BOOSTED_TREES: Final = "trees, all features"
_LEAST_FOR_TREES: Final = 20
_PENALTY: Final[Mapping[str, float]] = {"penalty": 0.01}


def with_extra_families(target: Target, features: Collection[str], trees: bool = False) -> Target:
    """The target with the outcome network as a candidate if it is among the patients' `features`, and with `trees`."""
    extra = [*_by_network(target, features), *([_boosted(target)] if trees else [])]
    return replace(target, families=(*target.families, *extra))


def _by_network(target: Target, features: Collection[str]) -> list[Family]:
    classes = () if isinstance(target, RiskTarget | BinaryTarget) else tuple(map(str, target.answer.classes))
    names = OutcomeTask(target.answer.name, classes).features
    if not set(names) & set(features):
        return []
    fit: FitPath = fit_multinomial
    setting: Setting = _PENALTY
    if isinstance(target, RiskTarget):
        fit = fit_cox
    elif isinstance(target, BinaryTarget):
        fit = fit_logistic
    return [Family(OUTCOME_NETWORK, fit, (setting,), dict.fromkeys(names, "identity"))]


def _boosted(target: Target) -> Family:
    fit: FitPath = fit_classes_trees
    if isinstance(target, RiskTarget):
        fit = fit_survival_trees
    elif isinstance(target, BinaryTarget):
        fit = fit_class_trees
    return Family(BOOSTED_TREES, fit, TREES, least_scarce=_LEAST_FOR_TREES)
