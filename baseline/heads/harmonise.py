"""Harmonisation by centre: the location and scale adjustment with empirical Bayes of Johnson, Li and Rabinovic 2007
(ComBat).

A centre's mean and variance of each feature are shrunk towards the centre's average over all features, so that small
centres are corrected cautiously. Outcomes are not used. An unseen centre gets no correction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.heads.linear import CentreShift

_Floats = npt.NDArray[np.float64]
# Minimum number of patients of a centre.
LEAST_PATIENTS: Final = 5
_TOLERANCE: Final = 1e-6
_MOST_ROUNDS: Final = 500
_SCANNER_WORDS: Final = ("suv", "tlg", "glycolysis", "mtv", "cold", "hu_")


def depends_on_scanner(feature: str) -> bool:
    """True for features of CT or PET intensities, False for volumes, distances and clinical variables."""
    return any(word in feature for word in _SCANNER_WORDS)


def centre_shifts(values: _Floats, centres: Sequence[str]) -> list[dict[str, CentreShift]]:
    """Shift and scale of each centre for each feature, in the feature's own scale.

    Args:
        values: (patients, features), NaN where missing.
        centres: each patient's centre.

    Returns:
        One mapping per feature; a harmonised value is `(value - shift) / scale`. Centres with fewer than five known
        values are left out; a feature with fewer than two other centres has none.
    """
    codes = np.asarray(centres)
    shifts: list[dict[str, CentreShift]] = [{} for _ in range(values.shape[1])]
    enough = {code: np.isfinite(values[codes == code]).sum(0) >= LEAST_PATIENTS for code in sorted(set(centres))}
    usable = [n for n in range(values.shape[1]) if sum(bool(known[n]) for known in enough.values()) > 1]
    if not usable:
        return shifts
    middle, spread = _overall(values, codes, usable, enough)
    for code, known_features in enough.items():
        known = known_features[usable]
        if not known.any():
            continue
        scaled = (values[codes == code][:, usable][:, known] - middle[known]) / spread[known]
        for place, by, squared in zip(np.flatnonzero(known), *_empirical_bayes(scaled), strict=True):
            scale = float(np.sqrt(squared))
            # From units of the within-centre standard deviation back to the feature's own scale.
            shifts[usable[place]][code] = CentreShift(
                float(middle[place] + spread[place] * by - scale * middle[place]), scale
            )
    return shifts


def _overall(
    values: _Floats, codes: npt.NDArray[np.str_], usable: Sequence[int], enough: dict[str, npt.NDArray[np.bool_]]
) -> tuple[_Floats, _Floats]:
    """Mean over the patients of all usable centres, and their pooled standard deviation within centres."""
    middle, spread = [], []
    for number in usable:
        parts = [values[codes == code, number] for code, known in enough.items() if known[number]]
        parts = [part[np.isfinite(part)] for part in parts]
        middle.append(float(np.concatenate(parts).mean()))
        within = np.concatenate([part - part.mean() for part in parts])
        spread.append(max(float(within.std()), 1e-9))
    return np.array(middle), np.array(spread)


def _empirical_bayes(scaled: _Floats) -> tuple[_Floats, _Floats]:
    """Posterior shift and variance of each feature of one centre, by alternating conditional means."""
    count = np.isfinite(scaled).sum(0)
    shift = np.nanmean(scaled, axis=0)
    variance = np.maximum(np.nanvar(scaled, axis=0, ddof=1), 1e-9)
    prior_shift, prior_shift_variance = float(shift.mean()), _variance(shift)
    prior_mean, prior_variance = float(variance.mean()), _variance(variance)
    posterior, posterior_variance = shift, variance
    weight = count * prior_shift_variance
    for _ in range(_MOST_ROUNDS):
        before = posterior, posterior_variance
        posterior = (weight * shift + posterior_variance * prior_shift) / (weight + posterior_variance)
        squares = np.nansum((scaled - posterior) ** 2, axis=0)
        posterior_variance = _posterior_variance(squares, count, prior_mean, prior_variance)
        change = max(np.abs(posterior - before[0]).max(), np.abs(posterior_variance - before[1]).max())
        if change < _TOLERANCE:
            break
    return posterior, posterior_variance


def _posterior_variance(
    squares: _Floats, count: npt.NDArray[np.int64], prior_mean: float, prior_variance: float
) -> _Floats:
    """Mean of the inverse gamma posterior for a prior with the given mean and variance over the features."""
    if prior_variance < 1e-12:  # all features agree: the prior is certain
        return np.full(len(squares), prior_mean)
    shape = prior_mean**2 / prior_variance + 2
    scale = prior_mean * (shape - 1)
    return np.asarray((scale + squares / 2) / (shape + count / 2 - 1), dtype=np.float64)


def _variance(values: _Floats) -> float:
    return float(values.var(ddof=1)) if len(values) > 1 else 0.0
