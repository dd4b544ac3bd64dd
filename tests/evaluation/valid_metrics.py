"""Evaluate a small cohort of each kind of answer, for tests that break its metrics.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from contract.images.volumes import write_mask
from evaluation.api import evaluate
from tests.evaluation.staging import ANSWERS, GRID, make_predictions, write_plain, write_truth

_RFS = "PatientID,Relapse,RFS\nP1,1,100\nP2,1,200\nP3,0,300\nP4,1,400\n"
_HPV = "PatientID,HPV Status\nP1,1\nP2,0\nP3,1\nP4,0\n"


def make_valid_contents(root: Path) -> dict[str, dict[str, Any]]:
    """Return the content of metrics.json for `masks` (with surfaces), `risks`, `classes` and `four_answers`.

    In each of them one case has failed. `root` is an empty folder for references and predictions.
    """
    return {
        "masks": _evaluate_masks(root / "masks"),
        "risks": _evaluate_table(root / "risks", "2", _RFS, "PatientID,risk\nP1,4\nP2,3\nP3,3.5\n"),
        "classes": _evaluate_table(
            root / "classes", "3", _HPV, "PatientID,hpv,probability\nP1,1,0.9\nP2,1,0.6\nP3,1,\n"
        ),
        "four_answers": _evaluate_four_answers(root / "four"),
    }


def _evaluate_masks(root: Path) -> dict[str, Any]:
    """Evaluate A with 8 reference and 8 predicted GTVp voxels, 4 common, and a GTVn lesion found; B is empty, C missing."""
    for case in "ABC":
        mask = np.zeros(GRID.array_shape, dtype=np.uint8)
        mask[2:4, 2:4, 2:4] = 1
        mask[6, 6, 4:8] = 2
        write_mask(root / "truth" / f"{case}.mha", mask, GRID)
        predicted = np.zeros_like(mask)
        if case == "A":
            predicted[2:4, 2:4, 3:5] = 1
            predicted[6, 6, 4:8] = 2
        if case != "C":
            write_mask(root / "predicted" / f"{case}.mha", predicted, GRID)
    options = {"surfaces": "both"}
    return _evaluate(root / "truth", root / "predicted", task="1", options=options)


def _evaluate_table(root: Path, task: str, truth: str, answers: str) -> dict[str, Any]:
    root.mkdir()
    (root / "truth.csv").write_text(truth)
    (root / "answers.csv").write_text(answers)
    return _evaluate(root / "truth.csv", root / "answers.csv", task=task)


def _evaluate_four_answers(root: Path) -> dict[str, Any]:
    truth = write_truth(root / "truth", GRID)
    return _evaluate(truth, write_plain(root / "answers", make_predictions(GRID), ANSWERS, GRID), edition="hecktor2026")


def _evaluate(truth: Path, answers: Path, **changes: Any) -> dict[str, Any]:
    return dict(
        evaluate(ground_truth=truth, predictions=answers, bootstraps=20, seed=1, workers=0, **changes).to_dict()
    )
