"""Fit the RFS and HPV heads that are shipped: choose by cross-validation, refit on everyone.

Every transform (filling, scaling, harmonising) is learnt inside the training part of a fold and travels with the head.
What a head promises for unseen patients is `baseline.heads.cross_validation`'s to say; the figure here chose the head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from algorithm.heads.linear import LinearHead
from baseline.heads.models.selection import Setting, choose, refit
from baseline.heads.models.shared import Cohort, Outcomes, balanced_accuracy, best_threshold, concordance
from baseline.heads.models.targets import Target, only

__all__ = [
    "Cohort",
    "FittedHead",
    "Outcomes",
    "best_threshold",
    "concordance",
    "fit_clinical",
    "fit_target",
]


@dataclass(frozen=True)
class FittedHead:
    """A head fitted on all patients, which model and setting it is, and its metric over the out-of-fold scores by
    which they were chosen. `tried` is each competitor's, by C-index (RFS) or area under the curve (HPV).
    """

    head: LinearHead
    metric: str
    out_of_fold: float
    model: str
    setting: Setting
    tried: Mapping[str, float] = field(default_factory=dict)

    @property
    def penalty(self) -> float:
        """The penalty chosen, 0 for a model without one."""
        return float(self.setting.get("penalty", 0.0))


def fit_target(target: Target, cohort: Cohort, rng: np.random.Generator, by_centre: bool = True) -> FittedHead:
    """Choose among the target's families on folds that leave whole centres out (`by_centre`, where there are three
    or more) or are stratified, and refit on everyone.

    Raises:
        MetricError: fewer than two relapses, or patients of either HPV status, so that a fold could lack one.
    """
    target.check(cohort, 2)
    chosen = choose(cohort, target.competing(cohort), target.folds(cohort, by_centre, rng), target.judge, rng)
    head = target.finish(refit(cohort, chosen, rng), cohort, chosen.scores, rng)
    metric = chosen.metric
    if head.threshold is not None:
        metric = balanced_accuracy(cohort.outcomes.hpv, chosen.scores >= head.threshold)
    return FittedHead(head, target.metric, metric, chosen.name, chosen.setting, chosen.tried)


def fit_clinical(target: Target, cohort: Cohort, rng: np.random.Generator, by_centre: bool = True) -> FittedHead:
    """The head on the clinical variables alone."""
    return fit_target(only(target, [target.comparators["clinical"]]), cohort, rng, by_centre)
