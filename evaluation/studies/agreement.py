"""Agreement of annotators: one row for each pair of annotators in each case, and its summary over cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from contract import labels
from evaluation.editions.edge_cases import dsc_of_case
from evaluation.editions.rules import MaskRules
from evaluation.metrics.overlap import (
    Floats,
    Overlap,
    WeightedMetric,
    average_metric,
    dsc_agg_metric,
    median_metric,
    ratio,
)
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
        first, second = self.observers
        return {"case": self.case, "observer": first, "with": second, **flat}


def agreements(case: str, masks: Masks, spacing_mm: tuple[float, float, float], rules: MaskRules) -> list[Agreement]:
    """Every pair of annotators of one case.

    Args:
        case: its name.
        masks: label masks of one shape, (z, y, x), by annotator.
        spacing_mm: (z, y, x).
        rules: `hd95` and `surface_tolerance_mm` say how surfaces are compared.
    """
    rows = []
    for first, second in combinations(masks, 2):
        overlaps, measures = {}, {}
        for name, label in LABELS.items():
            mine, theirs = masks[first] == label, masks[second] == label
            both, sizes = int((mine & theirs).sum()), (int(mine.sum()), int(theirs.sum()))
            surface = compare_surfaces(mine, theirs, spacing_mm, rules)
            overlaps[name] = Overlap(both, *sizes)
            dsc = dsc_of_case(both, *sizes, failed=False, rule="skip")
            values = (dsc, surface.hd95_mm, surface.asd_mm, surface.surface_dsc)
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
    for label in LABELS:
        for measure in MEASURES:
            name = measure.removesuffix("_mm")
            unit = "_mm" if measure.endswith("_mm") else ""
            metrics[f"{label}_{name}_median{unit}"] = median_metric(case_medians(rows, cases, label, measure))
    pairs = list(dict.fromkeys(row.observers for row in rows))
    for label in LABELS:
        metrics[f"{label}_dsc_agg"] = _over_pairs(rows, cases, pairs, itemgetter(label))
    metrics["dsc_agg_mean"] = _over_pairs(rows, cases, pairs, lambda agg: average_metric(*agg.values()))
    return metrics


def _over_pairs(
    rows: Sequence[Agreement],
    cases: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    choose: Callable[[Mapping[str, WeightedMetric]], WeightedMetric],
) -> WeightedMetric:
    """The mean over pairs of annotators, weighted by their numbers of compared cases."""
    compared = {pair: _compared(rows, cases, pair) for pair in pairs}
    of_pair = {pair: choose(pair_dsc_agg(rows, cases, pair)) for pair in pairs}

    def weighted(weights: Floats) -> Floats:
        total, count = np.zeros(len(weights)), np.zeros(len(weights))
        for pair, metric in of_pair.items():
            values, n_cases = metric(weights), weights @ compared[pair]
            known = ~np.isnan(values)
            total += np.where(known, values, 0.0) * n_cases
            count += np.where(known, n_cases, 0.0)
        return ratio(total, count)

    return weighted


def _compared(rows: Sequence[Agreement], cases: Sequence[str], pair: tuple[str, str]) -> Floats:
    """1 for each case that a pair of annotators both drew."""
    drawn = {row.case for row in rows if row.observers == pair}
    return np.array([float(case in drawn) for case in cases])


def pair_dsc_agg(rows: Sequence[Agreement], cases: Sequence[str], pair: tuple[str, str]) -> dict[str, WeightedMetric]:
    """The aggregated DSC of one pair of annotators by label, in mm3; NaN if their masks are empty."""
    of_case = {row.case: row for row in rows if row.observers == pair}
    metrics = {}
    for label in LABELS:
        sums = np.zeros((3, len(cases)))
        for place, case in enumerate(cases):
            if case in of_case:
                row = of_case[case]
                overlap = row.overlaps[label]
                volumes = (overlap.intersection, overlap.reference, overlap.predicted)
                sums[:, place] = np.array(volumes) * row.voxel_volume_mm3
        metrics[label] = dsc_agg_metric(*sums)
    return metrics
