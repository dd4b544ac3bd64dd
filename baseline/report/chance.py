"""How high a metric gets by trying often: the expected best of k answers that know nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from evaluation.studies.chance import DrawScores

TRIES: Final = (1, 5, 20, 100)
DRAWS: Final = 2000


@dataclass(frozen=True)
class Chance:
    """Random answers on a cohort's own outcomes: the spread of their metric, and the expected best of k by k."""

    sd: float
    best_of: Mapping[int, float]


def best_of_random(scores: DrawScores, rng: np.random.Generator, draws: int = DRAWS) -> Chance:
    """The metric of `draws` random answers, and the expected highest of k such for each of `TRIES`.

    The expectation is that of k independent draws from the answers that were tried, which is exact for them: the i-th
    lowest of n is the highest of k with probability (i/n)^k - ((i-1)/n)^k.
    """
    found = np.sort(scores(draws, rng))
    share = np.arange(draws + 1) / draws
    return Chance(float(found.std()), {k: float(found @ np.diff(share**k)) for k in TRIES})
