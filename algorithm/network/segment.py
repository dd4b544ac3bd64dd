"""Segmentation of a case by the network: channels, normalisation, and passes in the time available."""

from __future__ import annotations

import logging
from typing import Final

import numpy as np
import numpy.typing as npt
from nnunetv2.preprocessing.normalization.default_normalization_schemes import (
    CTNormalization,
    ImageNormalization,
    NoNormalization,
    RescaleTo01Normalization,
    ZScoreNormalization,
)

from algorithm.case.read import AIR_HU, Case
from algorithm.deadline import Deadline
from algorithm.decisions.apply import decided
from algorithm.masks.segmentation import Segmentation, Segmented
from algorithm.masks.threshold import threshold_segmentation
from algorithm.network.package import ModelPackage
from algorithm.network.passes import Ensemble, NoPassFitsError, Passes, PassObserver, Progress
from algorithm.network.windows import Box
from algorithm.region import grids
from algorithm.region.localise import Region
from contract.errors import ModelPackageError
from contract.images.geometry import Geometry

LOGGER = logging.getLogger("hecktor")
# Margin around PET-avid parts: a tumour reaches beyond its hottest part, and the network needs its surroundings.
FOCUS_MARGIN_MM: Final = 25.0
# Mean, spread and range of a whole scan change little at finer spacings.
SCAN_MM: Final = 4.0

_Float = npt.NDArray[np.float32]

_NORMALISATIONS: Final[dict[str, type[ImageNormalization]]] = {
    scheme.__name__: scheme
    for scheme in (CTNormalization, ZScoreNormalization, NoNormalization, RescaleTo01Normalization)
}


def segment(
    case: Case, region: Region, ensemble: Ensemble, deadline: Deadline, on_pass: PassObserver = lambda *_: None
) -> Segmentation:
    """Run the ensemble's networks over `region`, with as many passes as the deadline allows.

    After each pass the deadline is offered the result so far. If not even the smallest plan fits, the PET threshold
    answers, and the log says so.

    Raises:
        ModelPackageError: plans or weights cannot be used.
        StoppedError: the deadline stopped the passes before the first one was complete.
    """
    package = ensemble.networks.package
    grid = network_grid(region, package.spacing_mm)
    ct, pet = network_channels(case, grid)
    shown_pet = pet if pet.any() else None

    def segmentation(progress: Progress) -> Segmentation:
        done = progress.done, progress.planned, progress.plan, progress.backend
        return decided(Segmentation(progress.logits, ct, shown_pet, grid, *done), package.decisions)

    run = Passes(
        normalise((ct, pet), package, scan_channels(case, package)),
        ensemble.passes,
        ensemble.networks,
        deadline,
        ensemble.device,
        focus=lambda: focus_box(threshold_segmentation(case, region), grid),
        on_progress=lambda progress: deadline.offer(lambda: Segmented(case, segmentation(progress), region)),
        on_pass=on_pass,
    )
    try:
        final = segmentation(run.run())
    except NoPassFitsError as reason:
        LOGGER.warning("*** FALLBACK *** no pass of the network (%s): the PET threshold answers", reason)
        return threshold_segmentation(case, region)
    if final.decided is not None:
        LOGGER.info("decisions: %s", final.decided.summary())
    return final


def network_grid(region: Region, spacing_mm: tuple[float, float, float]) -> Geometry:
    """The network's grid over a region: axis-aligned in LPS, spacing (x, y, z) in mm."""
    return grids.grid_over(region.lower_mm, region.upper_mm, spacing_mm)


def network_channels(case: Case, grid: Geometry) -> tuple[_Float, _Float]:
    """CT in HU and PET in SUV on the network's grid, each (z, y, x) float32; air and zero beyond the scans."""
    ct = grids.resample(case.ct, grid, AIR_HU)
    if case.pet is None:
        return ct, np.zeros(grid.array_shape, dtype=np.float32)
    return ct, grids.resample(case.pet, grid, 0.0)


def normalise(channels: tuple[_Float, ...], package: ModelPackage, scan: tuple[_Float, ...] | None = None) -> _Float:
    """Stack the channels, each normalised by the scheme that the plans name; shape (channel, z, y, x).

    Args:
        channels: CT in HU and PET in SUV, (z, y, x).
        package: names the schemes and holds the training's intensities.
        scan: the same channels over the whole scan, for schemes that take their scale from the image; None takes the
            scale from `channels`.
    """
    schemes = package.configuration["normalization_schemes"]
    properties = package.plans["foreground_intensity_properties_per_channel"]
    if len(schemes) != len(channels):
        raise ModelPackageError("plans.json", f"{len(schemes)} channels", f"{len(channels)} (CT and PET)")
    stacked = []
    for number, (channel, scheme) in enumerate(zip(channels, schemes, strict=True)):
        if scheme not in _NORMALISATIONS:
            raise ModelPackageError("plans.json", f"normalisation {scheme!r}", f"{', '.join(_NORMALISATIONS)}")
        if scan is not None and scheme in _OWN_SCALE:
            stacked.append(_OWN_SCALE[scheme](channel, scan[number]))
        else:
            normaliser = _NORMALISATIONS[scheme](use_mask_for_norm=False, intensityproperties=properties[str(number)])
            stacked.append(normaliser.run(channel.copy(), None))
    return np.stack(stacked).astype(np.float32, copy=False)


def scan_channels(case: Case, package: ModelPackage) -> tuple[_Float, _Float] | None:
    """Coarse CT and PET over all of the CT, if the package takes an image's own scale from the whole scan."""
    if not package.normalised_over_scan or not _OWN_SCALE.keys() & set(package.configuration["normalization_schemes"]):
        return None
    corners = case.ct.geometry.corners_mm()
    grid = grids.grid_over(corners.min(0), corners.max(0), (SCAN_MM, SCAN_MM, SCAN_MM))
    return network_channels(case, grid)


def _z_score(channel: _Float, scan: _Float) -> _Float:
    return np.asarray((channel - scan.mean()) / max(float(scan.std()), 1e-8))


def _from_0_to_1(channel: _Float, scan: _Float) -> _Float:
    return np.asarray((channel - scan.min()) / max(float(np.ptp(scan)), 1e-8))


_OWN_SCALE: Final = {"ZScoreNormalization": _z_score, "RescaleTo01Normalization": _from_0_to_1}


def focus_box(lesions: Segmentation, grid: Geometry) -> Box | None:
    """The box of `grid` (z, y, x) around all lesions, with a margin, or None; both grids are axis-aligned in LPS."""
    hot = np.argwhere(lesions.mask())[:, ::-1]
    if not len(hot):
        return None
    spacing, origin = np.asarray(lesions.grid.spacing_mm), np.asarray(lesions.grid.origin_mm)
    low_mm = origin + (hot.min(0) - 0.5) * spacing - FOCUS_MARGIN_MM
    high_mm = origin + (hot.max(0) + 0.5) * spacing + FOCUS_MARGIN_MM
    step, start = np.asarray(grid.spacing_mm), np.asarray(grid.origin_mm)
    first = np.clip(np.floor((low_mm - start) / step), 0, np.asarray(grid.size) - 1).astype(int)
    last = np.clip(np.ceil((high_mm - start) / step), first, np.asarray(grid.size) - 1).astype(int)
    x, y, z = (slice(int(a), int(b) + 1) for a, b in zip(first, last, strict=True))
    return (z, y, x)
