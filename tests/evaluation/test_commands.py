"""The evaluation image's command: arguments, variables, exit status, its server, and modules that are not imported."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contract.errors import HecktorError
from evaluation.__main__ import main
from evaluation.options import parse_name_path, parse_name_paths
from tests.server_calls import call
from tests.signals import reset_signals

IMAGE = {"HECKTOR_EDITION": "hecktor2025", "HECKTOR_TASK": "hpv", "HECKTOR_API_METHOD": "invoke"}


def make_arguments(phase, *more: str) -> list[str]:
    folders = ["--input", phase.input_dir, "--ground-truth", phase.truth_dir, "--output", phase.output_dir]
    return [*map(str, folders), "--bootstraps", "10", *more]


@contextmanager
def serve(phase) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a server as an image does, and yield its process and its port once it is ready."""
    command = reset_signals([sys.executable, "-m", "evaluation", *make_arguments(phase, "--port", "0")])
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **IMAGE}) as process:
        try:
            assert process.stderr is not None
            ready = next(line for line in process.stderr if "ready for cases on port" in line)
            yield process, int(ready.rsplit(" ", 1)[1])
        finally:
            process.kill()


def test_submissions_one_after_the_other(hpv_phase, tmp_path):
    """The platform may fill the input folder after the start; an unusable submission fails only its call.

    Sensitivity is 1 of 1 and specificity 0 of 1, so the balanced accuracy is 0.5.
    """
    listing = hpv_phase.input_dir / "predictions.json"
    content = listing.read_bytes()
    metrics = hpv_phase.output_dir / "metrics.json"
    folder = hpv_phase.input_dir.rename(tmp_path / "later")
    with serve(hpv_phase) as (process, port):
        assert call(port, "GET", "/health") == (200, "ready")
        assert call(port, "POST", "/invoke")[0] == 500
        folder.rename(hpv_phase.input_dir)
        for _ in range(2):
            status, text = call(port, "POST", "/invoke")
            assert (status, text.split(":")[0]) == (201, "hpv evaluated")
            assert json.loads(metrics.read_text())["aggregates"]["balanced_accuracy"]["value"] == 0.5
            listing.write_text("{")
            status, text = call(port, "POST", "/invoke")
            assert status == 500
            assert text.startswith("predictions.json: ")
            assert list(hpv_phase.output_dir.iterdir()) == []
            listing.write_bytes(content)
        process.terminate()
        assert process.wait(30) == 0


def test_an_error_is_one_last_line_without_a_trace(hpv_phase):
    (hpv_phase.input_dir / "predictions.json").write_text("{")
    command = [sys.executable, "-m", "evaluation", "--task", "3", *make_arguments(hpv_phase)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: predictions.json")
    assert "Traceback" not in done.stderr
    assert not (hpv_phase.output_dir / "metrics.json").exists()


@pytest.mark.parametrize(
    ("more", "variables", "message"),
    [
        (["--serve", "--teams", "."], {}, "--serve: found with --teams, expected the platform's folders"),
        (["--port", "0"], {}, "--port: found without --serve, expected both"),
        (["--no-serve", "--port", "0"], IMAGE, "--port: found without --serve, expected both"),
        ([], {"HECKTOR_API_METHOD": "post"}, "HECKTOR_API_METHOD: found 'post', expected exec or invoke"),
        (["--bootstraps", "-1"], {}, "argument --bootstraps: "),
        (["--task", "4"], {}, "argument --task: "),
        (["--task", "mask"], IMAGE, "argument --task: "),
        (["rank"], {}, "unrecognized arguments: rank"),  # it is a command only behind `--edition` and `--task`
    ],
)
def test_arguments_that_are_refused(hpv_phase, monkeypatch, capsys, more, variables, message):
    """Errors of usage end with status 2."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    arguments = make_arguments(hpv_phase, "--task", "hpv", *more)
    if "--teams" in more:
        del arguments[:2]
    with pytest.raises((HecktorError, SystemExit)) as error:
        main(arguments)
    if isinstance(error.value, SystemExit):
        assert error.value.code == 2
        assert message in capsys.readouterr().err.splitlines()[-1]
    else:
        assert str(error.value).startswith(message)


def test_arguments_override_the_variables_of_an_image(hpv_phase, monkeypatch, capsys):
    for name, value in {**IMAGE, "HECKTOR_TASK": "rfs"}.items():
        monkeypatch.setenv(name, value)
    assert main(make_arguments(hpv_phase, "--no-serve", "--task", "hpv")) == 0
    assert "balanced_accuracy" in capsys.readouterr().out


def test_the_evaluation_ranks_teams(hpv_phase, tmp_path, capsys):
    """An entry point `python -m evaluation --edition NAME --task NAME` is followed by the user's arguments."""
    assert main(make_arguments(hpv_phase, "--task", "3")) == 0
    files = [str(hpv_phase.output_dir / "metrics.json")] * 2
    for defaults, own in (([], ["--task", "hpv"]), (["--edition", "hecktor2025", "--task=hpv"], [])):
        arguments = [*files, "--names", "a", "b", *own, "--output", str(tmp_path / "board")]
        assert main([*defaults, "rank", *arguments]) == 0
        board = json.loads((tmp_path / "board" / "leaderboard.json").read_text())
        assert [(entry["rank"], entry["team"]) for entry in board["teams"]] == [(1, "a"), (1, "b")]
        assert "Balanced accuracy" in capsys.readouterr().out


STUDIES = (
    "import evaluation.__main__, evaluation.ranking.cli, reporting.report.cli, reporting.studies.cli; "
    "[__import__(f'reporting.studies.{module}') for module, _ in reporting.studies.cli.STUDIES.values()]"
)
PROFILES = (
    "from contract.editions import list_editions; from evaluation.editions.profile import load_profile; "
    "[load_profile(edition) for edition in list_editions()]"
)
# Code, and modules that are not imported by it. Each step needs more modules than the step before.
STEPS = (
    ("import evaluation", ("numpy", "matplotlib", "SimpleITK", "evaluation.api", "evaluation.pipeline")),
    (PROFILES, ("SimpleITK", "scipy", "evaluation.rows", "evaluation.inputs", "evaluation.execution")),
    # Only rankings need scipy.stats, which takes half a second.
    ("from evaluation.cli import main; main(sys.argv[1:])", ("matplotlib", "torch", "scipy.stats")),
    ("import reporting.report.cli", ("matplotlib",)),
    (STUDIES, ("torch", "monai", "nnunetv2", "algorithm", "baseline", "rehearsal")),
)


def test_modules_that_are_not_imported(hpv_phase):
    lines = ["import sys"]
    for code, modules in STEPS:
        loaded = f"', '.join(name for name in sys.modules if name.startswith({modules}))"
        lines += [code, f"loaded = {loaded}", f"if loaded: sys.exit({code!r} + ' imports ' + loaded)"]
    command = [sys.executable, "-c", "\n".join(lines), "--task", "hpv", *make_arguments(hpv_phase)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", ["team", "=folder", " =folder", "team="])
def test_a_named_path_needs_a_name_and_a_path(text: str) -> None:
    assert parse_name_path("team=a=b,c") == ("team", Path("a=b,c"))
    assert parse_name_paths(" team =a=b,c") == ("team", [Path("a=b"), Path("c")])
    for read in (parse_name_path, parse_name_paths):
        with pytest.raises(argparse.ArgumentTypeError, match="expected NAME=PATH"):
            read(text)
