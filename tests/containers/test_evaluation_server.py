"""Evaluation images as servers: a submission, a fault and the end of the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.editions import load_edition
from contract.io.files import read_json, write_json
from contract.platform import PREDICTIONS_JSON
from contract.predictions import make_job_entry, make_socket_entry
from rehearsal.jobs.evaluation import run_evaluation
from rehearsal.platform.images import find_upload_problems
from rehearsal.runners.containers import ContainerEngine, ContainerRunner
from tests.containers.conftest import build, hold_build_lock

pytestmark = pytest.mark.container

HPV = load_edition().find_algorithm("hpv")
IMAGE = "hecktor-evaluation-hpv:invoke"


@pytest.fixture(scope="module")
def evaluation(engine: ContainerEngine) -> ContainerRunner:
    with hold_build_lock():
        build("evaluation-hpv", "--api-method", "invoke")
    return ContainerRunner(engine, IMAGE)


@pytest.fixture
def phase(tmp_path: Path) -> Path:
    """Write the answers for two patients, both positive; the second patient is negative."""
    (answer,) = HPV.answers
    jobs = []
    for number, case in enumerate(("P1", "P2"), start=1):
        image = [make_socket_entry(HPV.scan, 1, image=(f"image-{number}", f"{case}.mha"))]
        output = [make_socket_entry(answer.socket, 2, value=True)]
        jobs.append(make_job_entry(f"job-{number}", image, output, algorithm_image="toy"))
        write_json(answer.socket.path_under(tmp_path / "input" / f"job-{number}" / "output"), True)
    write_json(tmp_path / "input" / PREDICTIONS_JSON, jobs)
    (tmp_path / "truth").mkdir()
    (tmp_path / "truth" / "hpv.csv").write_text("PatientID,HPV Status\nP1,1\nP2,0\n")
    (tmp_path / "work").mkdir()
    tmp_path.chmod(0o755)  # the image's user enters it
    return tmp_path


def test_a_submission_is_scored(evaluation: ContainerRunner, phase: Path) -> None:
    """Sensitivity is 1 of 1 and specificity 0 of 1, so the balanced accuracy is 0.5."""
    facts = evaluation.engine.read_image_facts(IMAGE)
    assert find_upload_problems(facts) == []
    assert facts.api_method == "invoke"
    run = run_evaluation(evaluation, phase / "input", phase / "truth", phase / "out", phase / "work")
    assert run.problem is None
    assert run.api_method == "invoke"
    assert run.outcome is not None
    assert run.outcome.http_status == 201
    assert read_json(phase / "out" / "metrics.json")["aggregates"]["balanced_accuracy"]["value"] == 0.5


def test_an_unusable_submission_is_the_last_line(evaluation: ContainerRunner, phase: Path) -> None:
    (phase / "input" / PREDICTIONS_JSON).write_text("{")
    run = run_evaluation(evaluation, phase / "input", phase / "truth", phase / "out", phase / "work")
    assert run.problem is not None
    assert run.problem.startswith("evaluation: POST /invoke: 500 (predictions.json: ")
    assert "error: predictions.json: " in run.problem
    assert not (phase / "out" / "metrics.json").exists()
