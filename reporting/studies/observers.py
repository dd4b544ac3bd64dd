"""`hecktor study observers`: agreement between annotators of the same cases; each has a folder of masks."""

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
from evaluation.inputs.ground_truth import check_cases_overlap, read_mask_folder
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
from reporting.studies.outputs import (
    StudyResult,
    collect_named_inputs,
    format_interval,
    make_json_figures,
    measure_cases,
)
from reporting.studies.votes import CompactMask, stack_masks

# Measures of a pair of annotators, and the name of the median over cases of each measure.
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

    def to_row(self) -> dict[str, Any]:
        """Return the row of the table."""
        first, second = self.observers
        values = {
            f"{label}_{measure}": value
            for label, label_measures in self.measures.items()
            for measure, value in label_measures.items()
        }
        return {"case": self.case, "observer": first, "with": second, **values}


def compare_annotators(
    case: str, masks: Masks, spacing_mm: tuple[float, float, float], rules: MaskRules
) -> list[Agreement]:
    """Compare every pair of annotators of one case; masks, by annotator, and spacing are (z, y, x)."""
    rows = []
    for first, second in combinations(masks, 2):
        overlaps = {}
        measures = {}
        for name, label in LABELS.items():
            first_mask = masks[first] == label
            second_mask = masks[second] == label
            surface = compare_surfaces(first_mask, second_mask, spacing_mm, rules).values
            overlap = Overlap(int((first_mask & second_mask).sum()), int(first_mask.sum()), int(second_mask.sum()))
            overlaps[name] = overlap
            measures[name] = {
                "dsc": score_overlap(overlap, failed=False, rule="skip").dsc,
                "hd95_mm": surface["hd95_mm"],
                "asd_mm": surface["asd_mm"],
                "surface_dsc": surface["surface_dsc"],
            }
        rows.append(Agreement(case, (first, second), float(np.prod(spacing_mm)), overlaps, measures))
    return rows


def compute_case_medians(rows: Sequence[Agreement], cases: Sequence[str], label: str, measure: str) -> Floats:
    """Return the median of a measure over each case's pairs of annotators, NaN if no pair has the measure."""
    values: dict[str, list[float]] = {case: [] for case in cases}
    for row in rows:
        value = row.measures[label][measure]
        if value is not None:
            values[row.case].append(value)
    return np.array([np.median(case_values) if case_values else np.nan for case_values in values.values()])


def build_agreement_metrics(rows: Sequence[Agreement], cases: Sequence[str]) -> dict[str, WeightedMetric]:
    """Return every metric as a function of case weights: medians over cases of each measure, and the weighted DSCagg.

    DSCagg is 2 sum |A and B| / sum (|A| + |B|) in mm3 over the cases of one pair of annotators. Its overall value is
    the mean over pairs, weighted by their numbers of cases. `dsc_agg_mean` is this mean of each pair's average over
    both labels. A pair does not count for a label that is in none of its masks.
    Source: the HNTS-MRG 2024 overview.
    """
    metrics: dict[str, WeightedMetric] = {}
    for label, measure in product(LABELS, MEASURES):
        metrics[f"{label}_{MEASURES[measure]}"] = median_metric(compute_case_medians(rows, cases, label, measure))
    pairs = dict.fromkeys(row.observers for row in rows)
    is_compared = []
    for pair in pairs:
        pair_cases = {row.case for row in rows if row.observers == pair}
        is_compared.append(np.array([float(case in pair_cases) for case in cases]))
    metrics_of_pairs = [build_pair_dsc_agg(rows, cases, pair) for pair in pairs]
    for label in LABELS:
        label_metrics = [pair_metrics[label] for pair_metrics in metrics_of_pairs]
        metrics[f"{label}_dsc_agg"] = _average_pairs(label_metrics, is_compared)
    mean_metrics = [average_metric(*pair_metrics.values()) for pair_metrics in metrics_of_pairs]
    metrics["dsc_agg_mean"] = _average_pairs(mean_metrics, is_compared)
    return metrics


def _average_pairs(metrics: Sequence[WeightedMetric], is_compared: Sequence[Floats]) -> WeightedMetric:
    """Return the mean over pairs of annotators, weighted by their numbers of cases.

    `metrics` and `is_compared` have one item for each pair. `is_compared` is 1 for each case that both annotators drew,
    and 0 for all other cases.
    """

    def metric_of_pairs(weights: Floats) -> Floats:
        values = np.stack([metric(weights) for metric in metrics])
        n_cases = np.where(np.isnan(values), 0.0, np.stack([weights @ pair_cases for pair_cases in is_compared]))
        return ratio((np.nan_to_num(values) * n_cases).sum(axis=0), n_cases.sum(axis=0))

    return metric_of_pairs


def build_pair_dsc_agg(
    rows: Sequence[Agreement], cases: Sequence[str], pair: tuple[str, str]
) -> dict[str, WeightedMetric]:
    """Return the aggregated DSC in mm3 of one pair of annotators by label; NaN if their masks are empty."""
    sums = {label: np.zeros((3, len(cases))) for label in LABELS}
    for row in rows:
        if row.observers == pair:
            for label, overlap in row.overlaps.items():
                voxels = np.array((overlap.intersection, overlap.reference, overlap.predicted))
                sums[label][:, cases.index(row.case)] = voxels * row.voxel_volume_mm3
    return {label: dsc_agg_metric(intersection, first, second) for label, (intersection, first, second) in sums.items()}


