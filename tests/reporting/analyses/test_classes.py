"""Predicted classes: confusion matrices, calibration."""

from __future__ import annotations

from typing import Any

from contract.editions import load_edition
from reporting.analyses.classes import analyse_calibration, analyse_confusion
from tests.evaluation.tasks import HPV, STATUS

COMBINED = load_edition("hecktor2026").algorithms[0]
T_STAGE = next(answer for answer in COMBINED.answers if answer.name == "t_stage")


def make_row(actual: bool, predicted: bool | None, probability: float | None = None) -> dict[str, Any]:
    return {"hpv_positive": actual, "predicted_hpv_positive": predicted, "predicted_probability": probability}


def test_calibration_counts_patients_with_a_probability(table) -> None:
    """Two probabilities, 0.1 and 0.15, are in the first fifth, one of two positive; 0.9 is in the last; one is missing."""
    rows = [make_row(True, True, 0.1), make_row(False, False, 0.15), make_row(True, True, 0.9), make_row(True, True)]
    (curve,) = analyse_calibration(table({"ann": rows, "bea": [make_row(True, True)]}, STATUS, HPV))
    assert [(line["patients"], line["probability_mean"], line["positive_share"]) for line in curve.rows] == [
        (2, 0.125, 0.5),
        (1, 0.9, 1.0),
    ]
    assert curve.notes == ("Without probabilities: bea.",)
    assert analyse_calibration(table({"bea": [make_row(True, True)]}, STATUS, HPV)) == []


def test_confusion_of_two_classes_with_a_missing_one(table) -> None:
    """Two of three positives are right and one is missing; the negative patient is called positive."""
    rows = [make_row(True, True), make_row(True, True), make_row(True, None), make_row(False, True)]
    (matrix,) = analyse_confusion(table({"ann": rows}, STATUS, HPV))
    assert [(line["actual"], line["predicted"], line["patients"], line["fraction"]) for line in matrix.rows] == [
        ("negative", "negative", 0, 0.0),
        ("negative", "positive", 1, 1.0),
        ("negative", "no prediction", 0, 0.0),
        ("positive", "negative", 0, 0.0),
        ("positive", "positive", 2, 0.6667),
        ("positive", "no prediction", 1, 0.3333),
    ]


def test_confusion_of_four_classes(table) -> None:
    """T1 is taken for T2, T4 is right; no patient has T2 or T3, and all have predictions."""
    rows = [{"t_stage": "T1", "predicted_t_stage": "T2"}, {"t_stage": "T4", "predicted_t_stage": "T4"}]
    nested = [{"case": case, "t_stage": stages} for case, stages in zip("AB", rows, strict=True)]
    (matrix,) = analyse_confusion(table({"ann": nested}, T_STAGE, COMBINED))
    assert matrix.name == "t_stage-confusion"
    filled = [(line["actual"], line["predicted"]) for line in matrix.rows if line["patients"]]
    assert filled == [("T1", "T2"), ("T4", "T4")]
    assert len(matrix.rows) == 16
    assert {line["fraction"] for line in matrix.rows if line["actual"] == "T2"} == {None}
