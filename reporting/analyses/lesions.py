"""Detection of the primary tumour and of GTVn lesions: counts, recall by volume, F1 by IoU threshold and matching."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from evaluation.metrics.lesions import LesionCounts, LesionPairs, match_pairs
from evaluation.metrics.overlap import MM3_PER_ML, VOLUME_BINS, Booleans, Floats, split_into_equal_bins
from evaluation.metrics.rules import MaskRules
from evaluation.statistics.intervals import wilson_interval
from reporting.analyses.analysis import Analysis
from reporting.analyses.masks import ABOUT_BINS, MIN_IN_BIN
from reporting.analyses.tables import AnswerRows, Row, round_figure

IOU_THRESHOLDS: Final = tuple(tenths / 10 for tenths in range(1, 10))
MATCHINGS: Final = {
    "one_to_one": "one to one",
    "any_overlap": "many to many (any overlap)",
    "greedy": "one to one, by decreasing IoU",
}
_OUTCOMES: Final = {"tp": "detected", "fn": "missed", "fp": "false positive"}
_LESION_DSC: Final = (
    " The lesion-wise DSC is the mean over all these lesions, 0 for missed and for false-positive lesions, as in "
    "BraTS-METS 2024 but without dilation."
)
_COUNT_HEADINGS: Final = {"detected": "Detected", "false": "False positive", "missed": "Missed", "f1": "F1"}


@dataclass(frozen=True)
class TeamLesions:
    """All GTVn lesions of a team's cases, numbered consecutively from 0 over all cases.

    Attributes:
        pairs: Every pair of a reference and a predicted lesion that overlap, with its IoU.
        n_reference: Number of reference lesions.
        n_predicted: Number of predicted lesions.
        volumes_ml: Volume of each reference lesion.
        is_detected: Whether each reference lesion is detected under the rules of the results.
    """

    pairs: LesionPairs
    n_reference: int
    n_predicted: int
    volumes_ml: Floats
    is_detected: Booleans

    def count(self, rules: MaskRules) -> LesionCounts:
        """Match all lesions under these rules, and count the detected, false-positive and missed lesions."""
        matched = match_pairs(self.pairs, rules)
        detected = len(matched.predicted)
        return LesionCounts(detected, self.n_predicted - detected, self.n_reference - len(matched.dsc))


def collect_lesions(rows: Sequence[Row | None]) -> TeamLesions:
    """Collect the GTVn lesions of a team's rows.

    Lesions of different cases never overlap, so matching all lesions at once gives the same pairs as case by case.
    """
    references: list[int] = []
    predictions: list[int] = []
    iou: list[float] = []
    volumes_mm3: list[float] = []
    detected: list[bool] = []
    n_reference = n_predicted = 0
    for row in rows:
        if row is None:
            continue
        for pair in row["gtvn_lesions_pairs"]:
            references.append(n_reference + pair["reference"])
            predictions.append(n_predicted + pair["predicted"])
            iou.append(pair["iou"])
        sizes = row["gtvn_lesions_reference_voxels"]
        volumes_mm3 += [size * row["voxel_volume_mm3"] for size in sizes]
        detected += [dsc is not None for dsc in row["gtvn_lesions_dsc"]]
        n_reference += len(sizes)
        n_predicted += len(row["gtvn_lesions_predicted_voxels"])
    pairs = np.array(references, dtype=np.intp), np.array(predictions, dtype=np.intp), np.array(iou, dtype=np.float64)
    volumes_ml = np.array(volumes_mm3, dtype=np.float64) / MM3_PER_ML
    return TeamLesions(pairs, n_reference, n_predicted, volumes_ml, np.array(detected, dtype=np.bool_))


def analyse_lesions(table: AnswerRows) -> list[Analysis]:
    """Compute recall by volume, and F1 by IoU threshold and by matching rule. Without lesions there is no analysis."""
    if table.mask_rules is None:
        return []
    lesions = {team: collect_lesions(rows) for team, rows in zip(table.names, table.rows, strict=True)}
    if not any(team_lesions.n_reference + team_lesions.n_predicted for team_lesions in lesions.values()):
        return []
    analyses = [
        _compute_recall_by_volume(table, lesions),
        _compute_f1_by_iou(table, lesions, table.mask_rules),
        _compute_f1_by_matching(table, lesions, table.mask_rules),
    ]
    return [analysis for analysis in analyses if analysis.rows]


def _compute_recall_by_volume(table: AnswerRows, lesions: dict[str, TeamLesions]) -> Analysis:
    """Compute each team's recall in bins of the volume; no rows if no team has at least three lesions in each bin."""
    rows: list[dict[str, Any]] = []
    has_enough_lesions = any(team_lesions.n_reference >= MIN_IN_BIN * VOLUME_BINS for team_lesions in lesions.values())
    for team, team_lesions in lesions.items() if has_enough_lesions else ():
        if team_lesions.n_reference < VOLUME_BINS:
            continue
        for indices in split_into_equal_bins(team_lesions.volumes_ml, VOLUME_BINS):
            detected = team_lesions.is_detected[indices]
            rows.append(
                {
                    "team": team,
                    "volume_ml": round_figure(float(np.median(team_lesions.volumes_ml[indices]))),
                    "lesions": indices.size,
                    "detected": int(detected.sum()),
                    "recall": round_figure(float(detected.mean())),
                }
            )
    return Analysis(
        name=table.make_name("gtvn-recall-by-volume"),
        title=table.make_title("Recall of GTVn lesions by volume"),
        caption=(
            "Fraction of the reference's GTVn lesions that the team detects by the edition's rule, "
            f"{ABOUT_BINS.replace('cases', 'lesions')}."
        ),
        columns={
            "team": "Team",
            "volume_ml": "GTVn lesion volume (ml), median of the bin",
            "lesions": "Lesions",
            "detected": "Detected",
            "recall": "Recall",
        },
        rows=rows,
        chart={"kind": "lines", "x": "volume_ml", "y": "recall", "series": "team", "domain": [0, 1]},
        source="not from an overview; bins as in the HECKTOR 2021 overview, Fig. 7",
    )


