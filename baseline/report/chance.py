"""Chance level after repeated tries: the expected best metric of k random answers."""

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
    """Metric of random answers to a cohort: standard deviation, and expected best of k tries by k."""

    sd: float
    best_of: Mapping[int, float]


def best_of_random(scores: DrawScores, rng: np.random.Generator, draws: int = DRAWS) -> Chance:
    """Draw `draws` random answers, and compute the expected highest metric of k answers for each k of `TRIES`.

    The expectation is exact for k independent draws from these answers: the i-th lowest of n is the highest of k with
    probability (i/n)^k - ((i-1)/n)^k.
    """
    values = np.sort(scores(draws, rng))
    share = np.arange(draws + 1) / draws
    return Chance(float(values.std()), {k: float(values @ np.diff(share**k)) for k in TRIES})
