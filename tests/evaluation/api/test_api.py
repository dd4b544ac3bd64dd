"""The Python API returns the contents of the command line's files and raises the same errors."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from contract.errors import GroundTruthError, HecktorError, PredictionError
from contract.images.volumes import write_mask
from evaluation import evaluate, evaluate_teams, rank, score_masks
from evaluation.cli import main
from evaluation.editions.profile import load_profile, with_options
from evaluation.ranking.cli import main as rank_main

TRUTH = "PatientID,Relapse,RFS\nP1,1,10\nP2,1,20\nP3,0,30\n"


@pytest.fixture
def tables(tmp_path):
    """Write the reference and the risks of two teams. The first team orders all three pairs correctly, the second one of them."""
    (tmp_path / "truth.csv").write_text(TRUTH)
    (tmp_path / "good.csv").write_text("PatientID,risk\nP1,3\nP2,2\nP3,1\n")
    (tmp_path / "poor.csv").write_text("PatientID,risk\nP1,2\nP2,1\nP3,3\n")
    return tmp_path


def test_masks_by_hand(blank):
    """Score voxels of 1 x 2 x 3 mm. The GTVp of 8 voxels is shifted by one voxel along x and shares 4; one GTVn is missed."""
    reference, prediction = blank(), blank()
    reference[2:4, 2:4, 2:4] = 1
    prediction[2:4, 2:4, 3:5] = 1
    reference[6, 6, 4:8] = 2
    scores = score_masks(reference, prediction, spacing_mm=(1.0, 2.0, 3.0))
    assert (scores.gtvp.dsc, scores.gtvp.precision, scores.gtvp.recall) == (0.5, 0.5, 0.5)
    assert scores.gtvp.reference_ml == pytest.approx(8 * 6 / 1000)
    assert scores.gtvp.hd95_mm == pytest.approx(1.0)
    assert scores.gtvn.dsc == 0.0
    assert scores.gtvn.hd95_mm == np.inf
    assert scores.to_dict()["gtvn_lesions"] == {"true_positives": 0, "false_positives": 0, "false_negatives": 1}
    empty = score_masks(blank(), blank(), spacing_mm=(1.0, 1.0, 1.0))
    assert empty.gtvp.dsc is None
    assert empty.gtvp.hd95_mm is None


def test_paths_give_the_scores_of_their_arrays(tmp_path, blank, grid):
    reference, prediction = blank(), blank()
    reference[2:4, 2:4, 2:4] = 1
    prediction[2:4, 2:4, 3:5] = 1
    write_mask(tmp_path / "r.mha", reference, grid)
    write_mask(tmp_path / "p.nii.gz", prediction, grid)
    from_files = score_masks(tmp_path / "r.mha", str(tmp_path / "p.nii.gz"))
    assert from_files == score_masks(reference, prediction, spacing_mm=grid.spacing_mm)


def test_a_mask_outside_the_field_of_view_is_a_warning(tmp_path, blank, grid):
    """By the rule of 2021 a mask 300 mm from the image is scored as background."""
    mask = blank()
    mask[2, 2, 2] = 1
    write_mask(tmp_path / "r.mha", mask, grid)
    write_mask(tmp_path / "p.mha", mask, replace(grid, origin_mm=(300.0, 4.0, 7.0)))
    scores = score_masks(tmp_path / "r.mha", tmp_path / "p.mha", edition="hecktor2021")
    (warning,) = scores.warnings
    assert warning.startswith("p.mha: no overlap with the reference's field of view (its grid is ")
    assert warning.endswith("; scored as background")
    assert scores.gtvp.dsc == 0.0


@pytest.mark.parametrize(
    ("reference", "prediction", "spacing", "error", "message"),
    [
        (np.zeros((2, 2, 2)), np.zeros((2, 2, 3)), (1.0, 1.0, 1.0), PredictionError, r"shape \(2, 2, 3\)"),
        (np.zeros((2, 2)), np.zeros((2, 2)), (1.0, 1.0, 1.0), GroundTruthError, r"array with axes \(z, y, x\)"),
        (np.zeros((2, 2, 2)), np.full((2, 2, 2), 3), (1.0, 1.0, 1.0), PredictionError, "other labels"),
        (np.zeros((2, 2, 2)), np.zeros((2, 2, 2)), None, HecktorError, "spacing_mm: found None"),
        (
            np.zeros((2, 2, 2)),
            np.zeros((2, 2, 2)),
            1.0,
            HecktorError,
            "spacing_mm: found 1.0, expected three distances",
        ),
        (np.zeros((2, 2, 2)), np.zeros((2, 2, 2)), (1.0, 1.0, "1"), HecktorError, "expected three distances"),
        (np.zeros((2, 2, 2)), "mask.mha", None, HecktorError, "found an array and a path"),
        ("a.mha", "b.mha", (1.0, 1.0, 1.0), HecktorError, "given with paths"),
        ("a.mha", "b.mha", None, GroundTruthError, "a.mha"),
    ],
)
def test_masks_that_cannot_be_compared(reference, prediction, spacing, error, message):
    with pytest.raises(error, match=message):
        score_masks(reference, prediction, spacing)


def test_an_evaluation_is_the_content_of_metrics_json(tables):
    result = evaluate(tables / "truth.csv", task="rfs", predictions=tables / "good.csv", bootstraps=20)
    assert result.aggregates["c_index"].value == 1.0
    assert result.cases.used == 3
    arguments = ["--task", "2", "--predictions", str(tables / "good.csv"), "--ground-truth", str(tables / "truth.csv")]
    assert main([*arguments, "--output", str(tables / "good"), "--bootstraps", "20"]) == 0
    assert json.loads((tables / "good" / "metrics.json").read_text()) == result.to_dict()


@pytest.mark.parametrize("threshold", [0.1, "0.1"])
def test_options_are_texts_or_values(threshold):
    profile = with_options(load_profile("hecktor2025").task("segmentation"), {"iou_threshold": threshold})
    assert profile.answers["segmentation"].rules.iou_threshold == 0.1


def test_errors_are_those_of_the_command_line(tables):
    with pytest.raises(GroundTruthError, match="not found"):
        evaluate(tables / "absent.csv", task="rfs", predictions=tables / "good.csv")
    with pytest.raises(HecktorError, match="expected one of them"):
        evaluate(tables / "truth.csv", task="rfs")
    with pytest.raises(HecktorError, match="one of segmentation"):
        evaluate(tables / "truth.csv", predictions=tables / "good.csv")
    with pytest.raises(HecktorError, match=r"no metrics\.json given"):
        rank({})


def test_importing_the_package_is_light():
    code = "import sys, evaluation; print(sorted({'numpy', 'matplotlib', 'SimpleITK', 'evaluation.api', 'evaluation.pipeline'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    code = "import sys; from evaluation import evaluate; print({'matplotlib', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_scoring_imports_no_scipy_stats(tables, tmp_path):
    """Only rankings need scipy.stats, whose import takes half a second."""
    files = ["--ground-truth", str(tables / "truth.csv"), "--predictions", str(tables / "good.csv")]
    command = ["--task", "rfs", *files, "--output", str(tmp_path / "scored")]
    code = "import sys; from evaluation.cli import main; main(sys.argv[1:]); sys.exit('scipy.stats' in sys.modules)"
    subprocess.run([sys.executable, "-c", code, *command], capture_output=True, check=True)


def test_a_ranking_with_unranked_rows_equals_that_of_the_command(tables):
    """Compare `rank` with `--out-of-competition` and `--mean`; results may be files, contents or objects."""
    results = {}
    for name in ("good", "poor"):
        table = tables / f"{name}.csv"
        results[name] = evaluate(
            tables / "truth.csv", task="rfs", predictions=table, bootstraps=20, output=tables / name
        )
    files = [str(tables / name / "metrics.json") for name in results]
    arguments = ["--task", "2", *files, "--bootstraps", "20", "--mean"]
    rows = ["--out-of-competition", f"A={files[1]}:withdrawn", "--out-of-competition", f"B={files[0]}"]
    assert rank_main([*arguments, *rows, "--output", str(tables / "board")]) == 0
    expected = json.loads((tables / "board" / "leaderboard.json").read_text())
    of_command = {"good": "../good", "poor": "../poor", "A": "../poor", "B": "../good"}
    assert expected.pop("files") == {name: f"{folder}/metrics.json" for name, folder in of_command.items()}
    assert expected["identical_answers"] == [
        {"teams": ["good", "B"], "answer": "rfs", "cases": 3},
        {"teams": ["poor", "A"], "answer": "rfs", "cases": 3},
    ]
    unranked = {"A": (results["poor"], "withdrawn"), "B": files[0]}
    board = rank(results, bootstraps=20, out_of_competition=unranked, mean=True).to_dict()
    assert board.pop("files") == {"B": files[0]}  # the other results are not files
    assert board == expected
    assert [row["team"] for row in board["out_of_competition"]] == ["B", "mean of all teams", "A"]
    paths = {name: tables / name / "metrics.json" for name in results}
    of_paths = rank(paths, bootstraps=20, out_of_competition=unranked, mean=True).to_dict()
    assert of_paths == expected | {"files": {**{name: str(path) for name, path in paths.items()}, "B": files[0]}}
    plain = rank(
        {name: result.to_dict() for name, result in results.items()},
        bootstraps=0,
        out_of_competition={"A": paths["poor"]},
    )
    assert (plain.order, plain.ranks, plain.incomplete) == (("good", "poor"), {"good": 1, "poor": 2}, [])


def test_teams_evaluated_together_have_the_results_of_separate_evaluations(tables):
    """An unreadable table raises an error after the other teams are scored."""
    teams = tables / "teams"
    teams.mkdir()
    for name in ("good", "poor"):
        (teams / f"{name}.csv").write_text((tables / f"{name}.csv").read_text())
    separate = {
        name: evaluate(tables / "truth.csv", task="rfs", predictions=tables / f"{name}.csv", bootstraps=20)
        for name in ("good", "poor")
    }
    assert evaluate_teams(tables / "truth.csv", teams, task="rfs", bootstraps=20) == separate
    (teams / "worst.csv").write_text("nothing\n1\n")
    with pytest.raises(HecktorError, match=r"^1 of 3 teams could not be scored: worst: "):
        evaluate_teams(tables / "truth.csv", teams, task="rfs", bootstraps=0, output=tables / "out")
    assert sorted(path.parent.name for path in (tables / "out").glob("*/metrics.json")) == ["good", "poor"]


def test_a_rule_for_ties_holds_in_every_bootstrap_ranking(tables):
    """Two teams with equal answers tie in each replicate: both are first by the edition's rule and last by the maximum."""
    files = {"task": "rfs", "predictions": tables / "good.csv", "bootstraps": 0}
    results = {name: evaluate(tables / "truth.csv", **files) for name in ("a", "b")}
    for ties, place in ((None, "1"), ("max", "2")):
        stable = rank(results, bootstraps=20, ties=ties).stability
        assert {team: ranking.times_at_rank for team, ranking in stable.rankings["c_index"].teams.items()} == {
            "a": {place: 20},
            "b": {place: 20},
        }


