"""Comparators of classes without a model: a staging rule on the mask, and the most frequent class."""

from __future__ import annotations

from functools import partial

import numpy as np

from algorithm.heads.staging import staged
from baseline.heads.cohort import HeadCohort, Numbers
from baseline.heads.models.kinds import ClassRule


def most_frequent(train: HeadCohort, cohort: HeadCohort) -> Numbers:
    """The most frequent class of the training patients for everybody."""
    return np.full(len(cohort.ids), train.outcomes.most_frequent(), dtype=np.int64)


def staging_rule(rule: str) -> ClassRule:
    """The stage by `rule`, and where the features do not show it the most frequent class of the training patients."""
    return partial(_stages, rule)


def _stages(rule: str, train: HeadCohort, cohort: HeadCohort) -> Numbers:
    usual, names = train.outcomes.most_frequent(), cohort.outcomes.classes
    stages = (staged(rule, row) for row in cohort.rows)
    return np.array([names.index(stage) if stage in names else usual for stage in stages], dtype=np.int64)
