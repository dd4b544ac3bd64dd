"""Records as `cross_validation.json` holds them, and masks, whose figures follow by hand."""

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


def blocks(shift: int = 0) -> np.ndarray:
    """A GTVp of 4 x 4 x 4 voxels, moved along x by `shift`, and a GTVn of the same size."""
    mask = np.zeros(GRID.array_shape, np.uint8)
    mask[3:7, 4:8, 4 + shift : 8 + shift] = 1
    mask[9:13, 10:14, 14:18] = 2
    return mask


def parsed(record: dict[str, Any]) -> TargetRecord:
    """The record of a target as the report reads it."""
    return parse_document(record, TargetRecord, "record")


def answers(scores: np.ndarray, **more: Any) -> dict[str, Any]:
    """One model's answers as `cross_validation.json` has them."""
    return {"score": scores.tolist(), **more}


def rfs_record(inside: np.ndarray, outside: np.ndarray) -> dict[str, Any]:
    """Everyone relapses, patient 0 first: a score of -n is the perfect risk."""
    rows = [{"id": f"P{n}", "centre": "AB"[n % 2], "rfs_days": 10.0 + n, "relapse": True} for n in range(PATIENTS)]
    fold = FOLD | {"coefficients": {"total_volume_ml": 0.5}}
    record: dict[str, Any] = {"metric": "c_index", "patients": rows}
    for kind, scores in (("nested", inside), ("leave_one_centre_out", outside)):
        rivals = {"tumour_volume": answers(np.zeros(PATIENTS))}
        by_centre = {"A": 1.0, "B": 0.9} if kind == "nested" else {"A": 0.5, "B": None}
        folds: dict[str, Any] = {"by_centre": by_centre} | {
            "fold_of_patient": [n % 2 for n in range(PATIENTS)],
            "folds": [fold, fold],
            "comparators": rivals,
        }
        record[kind] = answers(scores, **folds)
    return record


PERFECT = -np.arange(PATIENTS, dtype=float)


def hpv_record() -> dict[str, Any]:
    """Every third is negative; the heads answer everyone right inside, and positive for everyone with centres left out."""
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


def stage_record() -> dict[str, Any]:
    """Thirty patients of T1, fifteen of T2 and of T3, none of T4; T3 is always called T2."""
    truth = ["T1"] * 30 + ["T2"] * 15 + ["T3"] * 15
    given = ["T1"] * 30 + ["T2"] * 30
    scored: dict[str, Any] = {
        "class": given, "recall": {"T1": 1.0, "T2": 1.0, "T3": 0.0, "T4": None},
        "confusion": [[30, 0, 0, 0], [0, 15, 0, 0], [0, 15, 0, 0], [0] * 4],
        "fold_of_patient": [0] * PATIENTS, "by_centre": {"A": 2 / 3}, "folds": [FOLD | {"coefficients": {}}],
        "comparators": {"most_frequent": {"class": ["T1"] * PATIENTS}, "rule": {"class": truth}},
    }  # fmt: skip
    rows = [{"id": f"P{n}", "centre": "A", "t_stage": stage} for n, stage in enumerate(truth)]
    why = {"why_not": "t_stage: 1 centre, expected at least 2 to leave one out"}
    return {"metric": "balanced_accuracy", "patients": rows, "nested": scored, "leave_one_centre_out": why}


def charts_of(html: str) -> list[str]:
    """The ids of the charts of a page, in its order."""
    return re.findall(r'<section class="chart [^"]*" id="([^"]*)">', html)
