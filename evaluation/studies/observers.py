"""`hecktor study observers`: agreement between annotators of the same cases, a folder of masks each."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from contract import labels
from contract.documents import parse_document
from contract.errors import GroundTruthError, HecktorError
from contract.images.volumes import read_header
from contract.options import name_path, number_within
from evaluation.execution.pool import map_cases
from evaluation.inputs.ground_truth import check_shared, read_mask_folder
from evaluation.inputs.masks import read_labels
from evaluation.metrics.rules import HD95_DEFINITIONS, SURFACE_WEIGHTS, MaskRules
from evaluation.options import add_bootstrap, add_workers
from evaluation.report.drawing import COLOURS, new_figure, plot_style
from evaluation.results.metrics_json import aggregates
from evaluation.statistics.bootstrap import estimate_unranked
from evaluation.studies.agreement import (
    LABELS,
    MEASURES,
    Agreement,
    agreement_metrics,
    agreements,
    case_medians,
    pair_dsc_agg,
)
from evaluation.studies.ensembles.votes import CompactMask, stacked
from evaluation.studies.outputs import StudyResult, by_name, interval_text, mask_rules, raise_dead_worker

DESCRIPTION: Final = "Agreement between annotators who drew the same cases."
_TITLES: Final = {"dsc": "DSC", "hd95_mm": "HD95 (mm)", "asd_mm": "ASD (mm)", "surface_dsc": "surface DSC"}


@dataclass(frozen=True)
class ObservedCase:
    """One case with the masks of its annotators."""

    case: str
    masks: Mapping[str, Path]
    rules: MaskRules


def run(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Measure the agreement of every pair of annotators."""
    folders = by_name(options.observers, "observer", 2)
    settings = ("hd95", "surface_weights", "surface_tolerance_mm")
    changes = {name: getattr(options, name) for name in settings}
    rules = parse_document(mask_rules().model_dump() | changes, MaskRules, "options", error=HecktorError)
    items, alone = find_cases(folders, rules)
    lost = "compared its masks"
    by_case = map_cases(compare_case, items, options.workers, lambda item: raise_dead_worker(item.case, lost))
    rows = [row for agreement in by_case for row in agreement]
    cases = [item.case for item in items]
    estimates = estimate_unranked(agreement_metrics(rows, cases), len(cases), options.bootstraps, options.seed)
    figures = aggregates(estimates)
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
    return StudyResult(content, [row.line() for row in rows], summary, _picture(rows, cases))


def find_cases(folders: Mapping[str, Path], rules: MaskRules) -> tuple[list[ObservedCase], list[str]]:
    """The cases of two or more annotators, sorted, and the cases of a single one.

    Raises GroundTruthError for a folder without masks, or without a case that another annotator drew.
    """
    drawn = {name: read_mask_folder(folder).targets for name, folder in folders.items()}
    check_shared(drawn)
    every = sorted({case for masks in drawn.values() for case in masks})
    of_case = {case: {name: masks[case] for name, masks in drawn.items() if case in masks} for case in every}
    shared = [ObservedCase(case, masks, rules) for case, masks in of_case.items() if len(masks) > 1]
    return shared, [case for case, masks in of_case.items() if len(masks) == 1]


def compare_case(item: ObservedCase) -> list[Agreement]:
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
    masks = dict(zip(item.masks, stacked(compact), strict=True))
    return agreements(item.case, masks, grid.array_spacing_mm, item.rules)


def _quartiles(rows: Sequence[Agreement], cases: Sequence[str]) -> dict[str, Any]:
    """The quartiles over cases of each case's median, as published; null if infinite."""
    quartiles: dict[str, Any] = {}
    for label, measure in product(LABELS, MEASURES):
        values = case_medians(rows, cases, label, measure)
        values = values[~np.isnan(values)]
        # A finite and an infinite distance cannot be interpolated.
        method: Any = "linear" if np.isfinite(values).all() else "higher"
        low, high = np.quantile(values, (0.25, 0.75), method=method) if values.size else (None, None)
        quartiles[f"{label}_{measure}"] = {"cases": int(values.size), "q1": low, "q3": high}
    return quartiles


def _pairs(rows: Sequence[Agreement], cases: Sequence[str]) -> list[dict[str, Any]]:
    """The aggregated DSC and number of compared cases of each pair of annotators."""
    ones = np.ones((1, len(cases)))
    lines = []
    for pair in dict.fromkeys(row.observers for row in rows):
        values = {f"{label}_dsc_agg": float(of(ones)[0]) for label, of in pair_dsc_agg(rows, cases, pair).items()}
        lines.append({"observers": list(pair), "cases": sum(row.observers == pair for row in rows), **values})
    return lines


@plot_style
def _picture(rows: Sequence[Agreement], cases: Sequence[str]) -> Figure:
    """A box plot of the cases' medians: one panel for each measure, GTVp beside GTVn, infinite distances left out."""
    figure, panels = new_figure(len(MEASURES), height=3.0, width=9.0)
    for axes, measure in zip(panels, MEASURES, strict=True):
        values = [case_medians(rows, cases, label, measure) for label in LABELS]
        finite = [of_cases[np.isfinite(of_cases)] for of_cases in values]
        boxes = axes.boxplot(finite, widths=0.5, patch_artist=True, medianprops={"color": "black"})
        for box, colour in zip(boxes["boxes"], COLOURS, strict=False):
            box.set_facecolor(colour)
        axes.set_xticks([1, 2], [labels.NAMES[label] for label in LABELS.values()])
        axes.set_title(_TITLES[measure], loc="left", fontsize=9, fontweight="bold")
        axes.set_ylim(bottom=0, top=None if measure.endswith("_mm") else 1.02)
        axes.grid(axis="y", color="#e4e7eb", linewidth=0.8)
        axes.set_axisbelow(True)
    return figure


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the annotators, the rules of surfaces and the bootstrap."""
    add = parser.add_argument
    add("observers", type=name_path, nargs="+", metavar="NAME=DIR", help="an annotator's folder of masks")
    tolerance = "tolerance of the surface DSC in mm (default: %(default)s)"
    name = "surface_tolerance_mm"
    add("--tolerance-mm", type=number_within(0, 1000), default=2.0, dest=name, metavar="TOLERANCE_MM", help=tolerance)
    hd95 = "definition of HD95 (default: %(default)s)"
    add("--hd95", choices=HD95_DEFINITIONS, default=HD95_DEFINITIONS[0], help=hd95)
    weights = "what weighs in distances: each surface voxel alike, or the area of the surface (default: %(default)s)"
    add("--surface-weights", choices=SURFACE_WEIGHTS, default=SURFACE_WEIGHTS[0], help=weights)
    add_bootstrap(parser)
    add_workers(parser)
