"""Primary tumours found, lesion counts, recall by volume, and F1 by IoU threshold and matching rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evaluation.metrics.lesions import compare_lesions
from evaluation.metrics.overlap import Overlap
from evaluation.metrics.rules import MaskRules
from evaluation.rows.mask import ComparedLabel, MaskRow, flatten_row, make_columns, make_mask_row
from evaluation.rows.scorer import make_table
from reporting.analyses.analysis import Analysis
from reporting.analyses.lesions import analyse_lesions, count_detected_primaries, count_lesions
from reporting.analyses.tables import AnswerRows


def make_primary(reference: int, predicted: int, shared: int) -> dict[str, Any]:
    return {"gtvp_reference_voxels": reference, "gtvp_predicted_voxels": predicted, "gtvp_intersection_voxels": shared}


def test_primaries_found_of_all_and_of_the_marked_ones(table) -> None:
    """In A it is found, in B marked elsewhere, in C not marked, in D marked without a tumour: 1 of 3 cases, 1 of 3 marked."""
    rows = [make_primary(5, 4, 1), make_primary(5, 4, 0), make_primary(5, 0, 0), make_primary(0, 2, 0)]
    (counted,) = count_detected_primaries(table({"ann": rows, "bea": [*rows[:1], *rows[2:3]]}))
    counts = [(row["of"], row["team"], row["found"], row["cases"]) for row in counted.rows]
    assert counts == [
        ("cases with a GTVp", "ann", 1, 3),
        ("cases with a GTVp", "bea", 1, 2),
        ("cases in which the team marks a GTVp", "ann", 1, 3),
        ("cases in which the team marks a GTVp", "bea", 1, 1),
    ]
    assert counted.rows[0]["fraction"] == 0.3333


def make_lesions(voxels: list[int], dsc: list[float | None], false: int = 0) -> dict[str, Any]:
    missed = dsc.count(None)
    return {
        "voxel_volume_mm3": 10.0,
        "gtvn_lesions_tp": len(dsc) - missed,
        "gtvn_lesions_fn": missed,
        "gtvn_lesions_fp": false,
        "gtvn_lesions_reference_voxels": voxels,
        "gtvn_lesions_dsc": dsc,
    }


def test_lesion_counts_and_lesion_wise_dsc(table) -> None:
    """Two detected with DSC 0.5 and 0.7, one missed, one false: (0.5 + 0.7 + 0 + 0) / 4 = 0.3."""
    (counts,) = count_lesions(table({"ann": [make_lesions([10, 20], [0.5, None], 1), make_lesions([30], [0.7])]}))
    assert [(row["outcome"], row["lesions"], row["lesion_dsc"]) for row in counts.rows] == [
        ("detected", 2, 0.3),
        ("missed", 1, 0.3),
        ("false positive", 1, 0.3),
    ]
    assert count_lesions(table({"ann": [make_lesions([], [])]})) == []


Pairs = list[tuple[int, int, float]]


def make_pairs(references: int, predictions: int, pairs: Pairs) -> dict[str, Any]:
    """Return a case with lesions of 10 voxels and these overlapping pairs: reference, prediction, IoU."""
    return {
        "voxel_volume_mm3": 10.0,
        "gtvn_lesions_reference_voxels": [10] * references,
        "gtvn_lesions_predicted_voxels": [10] * predictions,
        "gtvn_lesions_dsc": [None] * references,
        "gtvn_lesions_pairs": [{"reference": pair[0], "predicted": pair[1], "iou": pair[2]} for pair in pairs],
    }


def analyse_by_name(table: AnswerRows) -> dict[str, Analysis]:
    return {analysis.name: analysis for analysis in analyse_lesions(table)}


# In A the first lesion is predicted in two parts; in B an IoU of 0.2 is not above 0.2.
PARTS = [make_pairs(2, 3, [(0, 0, 0.35), (0, 1, 0.32), (1, 2, 0.6)]), make_pairs(1, 1, [(0, 0, 0.2)])]


def test_f1_at_each_iou_threshold_by_hand(table) -> None:
    """Above 0.1: 3 detected, 1 false: F1 6/7. Above 0.2 and 0.3: 2 detected, 2 false, 1 missed: 4/7.

    Above 0.4 and 0.5 only the IoU of 0.6 matches: 1 detected, 3 false, 2 missed: 2/7. Above 0.6 nothing does.
    Many to many, above 0.3: A has 3 detected, B 1 false and 1 missed: F1 6/8.
    """
    analyses = analyse_by_name(table({"ann": PARTS}))
    f1 = analyses["gtvn-f1-by-iou"]
    assert [row["f1"] for row in f1.rows] == [0.8571, 0.5714, 0.5714, 0.2857, 0.2857, 0, 0, 0, 0]
    assert [row["iou_threshold"] for row in f1.rows] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    counts = [f1.rows[2][outcome] for outcome in ("detected", "false", "missed")]
    assert counts == [2, 2, 1]
    assert [(row["matching"], row["f1"]) for row in analyses["gtvn-f1-by-matching"].rows] == [
        ("one to one (scored)", 0.5714),
        ("many to many (any overlap)", 0.75),
    ]


def test_lesions_are_matched_anew_at_each_threshold(table) -> None:
    """Above 0.3 the pair 0-0 matches: 1 detected, 1 false, 1 missed. Above 0.1 the pairs 0-1 and 1-0 detect both."""
    f1 = analyse_by_name(table({"ann": [make_pairs(2, 2, [(0, 0, 0.5), (1, 0, 0.2), (0, 1, 0.15)])]}))["gtvn-f1-by-iou"]
    assert [row["f1"] for row in f1.rows[:3]] == [1, 0.5, 0.5]


def test_another_threshold_of_the_rules_is_shown_too(table) -> None:
    """Threshold 0.25 lies between 0.2 and 0.3, and equality counts: the IoU of 0.2 still matches at 0.2."""
    rows = table({"ann": PARTS})
    rules = rows.mask_rules.model_copy(update={"iou_threshold": 0.25, "iou_strict": False})
    f1 = analyse_by_name(replace(rows, mask_rules=rules))["gtvn-f1-by-iou"]
    assert [(row["iou_threshold"], row["f1"]) for row in f1.rows[1:4]] == [(0.2, 0.8571), (0.25, 0.5714), (0.3, 0.5714)]
    assert "at or above" in f1.caption


def test_without_a_prediction_every_lesion_is_missed(table) -> None:
    """Two lesions missed: F1 0 at every threshold; without lesions it is undefined."""
    f1 = analyse_by_name(table({"ann": [make_pairs(2, 0, [])], "bea": [make_pairs(0, 0, [])]}))["gtvn-f1-by-iou"]
    assert {row["team"]: row["f1"] for row in f1.rows} == {"ann": 0, "bea": None}
    assert f1.rows[0]["missed"] == 2
    assert analyse_lesions(table({"ann": [make_pairs(0, 0, [])]})) == []


@pytest.mark.parametrize(
    ("matching", "threshold", "strict"),
    [("one_to_one", 0.3, True), ("any_overlap", 0.5, False), ("greedy", 0.0, True)],
)
def test_f1_at_the_threshold_of_the_rules_is_the_aggregated_f1(table, matching, threshold, strict) -> None:
    """Random masks with many lesions in contact: F1 from stored rows is the metric of the evaluation."""
    update = {"matching": matching, "iou_threshold": threshold, "iou_strict": strict, "connectivity": 6}
    empty = table({"ann": [make_pairs(1, 1, [])]})
    rules = empty.mask_rules.model_copy(update=update)
    rng = np.random.default_rng(3)
    rows = [draw_row(f"{number}", rules, rng) for number in range(12)]
    expected = float(make_columns(make_table(rows, MaskRow), "mm3").lesion_f1()(np.ones((1, len(rows))))[0])
    stored = table({"ann": [flatten_row(row.model_dump(mode="json")) for row in rows]})
    by_iou = analyse_by_name(replace(stored, mask_rules=rules))["gtvn-f1-by-iou"]
    (f1,) = (row["f1"] for row in by_iou.rows if row["iou_threshold"] == threshold)
    assert f1 == pytest.approx(expected, rel=1e-3)
    assert 0 < f1 < 1


def draw_row(case: str, rules: MaskRules, rng: np.random.Generator) -> MaskRow:
    reference = rng.random((6, 14, 14)) < 0.2
    predicted = reference ^ (rng.random(reference.shape) < 0.05)
    lesions = compare_lesions(reference, predicted, rules)
    overlap = Overlap(int((reference & predicted).sum()), int(reference.sum()), int(predicted.sum()))
    gtvp = ComparedLabel(Overlap(0, 0, 0), lesions.false, "skip")
    return make_mask_row(case, 1.0, gtvp, ComparedLabel(overlap, lesions.false, "skip", lesions))


def test_recall_in_five_bins_of_the_volume_by_hand(table) -> None:
    """16 lesions of 0.1 to 1.6 ml in two cases: bins of 4, 3, 3, 3 and 3 lesions, 10 voxels of 10 mm3 are 0.1 ml.

    Lesions up to 0.4 ml are missed, then each of odd size is detected: 0.5 and 0.7 of three, 0.9 of three, 1.1 and 1.3
    of three, 1.5 of three. The first bin's median is 0.25 ml.
    """
    sizes = list(range(10, 170, 10))
    detected = [None if size <= 40 or size % 20 == 0 else 0.8 for size in sizes]
    rows = [
        make_pairs(0, 0, []) | {"gtvn_lesions_reference_voxels": sizes[part::2], "gtvn_lesions_dsc": detected[part::2]}
        for part in (1, 0)
    ]
    recall = analyse_by_name(table({"ann": rows}))["gtvn-recall-by-volume"]
    assert [(row["volume_ml"], row["lesions"], row["detected"], row["recall"]) for row in recall.rows] == [
        (0.25, 4, 0, 0.0),
        (0.6, 3, 2, 0.6667),
        (0.9, 3, 1, 0.3333),
        (1.2, 3, 2, 0.6667),
        (1.5, 3, 1, 0.3333),
    ]
    for lesions, is_shown in ((14, False), (15, True)):  # three lesions in each bin
        few = analyse_by_name(table({"ann": [make_pairs(lesions, 0, [])]}))
        assert ("gtvn-recall-by-volume" in few) == is_shown
