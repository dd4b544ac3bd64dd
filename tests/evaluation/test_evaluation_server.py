"""The evaluation as a server: one submission a call, its faults, and the end of the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.server_calls import call
from tests.signals import reset_signals

IMAGE = {"HECKTOR_EDITION": "hecktor2025", "HECKTOR_TASK": "hpv", "HECKTOR_API_METHOD": "invoke"}


def make_command(hpv_phase, *more: str) -> list[str]:
    folders = ["--input", hpv_phase.input_dir, "--ground-truth", hpv_phase.truth_dir, "--output", hpv_phase.output_dir]
    return reset_signals([sys.executable, "-m", "evaluation", *folders, "--bootstraps", "10", *more])


@contextmanager
def serve(
    hpv_phase, *more: str, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a server and yield its process and its port once it is ready."""
    environment = {**os.environ, **(variables or {})}
    command = make_command(hpv_phase, "--port", "0", *more)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            ready = next(line for line in process.stderr if "ready for cases on port" in line)
            yield process, int(ready.rsplit(" ", 1)[1])
        finally:
            process.kill()


def test_submissions_one_after_the_other(hpv_phase):
    """An unusable submission between two good ones fails only its call; the variables are set as in an image.

    Sensitivity is 1 of 1 and specificity 0 of 1, so the balanced accuracy is 0.5.
    """
    listing = hpv_phase.input_dir / "predictions.json"
    content = listing.read_bytes()
    metrics = hpv_phase.output_dir / "metrics.json"
    with serve(hpv_phase, variables=IMAGE) as (process, port):
        assert call(port, "GET", "/health") == (200, "ready")
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


def test_a_missing_submission_fails_only_its_call(hpv_phase, tmp_path):
    """The platform may fill the input folder after the start."""
    folder = hpv_phase.input_dir.rename(tmp_path / "later")
    with serve(hpv_phase, "--serve", "--task", "hpv") as (_, port):
        assert call(port, "POST", "/invoke")[0] == 500
        folder.rename(hpv_phase.input_dir)
        assert call(port, "POST", "/invoke")[0] == 201


@pytest.mark.parametrize(
    ("more", "variables", "status", "message"),
    [
        (["--serve", "--teams", "."], {}, 1, "error: --serve: found with --teams, expected the platform's folders"),
        (["--port", "0"], {}, 1, "error: --port: found without --serve, expected both"),
        (["--no-serve", "--port", "0"], IMAGE, 1, "error: --port: found without --serve, expected both"),
        ([], {"HECKTOR_API_METHOD": "post"}, 1, "error: HECKTOR_API_METHOD: found 'post', expected exec or invoke"),
        (["--task", "mask"], IMAGE, 2, "argument --task: "),
    ],
)
def test_options_that_exclude_each_other(hpv_phase, more, variables, status, message):
    command = make_command(hpv_phase, "--task", "hpv", *more)
    if "--teams" in more:
        del command[command.index("--input") : command.index("--input") + 2]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == status
    assert message in done.stderr.splitlines()[-1]


def test_arguments_override_the_variables_of_an_image(hpv_phase):
    """By `exec` the image's entry point evaluates once, for a task of its argument."""
    variables = {**IMAGE, "HECKTOR_TASK": "rfs"}
    command = make_command(hpv_phase, "--no-serve", "--task", "hpv")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr
    assert "balanced_accuracy" in done.stdout
