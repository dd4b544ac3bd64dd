"""Records as `cross_validation.json` stores them, and masks, with figures that can be computed by hand."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from baseline.heads.record import TargetRecord
from contract.documents import parse_document
from contract.images.geometry import Geometry

GRID = Geometry((24, 20, 16), (2.0, 2.0, 3.0), (-24.0, -20.0, 0.0))
PATIENTS = 60
FOLD = {"held_out": [], "model": "", "setting": {}, "experts": [], "tried": {}, "threshold": None}


def make_blocks(shift: int = 0) -> np.ndarray:
    """Return a mask of a GTVp of 4 x 4 x 4 voxels, moved along x by `shift`, and a GTVn of the same size."""
    mask = np.zeros(GRID.array_shape, np.uint8)
    mask[3:7, 4:8, 4 + shift : 8 + shift] = 1
    mask[9:13, 10:14, 14:18] = 2
    return mask


def parse_record(record: dict[str, Any]) -> TargetRecord:
    """Parse the record of a target as the report does."""
    return parse_document(record, TargetRecord, "record")


def make_answers(scores: np.ndarray, **more: Any) -> dict[str, Any]:
    """Return the answers of one model as `cross_validation.json` stores them."""
    return {"score": scores.tolist(), **more}


def make_rfs_record(inside: np.ndarray, outside: np.ndarray) -> dict[str, Any]:
    """Return a record of relapses in the order of the patients: a score of -n is the perfect risk."""
    rows = [{"id": f"P{n}", "centre": "AB"[n % 2], "rfs_days": 10.0 + n, "relapse": True} for n in range(PATIENTS)]
    fold = FOLD | {"coefficients": {"total_volume_ml": 0.5}}
    record: dict[str, Any] = {"metric": "c_index", "patients": rows}
    for kind, scores in (("nested", inside), ("leave_one_centre_out", outside)):
        rivals = {"tumour_volume": make_answers(np.zeros(PATIENTS))}
        by_centre = {"A": 1.0, "B": 0.9} if kind == "nested" else {"A": 0.5, "B": None}
        folds: dict[str, Any] = {"by_centre": by_centre} | {
            "fold_of_patient": [n % 2 for n in range(PATIENTS)],
            "folds": [fold, fold],
            "comparators": rivals,
        }
        record[kind] = make_answers(scores, **folds)
    return record


PERFECT = -np.arange(PATIENTS, dtype=float)


def make_hpv_record() -> dict[str, Any]:
    """Return a record with one negative patient in three.

    The heads are always right in nested cross-validation, and answer positive for all patients of a centre left out.
    """
    status = [n % 3 > 0 for n in range(PATIENTS)]
    record: dict[str, Any] = {
        "metric": "balanced_accuracy",
        "patients": [{"id": f"P{n}", "centre": "A", "hpv": status[n]} for n in range(PATIENTS)],
    }
    for kind, positive in (("nested", status), ("leave_one_centre_out", [True] * PATIENTS)):
        probability = [0.9 if flag else 0.1 for flag in positive]
        record[kind] = {
            "score": probability, "positive": positive, "probability": probability, "fold_of_patient": [0] * PATIENTS,
            "by_centre": {"A": 0.5}, "folds": [FOLD | {"coefficients": {}}], "comparators": {},
        }  # fmt: skip
    return record


def make_stage_record() -> dict[str, Any]:
    """Return a record of thirty patients of T1, fifteen of T2 and fifteen of T3, whose T3 is always predicted as T2."""
    truth = ["T1"] * 30 + ["T2"] * 15 + ["T3"] * 15
    predicted = ["T1"] * 30 + ["T2"] * 30
    scored: dict[str, Any] = {
        "class": predicted, "recall": {"T1": 1.0, "T2": 1.0, "T3": 0.0, "T4": None},
        "confusion": [[30, 0, 0, 0], [0, 15, 0, 0], [0, 15, 0, 0], [0] * 4],
        "fold_of_patient": [0] * PATIENTS, "by_centre": {"A": 2 / 3}, "folds": [FOLD | {"coefficients": {}}],
        "comparators": {"most_frequent": {"class": ["T1"] * PATIENTS}, "rule": {"class": truth}},
    }  # fmt: skip
    rows = [{"id": f"P{n}", "centre": "A", "t_stage": stage} for n, stage in enumerate(truth)]
    why = {"why_not": "t_stage: 1 centre, expected at least 2 to leave one out"}
    return {"metric": "balanced_accuracy", "patients": rows, "nested": scored, "leave_one_centre_out": why}


def list_charts(html: str) -> list[str]:
    """List the ids of the charts of a page, in the order of the page."""
    return re.findall(r'<section class="chart [^"]*" id="([^"]*)">', html)