@dataclass(frozen=True)
class ObservedCase:
    """One case with the masks of its annotators."""

    case: str
    masks: Mapping[str, Path]


def run_observers(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Measure the agreement of every pair of annotators."""
    folders = collect_named_inputs(options.observers, "observer", min_count=2)
    changed_rules = {"surface_tolerance_mm": options.surface_tolerance_mm}
    rule_values = load_profile().mask_rules.model_dump() | changed_rules
    rules = parse_document(rule_values, MaskRules, "options", error=HecktorError)
    items, cases_of_one_observer = find_observed_cases(folders)
    rows_of_cases = measure_cases(
        partial(compare_case, rules=rules), items, options.workers, action="compared its masks"
    )
    rows = [row for case_rows in rows_of_cases for row in case_rows]
    cases = [item.case for item in items]
    estimates = estimate_unranked(build_agreement_metrics(rows, cases), len(cases), options.bootstraps, options.seed)
    figures = make_json_figures(estimates.by_metric)
    content = {
        "observers": list(folders),
        "cases": len(cases),
        "cases_of_one_observer": cases_of_one_observer,
        **changed_rules,
        "bootstraps": options.bootstraps,
        "seed": options.seed,
        "redraws": estimates.redraws,
        "aggregates": figures,
        "quartiles": _compute_quartiles(rows, cases),
        "pairs": _list_pairs(rows, cases),
    }
    summary = "".join(f"{name:<28} {format_interval(figure)}\n" for name, figure in figures.items())
    summary += f"{len(cases)} cases, {len(cases_of_one_observer)} drawn by one observer only\n"
    return StudyResult(content, [row.to_row() for row in rows], summary)


def find_observed_cases(folders: Mapping[str, Path]) -> tuple[list[ObservedCase], list[str]]:
    """Return the cases of two or more annotators, and the names of cases of only one annotator, both sorted.

    Raises:
        GroundTruthError: A folder has no masks, or no case that another annotator drew.
    """
    masks_of_observer = {name: read_mask_folder(folder).targets for name, folder in folders.items()}
    check_cases_overlap(masks_of_observer)
    shared = []
    single = []
    for case in sorted({case for masks in masks_of_observer.values() for case in masks}):
        case_masks = {name: masks[case] for name, masks in masks_of_observer.items() if case in masks}
        if len(case_masks) > 1:
            shared.append(ObservedCase(case, case_masks))
        else:
            single.append(case)
    return shared, single


def compare_case(item: ObservedCase, rules: MaskRules) -> list[Agreement]:
    """Compare every pair of annotators of one case; each mask is read once and cropped to its foreground.

    Raises:
        GroundTruthError: A mask cannot be used, or is on another grid than the first annotator's mask.
    """
    grid = read_header(next(iter(item.masks.values())), error=GroundTruthError).geometry
    compact = []
    for name, path in item.masks.items():
        volume = read_labels(path, GroundTruthError)
        if volume.geometry.find_differences(grid):
            mismatch = f"its grid is {volume.geometry.describe()}; expected the first one's: {grid.describe()}"
            raise GroundTruthError(f"{item.case} of {name}", mismatch)
        compact.append(CompactMask.from_mask(volume.array))
    masks = dict(zip(item.masks, stack_masks(compact), strict=True))
    return compare_annotators(item.case, masks, grid.array_spacing_mm, rules)


def _compute_quartiles(rows: Sequence[Agreement], cases: Sequence[str]) -> dict[str, Any]:
    """Compute the quartiles over cases of each case's median, as in the publication; null if infinite."""
    by_measure: dict[str, Any] = {}
    for label, measure in product(LABELS, MEASURES):
        values = compute_case_medians(rows, cases, label, measure)
        values = values[~np.isnan(values)]
        q1, _, q3 = quartiles(values) if values.size else (None, None, None)
        by_measure[f"{label}_{measure}"] = {"cases": int(values.size), "q1": q1, "q3": q3}
    return by_measure


def _list_pairs(rows: Sequence[Agreement], cases: Sequence[str]) -> list[dict[str, Any]]:
    """Return the aggregated DSC and number of compared cases of each pair of annotators."""
    equal_weights = np.ones((1, len(cases)))
    lines = []
    for pair in dict.fromkeys(row.observers for row in rows):
        metrics = build_pair_dsc_agg(rows, cases, pair)
        values = {f"{label}_dsc_agg": float(metric(equal_weights)[0]) for label, metric in metrics.items()}
        lines.append({"observers": list(pair), "cases": sum(row.observers == pair for row in rows), **values})
    return lines


def add_observers_options(parser: argparse.ArgumentParser) -> None:
    """Add the annotators, the tolerance of surfaces and the bootstrap."""
    add = parser.add_argument
    add("observers", type=parse_name_path, nargs="+", metavar="NAME=DIR", help="an annotator's folder of masks")
    tolerance = "tolerance of the surface DSC in mm (default: %(default)s)"
    name = "surface_tolerance_mm"
    add("--tolerance-mm", type=number_within(0, 1000), default=2.0, dest=name, metavar="TOLERANCE_MM", help=tolerance)
    add_bootstrap_options(parser)
    add_workers_option(parser)
