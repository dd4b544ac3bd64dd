"""The Python API returns the contents of the command line's files and raises the same errors; its page's examples run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from contract.errors import GroundTruthError, HecktorError, PredictionError
from contract.images.volumes import write_mask
from evaluation import evaluate, rank, score_masks
from evaluation.ranking.cli import main as rank_main

TRUTH = "PatientID,Relapse,RFS\nP1,1,10\nP2,1,20\nP3,0,30\n"
EMPTY = np.zeros((2, 2, 2))


@pytest.fixture
def tables(tmp_path):
    """Write the reference and the risks of two teams. The first team orders all three pairs correctly, the second one of them."""
    (tmp_path / "truth.csv").write_text(TRUTH)
    (tmp_path / "good.csv").write_text("PatientID,risk\nP1,3\nP2,2\nP3,1\n")
    (tmp_path / "poor.csv").write_text("PatientID,risk\nP1,2\nP2,1\nP3,3\n")
    return tmp_path


def test_paths_give_the_scores_of_their_arrays(tmp_path, blank, grid):
    """By the rule of 2021 a mask 300 mm from the image is scored as background, with a warning."""
    reference, prediction = blank(), blank()
    reference[2:4, 2:4, 2:4] = 1
    prediction[2:4, 2:4, 3:5] = 1
    write_mask(tmp_path / "r.mha", reference, grid)
    write_mask(tmp_path / "p.nii.gz", prediction, grid)
    from_files = score_masks(tmp_path / "r.mha", str(tmp_path / "p.nii.gz"))
    assert from_files == score_masks(reference, prediction, spacing_mm=grid.spacing_mm)
    write_mask(tmp_path / "p.mha", reference, replace(grid, origin_mm=(300.0, 4.0, 7.0)))
    scores = score_masks(tmp_path / "r.mha", tmp_path / "p.mha", edition="hecktor2021")
    (warning,) = scores.warnings
    assert warning.startswith("p.mha: no overlap with the reference's field of view (its grid is ")
    assert warning.endswith("; scored as background")
    assert scores.gtvp.dsc == 0.0


@pytest.mark.parametrize(
    ("reference", "prediction", "spacing", "error", "message"),
    [
        (EMPTY, np.zeros((2, 2, 3)), (1.0, 1.0, 1.0), PredictionError, r"shape \(2, 2, 3\)"),
        (EMPTY[0], EMPTY[0], (1.0, 1.0, 1.0), GroundTruthError, r"array with axes \(z, y, x\)"),
        (EMPTY, np.full((2, 2, 2), 3), (1.0, 1.0, 1.0), PredictionError, "other labels"),
        (EMPTY, EMPTY, None, HecktorError, "spacing_mm: found None"),
        (EMPTY, EMPTY, 1.0, HecktorError, "spacing_mm: found 1.0, expected three distances"),
        (EMPTY, EMPTY, (1.0, 1.0, "1"), HecktorError, "expected three distances"),
        (EMPTY, "mask.mha", None, HecktorError, "found an array and a path"),
        ("a.mha", "b.mha", (1.0, 1.0, 1.0), HecktorError, "given with paths"),
        ("a.mha", "b.mha", None, GroundTruthError, "a.mha"),
    ],
)
def test_masks_that_cannot_be_compared(reference, prediction, spacing, error, message):
    with pytest.raises(error, match=message):
        score_masks(reference, prediction, spacing)


def test_errors_are_those_of_the_command_line(tables):
    with pytest.raises(GroundTruthError, match="not found"):
        evaluate(tables / "absent.csv", task="rfs", predictions=tables / "good.csv")
    with pytest.raises(HecktorError, match="expected one of them"):
        evaluate(tables / "truth.csv", task="rfs")
    with pytest.raises(HecktorError, match="one of segmentation"):
        evaluate(tables / "truth.csv", predictions=tables / "good.csv")
    with pytest.raises(HecktorError, match=r"no metrics\.json given"):
        rank({})


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


def test_unranked_rows_that_are_refused(tables):
    result = evaluate(tables / "truth.csv", task="rfs", predictions=tables / "good.csv", bootstraps=20)
    with pytest.raises(HecktorError, match=r"^team 'good' appears twice"):
        rank({"good": result}, out_of_competition={"good": result})
    with pytest.raises(HecktorError, match=r"^team 'mean of all teams' appears twice"):
        rank({"mean of all teams": result}, mean=True)
    with pytest.raises(HecktorError, match=r"^A\.study: found .drift."):
        rank({"good": result}, out_of_competition={"A": {"study": "drift"}})


PAGE = Path(__file__).parents[3] / "docs" / "research.md"


def test_the_examples_run(tmp_path, monkeypatch, capsys):
    """Check the printed values: 10 columns shifted by one have a DSC of 9/10, and 500 voxels of 3 mm3 are 1.5 ml."""
    section = PAGE.read_text().split("## Evaluate and rank")[1].split("\n## ")[0]
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(compile(code, str(PAGE), "exec"), names)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "GTVp DSC 0.90, HD95 1.0 mm, 1.5 ml"
    assert shown[1] == "0 missed nodes"
    # Comparable pairs: P1 with three, P2 with two; P1 is ranked below P2 and P4.
    assert shown[2].startswith("C-index 0.60 [")
    assert shown[3] == "('first', 'second') 2"
