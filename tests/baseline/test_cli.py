"""Tests of what the command line checks before any work is done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from baseline import Machine, PrepareOptions, TrainingOptions, prepare_release, train
from baseline.cli import main, make_parser
from baseline.network.jobs import resolve_machine
from baseline.network.plans import NetworkPlan
from baseline.steps import make_plan
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.io.files import write_json


def test_as_many_jobs_as_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks on a cluster's node use the cores of the task rather than of the node."""
    monkeypatch.setattr("os.cpu_count", lambda: 128)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    assert make_parser().parse_args(["report", "--work", "x"]).jobs == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "cuda"], "--device: found cuda and no GPU that PyTorch can use"),
        (["--description", "absent.json"], "--description: no such file or folder: .*/absent.json "),
    ],
)
def test_errors_of_the_last_steps_end_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    """Errors are raised at once rather than after hours of earlier steps."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    places = ["--release", str(tmp_path / "release"), "--work", str(tmp_path / "work"), "--output", str(tmp_path / "p")]
    (tmp_path / "release" / "Task 1").mkdir(parents=True)
    with pytest.raises(HecktorError, match=f"^{message}"):
        main(["all", *places, "--preset", "short", *options])
    assert list(tmp_path.iterdir()) == [tmp_path / "release"]


def run_train(root: Path) -> object:
    return train(TrainingOptions(root / "work", root / "p", PrepareOptions(str(root / "release"))))


def make_command_runner(*words: str) -> Callable[[Path], object]:
    def run(root: Path) -> object:
        return main([*words[:1], "--work", str(root / "work"), "--release", str(root / "release"), *words[1:]])

    return run


def run_prepare_release(root: Path) -> object:
    return prepare_release(PrepareOptions(str(root / "release")), MagicMock(), WorkFolders(root / "work"), 1)


@pytest.mark.parametrize(
    "run", [make_command_runner("all", "--output", "p"), make_command_runner("prepare"), run_train, run_prepare_release]
)
def test_patients_are_never_trained_by_the_preset_of_trials_unless_it_is_named(
    tmp_path: Path, run: Callable[[Path], object]
) -> None:
    """Both the command line and Python refuse before anything is read or written; test_plans.py tests `plan`."""
    (tmp_path / "release" / "Task 1").mkdir(parents=True)
    with pytest.raises(HecktorError, match=r"^--preset: not given, and release contains no phantoms"):
        run(tmp_path)
    assert list(tmp_path.rglob("*")) == [tmp_path / "release", tmp_path / "release" / "Task 1"]


@pytest.mark.parametrize("has_card", [False, True])
def test_a_card_that_answers_is_the_default_device(monkeypatch: pytest.MonkeyPatch, has_card: bool) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: has_card)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert resolve_machine(Machine()).device == ("cuda" if has_card else "cpu")


def test_the_spacing_of_the_images_is_no_option_of_the_plan() -> None:
    """`all` has both kinds of options, but a plan takes the spacing of the prepared images later."""
    places = ["--release", "release", "--work", "work", "--output", "package"]
    options = ["--preset", "short", "--spacing-mm", "1", "1", "3", "--mirror-axes", "2", "0"]
    arguments = make_parser().parse_args(["all", *places, *options])
    assert arguments.spacing_mm == [1, 1, 3]
    assert make_plan(arguments, "release") == NetworkPlan(mirror_axes=(0, 2))


def test_options_of_a_plan_with_the_networks_of_a_package(tmp_path: Path) -> None:
    options = ["--release", str(tmp_path), "--output", "p", "--networks", str(tmp_path), "--batch-size", "2"]
    (tmp_path / "Task 1").mkdir()
    with pytest.raises(HecktorError, match=r"^--batch-size: found with --networks"):
        main(["all", "--work", str(tmp_path), *options])
    assert list(tmp_path.iterdir()) == [tmp_path / "Task 1"]


def test_postprocess_needs_networks_unless_the_masks_are_the_users_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured masks without networks have no probabilities."""
    with pytest.raises(HecktorError, match=r"^cases\.json: not found"):
        main(["postprocess", "--work", str(tmp_path)])
    write_json(WorkFolders(tmp_path).cases_json, [])
    write_json(WorkFolders(tmp_path).features_json, {})
    assert main(["postprocess", "--work", str(tmp_path)]) == 0
    assert "no postprocessing: there are no networks" in capsys.readouterr().out
