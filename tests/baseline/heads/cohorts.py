"""Cohorts of the heads for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from algorithm.heads.documents import Features
from baseline.heads.cohort import Flags, HeadCohort, Outcomes, make_feature_table


def make_head_cohort(
    rows: Sequence[Features],
    outcomes: Outcomes,
    centres: Sequence[str] | None = None,
    possible: Flags = np.zeros((0, 0), dtype=np.bool_),  # noqa: B008
) -> HeadCohort:
    """Return patients P000, P001, ... of centre A or of `centres`."""
    ids = tuple(f"P{number:03d}" for number in range(len(rows)))
    return HeadCohort(ids, tuple(centres or ["A"] * len(rows)), make_feature_table(rows), outcomes, possible)
