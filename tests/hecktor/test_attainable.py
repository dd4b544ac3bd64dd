"""The scores of the model that draws the phantoms are checked on examples computed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from hecktor.attainable import AttainableScores, read_attainable
from tests.evaluation.builders import make_board, make_metrics, make_results
from tests.evaluation.tasks import HPV, RFS, SEGMENTATION

HEADER = "PatientID,linear_predictor,hpv_logit,hpv_positive,relapse,rfs_days"


def write_truth(cohort: Path, *lines: str) -> Path:
    (cohort / "truth").mkdir()
    (cohort / "truth" / "truth.csv").write_text("\n".join([HEADER, *lines, ""]))
    return cohort


def test_values_by_hand(tmp_path: Path) -> None:
    """Patient A relapses before B, C and D end, with a higher predictor than B and D: 2 of 3 pairs.

    The threshold is ln(0.85 / 0.15) = 1.73. Of the positives A and B only A is above it, of the negatives C and D both
    are below: (1 / 2 + 2 / 2) / 2.
    """
    lines = ["A,1.0,2.0,1,1,100", "B,0.5,1.7,1,0,200", "C,2.0,1.0,0,0,300", "D,0.0,0.5,0,0,400"]
    attainable = read_attainable(write_truth(tmp_path, *lines))
    assert attainable == AttainableScores(4, 1, 2, pytest.approx(2 / 3), pytest.approx(0.75))


def test_undefined_values(tmp_path: Path) -> None:
    """Without a relapse no pair is comparable, and with one status there is no balanced accuracy."""
    attainable = read_attainable(write_truth(tmp_path, "A,1.0,2.0,1,0,100", "B,0.5,1.7,1,0,200"))
    assert attainable == AttainableScores(2, 0, 2, None, None)
    board = make_board({"c_index": "C-index"}, [{"team": "ours"}])
    results = make_results({"ours": make_metrics({"c_index": (0.5,)})}, RFS, leaderboard=board)
    assert "ours reached no value;" in attainable.describe([results], "ours")


@pytest.mark.parametrize(
    ("task", "metric", "expected"),
    [
        (SEGMENTATION, "gtvp_dsc_mean", 1.0),
        (RFS, "c_index", 0.8),
        (RFS, "uno_c", None),
        (HPV, "balanced_accuracy", 0.7),
        (HPV, "sensitivity", None),
    ],
)
def test_value_of_a_metric(task, metric, expected) -> None:
    results = make_results({}, task)
    assert AttainableScores(4, 2, 2, 0.8, 0.7).find_value(results, metric) == expected


def test_value_of_a_weighted_sum() -> None:
    """Stages, 0.35 of the score, and the DSC, 0.25, can all be 1; the C-index is 0.4 of it."""
    from contract.editions import load_edition

    results = make_results({}, load_edition("hecktor2026").algorithms[0], "hecktor2026")
    assert AttainableScores(4, 2, 2, 0.8, 0.7).find_value(results, "score") == pytest.approx(0.92)
