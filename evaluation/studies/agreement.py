"""Agreement of annotators: one row for each pair of annotators in each case, and its summary over cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from contract import labels
from evaluation.metrics.overlap import (
    Floats,
    Overlap,
    WeightedMetric,
    average_metric,
    dsc_agg_metric,
    dsc_of_case,
    median_metric,
    ratio,
)
from evaluation.metrics.rules import MaskRules
from evaluation.metrics.surface import compare_surfaces

LABELS: Final = {labels.NAMES[label].lower(): label for label in labels.FOREGROUND}
MEASURES: Final = ("dsc", "hd95_mm", "asd_mm", "surface_dsc")

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
            mine, theirs = masks[first] == label, masks[second] == label
            both, sizes = int((mine & theirs).sum()), (int(mine.sum()), int(theirs.sum()))
            surface = compare_surfaces(mine, theirs, spacing_mm, rules)
            overlaps[name] = Overlap(both, *sizes)
            dsc = dsc_of_case(both, *sizes, failed=False, rule="skip")
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
        name, unit, _ = measure.partition("_mm")
        metrics[f"{label}_{name}_median{unit}"] = median_metric(case_medians(rows, cases, label, measure))
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
