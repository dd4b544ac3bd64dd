"""`hecktor study observers`: agreement between annotators of the same cases, a folder of masks each."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from contract.documents import parse_document
from contract.errors import GroundTruthError, HecktorError
from contract.images.volumes import read_header
from contract.options import number_within
from evaluation.editions.profile import load_profile
from evaluation.inputs.ground_truth import check_shared, read_mask_folder
from evaluation.inputs.masks import read_labels
from evaluation.metrics.masks import LABELS
from evaluation.metrics.overlap import (
    Floats,
    Overlap,
    WeightedMetric,
    average_metric,
    dsc_agg_metric,
    median_metric,
    ratio,
    score_overlap,
)
from evaluation.metrics.rules import MaskRules
from evaluation.metrics.surface import compare_surfaces
from evaluation.options import add_bootstrap_options, add_workers_option, parse_name_path
from evaluation.statistics.bootstrap import estimate_unranked
from evaluation.statistics.intervals import quartiles
from reporting.studies.outputs import StudyResult, by_name, interval_text, measure_cases, plain_figures
from reporting.studies.votes import CompactMask, stack_masks

# The measures of a pair of annotators, and the name of each one's median over cases.
MEASURES: Final = {
    "dsc": "dsc_median",
    "hd95_mm": "hd95_median_mm",
    "asd_mm": "asd_median_mm",
    "surface_dsc": "surface_dsc_median",
}

Masks: TypeAlias = Mapping[str, npt.NDArray[np.uint8]]


@dataclass(frozen=True)
class Agreement:
    """Two annotators of one case: voxels and measures of each label, by `gtvp` and `gtvn`.

    A measure is None if both left the label empty; such a case does not count for it. With one mask empty, the DSC and
    surface DSC are 0 and the distances infinite.
    """

    case: str
    observers: tuple[str, str]
    voxel_volume_mm3: float
    overlaps: Mapping[str, Overlap]
    measures: Mapping[str, Mapping[str, float | None]]

    def line(self) -> dict[str, Any]:
        """The row for a table."""
        flat = {f"{name}_{key}": value for name, measured in self.measures.items() for key, value in measured.items()}
        return {"case": self.case, **dict(zip(("observer", "with"), self.observers, strict=True)), **flat}


def agreements(case: str, masks: Masks, spacing_mm: tuple[float, float, float], rules: MaskRules) -> list[Agreement]:
    """Every pair of annotators of one case; masks, by annotator, and spacing are (z, y, x)."""
    rows = []
    for first, second in combinations(masks, 2):
        overlaps, measures = {}, {}
        for name, label in LABELS.items():
            first_mask, second_mask = masks[first] == label, masks[second] == label
            surface = compare_surfaces(first_mask, second_mask, spacing_mm, rules)
            overlaps[name] = Overlap(
                int((first_mask & second_mask).sum()), int(first_mask.sum()), int(second_mask.sum())
            )
            dsc = score_overlap(overlaps[name], failed=False, rule="skip").dsc
            values = (dsc, surface.values["hd95_mm"], surface.values["asd_mm"], surface.values["surface_dsc"])
            measures[name] = dict(zip(MEASURES, values, strict=True))
        rows.append(Agreement(case, (first, second), float(np.prod(spacing_mm)), overlaps, measures))
    return rows


def case_medians(rows: Sequence[Agreement], cases: Sequence[str], label: str, measure: str) -> Floats:
    """The median of a measure over each case's pairs of annotators, NaN if no pair has it."""
    values: dict[str, list[float]] = {case: [] for case in cases}
    for row in rows:
        value = row.measures[label][measure]
        if value is not None:
            values[row.case].append(value)
    return np.array([np.median(measured) if measured else np.nan for measured in values.values()])


def agreement_metrics(rows: Sequence[Agreement], cases: Sequence[str]) -> dict[str, WeightedMetric]:
    """Every metric as a function of case weights: medians over cases of each measure, and the weighted DSCagg.

    DSCagg is 2 sum |A and B| / sum (|A| + |B|) in mm3 over the cases of one pair of annotators; its overall value is
    the mean over pairs, weighted by their numbers of cases. `dsc_agg_mean` is the same for each pair's mean of both
    labels. A pair whose masks all lack a label does not count for it.
    Source: the HNTS-MRG 2024 overview.
    """
    metrics: dict[str, WeightedMetric] = {}
    for label, measure in product(LABELS, MEASURES):
        metrics[f"{label}_{MEASURES[measure]}"] = median_metric(case_medians(rows, cases, label, measure))
    pairs = dict.fromkeys(row.observers for row in rows)
    drawn = [{row.case for row in rows if row.observers == pair} for pair in pairs]
    compared = [np.array([float(case in of_pair) for case in cases]) for of_pair in drawn]
    dsc_agg = [pair_dsc_agg(rows, cases, pair) for pair in pairs]
    for label in LABELS:
        metrics[f"{label}_dsc_agg"] = _over_pairs([of_pair[label] for of_pair in dsc_agg], compared)
    metrics["dsc_agg_mean"] = _over_pairs([average_metric(*of_pair.values()) for of_pair in dsc_agg], compared)
    return metrics


def _over_pairs(metrics: Sequence[WeightedMetric], compared: Sequence[Floats]) -> WeightedMetric:
    """The mean over pairs of annotators, weighted by their numbers of `compared` cases (1 or 0 for each case)."""

    def weighted(weights: Floats) -> Floats:
        values = np.stack([metric(weights) for metric in metrics])
        n_cases = np.where(np.isnan(values), 0.0, np.stack([weights @ of_pair for of_pair in compared]))
        return ratio((np.nan_to_num(values) * n_cases).sum(axis=0), n_cases.sum(axis=0))

    return weighted


