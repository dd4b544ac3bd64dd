"""`hecktor study thresholds`: segmentation by a range of percentages of SUVmax, as a baseline."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import GroundTruthError, HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import read_volume, write_mask
from contract.patient import listed
from evaluation.analyses.scans import PatientFiles
from evaluation.editions.profile import load_profile
from evaluation.inputs.masks import BoundingBox, BoxRegion, read_labels
from evaluation.inputs.plain_files import read_bounding_boxes
from evaluation.metrics.lesions import label_components
from evaluation.metrics.overlap import Booleans, Box, WeightedMetric, foreground_box, mean_metric, median_metric
from evaluation.metrics.rules import MaskRules
from evaluation.metrics.surface import compare_surfaces
from evaluation.options import add_bootstrap
from evaluation.statistics.bootstrap import estimate_unranked
from evaluation.studies.outputs import StudyResult, measure_cases
from evaluation.studies.scans import add_cohort, part_of, scans_of, uptake_on

AUTOMATIC: Final = "automatic"
SEMI_AUTOMATIC: Final = "semi_automatic"
WITHOUT_AIR: Final = "semi_automatic_without_air"
METHODS: Final = (AUTOMATIC, SEMI_AUTOMATIC, WITHOUT_AIR)
TUMOUR: Final = "tumour"
TARGETS: Final = {"gtvp": (labels.GTVP,), "gtvn": (labels.GTVN,), TUMOUR: labels.FOREGROUND}
MAXIMA: Final = ("region", "tumour")
AIR_BELOW_HU: Final = -150.0
_CONNECTIVITY: Final = 26


@dataclass(frozen=True)
class Thresholding:
    """Settings: percentages of SUVmax, the target, the maximum, and the rules of HD95 or None to leave it out.

    `target` is a key of `TARGETS`; `maximum` one of `MAXIMA`: SUVmax of the region, or of the reference tumour.
    `folders` are those of the masks to write, by method and percentage; a box of `boxes` restricts all figures of its
    case to its inside.
    """

    percents: tuple[float, ...]
    target: str
    maximum: str
    surfaces: MaskRules | None
    folders: Mapping[tuple[str, float], Path] = field(default_factory=dict)
    boxes: Mapping[str, BoundingBox] = field(default_factory=dict)


@dataclass(frozen=True)
class ThresholdRow:
    """DSC, and HD95 in mm, by method and then in the order of percentages; empty without a target in the reference."""

    case: str
    dsc: Mapping[str, Sequence[float]]
    hd95_mm: Mapping[str, Sequence[float]]


def threshold_case(scans: PatientFiles, settings: Thresholding) -> ThresholdRow:
    """Segment one case at every percentage, by every method."""
    reference, box = read_labels(scans.reference, GroundTruthError), settings.boxes.get(scans.case)
    grid = reference.geometry
    z, y, x = (slice(0, size) for size in grid.array_shape)
    region = BoxRegion((z, y, x)) if box is None else box.region(grid)
    inside = region.cut(reference.array)
    truth = np.isin(inside, TARGETS[settings.target])
    if not truth.any() and not settings.folders:
        return ThresholdRow(scans.case, {}, {})
    uptake = uptake_on(scans.pet, part_of(grid, region.slices))
    if region.inside is not None:
        uptake = np.where(region.inside, uptake, np.float32(0))
    tissue = _tissue(scans, grid, region.slices)
    suv_max = float((uptake if settings.maximum == "region" else uptake[truth]).max(initial=0.0))
    if suv_max <= 0 and truth.any():
        raise GroundTruthError(scans.pet.name, f"SUVmax {suv_max:g}", "uptake above 0")
    dsc: dict[str, list[float]] = {method: [] for method in METHODS}
    hd95_mm: dict[str, list[float]] = {method: [] for method in METHODS}
    for percent in settings.percents:
        masks = segmented(uptake, truth, tissue, percent / 100 * suv_max if suv_max > 0 else np.inf)
        for method in (method for method in METHODS if (method, percent) in settings.folders):
            whole = np.zeros(grid.array_shape, np.uint8)
            whole[region.slices] = _labelled(masks[method], masks[SEMI_AUTOMATIC], inside, settings.target)
            write_mask(settings.folders[method, percent] / f"{scans.case}.mha", whole, grid)
        for method, mask in masks.items() if truth.any() else ():
            dsc[method].append(2 * int((truth & mask).sum()) / (int(truth.sum()) + int(mask.sum())))
            if settings.surfaces is not None:
                distance = compare_surfaces(truth, mask, grid.array_spacing_mm, settings.surfaces).values["hd95_mm"]
                hd95_mm[method].append(np.nan if distance is None else distance)
    return ThresholdRow(scans.case, dsc if truth.any() else {}, hd95_mm)


def _labelled(mask: Booleans, pointed_at: Booleans, reference: npt.NDArray[Any], target: str) -> npt.NDArray[np.uint8]:
    """The mask with the target's label; for `tumour`, each component gets the label with which it shares most voxels.

    `pointed_at` is the semi-automatic mask, whose components the expert points at.
    """
    if target != TUMOUR:
        return (mask * np.uint8(TARGETS[target][0])).astype(np.uint8)
    numbered, count = label_components(pointed_at, _CONNECTIVITY)
    shared = [np.bincount(numbered[reference == label], minlength=count + 1) for label in labels.FOREGROUND]
    label_of = np.array(labels.FOREGROUND, np.uint8)[np.argmax(shared, axis=0)]
    return np.where(mask, label_of[numbered], np.uint8(0)).astype(np.uint8)


def _tissue(scans: PatientFiles, grid: Geometry, region: Box) -> Booleans:
    """True where the CT shows no air."""
    ct = read_volume(scans.ct, error=GroundTruthError)
    if ct.geometry.differences(grid):
        raise GroundTruthError(scans.ct.name, f"its grid is {ct.geometry.describe()}; the mask's: {grid.describe()}")
    return np.asarray(ct.array[region] >= AIR_BELOW_HU)


def segmented(uptake: npt.NDArray[np.float32], truth: Booleans, tissue: Booleans, suv: float) -> dict[str, Booleans]:
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


DEFAULT_PERCENTS: Final = "5:95:5"


def run(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Threshold every case by every method at every percentage."""
    scans, boxes = scans_of(options), {}
    if options.bounding_boxes is not None:
        boxes = read_bounding_boxes(options.bounding_boxes, [one.case for one in scans])
    surfaces = load_profile(options.edition).mask_rules if options.hd95 else None
    folders = _mask_folders(options, {one.case for one in scans})
    settings = Thresholding(options.percents, options.target, options.max_of, surfaces, folders, boxes)
    rows = measure_cases(partial(threshold_case, settings=settings), scans, options.workers, "thresholded it")
    counted = [row for row in rows if row.dsc]
    written = tuple(f"{folder.name}/" for folder in folders.values())
    if not counted:
        raise GroundTruthError(options.cohort.name, f"no {options.target} in any of {len(rows)} references")
    table = summarised(counted, settings, options.bootstraps, options.seed)
    of_method = {method: [line for line in table if line["method"] == method] for method in METHODS}
    best = {method: max(lines, key=itemgetter("dsc_mean")) for method, lines in of_method.items()}
    content = {
        "target": settings.target,
        "suv_max_of": settings.maximum,
        "inside_bounding_boxes": options.bounding_boxes is not None,
        "cases": len(counted),
        "cases_without_target": [row.case for row in rows if not row.dsc],
        "bootstraps": options.bootstraps,
        "seed": options.seed,
        "best": best,
        "thresholds": table,
    }
    summary = ""
    for method, line in best.items():
        summary += f"{method:<28} best at {line['percent']:g}% of SUVmax: mean DSC {line['dsc_mean']:.4f}\n"
    return StudyResult(content, table, f"{summary}{len(counted)} cases; ", written)


