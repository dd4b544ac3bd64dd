"""An edition with four answers of each case: joined rows, prefixed metrics, one cohort, ranking and report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from contract.editions import load_edition
from contract.errors import HecktorError
from contract.images.volumes import Volume, write_mask, write_volume
from contract.predictions import job_entry, socket_entry
from evaluation.cli import main
from evaluation.editions.profile import load_profile, with_options
from evaluation.ranking.cli import main as rank
from evaluation.report.cli import main as report

EDITIONS = Path(__file__).parents[1] / "editions"
PROFILE = EDITIONS / "four_answers_profile.json"
DECLARATION = EDITIONS / "four_answers.json"
EVERYTHING = load_edition(str(DECLARATION)).algorithms[0]
TARGETS = """PatientID,T-stage,N-stage,RFS,Relapse,Site
P1,T1,N0,100,1,A
P2,T1,N2,200,1,A
P3,T2,N2,300,0,B
P4,,N3,400,1,B
"""
# P2's T stage is no class and P3 has no N stage; the times of P1 and P2 are in the wrong order.
ANSWERS = {
    "P1": {"t_stage": "T1", "n_stage": "N0", "survival": 250.0},
    "P2": {"t_stage": 1, "n_stage": "N2", "survival": 150.0},
    "P3": {"t_stage": "T2", "survival": 300.0},
    "P4": {"t_stage": "T4", "n_stage": "N1", "survival": 500.0},
}


def tumour(blank, shift=0):
    mask = blank()
    mask[2:4, 2:4, 2 + shift : 4 + shift] = 1
    mask[6, 6, 4:8] = 2
    return mask


@pytest.fixture
def challenge(tmp_path, blank, grid):
    """Write references, and the jobs of a team; `shift` moves its primary tumours along x."""
    truth = tmp_path / "ground_truth"
    truth.mkdir()
    (truth / "targets.csv").write_text(TARGETS)
    for case in ANSWERS:
        write_mask(truth / f"{case}.mha", tumour(blank), grid)

    def submit(team, answers=ANSWERS, shift=0):
        folder = tmp_path / team / "input"
        jobs = []
        for case, values in answers.items():
            output = folder / case / "output"
            for name, value in values.items():
                path = EVERYTHING.answer(name).socket.path_under(output)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(value))
            write_mask(EVERYTHING.answers[0].socket.path_under(output) / "x.mha", tumour(blank, shift), grid)
            ct = socket_entry(EVERYTHING.inputs["ct"], 1, image=("pk", f"{case}.mha"))
            jobs.append(job_entry(case, [ct], [], algorithm_image="", exec_duration_s=1))
        (folder / "predictions.json").write_text(json.dumps(jobs))
        return folder

    return submit, truth


def evaluate(challenge, team, *more, **changes):
    submit, truth = challenge
    folder = submit(team, **changes)
    arguments = ["--edition", str(PROFILE), "--input", str(folder), "--ground-truth", str(truth)]
    output = folder.parent.parent / "task1" / team
    assert main([*arguments, "--output", str(output), "--bootstraps", "50", "--workers", "0", *more]) == 0
    return json.loads((output / "metrics.json").read_text())


def test_teams_are_ranked_and_shown(challenge, tmp_path, grid):
    """The shift halves the overlap of theirs; all other answers are equal."""
    ours, theirs = evaluate(challenge, "ours"), evaluate(challenge, "theirs", shift=1)
    assert theirs["aggregates"]["mask_gtvp_dsc_mean"]["value"] == pytest.approx(0.5)
    files = [str(tmp_path / "task1" / team / "metrics.json") for team in ("theirs", "ours")]
    assert rank([*files, "--edition", str(PROFILE), "--output", str(tmp_path / "task1"), "--bootstraps", "50"]) == 0
    board = json.loads((tmp_path / "task1" / "leaderboard.json").read_text())
    assert [(entry["team"], entry["rank"]) for entry in board["teams"]] == [("ours", 1), ("theirs", 2)]
    # Ranks 1 and 1 against 2 and 1: nested ranks 1 and 2 with weight 3, all other parts tie at rank 1.
    sums = [entry["rankings"]["weighted_borda"]["rank_sum"] for entry in board["teams"]]
    assert sums == [3 + 1 + 1 + 2, 6 + 1 + 1 + 2]
    tests = {name: comparison["test"] for name, comparison in board["comparisons"].items()}
    assert set(tests.values()) == {"bootstrap_difference"}
    beside = {name: list(comparison["other_tests"]) for name, comparison in board["comparisons"].items()}
    assert beside["t_stage_balanced_accuracy"] == ["mcnemar", "exact_exchange"]
    assert (beside["survival_c_index"], beside["mask_gtvp_dsc_mean"][0]) == (["kang"], "wilcoxon_signed_rank")
    # The draws of the bootstrap rankings are those of the evaluation's intervals.
    stable = board["stability"]["rankings"]["mask_first"]["teams"]["ours"]
    assert stable["times_at_rank"] == {"1": 50}
    assert board["stability"]["redraws"] == ours["provenance"]["redraws"]
    for case in ANSWERS:
        for name in ("ct", "pet"):
            path = EVERYTHING.inputs[name].path_under(tmp_path / case / "input")
            write_volume(path / "x.mha", Volume(np.ones(grid.array_shape, np.float32), grid))
    page = tmp_path / "page.html"
    shown = ["--results", str(tmp_path), "--cohort", str(tmp_path), "--edition", str(DECLARATION), "--workers", "0"]
    assert report([*shown, "--output", str(page)]) == 0
    assert "T stage T1 · N stage N0 · Recurrence yes · Follow-up 100 days" in page.read_text()
    assert "log-rank" in page.read_text()


def test_options_name_one_answer_or_all():
    task = load_profile(str(PROFILE)).task(None)
    changed = with_options(task, {"missing": "skip", "t_stage.missing": "stop", "connectivity": "6"})
    assert changed.options["t_stage"] == {"missing": "stop", "not_counted": "skip"}
    assert changed.options["n_stage"] == {"missing": "skip", "not_counted": "skip"}
    assert changed.options["mask"]["connectivity"] == 6
    with pytest.raises(HecktorError, match=r"unknown (survival\.)?colour, expected one of missing"):
        with_options(task, {"colour": "red"})
    with pytest.raises(HecktorError, match=r"unknown (survival\.)?colour, expected one of missing"):
        with_options(task, {"survival.colour": "red"})


def test_a_metric_needs_the_name_of_its_answer(tmp_path):
    content = json.loads(PROFILE.read_text())
    content["declaration"] = str(DECLARATION)
    metrics = content["tasks"]["everything"]["metrics"]
    metrics["c_index"] = metrics.pop("survival_c_index")
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(content))
    with pytest.raises(HecktorError, match="'c_index' is not measured under these rules"):
        load_profile(str(path))