def pair_dsc_agg(rows: Sequence[Agreement], cases: Sequence[str], pair: tuple[str, str]) -> dict[str, WeightedMetric]:
    """The aggregated DSC of one pair of annotators by label, in mm3; NaN if their masks are empty."""
    sums = {label: np.zeros((3, len(cases))) for label in LABELS}
    for row in rows:
        if row.observers == pair:
            for label, overlap in row.overlaps.items():
                voxels = np.array((overlap.intersection, overlap.reference, overlap.predicted))
                sums[label][:, cases.index(row.case)] = voxels * row.voxel_volume_mm3
    return {label: dsc_agg_metric(*of_label) for label, of_label in sums.items()}


@dataclass(frozen=True)
class ObservedCase:
    """One case with the masks of its annotators."""

    case: str
    masks: Mapping[str, Path]


def run(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Measure the agreement of every pair of annotators."""
    folders = by_name(options.observers, "observer", 2)
    changes = {"surface_tolerance_mm": options.surface_tolerance_mm}
    rules = parse_document(load_profile().mask_rules.model_dump() | changes, MaskRules, "options", error=HecktorError)
    items, alone = find_cases(folders)
    by_case = measure_cases(partial(compare_case, rules=rules), items, options.workers, "compared its masks")
    rows = [row for agreement in by_case for row in agreement]
    cases = [item.case for item in items]
    estimates = estimate_unranked(agreement_metrics(rows, cases), len(cases), options.bootstraps, options.seed)
    figures = plain_figures(estimates.by_metric)
    content = {
        "observers": list(folders),
        "cases": len(cases),
        "cases_of_one_observer": alone,
        **changes,
        "bootstraps": options.bootstraps,
        "seed": options.seed,
        "redraws": estimates.redraws,
        "aggregates": figures,
        "quartiles": _quartiles(rows, cases),
        "pairs": _pairs(rows, cases),
    }
    summary = "".join(f"{name:<28} {interval_text(figure)}\n" for name, figure in figures.items())
    summary += f"{len(cases)} cases, {len(alone)} drawn by one observer only\n"
    return StudyResult(content, [row.line() for row in rows], summary)


def find_cases(folders: Mapping[str, Path]) -> tuple[list[ObservedCase], list[str]]:
    """The cases of two or more annotators, sorted, and the cases of a single one.

    Raises GroundTruthError for a folder without masks, or without a case that another annotator drew.
    """
    drawn = {name: read_mask_folder(folder).targets for name, folder in folders.items()}
    check_shared(drawn)
    every = sorted({case for masks in drawn.values() for case in masks})
    of_case = {case: {name: masks[case] for name, masks in drawn.items() if case in masks} for case in every}
    shared = [ObservedCase(case, masks) for case, masks in of_case.items() if len(masks) > 1]
    return shared, [case for case, masks in of_case.items() if len(masks) == 1]


def compare_case(item: ObservedCase, rules: MaskRules) -> list[Agreement]:
    """Every pair of annotators of one case; each mask is read once and stored without the background around it.

    Raises GroundTruthError for a mask that cannot be used, or lies on another grid than the first annotator's.
    """
    grid = read_header(next(iter(item.masks.values())), error=GroundTruthError).geometry
    compact = []
    for name, path in item.masks.items():
        volume = read_labels(path, GroundTruthError)
        if volume.geometry.differences(grid):
            grids = f"its grid is {volume.geometry.describe()}; expected the first one's: {grid.describe()}"
            raise GroundTruthError(f"{item.case} of {name}", grids)
        compact.append(CompactMask.of(volume.array))
    masks = dict(zip(item.masks, stack_masks(compact), strict=True))
    return agreements(item.case, masks, grid.array_spacing_mm, rules)


def _quartiles(rows: Sequence[Agreement], cases: Sequence[str]) -> dict[str, Any]:
    """The quartiles over cases of each case's median, as published; null if infinite."""
    by_measure: dict[str, Any] = {}
    for label, measure in product(LABELS, MEASURES):
        values = case_medians(rows, cases, label, measure)
        values = values[~np.isnan(values)]
        q1, _, q3 = quartiles(values) if values.size else (None,) * 3
        by_measure[f"{label}_{measure}"] = {"cases": int(values.size), "q1": q1, "q3": q3}
    return by_measure


def _pairs(rows: Sequence[Agreement], cases: Sequence[str]) -> list[dict[str, Any]]:
    """The aggregated DSC and number of compared cases of each pair of annotators."""
    ones = np.ones((1, len(cases)))
    lines = []
    for pair in dict.fromkeys(row.observers for row in rows):
        values = {f"{label}_dsc_agg": float(of(ones)[0]) for label, of in pair_dsc_agg(rows, cases, pair).items()}
        lines.append({"observers": list(pair), "cases": sum(row.observers == pair for row in rows), **values})
    return lines


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the annotators, the tolerance of surfaces and the bootstrap."""
    add = parser.add_argument
    add("observers", type=parse_name_path, nargs="+", metavar="NAME=DIR", help="an annotator's folder of masks")
    tolerance = "tolerance of the surface DSC in mm (default: %(default)s)"
    name = "surface_tolerance_mm"
    add("--tolerance-mm", type=number_within(0, 1000), default=2.0, dest=name, metavar="TOLERANCE_MM", help=tolerance)
    add_bootstrap_options(parser)
    add_workers_option(parser)
