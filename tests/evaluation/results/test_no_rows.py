"""Files without rows, and standard error, show no row, name or path; the scores are the same."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest

from contract.errors import GroundTruthError, HecktorError, PredictionError
from contract.images.volumes import Volume, write_mask, write_volume
from evaluation.cli import main
from evaluation.ranking.leaderboard import build_leaderboard
from evaluation.results.teams import load_teams
from tests.evaluation.tasks import HPV, RFS, SEGMENTATION

ROWS = {"results", "centres"}


def test_without_rows_the_aggregates_are_the_same_and_no_name_is_shown(phase_of, blank, capsys):
    """Eleven cases of two centres, one missing and one broken: nine answered."""
    phase = phase_of(SEGMENTATION)
    phase.add_truth_table("PatientID,CenterID\n" + "".join(f"P{n},{'few' if n < 3 else 'C'}\n" for n in range(11)))
    for number in range(11):
        mask = blank()
        mask.reshape(-1)[: 31 + number] = 1
        mask[7, 9, : 1 + number] = 2
        phase.add_truth_mask(f"P{number}", mask)
        if number == 1:
            (phase.add_job("P1") / "m.mha").write_bytes(b"no image")
        elif number != 2:
            phase.add_mask(f"P{number}", np.roll(mask, 1, axis=2))
    full = phase.run()
    arguments = ["--task", "1", "--input", str(phase.input_dir), "--ground-truth", str(phase.truth_dir)]
    arguments += ["--output", str(phase.output_dir), "--bootstraps", "20", "--seed", "1", "--workers", "0"]
    capsys.readouterr()
    assert main([*arguments, "--no-rows"]) == 0
    printed = capsys.readouterr()
    text = (phase.output_dir / "metrics.json").read_text()
    shown = json.loads(text)
    assert set(full) - set(shown) == ROWS
    assert shown["aggregates"] == full["aggregates"]
    assert shown["cases"] == {"in_ground_truth": 11, "used": 11, "answered": 9}
    assert set(full["provenance"]) - set(shown["provenance"]) == {"case_set_sha256"}
    assert "2 without a usable prediction" in printed.out
    assert not re.search(r"P\d|few", text + printed.out + printed.err)
    assert str(phase.root) not in text + printed.err


def test_without_rows_references_need_equally_many_cases(phase_of):
    teams = []
    for team, right in (("a", 2), ("b", 3)):
        phase = phase_of(HPV)
        phase.add_truth_table("PatientID,HPV Status\nP0,1\nP1,1\nP2,1\nP3,0\n")
        for number in range(4):
            phase.add_value(f"P{number}", "true" if number < right else "false")
        teams.append((team, phase.run(rows=False)))
        shutil.rmtree(phase.root)
    board = build_leaderboard(load_teams(teams))
    assert [(entry.team, entry.metrics["sensitivity"].value) for entry in board.teams] == [
        ("b", 1.0),
        ("a", pytest.approx(2 / 3)),
    ]
    teams[1][1]["cases"]["in_ground_truth"] = 5
    with pytest.raises(HecktorError, match="scored on 4 and 5 cases"):
        load_teams(teams)


def test_stopping_at_missing_answers_names_no_case_without_rows(phase_of):
    phase = phase_of(HPV)
    phase.add_truth_table("PatientID,HPV Status\nP7,1\nP8,1\nP9,0\n")
    phase.add_value("P7", "true")
    with pytest.raises(PredictionError, match="2 cases without a usable prediction, P8"):
        phase.run(options={"missing": "stop"})
    with pytest.raises(PredictionError, match=r"^2 cases without a usable prediction, expected one") as error:
        phase.run(options={"missing": "stop"}, rows=False)
    assert not re.search("P[789]", str(error.value))


@pytest.mark.parametrize(
    ("task", "bad"),
    [(RFS, "PatientID,Relapse,RFS\nP1,1,-987\n"), (RFS, "PatientID,Relapse,RFS\nP1,987,5\n"), (HPV, "PatientID,HPV Status\nP1,987\n")],
    ids=["time", "event", "class"],
)  # fmt: skip
def test_an_error_of_a_table_shows_no_value(phase_of, task, bad):
    phase = phase_of(task)
    phase.add_truth_table(bad)
    with pytest.raises(GroundTruthError, match="line 2") as error:
        phase.run()
    assert "987" not in str(error.value)
    assert str(phase.root) not in str(error.value)


@pytest.mark.parametrize(("value", "dtype"), [(97, np.uint8), (1.97, np.float32)])
def test_an_error_of_a_reference_mask_shows_no_value(phase_of, blank, grid, value, dtype):
    phase = phase_of(SEGMENTATION)
    mask = blank().astype(dtype)
    mask[3, 3, 3] = value
    write_volume(phase.truth_dir / "A.mha", Volume(mask, grid))
    write_volume(phase.add_job("A") / "m.mha", Volume(mask, grid))
    with pytest.raises(GroundTruthError, match=r"A\.mha") as error:
        phase.run()
    assert "97" not in str(error.value)
    write_mask(phase.truth_dir / "A.mha", blank(), grid)
    assert "97" in phase.run()["cases"]["failed"][0]["why"]