def test_the_name_of_a_team_is_not_a_formula(tables):
    """The table puts an apostrophe before the name; leaderboard.json and file paths keep the name."""
    for name in ("good", "poor"):
        evaluate(
            tables / "truth.csv", task="rfs", predictions=tables / f"{name}.csv", bootstraps=9, output=tables / name
        )
    files = [str(tables / name / "metrics.json") for name in ("good", "poor")]
    assert (
        rank_main(["--task", "2", *files, "--names", "=1+1", "@b", "--output", str(tables), "--bootstraps", "9"]) == 0
    )
    lines = (tables / "leaderboard.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in lines] == ["team", "'=1+1", "'@b"]
    files_of = json.loads((tables / "leaderboard.json").read_text())["files"]
    assert files_of == {"=1+1": "good/metrics.json", "@b": "poor/metrics.json"}


def test_unranked_rows_that_are_refused(tables):
    result = evaluate(tables / "truth.csv", task="rfs", predictions=tables / "good.csv", bootstraps=20)
    with pytest.raises(HecktorError, match=r"^team 'good' appears twice"):
        rank({"good": result}, out_of_competition={"good": result})
    with pytest.raises(HecktorError, match=r"^team 'mean of all teams' appears twice"):
        rank({"mean of all teams": result}, mean=True)
    with pytest.raises(HecktorError, match=r"^A\.study: found .drift."):
        rank({"good": result}, out_of_competition={"A": {"study": "drift"}})
