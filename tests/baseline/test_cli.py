"""Tests of what the command line checks before any work is done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from baseline import PRESETS, Machine, PrepareOptions, TrainingOptions, pipeline, prepare_release, train
from baseline.cli import main, make_parser
from baseline.network.jobs import resolve_machine
from baseline.network.plans import NetworkPlan
from baseline.steps import make_plan
from baseline.work import Spacing, WorkFolders, resolve_spacing
from contract.errors import HecktorError
from contract.io.files import PHANTOM_MARKER, write_json, write_text
from tests.baseline.prepared import make_planned_work

PREPARED, FINE = (2.0, 2.0, 4.0), (1.0, 1.0, 1.0)
KEPT_SPACING = "spacing: the prepared images keep 2 2 4 mm; the preset has 1 1 1 mm"


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


Run = Callable[[Path, Spacing | None], object]


def run_train(root: Path, spacing_mm: Spacing | None) -> object:
    plan = None if spacing_mm is None else PRESETS["nnunet"]
    return train(TrainingOptions(root / "work", root / "p", PrepareOptions(str(root / "release"), spacing_mm), plan))


def run_prepare_release(root: Path, spacing_mm: Spacing | None) -> object:
    return prepare_release(
        PrepareOptions(str(root / "release"), spacing_mm), MagicMock(), WorkFolders(root / "work"), 1
    )


def make_command_runner(step: str, *more: str) -> Run:
    def run(root: Path, spacing_mm: Spacing | None) -> object:
        spacing = [] if spacing_mm is None else ["--spacing-mm", *map(str, spacing_mm)]
        preset = ["--preset", "nnunet"] if spacing_mm and step == "all" else []
        places = ["--work", str(root / "work"), "--release", str(root / "release")]
        return main([step, *places, *spacing, *preset, *more])

    return run


ENTRIES = [make_command_runner("all", "--output", "p"), make_command_runner("prepare"), run_train, run_prepare_release]


@pytest.mark.parametrize("run", ENTRIES)
def test_patients_are_never_trained_by_the_preset_of_trials_unless_it_is_named(tmp_path: Path, run: Run) -> None:
    """Both the command line and Python refuse before anything is read or written; test_plans.py tests `plan`."""
    (tmp_path / "release" / "Task 1").mkdir(parents=True)
    with pytest.raises(HecktorError, match=r"^--preset: not given, and release contains no phantoms"):
        run(tmp_path, None)
    assert list(tmp_path.rglob("*")) == [tmp_path / "release", tmp_path / "release" / "Task 1"]


@pytest.mark.parametrize("run", ENTRIES)
def test_images_of_a_trained_network_are_not_replaced(tmp_path: Path, run: Run) -> None:
    """Neither the command line nor Python replaces the images, and nothing is written."""
    work = make_planned_work(tmp_path / "work")
    (tmp_path / "release" / "Task 1").mkdir(parents=True)
    write_text(work.fold(0) / "checkpoint_latest.pth", "network")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    message = r"^--spacing-mm: found 1 1 1, and networks trained on images of 2 2 4 mm, expected that spacing, or a new"
    with pytest.raises(HecktorError, match=message):
        run(tmp_path, FINE)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


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


def test_a_spacing_is_chosen_by_request_then_images_then_preset(tmp_path: Path) -> None:
    lines: list[str] = []
    empty, work = WorkFolders(tmp_path / "empty"), make_planned_work(tmp_path / "work")
    unnamed, like_images, fine = (PrepareOptions("r", spacing_mm) for spacing_mm in (None, PREPARED, FINE))
    assert resolve_spacing(empty, unnamed, FINE, lines.append) == FINE
    assert resolve_spacing(empty, like_images, FINE, lines.append) == PREPARED
    assert resolve_spacing(work, unnamed, PREPARED, lines.append) == PREPARED
    assert resolve_spacing(work, unnamed, None, lines.append) == PREPARED
    assert resolve_spacing(work, fine, FINE, lines.append) == FINE
    write_json(tmp_path / PHANTOM_MARKER, {})
    assert resolve_spacing(empty, PrepareOptions(str(tmp_path)), None, lines.append) == (3.0, 3.0, 3.0)
    assert lines == []
    assert resolve_spacing(work, unnamed, FINE, lines.append) == PREPARED
    assert lines == [KEPT_SPACING]


class CheckBegunError(Exception):
    """Raised instead of checking the release."""


@pytest.mark.parametrize(("prepared", "spacing_mm"), [(True, PREPARED), (False, FINE)])
@pytest.mark.parametrize("from_python", [True, False])
def test_a_training_without_a_spacing_keeps_the_images_spacing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    prepared: bool,
    spacing_mm: Spacing,
    from_python: bool,
) -> None:
    """Without prepared images, the preset `nnunet` decides: 1 mm."""
    root, release = make_planned_work(tmp_path / "work").root if prepared else tmp_path / "work", tmp_path / "release"
    (release / "Task 1").mkdir(parents=True)
    check = MagicMock(side_effect=CheckBegunError)
    monkeypatch.setattr(pipeline, "check_release", check)
    monkeypatch.setattr(pipeline, "_describe_plan", lambda *_: "steps")
    options = TrainingOptions(root, root / "package", PrepareOptions("r"), PRESETS["nnunet"])
    command = ["all", "--work", str(root), "--release", str(release), "--output", "package", "--preset", "nnunet"]
    with pytest.raises(CheckBegunError):
        train(options, print) if from_python else main(command)
    assert check.call_args.args[0].spacing_mm == spacing_mm
    assert capsys.readouterr().out == (f"{KEPT_SPACING}\n" if prepared else "") + "steps\n"
