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

from algorithm.network.package import OWN, OWN_FUNCTION, SCHEMES, ModelPackage
from contract.code import failure_of
from contract.errors import ModelPackageError

_Float = npt.NDArray[np.float32]
_SMALLEST_SPREAD: Final = 1e-8
# A channel's normalisation in the plans: `Window(-160, 240)`.
_WINDOW: Final = "Window"
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
    if scheme == OWN_FUNCTION:
        return own_normaliser(package, number)
    if (by_window := window_of(scheme)) is not None:
        return by_window
    if scheme not in SCHEMES:
        raise ModelPackageError("plans.json", f"normalisation {scheme!r}", f"{', '.join(SCHEMES)}")
    if scale is not None and scheme in OWN_SCALE:
        own, known = OWN_SCALE[scheme], scale
        return lambda channel: own(channel, known)
    properties = package.intensities[str(number)] if package.intensities else {}
    nnunets = getattr(default_normalization_schemes, scheme)
    plain = nnunets(use_mask_for_norm=False, intensityproperties=properties)
    return lambda channel: np.asarray(plain.run(channel.copy(), None), dtype=np.float32)


def is_known(scheme: str) -> bool:
    """True for a window, one of `SCHEMES` and an entrant's function."""
    if scheme.startswith(f"{_WINDOW}("):
        low, high = _limits(scheme)
        return bool(-np.inf < low < high < np.inf)
    return scheme in (*SCHEMES, OWN_FUNCTION)


def _limits(scheme: str) -> tuple[np.float32, np.float32]:
    low, high = (np.float32(part) for part in scheme.removeprefix(f"{_WINDOW}(").removesuffix(")").split(","))
    return low, high


def scheme_of(normalisation: Any) -> Any:
    """A normalisation as plans name it; anything unknown stays, for the document to refuse."""
    if callable(normalisation):
        return OWN_FUNCTION
    try:
        low, high = (float(value) for value in normalisation)
    except (TypeError, ValueError):
        return normalisation
    return f"{_WINDOW}({', '.join(repr(value).removesuffix('.0') for value in (low, high))})"


def window_of(scheme: str) -> Callable[[_Float], _Float] | None:
    """The normalisation by a fixed window, which becomes 0 to 1; None for another scheme."""
    if not scheme.startswith(f"{_WINDOW}("):
        return None
    try:
        low, high = _limits(scheme)
    except ValueError:
        raise ModelPackageError("plans.json", f"normalisation {scheme!r}", f"{_WINDOW}(low, high)") from None
    return lambda channel: (np.clip(channel, low, high) - low) / (high - low)


def own_normaliser(package: ModelPackage, number: int) -> Callable[[_Float], _Float]:
    """The entrant's own normalisation of a channel; what it returns is checked."""
    reference = package.configuration["architecture"][OWN]
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
