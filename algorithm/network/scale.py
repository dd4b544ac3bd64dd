"""nnU-Net's normalisation of one channel, with the scale of a whole scan where the scheme takes it from the image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from nnunetv2.preprocessing.normalization import default_normalization_schemes

from algorithm.network.own import own_normaliser, window_of
from algorithm.network.package import OWN_FUNCTION, SCHEMES, ModelPackage
from contract.errors import ModelPackageError

_Float = npt.NDArray[np.float32]
_SMALLEST_SPREAD: Final = 1e-8


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
