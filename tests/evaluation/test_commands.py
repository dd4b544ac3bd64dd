"""The commands as processes: exit status, last line, and modules that are never imported."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def evaluate(hpv_phase, *more):
    command = [sys.executable, "-m", "evaluation", "--task", "3", "--input", str(hpv_phase.input_dir)]
    command += [
        "--ground-truth",
        str(hpv_phase.truth_dir),
        "--output",
        str(hpv_phase.output_dir),
        "--bootstraps",
        "10",
        *more,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_an_error_is_one_last_line_without_a_trace(hpv_phase):
    (hpv_phase.input_dir / "predictions.json").write_text("{")
    done = evaluate(hpv_phase)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: predictions.json")
    assert "Traceback" not in done.stderr
    assert not (hpv_phase.output_dir / "metrics.json").exists()


@pytest.mark.parametrize("more", [["--bootstraps", "-1"], ["--task", "4"]])
def test_usage_errors_exit_with_2(hpv_phase, more):
    assert evaluate(hpv_phase, *more).returncode == 2


def test_the_evaluation_ranks_teams(hpv_phase, tmp_path):
    """As an entry point `python -m evaluation --edition NAME --task NAME` is followed by the user's arguments."""
    assert evaluate(hpv_phase).returncode == 0
    files = [hpv_phase.output_dir / "metrics.json"] * 2
    for defaults, own in (([], ["--task", "hpv"]), (["--edition", "hecktor2025", "--task=hpv"], [])):
        command = [sys.executable, "-m", "evaluation", *defaults, "rank", *map(str, files), "--names", "a", "b", *own]
        command += ["--output", str(tmp_path / "board")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        board = json.loads((tmp_path / "board" / "leaderboard.json").read_text())
        assert [(entry["rank"], entry["team"]) for entry in board["teams"]] == [(1, "a"), (1, "b")]
        assert "Balanced accuracy" in done.stdout


def test_the_argument_rank_elsewhere_is_not_the_command(hpv_phase, tmp_path):
    """Only behind `--edition` and `--task` is the word a command."""
    done = evaluate(hpv_phase, "rank")
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
