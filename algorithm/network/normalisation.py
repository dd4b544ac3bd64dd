"""Normalisation of one channel: nnU-Net's schemes, a fixed window, or an entrant's function.

Schemes that take their scale from the image may take it from the whole scan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from nnunetv2.preprocessing.normalization import default_normalization_schemes

from algorithm.network.package import CUSTOM_FUNCTION, HOOK, SCHEMES, ModelPackage
from contract.code import failure_of
from contract.errors import ModelPackageError

_Float = npt.NDArray[np.float32]
_SMALLEST_SPREAD: Final = 1e-8
# The plans name a scheme, or hold a window: two numbers, in HU or SUV, that become 0 and 1.
KNOWN: Final = f"a window (low, high) with low below high, one of {', '.join(SCHEMES)}"


class HookFailedError(Exception):
    """An entrant's network or normalisation fails on a case; the message is one line."""


@dataclass(frozen=True)
class Scale:
    """Mean, standard deviation, and smallest and largest value of an image."""

    mean: float
    spread: float
    low: float
    high: float

    @classmethod
    def of(cls, image: _Float) -> Scale:
        """The scale of an image."""
        return cls(float(image.mean()), float(image.std()), float(image.min()), float(image.max()))


def _z_score(channel: _Float, scale: Scale) -> _Float:
    return np.asarray((channel - np.float32(scale.mean)) / np.float32(max(scale.spread, _SMALLEST_SPREAD)))


def _from_0_to_1(channel: _Float, scale: Scale) -> _Float:
    span = max(scale.high - scale.low, _SMALLEST_SPREAD)
    return np.asarray((channel - np.float32(scale.low)) / np.float32(span))


# Schemes that take their scale from the image.
OWN_SCALE: Final = {"ZScoreNormalization": _z_score, "RescaleTo01Normalization": _from_0_to_1}


def normaliser(package: ModelPackage, number: int, scale: Scale | None) -> Callable[[_Float], _Float]:
    """Normalisation of channel `number` by the scheme that the plans name; returns a new array.

    `scale` is that of the whole scan; None takes it from the normalised image.
    """
    scheme = package.configuration["normalization_schemes"][number]
    if not is_known(scheme):
        raise ModelPackageError("plans.json", f"normalisation {scheme!r}", KNOWN)
    if scheme == CUSTOM_FUNCTION:
        return custom_normaliser(package, number)
    if not isinstance(scheme, str):
        low, high = (np.float32(limit) for limit in scheme)
        return lambda channel: (np.clip(channel, low, high) - low) / (high - low)
    if scale is not None and scheme in OWN_SCALE:
        own, known = OWN_SCALE[scheme], scale
        return lambda channel: own(channel, known)
    properties = package.intensities[str(number)] if package.intensities else {}
    nnunets = getattr(default_normalization_schemes, scheme)
    plain = nnunets(use_mask_for_norm=False, intensityproperties=properties)
    return lambda channel: np.asarray(plain.run(channel.copy(), None), dtype=np.float32)


def is_known(scheme: Any) -> bool:
    """True for a window, one of `SCHEMES` and an entrant's function."""
    if isinstance(scheme, str):
        return scheme in (*SCHEMES, CUSTOM_FUNCTION)
    try:
        low, high = (np.float32(limit) for limit in scheme)
    except (TypeError, ValueError):
        return False
    return bool(-np.inf < low < high < np.inf)


def takes_own_scale(scheme: str | list[float]) -> bool:
    """True for a scheme that takes its scale from the image."""
    return isinstance(scheme, str) and scheme in OWN_SCALE


def custom_normaliser(package: ModelPackage, number: int) -> Callable[[_Float], _Float]:
    """The entrant's own normalisation of a channel; what it returns is checked."""
    reference = package.configuration["architecture"][HOOK]
    network = package.code.find(reference, "network")

    def normalise(channel: _Float) -> _Float:
        try:
            normalised = np.asarray(network.channels[number][1](channel.copy()))
        except MemoryError:
            raise
        except (Exception, SystemExit) as problem:
            raise HookFailedError(f"normalisation {number} of {reference}: {failure_of(problem)}") from problem
        if normalised.shape != channel.shape or normalised.dtype.kind != "f" or not np.isfinite(normalised).all():
            found = f"{normalised.dtype} of shape {normalised.shape}"
            raise HookFailedError(f"normalisation {number} of {reference}: {found}, expected finite {channel.shape}")
        return normalised.astype(np.float32, copy=False)

    return normalise
