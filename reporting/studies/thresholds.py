"""`hecktor study thresholds`: segment the PET at a range of percentages of SUVmax, as a baseline."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import GroundTruthError, HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import read_volume, write_mask
from evaluation.editions.profile import load_profile
from evaluation.inputs.masks import BoundingBox, BoxRegion, read_labels
from evaluation.inputs.plain_files import read_bounding_boxes
from evaluation.metrics.lesions import label_components
from evaluation.metrics.overlap import Booleans, Box, WeightedMetric, find_foreground_box, mean_metric, median_metric
from evaluation.metrics.rules import MaskRules
from evaluation.metrics.surface import Spacing, compare_surfaces
from evaluation.options import add_bootstrap_options
from evaluation.statistics.bootstrap import estimate_unranked
from reporting.analyses.scans import PatientFiles
from reporting.studies.outputs import StudyResult, measure_cases
from reporting.studies.scans import add_cohort_folder, crop_grid, find_cohort_scans, resample_uptake

AUTOMATIC: Final = "automatic"
SEMI_AUTOMATIC: Final = "semi_automatic"
WITHOUT_AIR: Final = "semi_automatic_without_air"
METHODS: Final = (AUTOMATIC, SEMI_AUTOMATIC, WITHOUT_AIR)
TUMOUR: Final = "tumour"
TARGETS: Final = {"gtvp": (labels.GTVP,), "gtvn": (labels.GTVN,), TUMOUR: labels.FOREGROUND}
MAXIMA: Final = ("region", "tumour")
MIN_TISSUE_HU: Final = -150.0
_CONNECTIVITY: Final = 26

# DSC and HD95 in mm by method and percentage; empty if the reference has no target.
Scores: TypeAlias = Mapping[tuple[str, float], tuple[float, float]]


@dataclass(frozen=True)
class Thresholding:
    """Settings of the study.

    Attributes:
        percents: Percentages of SUVmax.
        target: Key of `TARGETS`.
        maximum: Item of `MAXIMA`: SUVmax of the region, or of the reference tumour.
        surfaces: Rules of HD95; None if it is not measured.
        folders: Output folders of the masks to write, by method and percentage.
        boxes: Bounding boxes by case, which restrict all figures of the case to their inside.
    """

    percents: tuple[float, ...]
    target: str
    maximum: str
    surfaces: MaskRules | None
    folders: Mapping[tuple[str, float], Path]
    boxes: Mapping[str, BoundingBox]


def threshold_case(scans: PatientFiles, settings: Thresholding) -> Scores:
    """Segment and score one case at every percentage by every method; write the masks that the settings name."""
    reference = read_labels(scans.reference, GroundTruthError)
    grid = reference.geometry
    box = settings.boxes.get(scans.case)
    if box is None:
        z, y, x = (slice(0, size) for size in grid.array_shape)
        region = BoxRegion((z, y, x))
    else:
        region = box.find_region(grid)
    inside = region.cut(reference.array)
    truth = np.isin(inside, TARGETS[settings.target])
    if not truth.any() and not settings.folders:
        return {}
    uptake = resample_uptake(scans.pet, crop_grid(grid, region.slices))
    if region.inside is not None:
        uptake = np.where(region.inside, uptake, np.float32(0))
    tissue = _find_tissue(scans, grid, region.slices)
    suv_max = float((uptake if settings.maximum == "region" else uptake[truth]).max(initial=0.0))
    if suv_max <= 0 and truth.any():
        raise GroundTruthError(scans.pet.name, f"SUVmax {suv_max:g}", "uptake above 0")
    scores = {}
    for percent in settings.percents:
        masks = segment_uptake(uptake, truth, tissue, percent / 100 * suv_max if suv_max > 0 else np.inf)
        for method, mask in masks.items():
            folder = settings.folders.get((method, percent))
            if folder is not None:
                whole = np.zeros(grid.array_shape, np.uint8)
                whole[region.slices] = _assign_labels(mask, masks[SEMI_AUTOMATIC], inside, settings.target)
                write_mask(folder / f"{scans.case}.mha", whole, grid)
            scores[method, percent] = _score_mask(truth, mask, grid.array_spacing_mm, settings.surfaces)
    return scores if truth.any() else {}


def _score_mask(truth: Booleans, mask: Booleans, spacing_mm: Spacing, rules: MaskRules | None) -> tuple[float, float]:
    """Return DSC and HD95; HD95 is NaN without rules, or if it is undefined."""
    dsc = 2 * int((truth & mask).sum()) / max(1, int(truth.sum()) + int(mask.sum()))
    distance = None if rules is None else compare_surfaces(truth, mask, spacing_mm, rules).values["hd95_mm"]
    return dsc, np.nan if distance is None else distance


def _assign_labels(
    mask: Booleans, selected: Booleans, reference: npt.NDArray[Any], target: str
) -> npt.NDArray[np.uint8]:
    """Return the mask with the target's label; for `tumour`, each component gets the label it shares most voxels with.

    `selected` is the semi-automatic mask, whose components are the tumours that the expert selects.
    """
    if target != TUMOUR:
        return (mask * np.uint8(TARGETS[target][0])).astype(np.uint8)
    numbered, count = label_components(selected, _CONNECTIVITY)
    shared = [np.bincount(numbered[reference == label], minlength=count + 1) for label in labels.FOREGROUND]
    component_labels = np.array(labels.FOREGROUND, np.uint8)[np.argmax(shared, axis=0)]
    return np.where(mask, component_labels[numbered], np.uint8(0)).astype(np.uint8)


def _find_tissue(scans: PatientFiles, grid: Geometry, region: Box) -> Booleans:
    """Return True where the CT shows no air; raise GroundTruthError if the CT is not on the mask's grid."""
    ct = read_volume(scans.ct, error=GroundTruthError)
    if ct.geometry.find_differences(grid):
        raise GroundTruthError(scans.ct.name, f"its grid is {ct.geometry.describe()}; the mask's: {grid.describe()}")
    return np.asarray(ct.array[region] >= MIN_TISSUE_HU)


