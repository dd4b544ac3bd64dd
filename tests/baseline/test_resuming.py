"""Tests of `hecktor train all`, interrupted in each of its last steps and started again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, MagicMock

import pytest

from algorithm.network.package import load_package
from baseline.cli import main
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.io.files import read_json, write_json
from tests.baseline.conftest import TinyRelease
from tests.baseline.test_existing_networks import options, write_release

pytestmark = pytest.mark.slow
# Keys whose values depend on times, or on the times of files.
TIMES = ("made_from", "seconds")
# Module whose `write_json` is interrupted, calls before that, and the files of the step.
STEPS: tuple[tuple[str, int, Callable[[WorkFolders], list[Path]]], ...] = (
    ("postprocessing.step", 0, lambda work: [work.postprocessing_json, work.features_json, *work.masks.iterdir()]),
    ("fit", 1, lambda work: [work.heads_json, work.cross_validation_json]),
    ("report.report", 0, lambda work: [work.report / "index.html", work.report_json]),
    ("package.export", 1, lambda _: []),
)


def read_results(root: Path) -> dict[str, Any]:
    """Read the figures of a working directory and of its package."""
    work = WorkFolders(root / "work")
    paths = (
        work.postprocessing_json,
        work.features_json,
        work.heads_json,
        work.cross_validation_json,
        work.report_json,
    )
    documents = {path.name: read_json(path) for path in paths}
    figures = {
        name: {key: value for key, value in document.items() if key not in TIMES}
        for name, document in documents.items()
    }
    figures[work.features_json.name].pop("key")
    masks = {path.name: path.read_bytes() for path in work.masks.iterdir()}
    return {**figures, "masks": masks, "package": load_package(root / "package").manifest}


def copy_without_steps(source: Path, target: Path) -> WorkFolders:
    """Copy a working directory and remove the files of all steps after the measurement of the masks."""
    shutil.copytree(source / "work", target / "work")
    work = WorkFolders(target / "work")
    for _, _, list_step_files in STEPS:
        for path in list_step_files(work):
            path.unlink()
    shutil.rmtree(work.report)
    return work


def test_a_training_interrupted_in_each_step_ends_as_without_interruption(
    tiny_release: TinyRelease, tiny_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs end while the step writes its results, and files of the steps before are not changed. `heads` ends between
    its two files, `export` after the first head. The networks come from a package.
    """
    release, whole, resumed = write_release(tiny_release), tmp_path / "whole", tmp_path / "resumed"
    assert main(options(release, whole, tiny_package)) == 0
    work = copy_without_steps(whole, resumed)
    command = options(release, resumed, tiny_package)
    finished: list[Path] = []
    times = read_times([work.unfiltered_features_json, *(work.unfiltered / "masks").iterdir()])
    for module, before, list_step_files in STEPS:
        interrupting_write = MagicMock(wraps=write_json, side_effect=[DEFAULT] * before + [KeyboardInterrupt])
        with monkeypatch.context() as patch:
            patch.setattr(f"baseline.{module}.write_json", interrupting_write)
            with pytest.raises(HecktorError, match=r"^interrupted: finished work is saved"):
                main(command)
        assert interrupting_write.call_count == before + 1
        assert read_times(times) == times
        assert not (resumed / "package").exists()
        times |= read_times(finished)
        finished = list_step_files(work)
    assert main(command) == 0
    assert read_times(times) == times
    assert read_results(resumed) == read_results(whole)


def read_times(paths: Iterable[Path]) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in paths}
