"""How high a C-index gets by trying often: the expected best of k risks that know nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from baseline.models import comparable_pairs
from contract.errors import MetricError

Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

TRIES: Final = (1, 5, 20, 100)
DRAWS: Final = 2000


@dataclass(frozen=True)
class Chance:
    """Random risks on a cohort's own follow-up: the spread of their C-index, and the expected best of k by k."""

    sd: float
    best_of: Mapping[int, float]


def best_of_random(rfs_days: Floats, relapse: Flags, rng: np.random.Generator, draws: int = DRAWS) -> Chance:
    """The C-index of `draws` random orders of the patients, and the expected highest of k such for each of `TRIES`.

    The expectation is that of k independent draws from the orders that were tried, which is exact for them: the i-th
    lowest of n is the highest of k with probability (i/n)^k - ((i-1)/n)^k.

    Raises:
        MetricError: no two patients can be compared.
    """
    first, second = np.nonzero(comparable_pairs(rfs_days, relapse))
    if not first.size:
        raise MetricError(f"C-index: no comparable pair among {len(relapse)} patients")
    orders = (rng.permutation(len(relapse)) for _ in range(draws))
    found = np.sort([float(np.mean(order[first] > order[second])) for order in orders])
    share = np.arange(draws + 1) / draws
    return Chance(float(found.std()), {k: float(found @ np.diff(share**k)) for k in TRIES})