def segment_uptake(
    uptake: npt.NDArray[np.float32], truth: Booleans, tissue: Booleans, min_suv: float
) -> dict[str, Booleans]:
    """Segment the uptake by every method.

    The automatic mask is all uptake of at least `min_suv`. The semi-automatic mask has its 26-connected components
    that share a voxel with the reference. The third mask is the semi-automatic one without voxels below -150 HU.

    Args:
        uptake: PET in SUV, (z, y, x).
        truth: The reference, in place of an expert who points at the tumour, (z, y, x).
        tissue: True where the CT shows no air, (z, y, x).
        min_suv: The threshold.

    Returns:
        The mask of each method, (z, y, x).

    Source: the HECKTOR 2021 overview.
    """
    automatic = uptake >= min_suv
    box = find_foreground_box(automatic.view(np.uint8))
    numbered, count = label_components(automatic[box], _CONNECTIVITY)
    is_selected = np.zeros(count + 1, dtype=np.bool_)
    is_selected[numbered[truth[box]]] = True
    is_selected[0] = False
    semi_automatic = np.zeros_like(automatic)
    semi_automatic[box] = is_selected[numbered]
    return {AUTOMATIC: automatic, SEMI_AUTOMATIC: semi_automatic, WITHOUT_AIR: semi_automatic & tissue}