def _mask_folders(options: argparse.Namespace, cases: Set[str]) -> dict[tuple[str, float], Path]:
    """The folder of each `--masks METHOD:PERCENT`.

    Raises HecktorError for masks that the study does not make, and a folder with masks of other cases.
    """
    for method, percent in options.masks:
        if percent not in options.percents:
            raise HecktorError("--masks", f"found {method}:{percent:g}", "one of --percents")
        if method == AUTOMATIC and options.target == TUMOUR:
            raise HecktorError("--masks", "automatic masks of the tumour, which have no label", "--target gtvp or gtvn")
    folders = {(method, percent): options.output / f"{method}_{percent:g}" for method, percent in options.masks}
    for folder in folders.values():
        others = sorted({path.stem for path in folder.glob("*.mha")} - cases)
        if others:
            raise HecktorError(folder.name, f"masks of {listed(others)}", "masks of this cohort alone")
    return folders


def summarised(
    rows: Sequence[ThresholdRow], settings: Thresholding, bootstraps: int, seed: int
) -> list[dict[str, Any]]:
    """One line for each method and percentage: mean DSC with its interval, and optionally median HD95."""
    lines: list[dict[str, Any]] = []
    metrics: dict[str, WeightedMetric] = {}
    for method in METHODS:
        for place, percent in enumerate(settings.percents):
            line: dict[str, Any] = {"method": method, "percent": percent}
            metrics[str(len(lines))] = mean_metric(np.array([row.dsc[method][place] for row in rows]))
            if settings.surfaces is not None:
                hd95 = median_metric(np.array([row.hd95_mm[method][place] for row in rows]))
                line["hd95_median_mm"] = float(hd95(np.ones((1, len(rows))))[0])
            lines.append(line)
    estimates = estimate_unranked(metrics, len(rows), bootstraps, seed).by_metric
    for number, line in enumerate(lines):
        figures = estimates[str(number)]
        line |= {"dsc_mean": figures.value, "ci95_low": figures.ci95_low, "ci95_high": figures.ci95_high}
    return lines


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the cohort, the thresholds and the bootstrap."""
    add_cohort(parser)
    add = parser.add_argument
    percents = "percentages of SUVmax, or a single one (default: %(default)s)"
    add("--percents", type=_percents, default=DEFAULT_PERCENTS, metavar="PERCENT|FIRST:LAST:STEP", help=percents)
    target = "target structure in the reference (default: %(default)s)"
    add("--target", choices=tuple(TARGETS), default="gtvp", help=target)
    maximum = "SUVmax of the whole region, or of the reference tumour (default: %(default)s)"
    add("--max-of", choices=MAXIMA, default=MAXIMA[0], help=maximum)
    add("--bounding-boxes", type=Path, help="CSV table with PatientID, x1, x2, y1, y2, z1, z2 in mm")
    masks = "also write the masks of this method and percentage, such as semi_automatic:40; may be repeated"
    add("--masks", type=_method_percent, action="append", default=[], metavar="METHOD:PERCENT", help=masks)
    add("--hd95", action="store_true", help="also measure the median HD95 in mm")
    add_bootstrap(parser)


def _method_percent(text: str) -> tuple[str, float]:
    method, _, percent = text.rpartition(":")
    try:
        number = float(percent)
    except ValueError:
        number = 0.0
    if method not in METHODS or not 0 < number <= 100:
        raise argparse.ArgumentTypeError(f"{text}: expected a percentage after one of {', '.join(METHODS)}")
    return method, float(np.round(number, 9))


def _percents(text: str) -> tuple[float, ...]:
    wanted = f"{text}: expected a percentage or FIRST:LAST:STEP, above 0 up to 100"
    try:
        first, last, step = map(float, text.split(":") if ":" in text else [text, text, "1"])
    except ValueError:
        raise argparse.ArgumentTypeError(wanted) from None
    if not (0 < first <= last <= 100 and step > 0 and (last - first) / step <= 1000):
        raise argparse.ArgumentTypeError(wanted)
    count = int((last - first) / step + 1e-9) + 1
    return tuple(float(np.round(first + place * step, 9)) for place in range(count))
