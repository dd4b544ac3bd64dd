"""Segmentation of a case by the network: channels, normalisation, and passes in the time available."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.case.read import AIR_HU, Case
from algorithm.deadline import Deadline
from algorithm.masks.postprocessing import postprocessed
from algorithm.masks.segmentation import Segmentation
from algorithm.masks.threshold import threshold_segmentation
from algorithm.network.images import MemberImage, resampled_logits
from algorithm.network.nnunet_input import nnunet_channels, nnunet_lattice, spline_of, starts_in, tiled
from algorithm.network.package import ModelPackage
from algorithm.network.passes import Ensemble, NoPassFitsError, Passes, PassObserver, Progress
from algorithm.network.scale import OWN_SCALE, Scale, normaliser
from algorithm.network.windows import Box, Starts
from algorithm.region import grids
from algorithm.region.interpolation import Restoration
from algorithm.region.lattice import box_corners, first_voxel, upright_grid
from algorithm.region.localise import Region
from contract.errors import ModelPackageError
from contract.images.geometry import Geometry

LOGGER = logging.getLogger("hecktor")
# Margin around PET-avid parts: a tumour reaches beyond its hottest part, and the network needs its surroundings.
FOCUS_MARGIN_MM: Final = 25.0
# Mean, spread and range of a whole scan change little at finer spacings.
SCAN_MM: Final = 4.0

_Float = npt.NDArray[np.float32]


@dataclass(frozen=True)
class NetworkInput:
    """A case as the network sees it.

    Attributes:
        data: normalised channels (channel, z, y, x) on `tiles`.
        ct: HU on `grid`, for the features.
        pet: SUV on `grid`, None without a usable PET.
        grid: the network's grid over the region.
        tiles: the grid of all tiles, of which `grid` is a part.
        restoration: nnU-Net's way from the grid back to the scan; None for linear interpolation.
        starts: returns where nnU-Net's tiles of a patch (z, y, x) begin in `data`; None spreads them evenly.
    """

    data: _Float
    ct: _Float
    pet: _Float | None
    grid: Geometry
    tiles: Geometry
    restoration: Restoration | None = None
    starts: Callable[[tuple[int, int, int]], Starts | None] = lambda _: None

    def on_grid(self, logits: _Float) -> _Float:
        """The part of logits (label, z, y, x) of all tiles that lies on `grid`, without the memory of the rest."""
        if self.grid == self.tiles:
            return logits
        start = first_voxel(self.grid, self.tiles)
        z, y, x = (slice(first, first + n) for first, n in zip(start, self.grid.array_shape, strict=True))
        return logits[:, z, y, x].copy()


def segment(
    case: Case,
    region: Region,
    ensemble: Ensemble,
    deadline: Deadline,
    on_first_pass: Callable[[Segmentation], None] = lambda _: None,
    on_pass: PassObserver = lambda *_: None,
    by_threshold: Callable[[], Segmentation] | None = None,
) -> Segmentation:
    """Run the ensemble's networks over `region`, with as many passes as the deadline allows.

    If not even the smallest plan fits, the PET threshold answers, and the log says so.

    Args:
        case: CT and PET.
        region: the region to segment.
        ensemble: the networks and their passes.
        deadline: the time left; it may stop the passes after any tile.
        on_first_pass: called with the result of the first pass if more are planned.
        on_pass: see `Passes`.
        by_threshold: returns the segmentation by PET threshold; made here if it is not given.

    Raises:
        ModelPackageError: plans or weights cannot be used.
        StoppedError: the deadline stopped the passes before the first one was complete.
    """
    package = ensemble.networks.package
    image = network_input(case, region, package)
    lesions = by_threshold or cache(lambda: threshold_segmentation(case, region))

    def segmentation(progress: Progress) -> Segmentation:
        made = progress.done, progress.planned, progress.plan, progress.backend
        raw = Segmentation(progress.logits, image.ct, image.pet, image.grid, *made, image.restoration)
        return postprocessed(raw, package.manifest.postprocessing)

    def on_progress(progress: Progress) -> None:
        if progress.done == 1 < progress.planned:
            on_first_pass(segmentation(progress))

    run = Passes(
        MemberImage(
            image.tiles.array_shape,
            lambda: image.data,
            focus=lambda: focus_box(lesions(), image.tiles),
            to_answer=image.on_grid,
            starts=image.starts,
        ),
        ensemble.passes,
        ensemble.networks,
        deadline,
        ensemble.device,
        on_progress=on_progress,
        on_pass=on_pass,
        others=other_images(case, region, package, image.grid, lesions),
    )
    try:
        return segmentation(run.run())
    except NoPassFitsError as reason:
        LOGGER.warning("*** FALLBACK *** no pass of the network (%s): the PET threshold answers", reason)
        return lesions()


def network_input(case: Case, region: Region, package: ModelPackage) -> NetworkInput:
    """The case on the answer's grid over a region, resampled and normalised as in the package's training."""
    if package.resamples_as_nnunet:
        lattice = nnunet_lattice(case, region, package)
        restoration = Restoration(lattice, spline_of(package.configuration, "probabilities", lattice))
        ct, pet = network_channels(case, lattice.grid)
        tiles = tiled(lattice, package.patches)
        data, starts = nnunet_channels(case, tiles, package), partial(starts_in, tiles)
        return NetworkInput(data, ct, pet if pet.any() else None, lattice.grid, tiles.grid, restoration, starts)
    grid = network_grid(region, package.spacing_mm, case.ct.geometry)
    ct, pet = network_channels(case, grid)
    data = normalise((ct, pet), package, scan_channels(case, package))
    return NetworkInput(data, ct, pet if pet.any() else None, grid, grid)


def other_images(
    case: Case, region: Region, package: ModelPackage, answer: Geometry, lesions: Callable[[], Segmentation]
) -> dict[str, MemberImage]:
    """The images of configurations with another spacing or normalisation than the answer's, over the same region.

    Args:
        case: CT and PET.
        region: the region to segment.
        package: names the configurations.
        answer: the grid to which logits are resampled.
        lesions: returns suspected lesions, for the box of a smaller plan.
    """
    alike = package.other_images
    images = {
        name: _member_image(case, region, package.on_grid_of(name), answer, lesions) for name in set(alike.values())
    }
    return {name: images[first] for name, first in alike.items()}


def _member_image(
    case: Case, region: Region, package: ModelPackage, answer: Geometry, lesions: Callable[[], Segmentation]
) -> MemberImage:
    channels: Callable[[], _Float]
    starts: Callable[[tuple[int, int, int]], Starts | None]
    if package.resamples_as_nnunet:
        tiles = tiled(nnunet_lattice(case, region, package), package.patches)
        grid, channels, starts = tiles.grid, partial(nnunet_channels, case, tiles, package), partial(starts_in, tiles)
    else:
        grid = network_grid(region, package.spacing_mm, case.ct.geometry)
        channels, starts = partial(_grid_channels, case, grid, package), lambda _: None
    return MemberImage(
        grid.array_shape,
        channels,
        focus=lambda: focus_box(lesions(), grid),
        to_answer=lambda logits: resampled_logits(logits, grid, answer, package.averages_probabilities),
        starts=starts,
    )


def _grid_channels(case: Case, grid: Geometry, package: ModelPackage) -> _Float:
    return normalise(network_channels(case, grid), package, scan_channels(case, package))


def network_grid(region: Region, spacing_mm: tuple[float, float, float], scan: Geometry) -> Geometry:
    """The network's grid over a region of a scan: axis-aligned in LPS, spacing (x, y, z) in mm.

    The scan's field is divided into whole voxels, as nnU-Net does, so the spacing differs from `spacing_mm` by less
    than half a voxel over the whole field.
    """
    return upright_grid(scan, region.lower_mm, region.upper_mm, spacing_mm)


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
    if len(schemes) != len(channels):
        raise ModelPackageError("plans.json", f"{len(schemes)} channels", f"{len(channels)} (CT and PET)")
    scales = [None] * len(channels) if scan is None else [Scale.of(channel) for channel in scan]
    stacked = [
        normaliser(package, number, scale)(channel)
        for number, (channel, scale) in enumerate(zip(channels, scales, strict=True))
    ]
    return np.stack(stacked).astype(np.float32, copy=False)


def scan_channels(case: Case, package: ModelPackage) -> tuple[_Float, _Float] | None:
    """Coarse CT and PET over all of the CT, if the package takes an image's own scale from the whole scan."""
    if not package.normalised_over_scan or not OWN_SCALE.keys() & set(package.configuration["normalization_schemes"]):
        return None
    corners = case.ct.geometry.corners_mm()
    grid = grids.grid_over(corners.min(0), corners.max(0), (SCAN_MM, SCAN_MM, SCAN_MM))
    return network_channels(case, grid)


def focus_box(lesions: Segmentation, grid: Geometry) -> Box | None:
    """The box of `grid` (z, y, x) around all lesions, with a margin, or None; the lesions' grid is axis-aligned."""
    hot = np.argwhere(lesions.mask())[:, ::-1]
    if not len(hot):
        return None
    spacing, origin = np.asarray(lesions.grid.spacing_mm), np.asarray(lesions.grid.origin_mm)
    low_mm = origin + (hot.min(0) - 0.5) * spacing - FOCUS_MARGIN_MM
    high_mm = origin + (hot.max(0) + 0.5) * spacing + FOCUS_MARGIN_MM
    matrix = grid.physical_to_index_matrix()
    corners = box_corners(low_mm, high_mm) @ matrix[:3, :3].T + matrix[:3, 3]
    first = np.clip(np.floor(corners.min(0)), 0, np.asarray(grid.size) - 1).astype(int)
    last = np.clip(np.ceil(corners.max(0)), first, np.asarray(grid.size) - 1).astype(int)
    x, y, z = (slice(int(a), int(b) + 1) for a, b in zip(first, last, strict=True))
    return (z, y, x)