def run_thresholds(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Threshold every case by every method at every percentage."""
    scans = find_cohort_scans(options)
    boxes: Mapping[str, BoundingBox] = {}
    if options.bounding_boxes is not None:
        boxes = read_bounding_boxes(options.bounding_boxes, [files.case for files in scans])
    surfaces = load_profile(options.edition).mask_rules if options.hd95 else None
    folders = _find_mask_folders(options)
    settings = Thresholding(options.percents, options.target, options.max_of, surfaces, folders, boxes)
    scores_of_cases = measure_cases(
        partial(threshold_case, settings=settings), scans, options.workers, "thresholded it"
    )
    counted = [scores for scores in scores_of_cases if scores]
    if not counted:
        raise GroundTruthError(options.cohort.name, f"no {options.target} in any of {len(scans)} references")
    table = summarise_scores(counted, options.bootstraps, options.seed, with_hd95=options.hd95)
    best = {
        method: max((line for line in table if line["method"] == method), key=itemgetter("dsc_mean"))
        for method in METHODS
    }
    content = {
        "target": settings.target,
        "suv_max_of": settings.maximum,
        "inside_bounding_boxes": options.bounding_boxes is not None,
        "cases": len(counted),
        "cases_without_target": [
            files.case for files, scores in zip(scans, scores_of_cases, strict=True) if not scores
        ],
        "bootstraps": options.bootstraps,
        "seed": options.seed,
        "best": best,
        "thresholds": table,
    }
    summary = ""
    for method, line in best.items():
        summary += f"{method:<28} best at {line['percent']:g}% of SUVmax: mean DSC {line['dsc_mean']:z.4f}\n"
    file_names = tuple(f"{folder.name}/" for folder in folders.values())
    return StudyResult(content, table, f"{summary}{len(counted)} cases; ", file_names)


def _find_mask_folders(options: argparse.Namespace) -> dict[tuple[str, float], Path]:
    """Return the folder of each `--masks METHOD:PERCENT`; raise HecktorError for masks that the study does not make."""
    for method, percent in options.masks:
        if percent not in options.percents:
            raise HecktorError("--masks", f"found {method}:{percent:g}", "one of --percents")
        if method == AUTOMATIC and options.target == TUMOUR:
            raise HecktorError("--masks", "automatic masks of the tumour, which have no label", "--target gtvp or gtvn")
    return {(method, percent): options.output / f"{method}_{percent:g}" for method, percent in options.masks}


def summarise_scores(cases: Sequence[Scores], bootstraps: int, seed: int, *, with_hd95: bool) -> list[dict[str, Any]]:
    """Return one line for each method and percentage: mean DSC with its interval, and optionally median HD95."""
    lines: list[dict[str, Any]] = []
    metrics: dict[str, WeightedMetric] = {}
    for method, percent in sorted(cases[0], key=lambda key: METHODS.index(key[0])):
        dsc, hd95 = np.array([scores[method, percent] for scores in cases]).T
        metrics[str(len(lines))] = mean_metric(dsc)
        lines.append({"method": method, "percent": percent})
        if with_hd95:
            lines[-1]["hd95_median_mm"] = float(median_metric(hd95)(np.ones((1, len(cases))))[0])
    estimates = estimate_unranked(metrics, len(cases), bootstraps, seed).by_metric
    for line, figures in zip(lines, estimates.values(), strict=True):
        line |= {"dsc_mean": figures.value, "ci95_low": figures.ci95_low, "ci95_high": figures.ci95_high}
    return lines


def add_thresholds_options(parser: argparse.ArgumentParser) -> None:
    """Add the cohort, the thresholds and the bootstrap."""
    add_cohort_folder(parser)
    add = parser.add_argument
    percents = "percentages of SUVmax, or a single one (default: %(default)s)"
    add("--percents", type=_parse_percents, default="5:95:5", metavar="PERCENT|FIRST:LAST:STEP", help=percents)
    target = "target structure in the reference (default: %(default)s)"
    add("--target", choices=tuple(TARGETS), default="gtvp", help=target)
    maximum = "SUVmax of the whole region, or of the reference tumour (default: %(default)s)"
    add("--max-of", choices=MAXIMA, default=MAXIMA[0], help=maximum)
    add("--bounding-boxes", type=Path, help="CSV table with PatientID, x1, x2, y1, y2, z1, z2 in mm")
    masks = "also write the masks of this method and percentage, such as semi_automatic:40; may be repeated"
    add("--masks", type=_parse_method_percent, action="append", default=[], metavar="METHOD:PERCENT", help=masks)
    add("--hd95", action="store_true", help="also measure the median HD95 in mm")
    add_bootstrap_options(parser)


def _parse_method_percent(text: str) -> tuple[str, float]:
    method, _, percent = text.rpartition(":")
    if method not in METHODS:
        raise argparse.ArgumentTypeError(f"{text}: expected a percentage after one of {', '.join(METHODS)}")
    return method, _parse_percents(percent)[0]


def _parse_percents(text: str) -> tuple[float, ...]:
    try:
        first, last, step = map(float, text.split(":") if ":" in text else [text, text, "1"])
    except ValueError:
        first = last = step = 0.0
    if not (0 < first <= last <= 100 and step > 0 and (last - first) / step <= 1000):
        raise argparse.ArgumentTypeError(f"{text}: expected a percentage or FIRST:LAST:STEP, above 0 up to 100")
    count = int((last - first) / step + 1e-9) + 1
    return tuple(float(np.round(first + number * step, 9)) for number in range(count))