def _compute_f1_by_iou(table: AnswerRows, lesions: dict[str, TeamLesions], rules: MaskRules) -> Analysis:
    """Compute F1 at several IoU thresholds, of which one is the threshold of the rules."""
    rules_by_threshold = {
        threshold: rules.model_copy(update={"iou_threshold": threshold})
        for threshold in sorted({*IOU_THRESHOLDS, rules.iou_threshold})
    }
    rows = [
        {"team": team, "iou_threshold": threshold, **_make_count_cells(team_lesions.count(threshold_rules))}
        for team, team_lesions in lesions.items()
        for threshold, threshold_rules in rules_by_threshold.items()
    ]
    above = "above" if rules.iou_strict else "at or above"
    return Analysis(
        name=table.make_name("gtvn-f1-by-iou"),
        title=table.make_title("F1 of GTVn lesions by IoU threshold"),
        caption=(
            f"Aggregated F1 if lesions match at an IoU {above} each threshold. The lesions are matched again at each "
            f"threshold ({MATCHINGS[rules.matching]}). The rules of these results have the threshold "
            f"{rules.iou_threshold:g}."
        ),
        columns={"team": "Team", "iou_threshold": "IoU threshold", **_COUNT_HEADINGS},
        rows=rows,
        chart={"kind": "lines", "x": "iou_threshold", "y": "f1", "series": "team", "domain": [0, 1]},
        source="not from an overview; it shows how far the ranking by F1 depends on the threshold of HECKTOR 2025",
    )


def _compute_f1_by_matching(table: AnswerRows, lesions: dict[str, TeamLesions], rules: MaskRules) -> Analysis:
    """Compute F1 by the matching rule of the results, the one-to-one rule and the 2025 overview's many-to-many rule."""
    matchings = dict.fromkeys((rules.matching, "one_to_one", "any_overlap"))
    rows = [
        {
            "team": team,
            "matching": f"{MATCHINGS[matching]}{' (scored)' * (matching == rules.matching)}",
            **_make_count_cells(team_lesions.count(rules.model_copy(update={"matching": matching}))),
        }
        for team, team_lesions in lesions.items()
        for matching in matchings
    ]
    return Analysis(
        name=table.make_name("gtvn-f1-by-matching"),
        title=table.make_title("F1 of GTVn lesions by matching rule"),
        caption=(
            "Aggregated F1 with one-to-one matching, and with the many-to-many rule in the words of the HECKTOR 2025 "
            "overview: every predicted lesion that overlaps a reference lesion enough counts as detected, every "
            "reference lesion without such a partner is missed. A lesion that is predicted in parts counts once with "
            "the first rule and once for each part with the second."
        ),
        columns={"team": "Team", "matching": "Matching", **_COUNT_HEADINGS},
        rows=rows,
        chart={"kind": "bars", "y": "team", "x": "f1", "series": "matching", "domain": [0, 1]},
        source="HECKTOR 2025 overview, 2.3.1, definition of the aggregated F1",
    )


