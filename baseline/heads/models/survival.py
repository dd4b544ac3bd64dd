"""Baseline hazard of a risk, so that the risk can be written as days."""

from __future__ import annotations

from typing import Final

import numpy as np

from algorithm.heads.survival import MOST_STEPS, Survival
from baseline.heads.cohort import Floats, Outcomes

# Follow-up ends on day 1 at the earliest, since days of a survival ascend from above 0.
FIRST_DAY: Final = 1.0


def baseline_survival(outcomes: Outcomes, scores: Floats) -> Survival:
    """Breslow's cumulative hazard at score 0 (Breslow 1972) from follow-up and log partial hazards.

    The horizon is the longest follow-up. Out-of-fold scores make the days agree with patients that the model never saw.
    The estimate steps at each event; a node of the linear hazard lies on the middle of a step. Of more than 64 events
    nodes are taken at equal ranks.
    """
    days = np.maximum(outcomes.times_days, FIRST_DAY)
    ratios = np.exp(scores)
    event_days, events = np.unique(days[outcomes.positive], return_counts=True)
    steps = events / np.array([ratios[days >= day].sum() for day in event_days])
    after = np.cumsum(steps)
    horizon = float(days.max())
    nodes = np.flatnonzero(event_days < horizon)
    nodes = nodes[np.unique(np.linspace(0, len(nodes) - 1, min(len(nodes), MOST_STEPS - 1)).round().astype(int))]
    middle = after - steps / 2
    return Survival((*event_days[nodes].tolist(), horizon), (*middle[nodes].tolist(), float(after[-1])))
