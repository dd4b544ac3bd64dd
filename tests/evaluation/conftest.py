"""A small evaluation phase on disk: ground truth, jobs and their outputs, as the platform lays them out."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract import platform
from contract.editions import Algorithm
from contract.images.geometry import Geometry
from contract.images.volumes import write_mask
from contract.predictions import make_job_entry, make_socket_entry
from contract.processes import WorkerDeath
from evaluation.editions.profile import load_profile
from evaluation.metrics.rules import MaskRules
from evaluation.options import EvaluationRequest
from evaluation.pipeline import evaluate_submission
from tests.evaluation.staging import GRID
from tests.evaluation.tasks import HPV, SEGMENTATION
from tests.evaluation.valid_metrics import make_valid_contents


class Phase:
    """Collects jobs, then evaluates them."""

    def __init__(self, root: Path, task: Algorithm) -> None:
        self.task = task
        self.root = root
        self.input_dir, self.truth_dir, self.output_dir = root / "input", root / "ground_truth", root / "output"
        self.truth_dir.mkdir(parents=True)
        self.input_dir.mkdir()
        self.jobs: list[dict[str, Any]] = []

    def add_truth_mask(self, case: str, mask: np.ndarray, geometry: Geometry = GRID, suffix: str = ".mha") -> None:
        write_mask(self.truth_dir / f"{case}{suffix}", mask, geometry)

    def add_truth_table(self, text: str, name: str = "targets.csv", encoding: str = "utf-8") -> None:
        (self.truth_dir / name).write_text(text, encoding=encoding)

    def add_job(self, case: str, status: str = "Succeeded", ct_name: str | None = None) -> Path:
        """Add a job; returns the path of its output (an image's folder, or a JSON file)."""
        pk = f"job-{len(self.jobs)}"
        ct = make_socket_entry(self.task.inputs["ct"], 1, image=("pk", ct_name or f"{case}.mha"))
        output = self.task.answers[0].socket
        answer = make_socket_entry(output, 2)
        self.jobs.append(make_job_entry(pk, [ct], [answer], algorithm_image="", exec_duration_s=1, status=status))
        path = output.path_under(self.input_dir / pk / "output")
        (path if output.is_image else path.parent).mkdir(parents=True)
        return path

    def add_mask(self, case: str, mask: np.ndarray, geometry: Geometry = GRID) -> Path:
        path = self.add_job(case) / "anything.mha"
        write_mask(path, mask, geometry)
        return path

    def add_value(self, case: str, text: str) -> None:
        self.add_job(case).write_text(text)

    def run(self, **changes: Any) -> dict[str, Any]:
        (self.input_dir / platform.PREDICTIONS_JSON).write_text(json.dumps(list(reversed(self.jobs))))
        options: dict[str, Any] = {"seed": 1, "bootstraps": 20, **changes}
        request = EvaluationRequest(self.truth_dir, self.input_dir, self.output_dir, self.task.name, **options)
        returned = evaluate_submission(request).to_dict()
        assert json.loads((self.output_dir / "metrics.json").read_text()) == returned
        return returned


class WorkerDeathError(Exception):
    """Raised by a test where the process would end."""


def apply_in_this_process(
    work: Callable[[Any], Any], items: Sequence[Any], _workers: object
) -> Iterator[tuple[int, Any]]:
    """Do the work in the test's own process."""
    for index, item in enumerate(items):
        try:
            yield index, work(item)
        except WorkerDeathError:
            yield index, WorkerDeath("a test")


@contextmanager
def comparing_here() -> Iterator[None]:
    """Compare masks in the test's own process, for fixtures of a module or a session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evaluation.execution._apply", apply_in_this_process)
        yield


@pytest.fixture(autouse=True)
def compare_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare masks in the test's own process, where a monkeypatch applies and no interpreter has to start.

    Tests of the worker processes override this fixture.
    """
    monkeypatch.setattr("evaluation.execution._apply", apply_in_this_process)


@pytest.fixture
def phase_of(tmp_path):
    """Make a phase of a task."""
    return lambda task: Phase(tmp_path / task.name, task)


@pytest.fixture
def hpv_phase(phase_of):
    """Write a phase of HPV of two patients; the first answer is right, the second one wrong."""
    phase = phase_of(HPV)
    phase.add_truth_table("PatientID,HPV Status\nP1,1\nP2,0\n")
    phase.add_value("P1", "true")
    phase.add_value("P2", "true")
    phase.run()
    (phase.output_dir / "metrics.json").unlink()
    return phase


@pytest.fixture(scope="session")
def valid_metrics(tmp_path_factory):
    """Make the content of a metrics.json of one kind, see `make_valid_contents`."""
    with comparing_here():
        contents = make_valid_contents(tmp_path_factory.mktemp("valid"))
    return lambda kind: copy.deepcopy(contents[kind])


@pytest.fixture
def grid() -> Geometry:
    """Anisotropic: 12 x 10 x 8 voxels of 1 x 2 x 3 mm."""
    return GRID


@pytest.fixture
def blank():
    """Make an empty mask, (z, y, x)."""
    return lambda: np.zeros(GRID.array_shape, dtype=np.uint8)


@pytest.fixture
def rules():
    """Make the default edition's segmentation rules, with changes."""
    default = load_profile().find_task(SEGMENTATION.name).answers["segmentation"].rules
    assert isinstance(default, MaskRules)

    def change(**changes):
        return default.model_copy(update=changes)

    return change