def _make_count_cells(counts: LesionCounts) -> dict[str, Any]:
    """Make the cells of detected, false-positive and missed lesions and of F1, which is None if there is no lesion."""
    numerator = 2 * counts.true_positives
    denominator = numerator + counts.false_positives + counts.false_negatives
    return {
        "detected": counts.true_positives,
        "false": counts.false_positives,
        "missed": counts.false_negatives,
        "f1": round_figure(numerator / denominator) if denominator else None,
    }


def count_detected_primaries(table: AnswerRows) -> list[Analysis]:
    """Count the cases in which a team detects the primary tumour: the team's GTVp overlaps the reference's GTVp.

    There is no analysis if neither the reference nor a team has a GTVp.
    """
    reference = table.get_numbers("gtvp_reference_voxels")
    predicted = table.get_numbers("gtvp_predicted_voxels")
    shared = table.get_numbers("gtvp_intersection_voxels")
    denominators = {"cases with a GTVp": reference > 0, "cases in which the team marks a GTVp": predicted > 0}
    rows: list[dict[str, Any]] = []
    for denominator, is_counted in denominators.items():
        hit_counts = (shared > 0).sum(axis=1).tolist()
        for team, cases, hits in zip(table.names, is_counted.sum(axis=1).tolist(), hit_counts, strict=True):
            if cases:
                low, high = wilson_interval(hits, cases)
                figures = {"fraction": round_figure(hits / cases), "low": round_figure(low), "high": round_figure(high)}
                rows.append({"of": denominator, "team": team, "found": hits, "cases": cases, **figures})
    analysis = Analysis(
        name=table.make_name("primary-found"),
        title=table.make_title("Detection of the primary tumour"),
        caption=(
            "Cases in which the team's GTVp and the reference's GTVp share at least one voxel, as a fraction of all "
            "cases with a GTVp and of the cases in which the team marks a GTVp, with Wilson's 95% interval."
        ),
        columns={
            "of": "Of",
            "team": "Team",
            "found": "Found",
            "cases": "Cases",
            "fraction": "Fraction",
            "low": "95% interval from",
            "high": "to",
        },
        rows=rows,
        chart={
            "kind": "intervals",
            "y": "team",
            "x": "fraction",
            "low": "low",
            "high": "high",
            "facet": "of",
            "domain": [0, 1],
        },
        source="HECKTOR 2020 overview, criteria 2 and 3 for success: detect all primary tumours, and only these",
    )
    return [analysis] if rows else []


def count_lesions(table: AnswerRows) -> list[Analysis]:
    """Count the detected, missed and false-positive GTVn lesions of each team over all cases."""
    counts = {outcome: np.nansum(table.get_numbers(f"gtvn_lesions_{outcome}"), axis=1) for outcome in _OUTCOMES}
    if not any(team_counts.any() for team_counts in counts.values()):
        return []
    dsc_sums = sum_lesion_dsc(table)
    rows: list[dict[str, Any]] = []
    for index, team in enumerate(table.names):
        total = sum(team_counts[index] for team_counts in counts.values())
        dsc = round_figure(float(dsc_sums[index] / total)) if total else None
        for outcome, word in _OUTCOMES.items():
            rows.append({"team": team, "outcome": word, "lesions": int(counts[outcome][index]), "lesion_dsc": dsc})
    return [
        Analysis(
            name=table.make_name("gtvn-lesions"),
            title=table.make_title("Detected, missed and false-positive GTVn lesions"),
            caption=(
                "Lesions of all cases, matched by the edition's rule. Detected and missed lesions are lesions "
                f"of the reference; false-positive lesions are lesions of the team's masks.{_LESION_DSC}"
            ),
            columns={
                "team": "Team",
                "outcome": "Lesions",
                "lesions": "Number",
                "lesion_dsc": "Lesion-wise DSC of the team",
            },
            rows=rows,
            chart={"kind": "bars", "y": "team", "x": "lesions", "series": "outcome"},
            source="HECKTOR 2025 rules, aggregated F1; the HNTS-MRG 2024 overview asks for the lesion-wise DSC",
        )
    ]


def sum_lesion_dsc(table: AnswerRows) -> Floats:
    """Return the sum of each team's DSCs of matched lesions."""
    sums = [
        sum(dsc or 0.0 for row in rows if row is not None for dsc in row["gtvn_lesions_dsc"]) for rows in table.rows
    ]
    return np.array(sums, dtype=np.float64)
