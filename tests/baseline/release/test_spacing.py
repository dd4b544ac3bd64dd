"""Prepared images keep their spacing and cannot be replaced after a network has been trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from baseline import PRESETS, PrepareOptions, TrainingOptions, WorkFolders, pipeline, prepare_release, train
from baseline.cli import main
from baseline.work import Spacing, resolve_spacing
from contract.errors import HecktorError
from contract.io.files import PHANTOM_MARKER, write_json, write_text
from tests.baseline.prepared import make_planned_work

PREPARED, FINE = (2.0, 2.0, 4.0), (1.0, 1.0, 1.0)
KEPT_SPACING = "spacing: the prepared images keep 2 2 4 mm; the preset has 1 1 1 mm"


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


def make_release(root: Path) -> Path:
    """Make a folder with the layout of a release, without patients, next to the working directory."""
    release = root.with_name(f"{root.name}-release")
    (release / "Task 1").mkdir(parents=True, exist_ok=True)
    return release


def make_command_runner(step: str) -> Callable[[Path], object]:
    more = ["--output", "package", "--preset", "nnunet"] if step == "all" else []

    def run(root: Path) -> object:
        return main(
            [step, "--work", str(root), "--release", str(make_release(root)), "--spacing-mm", "1", "1", "1", *more]
        )

    return run


def run_train(root: Path) -> object:
    return train(TrainingOptions(root, root / "package", PrepareOptions("absent", FINE), PRESETS["nnunet"]))


def run_prepare_release(root: Path) -> object:
    return prepare_release(PrepareOptions("absent", FINE), MagicMock(), WorkFolders(root), 1)


@pytest.mark.parametrize(
    "run", [make_command_runner("all"), make_command_runner("prepare"), run_train, run_prepare_release]
)
def test_images_of_a_trained_network_are_not_replaced(tmp_path: Path, run: Callable[[Path], object]) -> None:
    """Neither the command line nor Python replaces the images, and nothing is written."""
    work = make_planned_work(tmp_path)
    write_text(work.fold(0) / "checkpoint_latest.pth", "network")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    expected = r"that spacing, or a new working directory$"
    message = rf"^--spacing-mm: found 1 1 1, and networks trained on images of 2 2 4 mm, expected {expected}"
    with pytest.raises(HecktorError, match=message):
        run(work.root)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


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
    root = make_planned_work(tmp_path).root if prepared else tmp_path
    check = MagicMock(side_effect=CheckBegunError)
    monkeypatch.setattr(pipeline, "check_release", check)
    monkeypatch.setattr(pipeline, "_describe_plan", lambda *_: "steps")
    options = TrainingOptions(root, root / "package", PrepareOptions("r"), PRESETS["nnunet"])
    command = [
        "all",
        "--work",
        str(root),
        "--release",
        str(make_release(root)),
        "--output",
        "package",
        "--preset",
        "nnunet",
    ]
    with pytest.raises(CheckBegunError):
        train(options, print) if from_python else main(command)
    assert check.call_args.args[0].spacing_mm == spacing_mm
    assert capsys.readouterr().out == (f"{KEPT_SPACING}\n" if prepared else "") + "steps\n"
