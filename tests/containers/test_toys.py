"""Containers: user, mounts, network, limits, signals; `tests/rehearsal` tests all other behaviour."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contract.editions import load_edition
from contract.errors import EngineError
from rehearsal.cli import main as rehearse_command
from rehearsal.jobs.execution import Rehearsal
from rehearsal.pipeline import rehearse
from rehearsal.platform.images import find_upload_problems
from rehearsal.records import RehearsalResult
from rehearsal.runners.containers import ContainerEngine, ContainerRunner
from rehearsal.runners.runner import Limits
from rehearsal.submission.images import SOURCE, ImageBuilder
from tests.containers.conftest import build_toy
from tests.rehearsal.conftest import write_case

pytestmark = pytest.mark.container

MIB = 1024**2
RehearseImage = Callable[..., RehearsalResult]


@pytest.fixture
def cohort(tmp_path: Path) -> Path:
    root = tmp_path / "cohort"
    write_case(root, "A-1")
    (root / "ground_truth").mkdir()
    (root / "ground_truth" / "A-1.mha").touch()
    return root


@pytest.fixture
def rehearse_image(engine: ContainerEngine, cohort: Path, tmp_path: Path) -> RehearseImage:
    """Rehearse an image with a behaviour; further options are limits."""

    def run(
        image: str,
        behave: str = "well",
        *,
        task: str = "segmentation",
        evaluation: str | None = None,
        cases: int = 1,
        **limits: Any,
    ) -> RehearsalResult:
        for number in range(2, cases + 1):
            shutil.copytree(cohort / "A-1", cohort / f"A-{number}")
        defaults = {"memory_bytes": 256 * MIB, "time_limit_s": 60, "file_bytes": 10**9, "disk_bytes": 10**9}
        return rehearse(
            Rehearsal(
                edition=load_edition(),
                task=load_edition().find_algorithm(task),
                cohort=cohort,
                output_dir=tmp_path / "out",
                algorithm=ContainerRunner(engine, image, ("--behave", behave)),
                limits=Limits(**{"cpus": 1, **defaults, **limits}),
                evaluation=None if evaluation is None else ContainerRunner(engine, evaluation),
                ground_truth_dir=None if evaluation is None else cohort / "ground_truth",
            )
        )

    return run


def check_surroundings(report: dict[str, Any]) -> None:
    """Check the image's user and home, half of 256 MiB as shared memory, variables, no network, and a read-only input."""
    assert (report["uid"], report["home"]) == (1000, "/home/toy")
    assert report["shm_bytes"] == 128 * MIB
    assert (report["variables"], report["log_level"]) == ([], "INFO")
    assert len(report["inputs"]) == 4
    assert report["output"] == []
    assert "unreachable" in report["network"]
    assert "Read-only file system" in report["write-input"]


def test_algorithm_and_evaluation_run_in_containers(
    rehearse_image: RehearseImage, toy_image: str, toy_evaluation_image: str, tmp_path: Path
) -> None:
    result = rehearse_image(toy_image, "confined", task="rfs", evaluation=toy_evaluation_image)
    assert result.succeeded, (result.refusals, result.failures, result.problems)
    assert result.ranked["aggregates.c_index.value"] == 1.0
    assert json.loads((tmp_path / "out" / "predictions" / "A-1.json").read_text()) == 0.5
    report = json.loads((tmp_path / "out" / "logs" / "A-1.stderr").read_text().splitlines()[-1])
    check_surroundings(report)
    assert (report["tmp"], report["output_mode"]) == ([], "0o777")


def test_a_server_is_confined_and_answers_all_cases(
    rehearse_image: RehearseImage, invoke_image: str, tmp_path: Path
) -> None:
    """One container has the same limits as a container for each case; the label decides."""
    result = rehearse_image(invoke_image, "confined", cases=2)
    assert result.succeeded, (result.refusals, result.failures)
    assert result.api_method == "invoke"
    assert len(result.startup_s) == 1
    reports = [json.loads((tmp_path / "out" / "logs" / f"A-{number}.stderr").read_text()) for number in (1, 2)]
    assert len({report["pid"] for report in reports}) == 1
    for report in reports:
        check_surroundings(report)


def test_a_root_user_is_refused(
    engine: ContainerEngine, rehearse_image: RehearseImage, root_image: str, tmp_path: Path
) -> None:
    """A rehearsal refuses the image, and a submission its archive."""
    (refusal,) = rehearse_image(root_image).refusals
    assert "no USER, so it runs as root" in refusal
    archive = tmp_path / "root.tar"
    engine.run("save", "--output", str(archive), root_image)
    with pytest.raises(EngineError, match=r"^root\.tar: no USER, so it runs as root"):
        ImageBuilder(engine, SOURCE, "cpu").load(archive)


@pytest.mark.parametrize("method", ["exec", "invoke"])
def test_memory_beyond_the_limit_kills(
    rehearse_image: RehearseImage, toy_image: str, invoke_image: str, method: str
) -> None:
    """A killed server answers no further case."""
    image, cases = (toy_image, 1) if method == "exec" else (invoke_image, 2)
    result = rehearse_image(image, "memory", memory_bytes=64 * MIB, cases=cases)
    assert "memory beyond 0.0625 GiB" in result.failures[0]
    if method == "exec":
        assert result.cases[0].exit_code == 137
    else:
        assert len(result.startup_s) == 1
        assert "503, not answered: the process has been unhealthy since case" in result.failures[1]


