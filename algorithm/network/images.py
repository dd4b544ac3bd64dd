"""A case as networks see it, and how their logits return to the answer's grid."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.case.read import Case
from algorithm.masks.segmentation import Segmentation
from algorithm.network.package import ModelPackage
from algorithm.network.preprocessing import Scale, ScanPart, normaliser, takes_own_scale
from algorithm.network.windows import TILE_STEP, Box, PassPlan, whole
from algorithm.region import grids
from algorithm.region.grids import box_corners, upright_grid
from algorithm.region.localise import Region
from contract.errors import ModelPackageError
from contract.images.geometry import Geometry

COARSER_STEPS: Final = (0.75, 1.0)
# Logit of the background, and minus that of the lesions, outside the box of a smaller plan or outside the image.
BACKGROUND_LOGIT: Final = 20.0
# Margin around PET-avid parts: a tumour reaches beyond its hottest part, and the network needs its surroundings.
FOCUS_MARGIN_MM: Final = 25.0
# Mean, spread and range of a whole scan change little at finer spacings.
SCAN_MM: Final = 4.0

_Float = npt.NDArray[np.float32]


class MemberImage(ABC):
    """A case as the networks of a package see it; `shape` is its voxels (z, y, x)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    @abstractmethod
    def channels(self) -> _Float:
        """Compute the normalised channels (channel, z, y, x)."""

    def focus(self) -> Box | None:
        """Find the box of (z, y, x) in which lesions are suspected, if there is one."""
        return None

    @cached_property
    def data(self) -> _Float:
        """Normalised channels (channel, z, y, x), computed before the first pass that needs them."""
        return self.channels()

    @cached_property
    def _focus_box(self) -> Box | None:
        return self.focus()

    def plans(self, patch: tuple[int, int, int]) -> Iterator[PassPlan]:
        """Plans of a pass with a patch (z, y, x), best first. Plans of two patches with one name correspond."""
        region = whole(self.shape)
        yield PassPlan(region, TILE_STEP, patch, "the whole region")
        for step in COARSER_STEPS:
            yield PassPlan(region, step, patch, f"the whole region, tiles {step:g} of a patch apart")
        if (box := self._focus_box) is not None:  # looked for only if time is short
            for step in (TILE_STEP, *COARSER_STEPS):
                yield PassPlan(box, step, patch, f"the PET-avid part, tiles {step:g} of a patch apart")

    def answer(self, logits: _Float, box: Box) -> _Float:
        """Logits of the whole image, given those of a box of it: background outside the box."""
        if logits.shape[1:] == self.shape:
            return logits
        full = np.full((logits.shape[0], *self.shape), -BACKGROUND_LOGIT, dtype=np.float32)
        full[0] = BACKGROUND_LOGIT
        full[(slice(None), *box)] = logits
        return full


class ReadyImage(MemberImage):
    """Normalised channels (channel, z, y, x) on the answer's grid, such as those of a training case."""

    def __init__(self, data: _Float) -> None:
        super().__init__(data.shape[1:])
        self._channels = data

    def channels(self) -> _Float:
        """Return the given channels."""
        return self._channels


class CaseImage(MemberImage):
    """A case over a region on the grid of the package's training, resampled and normalised as there.

    Attributes:
        grid: the part of nnU-Net's grid of the scan over the region.
        scans: the channels on it, CT in HU and PET in SUV for the features.
        restoration: nnU-Net's way back to the scan, for a package that resamples as nnU-Net; else None.
    """

    def __init__(self, case: Case, region: Region, package: ModelPackage, lesions: Segmentation | None) -> None:
        """`lesions` are suspected, for the box of a smaller plan."""
        self._case, self._package, self._lesions = case, package, lesions
        self._part = ScanPart(case, region, package) if package.resamples_as_nnunet else None
        corners = region.lower_mm, region.upper_mm
        upright = upright_grid(case.scan.geometry, *corners, package.spacing_mm)
        self.grid = upright if self._part is None else self._part.grid
        self.restoration = None if self._part is None else self._part.restoration
        super().__init__(self.grid.array_shape)
        self.scans = network_channels(case, self.grid)

    def channels(self) -> _Float:
        """Resample the case and normalise it."""
        if self._part is not None:
            return self._part.channels()
        return normalise(self.scans, self._package, scan_channels(self._case, self._package))

    def focus(self) -> Box | None:
        """Find the box around the suspected lesions."""
        return focus_box(self._lesions, self.grid)


def network_channels(case: Case, grid: Geometry) -> tuple[_Float, ...]:
    """The case's channels on the network's grid, each (z, y, x) float32: CT in HU and PET in SUV, or MR and masks.

    Air and zero beyond the scans; zero for an absent PET.
    """
    _, *others = case.channels
    rest = (np.zeros(grid.array_shape, np.float32) if one is None else grids.resample(one, grid, 0.0) for one in others)
    return grids.resample(case.scan, grid, case.outside), *rest


def normalise(channels: tuple[_Float, ...], package: ModelPackage, scan: tuple[_Float, ...] | None = None) -> _Float:
    """Stack the channels as the plans list them, CT in HU and PET in SUV or MR, each normalised by its scheme.

    Shape (channel, z, y, x).

    Schemes that take their scale from the image take it from `scan`, the channels of the whole scan, if it is given.
    """
    schemes, sources = package.configuration["normalization_schemes"], package.channel_sources
    if len(schemes) != len(sources):
        expected = f"{len(sources)} ({' and '.join(package.manifest.channels)})"
        raise ModelPackageError("plans.json", f"{len(schemes)} channels", expected)
    scales = [None] * len(channels) if scan is None else [Scale.of(channel) for channel in scan]
    stacked = [normaliser(package, number, scales[source])(channels[source]) for number, source in enumerate(sources)]
    return np.stack(stacked).astype(np.float32, copy=False)


def scan_channels(case: Case, package: ModelPackage) -> tuple[_Float, ...] | None:
    """The coarse channels over all of the scan, if the package takes an image's own scale from the whole scan."""
    schemes = package.configuration["normalization_schemes"]
    if not package.normalised_over_scan or not any(map(takes_own_scale, schemes)):
        return None
    corners = case.scan.geometry.corners_mm()
    grid = grids.grid_over(corners.min(0), corners.max(0), (SCAN_MM, SCAN_MM, SCAN_MM))
    return network_channels(case, grid)


def focus_box(lesions: Segmentation | None, grid: Geometry) -> Box | None:
    """The box of `grid` (z, y, x) around all lesions, with a margin, or None; the lesions' grid is axis-aligned."""
    if lesions is None or not len(hot := np.argwhere(lesions.mask())[:, ::-1]):
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
