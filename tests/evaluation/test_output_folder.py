"""An evaluation and a ranking replace their own earlier result, and no other one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contract.errors import HecktorError
from evaluation.api import evaluate
from evaluation.cli import main as score
from evaluation.ranking.cli import main as rank

RFS = "PatientID,Relapse,RFS\nP1,1,100\nP2,1,200\nP3,0,300\n"
HPV = "PatientID,HPV Status\nP1,1\nP2,0\n"


def evaluate_task(root: Path, task: str) -> None:
    truth, answers = {"rfs": (RFS, "risk\nP1,3\nP2,2\nP3,1\n"), "hpv": (HPV, "hpv\nP1,1\nP2,0\n")}[task]
    (root / f"{task}.csv").write_text(truth)
    (root / f"{task}-answers.csv").write_text(f"PatientID,{answers}")
    predictions = root / f"{task}-answers.csv"
    evaluate(root / f"{task}.csv", predictions=predictions, task=task, output=root / "out", bootstraps=0)


@pytest.mark.parametrize("owner", ["hpv", "another program"])
def test_files_of_another_task_are_kept(tmp_path: Path, owner: str) -> None:
    """A ranking keeps both the JSON and the table of another leaderboard."""
    metrics, board = tmp_path / "out" / "metrics.json", tmp_path / "board"
    evaluate_task(tmp_path, "rfs")
    metrics.parent.rename(tmp_path / "rfs")
    arguments = [str(tmp_path / "rfs" / "metrics.json"), "--output", str(board)]
    if owner == "hpv":
        evaluate_task(tmp_path, owner)
        assert rank([str(metrics), *arguments[1:]]) == 0
    else:
        metrics.parent.mkdir()
        board.mkdir()
        metrics.write_text('{"accuracy": 1}')
        (board / "leaderboard.json").write_text('["players"]')
    files = [metrics, *board.iterdir()]
    before = [file.read_bytes() for file in files]
    message = f"found the file of {owner}, expected another --output"
    with pytest.raises(HecktorError, match=message):
        evaluate_task(tmp_path, "rfs")
    with pytest.raises(HecktorError, match=f"leaderboard.json: {message}"):
        rank(arguments)
    assert [file.read_bytes() for file in files] == before


@pytest.mark.parametrize("absent", ["--predictions", "--ground-truth"])
def test_an_absent_path_leaves_no_earlier_result(tmp_path: Path, absent: str) -> None:
    evaluate_task(tmp_path, "rfs")
    paths = {"--predictions": "rfs-answers.csv", "--ground-truth": "rfs.csv"} | {absent: "absent.csv"}
    words = [word for option, name in paths.items() for word in (option, str(tmp_path / name))]
    with pytest.raises(HecktorError, match=f"^{absent}: no such file or folder: "):
        score(["--task", "rfs", *words, "--output", str(tmp_path / "out")])
    assert not (tmp_path / "out" / "metrics.json").exists()


@pytest.mark.parametrize("fault", ["absent", "of other cases"])
def test_a_ranking_that_is_refused_leaves_no_earlier_leaderboard(tmp_path: Path, fault: str) -> None:
    evaluate_task(tmp_path, "rfs")
    (tmp_path / "out").rename(tmp_path / "a")
    board, second = tmp_path / "board", tmp_path / "b" / "metrics.json"
    words = [str(tmp_path / "a" / "metrics.json"), "--output", str(board), "--latex", "--cases"]
    assert [rank(words), rank(words)] == [0, 0]  # its own leaderboard is replaced
    assert len(list(board.iterdir())) == 4
    if fault == "of other cases":
        second.parent.mkdir()
        second.write_text((tmp_path / "a" / "metrics.json").read_text().replace('"P3"', '"P4"'))
    with pytest.raises(HecktorError):
        rank([words[0], str(second), *words[1:]])
    assert list(board.iterdir()) == []


def test_an_earlier_or_damaged_result_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "out" / "metrics.json"
    file.parent.mkdir()
    file.write_text('{"provenance": {"task"')
    for _ in range(2):
        evaluate_task(tmp_path, "rfs")
        assert json.loads(file.read_text())["aggregates"]["c_index"]["value"] == 1
