"""Segmentation by a fixed percentage of SUVmax, as a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import GroundTruthError
from contract.images.geometry import Geometry
from contract.images.volumes import read_volume
from evaluation.analyses.sources import PatientFiles
from evaluation.inputs.masks import BoundingBox, BoxRegion, read_labels
from evaluation.metrics.lesions import label_components
from evaluation.metrics.overlap import Box, foreground_box
from evaluation.metrics.rules import MaskRules
from evaluation.metrics.surface import compare_surfaces
from evaluation.studies.scans import part_of, uptake_on

Mask: TypeAlias = npt.NDArray[np.bool_]

AUTOMATIC: Final = "automatic"
SEMI_AUTOMATIC: Final = "semi_automatic"
WITHOUT_AIR: Final = "semi_automatic_without_air"
METHODS: Final = (AUTOMATIC, SEMI_AUTOMATIC, WITHOUT_AIR)
TARGETS: Final = {"gtvp": (labels.GTVP,), "gtvn": (labels.GTVN,), "tumour": labels.FOREGROUND}
MAXIMA: Final = ("region", "tumour")
AIR_BELOW_HU: Final = -150.0
_CONNECTIVITY: Final = 26


@dataclass(frozen=True)
class Thresholding:
    """Settings: percentages of SUVmax, the target, the maximum, and the rules of HD95 or None to leave it out.

    `target` is a key of `TARGETS`; `maximum` one of `MAXIMA`: SUVmax of the region, or of the reference tumour.
    """

    percents: tuple[float, ...]
    target: str
    maximum: str
    surfaces: MaskRules | None


@dataclass(frozen=True)
class ThresholdCase:
    """One case; a box restricts everything to its inside."""

    scans: PatientFiles
    settings: Thresholding
    box: BoundingBox | None


@dataclass(frozen=True)
class ThresholdRow:
    """DSC, and HD95 in mm, by method and then in the order of percentages; empty without a target in the reference."""

    case: str
    dsc: Mapping[str, Sequence[float]]
    hd95_mm: Mapping[str, Sequence[float]]


def threshold_case(item: ThresholdCase) -> ThresholdRow:
    """Segment one case at every percentage, by every method."""
    reference, settings = read_labels(item.scans.reference, GroundTruthError), item.settings
    grid = reference.geometry
    z, y, x = (slice(0, size) for size in grid.array_shape)
    region = BoxRegion((z, y, x)) if item.box is None else item.box.region(grid)
    truth = np.isin(region.cut(reference.array), TARGETS[settings.target])
    if not truth.any():
        return ThresholdRow(item.scans.case, {}, {})
    uptake = uptake_on(item.scans.pet, part_of(grid, region.slices))
    if region.inside is not None:
        uptake = np.where(region.inside, uptake, np.float32(0))
    tissue = _tissue(item.scans, grid, region.slices)
    suv_max = float(uptake.max() if settings.maximum == "region" else uptake[truth].max())
    if suv_max <= 0:
        raise GroundTruthError(item.scans.pet.name, f"SUVmax {suv_max:g}", "uptake above 0")
    dsc: dict[str, list[float]] = {method: [] for method in METHODS}
    hd95_mm: dict[str, list[float]] = {method: [] for method in METHODS}
    for percent in settings.percents:
        for method, mask in segmented(uptake, truth, tissue, percent / 100 * suv_max).items():
            dsc[method].append(2 * int((truth & mask).sum()) / (int(truth.sum()) + int(mask.sum())))
            if settings.surfaces is not None:
                distance = compare_surfaces(truth, mask, grid.array_spacing_mm, settings.surfaces).values["hd95_mm"]
                hd95_mm[method].append(np.nan if distance is None else distance)
    return ThresholdRow(item.scans.case, dsc, hd95_mm)


def _tissue(scans: PatientFiles, grid: Geometry, region: Box) -> Mask:
    """True where the CT shows no air."""
    ct = read_volume(scans.ct, error=GroundTruthError)
    if ct.geometry.differences(grid):
        raise GroundTruthError(scans.ct.name, f"its grid is {ct.geometry.describe()}; the mask's: {grid.describe()}")
    return np.asarray(ct.array[region] >= AIR_BELOW_HU)


def segmented(uptake: npt.NDArray[np.float32], truth: Mask, tissue: Mask, suv: float) -> dict[str, Mask]:
    """The masks of every method, all of one shape, (z, y, x).

    `uptake` is in SUV, as is the threshold, included; `truth` is the reference, in place of an expert who points at
    the tumour; `tissue` is True where there is no air.

    Automatic is all uptake from the threshold on; semi-automatic its 26-connected components that share a voxel with
    the reference; without air leaves out voxels below -150 HU of the semi-automatic mask.
    Source: the HECKTOR 2021 overview.
    """
    automatic = uptake >= suv
    box = foreground_box(automatic.view(np.uint8))
    numbered, count = label_components(automatic[box], _CONNECTIVITY)
    touched = np.zeros(count + 1, dtype=np.bool_)
    touched[numbered[truth[box]]] = True
    touched[0] = False
    semi = np.zeros_like(automatic)
    semi[box] = touched[numbered]
    return {AUTOMATIC: automatic, SEMI_AUTOMATIC: semi, WITHOUT_AIR: semi & tissue}
