"""A tiny cohort in the platform's layout, and rehearsals of the toy programs over it."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.editions import load_edition
from contract.editions.inputs import CT, EHR, PET
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_volume
from contract.io.files import read_json, write_json
from rehearsal.jobs.execution import Rehearsal
from rehearsal.pipeline import rehearse
from rehearsal.records import RehearsalResult
from rehearsal.runners.runner import Limits, ProcessRunner

HERE = Path(__file__).parent
GEOMETRY = Geometry((5, 4, 3), (1.0, 2.0, 3.0), (-10.0, 4.0, 100.0))


def write_case(cohort: Path, case: str) -> None:
    folder = cohort / case / "input"
    sockets = load_edition().inputs
    for socket in (sockets[CT], sockets[PET]):
        volume = Volume(np.zeros(GEOMETRY.array_shape, np.int16), GEOMETRY)
        write_volume(socket.path_under(folder) / "scan.mha", volume, compress=False)
    write_json(sockets[EHR].path_under(folder), {"Age": 60})


@pytest.fixture
def cohort(tmp_path: Path) -> Path:
    """Write two cases, and a ground truth with a mask by name and the outcomes of each."""
    root = tmp_path / "cohort"
    for case in ("A-1", "B-2"):
        write_case(root, case)
        (root / "ground_truth").mkdir(exist_ok=True)
        (root / "ground_truth" / f"{case}.mha").touch()
    header = "PatientID,Relapse,RFS,HPV Status,T-stage,N-stage"
    (root / "ground_truth" / "outcomes.csv").write_text(f"{header}\nA-1,1,300,1,T1,N1\nB-2,0,900,0,T2,N0\n")
    return root


Rehearse = Callable[..., RehearsalResult]


def read_input_entries(output: Path, job: str) -> list[dict[str, Any]]:
    """Return the inputs of a job as the evaluation gets them."""
    jobs: list[dict[str, Any]] = read_json(output / "evaluation" / "input" / "predictions.json")
    (inputs,) = (entry["inputs"] for entry in jobs if entry["pk"] == job)
    return list(inputs)


@pytest.fixture
def rehearse_toy(tmp_path: Path, cohort: Path) -> Rehearse:
    """Rehearse the toy algorithm and the toy evaluation, each with a behaviour, as processes."""

    def run(
        behave: str = "well",
        *,
        task: str | None = "segmentation",
        edition: str = "hecktor2025",
        arguments: tuple[str, ...] = (),
        evaluation: str | None = None,
        time_limit_s: float = 30,
        on_failure: str = "abort",
        parallel: int = 1,
        api_method: str = "auto",
        health_tries: int = 300,
        model: Path | None = None,
        disk_bytes: int = 10**9,
    ) -> RehearsalResult:
        python = shlex.split(sys.executable)
        scored = ProcessRunner((*python, str(HERE / "toy_evaluation.py")), ("--behave", evaluation or "well"))
        return rehearse(
            Rehearsal(
                edition=load_edition(edition),
                task=load_edition(edition).find_algorithm(task),
                cohort=cohort,
                output_dir=tmp_path / "out",
                algorithm=ProcessRunner((*python, str(HERE / "toy_algorithm.py")), ("--behave", behave, *arguments)),
                limits=Limits(
                    2**30, time_limit_s, health_tries=health_tries, health_interval_s=0.1, disk_bytes=disk_bytes
                ),
                evaluation=None if evaluation is None else scored,
                ground_truth_dir=None if evaluation is None else cohort / "ground_truth",
                on_failure=on_failure,
                parallel=parallel,
                api_method=api_method,
                model=model,
            )
        )

    return run
