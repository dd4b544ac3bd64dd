"""The normal distribution and Student's t, without `scipy.special`: its import takes a fifth of a second."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from evaluation.metrics.overlap import Floats

# Far more than the continued fraction and Newton's method take.
_MAX_STEPS: Final = 200
_TAIL: Final = 0.025
# The 97.5% quantile z of the normal distribution, and the series in 1 / df that Student's t adds to it.
_Z: Final = 1.959963984540054
_QUANTILE_SERIES: Final = (
    _Z,
    (_Z**3 + _Z) / 4,
    (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96,
    (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / 384,
)


def normal_cdf(z: Floats) -> Floats:
    """Compute the cumulative distribution function of the standard normal distribution, precise in the lower tail."""
    chances = [0.5 * math.erfc(-number / math.sqrt(2)) for number in np.ravel(z).tolist()]
    return np.array(chances, dtype=np.float64).reshape(np.shape(z))


def student_t_cdf(df: Floats, t: Floats) -> Floats:
    """Compute the cumulative distribution function of Student's t, precise in the lower tail.

    Args:
        df: Positive degrees of freedom. Infinite degrees of freedom give the normal distribution.
        t: Values in the same shape, which may be infinite.

    Returns:
        The chance of a value of at most t; NaN where an argument is NaN.
    """
    tail = _upper_tail(df, np.abs(t))
    return np.asarray(np.where(t > 0, 1 - tail, tail))


def student_t_quantile(df: Floats) -> Floats:
    """Compute the 97.5% quantile of Student's t; NaN where the degrees of freedom are NaN.

    Newton's method rises to the quantile, because the upper tail is convex and the first value is too small.
    Source of the first value: Abramowitz and Stegun 1964, Handbook of Mathematical Functions, 26.7.5.
    """
    quantile: Floats = np.asarray(sum(factor / df**power for power, factor in enumerate(_QUANTILE_SERIES)))
    density_factor = 1 / (_beta(df) * np.sqrt(df))
    for _ in range(_MAX_STEPS):
        density = density_factor * (1 + quantile**2 / df) ** (-(df + 1) / 2)
        step = np.where(np.isinf(df), 0.0, (_upper_tail(df, quantile) - _TAIL) / density)
        quantile = quantile + step
        # Each step doubles the number of right digits.
        if not (np.abs(step) > 1e-7 * quantile).any():
            break
    return quantile


def _upper_tail(df: Floats, t: Floats) -> Floats:
    """Compute the chance of a value above t, which is 0 or more: half of the incomplete beta function."""
    a = df / 2
    with np.errstate(all="ignore"):
        ratio = t**2 / df
        x, y = 1 / (1 + ratio), 1 / (1 + 1 / ratio)
        factor = np.exp(-a * np.log1p(ratio)) * np.sqrt(y) / _beta(df)
        # The continued fraction converges fast below the mean of the beta distribution. The sum of both sides is 1.
        is_far = x < (a + 1) / (a + 2.5)
        fraction = _beta_fraction(np.where(is_far, a, 0.5), np.where(is_far, 0.5, a), np.where(is_far, x, y))
        tail = np.where(is_far, factor / df * fraction, 0.5 - factor * fraction)
    return np.asarray(np.where(np.isinf(df), normal_cdf(-t), tail))


def _beta(df: Floats) -> Floats:
    """Compute the beta function of a = df / 2 and 1 / 2; NaN for infinite degrees of freedom.

    It is sqrt(pi) times the gamma function of a over the gamma function of a + 1 / 2. This ratio follows from the ratio
    at a + 20, which Stirling's series gives to all digits.
    """
    steps = np.arange(20.0)
    a = np.asarray(df)[..., None] / 2
    with np.errstate(invalid="ignore"):
        ratio = np.prod((a + steps + 0.5) / (a + steps), axis=-1)
    moved = a[..., 0] + steps.size
    series = 1 / (8 * moved) - 1 / (192 * moved**3) + 1 / (640 * moved**5) - 17 / (14336 * moved**7)
    return np.asarray(math.sqrt(math.pi) * ratio * np.exp(series) / np.sqrt(moved))


def _beta_fraction(a: Floats, b: Floats, x: Floats) -> Floats:
    """Compute the continued fraction of the incomplete beta function by Lentz's method.

    Source: Press et al. 2007, Numerical Recipes, section 6.4.
    """
    c, d = np.ones(np.shape(x)), 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, _MAX_STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = np.ones(np.shape(x))
        for term in (even, odd):
            c, d = 1 + term / c, 1 / (1 + term * d)
            change = change * c * d
        fraction = fraction * change
        if not (np.abs(change - 1) > 1e-14).any():
            break
    return fraction
