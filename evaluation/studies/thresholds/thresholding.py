"""Segmentation by a fixed percentage of SUVmax, as a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import GroundTruthError
from contract.images.geometry import Geometry
from contract.images.volumes import read_volume
from evaluation.editions.rules import MaskRules
from evaluation.inputs.masks import BoundingBox, read_labels
from evaluation.metrics.lesions import label_components
from evaluation.metrics.overlap import Box, foreground_box
from evaluation.metrics.surface import compare_surfaces
from evaluation.studies.scans import Scans, part_of, uptake_on

Mask: TypeAlias = npt.NDArray[np.bool_]

AUTOMATIC: Final = "automatic"
SEMI_AUTOMATIC: Final = "semi_automatic"
WITHOUT_AIR: Final = "semi_automatic_without_air"
METHODS: Final = (AUTOMATIC, SEMI_AUTOMATIC, WITHOUT_AIR)
TARGETS: Final[dict[str, tuple[int, ...]]] = {
    "gtvp": (labels.GTVP,),
    "gtvn": (labels.GTVN,),
    "tumour": labels.FOREGROUND,
}
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

    scans: Scans
    settings: Thresholding
    box: BoundingBox | None


@dataclass(frozen=True)
class ThresholdRow:
    """DSC, and HD95 in mm, by method and then in the order of percentages; empty without a target in the reference."""

    case: str
    suv_max: float
    dsc: Mapping[str, tuple[float, ...]]
    hd95_mm: Mapping[str, tuple[float, ...]]


def threshold_case(item: ThresholdCase) -> ThresholdRow:
    """Segment one case at every percentage, by every method.

    Raises:
        GroundTruthError: a scan or mask that cannot be used, a CT on another grid than the mask, or no uptake.
    """
    reference = read_labels(item.scans.mask, GroundTruthError)
    region = _whole(reference.geometry) if item.box is None else item.box.region(reference.geometry)
    truth = np.isin(reference.array[region], TARGETS[item.settings.target])
    if not truth.any():
        return ThresholdRow(item.scans.case, 0.0, {}, {})
    uptake = uptake_on(item.scans.pet, part_of(reference.geometry, region))
    tissue = _tissue(item.scans, reference.geometry, region)
    suv_max = float(uptake.max() if item.settings.maximum == "region" else uptake[truth].max())
    if suv_max <= 0:
        raise GroundTruthError(item.scans.pet.name, f"SUVmax {suv_max:g}", "uptake above 0")
    dsc: dict[str, list[float]] = {method: [] for method in METHODS}
    hd95: dict[str, list[float]] = {method: [] for method in METHODS}
    for percent in item.settings.percents:
        for method, found in segmented(uptake, truth, tissue, percent / 100 * suv_max).items():
            dsc[method].append(_dsc(truth, found))
            if item.settings.surfaces is not None:
                hd95[method].append(_hd95(truth, found, reference.geometry, item.settings.surfaces))
    return ThresholdRow(
        item.scans.case,
        suv_max,
        {method: tuple(values) for method, values in dsc.items()},
        {method: tuple(values) for method, values in hd95.items()},
    )


def _whole(grid: Geometry) -> Box:
    z, y, x = (slice(0, size) for size in grid.array_shape)
    return (z, y, x)


def _tissue(scans: Scans, grid: Geometry, region: Box) -> Mask:
    """True where the CT shows no air."""
    ct = read_volume(scans.ct, error=GroundTruthError)
    if ct.geometry.differences(grid):
        raise GroundTruthError(scans.ct.name, f"its grid is {ct.geometry.describe()}; the mask's: {grid.describe()}")
    tissue: Mask = ct.array[region] >= AIR_BELOW_HU
    return tissue


def segmented(uptake: npt.NDArray[np.float32], truth: Mask, tissue: Mask, suv: float) -> dict[str, Mask]:
    """The masks of every method, all of one shape, (z, y, x).

    Args:
        uptake: SUV.
        truth: the reference, in place of an expert who points at the tumour.
        tissue: True where there is no air.
        suv: the threshold, included.

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


def _dsc(truth: Mask, predicted: Mask) -> float:
    return 2 * int((truth & predicted).sum()) / (int(truth.sum()) + int(predicted.sum()))


def _hd95(truth: Mask, predicted: Mask, grid: Geometry, rules: MaskRules) -> float:
    value = compare_surfaces(truth, predicted, grid.array_spacing_mm, rules).hd95_mm
    return np.nan if value is None else value