@pytest.mark.parametrize(
    ("method", "behave", "limits", "fault"),
    [
        ("exec", "fill", {"disk_bytes": 50_000_000}, "disk limit exceeded: its files take 0.08"),
        ("exec", "fill-elsewhere", {"disk_bytes": 50_000_000}, "disk limit exceeded: its files take 0.08"),
        ("exec", "fill", {"file_bytes": 10_000_000}, "File too large"),
        ("invoke", "fill", {"disk_bytes": 50_000_000}, "disk limit exceeded: its files take 0.08"),
    ],
)
def test_a_container_cannot_fill_the_disk(
    rehearse_image: RehearseImage,
    toy_image: str,
    invoke_image: str,
    method: str,
    behave: str,
    limits: dict[str, int],
    fault: str,
) -> None:
    """Write 80 MB where 50 MB are allowed, in /output and /tmp or in the user's home."""
    result = rehearse_image(toy_image if method == "exec" else invoke_image, behave, **limits)
    (failure,) = result.failures
    assert fault in failure
    assert result.cases[0].seconds < 50


def test_a_status_of_the_engine_may_be_the_programs_own(
    rehearse_image: RehearseImage, toy_image: str, invoke_image: str, tmp_path: Path
) -> None:
    """Cases fail separately and rehearsal.json is written, by `exec` as by `invoke`."""
    result = rehearse_image(toy_image, "status-125", cases=2)
    assert [case.exit_code for case in result.cases] == [125, 125]
    assert "exit status 125; " in result.failures[0]
    assert "my own error" in result.failures[0]
    assert (tmp_path / "out" / "rehearsal.json").exists()
    shutil.rmtree(tmp_path / "out")
    failures = rehearse_image(invoke_image, "status-125").failures
    assert "the server ended during the case: exit status 125; " in failures[0]


def test_a_card_that_is_not_there_is_named(
    engine: ContainerEngine, toy_image: str, cohort: Path, tmp_path: Path
) -> None:
    """Messages have the name as it was typed, the engine's own cause, and what to install."""
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a card")
    options = ["--task", "segmentation", "--cases", str(cohort), "--output", str(tmp_path / "out"), "--gpus"]
    with pytest.raises(EngineError) as error:
        rehearse_command([*options, "--algorithm-image", toy_image, "--engine", engine.client])
    message = str(error.value)
    assert message.startswith(f"{engine.name} could not start {toy_image}: ")
    assert "NVIDIA Container Toolkit" in message
    if not engine.is_podman:
        assert 'could not select device driver "" with capabilities: [[gpu]]' in message


def test_an_entry_point_that_is_not_there_fails_its_case_by_name(
    engine: ContainerEngine, rehearse_image: RehearseImage, base_image: str
) -> None:
    image = build_toy(engine, base_image, "no-entry", label="ENV PATH=/nowhere")
    (failure,) = rehearse_image(image).failures
    assert "exit status 127" in failure
    assert "python3" in failure


def test_the_time_limit_stops_the_container(
    engine: ContainerEngine, rehearse_image: RehearseImage, toy_image: str
) -> None:
    """SIGTERM comes after 4 s, when the toy ignores it, SIGKILL 5 s later, and the container is removed."""
    result = rehearse_image(toy_image, "ignore-sigterm", time_limit_s=4)
    (failure,) = result.failures
    assert "still running after 4 s" in failure
    assert 9 < result.cases[0].seconds < 60
    name = f"hecktor-rehearsal-{result.cases[0].job}"
    assert engine.run("ps", "--all", "--quiet", "--filter", f"name={name}") == ""


def test_the_time_limit_stops_the_server(
    engine: ContainerEngine, rehearse_image: RehearseImage, invoke_image: str
) -> None:
    def list_containers() -> set[str]:
        return set(engine.run("ps", "--all", "--quiet", "--filter", "name=hecktor-rehearsal-").split())

    before = list_containers()
    (failure,) = rehearse_image(invoke_image, "sleep", time_limit_s=2).failures
    assert "still running after 2 s" in failure
    # Parallel tests have containers too, but they end.
    own, until = list_containers() - before, time.monotonic() + 60
    while own & list_containers() and time.monotonic() < until:
        time.sleep(1)
    assert not own & list_containers()


def test_wheels_of_a_layer_are_warnings(
    engine: ContainerEngine, rehearse_image: RehearseImage, base_image: str
) -> None:
    """Neither variables nor commands name a version, as after `pip install -r requirements.txt`."""
    wheel = "/opt/venv/lib/python3.11/site-packages/torch-2.9.1+cu130.dist-info"
    files = {"install": f"mkdir -p {wheel} /opt/b/nvidia_cublas-13.1.0.3.dist-info\n"}
    label = "COPY install /install\nUSER root\nRUN sh /install\nUSER toy"
    warnings = rehearse_image(build_toy(engine, base_image, "wheels", label=label, files=files), task="rfs").warnings
    lines = [line for line in warnings if "expected CUDA 12" in line or "nnU-Net" in line]
    assert [line.split(": ")[1].split(", ")[0] for line in lines] == ["PyTorch 2.9.1", "CUDA cu130"]


def test_a_saved_image_is_loaded_as_the_same_image(engine: ContainerEngine, toy_image: str, tmp_path: Path) -> None:
    archive = tmp_path / "toy.tar"
    subprocess.run([engine.client, "save", "--output", str(archive), toy_image], check=True, capture_output=True)
    facts = engine.read_image_facts(toy_image)
    assert facts.stripped_variables == ("GRAND_CHALLENGE_TOKEN",)
    assert find_upload_problems(facts) == []
    assert engine.load(archive) == engine.find_image_id(toy_image)
