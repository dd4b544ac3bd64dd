"""The commands as processes: exit status, last line, and modules that are never imported."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.evaluation.tasks import HPV


@pytest.fixture
def phase(phase_of):
    phase = phase_of(HPV)
    phase.truth_table("PatientID,HPV Status\nP1,1\nP2,0\n")
    phase.value("P1", "true")
    phase.value("P2", "true")
    phase.run()
    (phase.output_dir / "metrics.json").unlink()
    return phase


def evaluate(phase, *more):
    command = [sys.executable, "-m", "evaluation", "--task", "3", "--input", str(phase.input_dir)]
    command += ["--ground-truth", str(phase.truth_dir), "--output", str(phase.output_dir), "--bootstraps", "10", *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_an_error_is_one_last_line_without_a_trace(phase):
    (phase.input_dir / "predictions.json").write_text("{")
    done = evaluate(phase)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: predictions.json")
    assert "Traceback" not in done.stderr
    assert not (phase.output_dir / "metrics.json").exists()


@pytest.mark.parametrize("more", [["--bootstraps", "-1"], ["--task", "4"]])
def test_usage_errors_exit_with_2(phase, more):
    assert evaluate(phase, *more).returncode == 2


def test_the_evaluation_ranks_teams(phase, tmp_path):
    """The image runs `python -m evaluation --edition NAME --task NAME` with the user's arguments behind."""
    assert evaluate(phase).returncode == 0
    files = [phase.output_dir / "metrics.json"] * 2
    for defaults, own in (([], ["--task", "hpv"]), (["--edition", "hecktor2025", "--task", "hpv"], [])):
        command = [sys.executable, "-m", "evaluation", *defaults, "rank", *map(str, files), "--names", "a", "b", *own]
        command += ["--output", str(tmp_path / "board")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        board = json.loads((tmp_path / "board" / "leaderboard.json").read_text())
        assert [(entry["rank"], entry["team"]) for entry in board["teams"]] == [(1, "a"), (1, "b")]
        assert "Balanced accuracy" in done.stdout


def test_an_argument_that_reads_rank_is_not_the_command(phase, tmp_path):
    """Only behind `--edition` and `--task` is the word a command."""
    done = evaluate(phase, "rank")
    assert done.returncode == 2
    assert "unrecognized arguments: rank" in done.stderr


def test_networks_are_never_imported():
    code = (
        "import importlib, sys, evaluation.__main__, evaluation.ranking.cli, reporting.report.cli, reporting.studies.cli\n"
        "[importlib.import_module(f'reporting.studies.{module}') for module, _ in reporting.studies.cli.STUDIES.values()]\n"
        "found = {'torch', 'monai', 'nnunetv2', 'algorithm', 'baseline', 'rehearsal'} & set(sys.modules)\n"
        "sys.exit(', '.join(found) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
