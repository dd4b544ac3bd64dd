"""Containers: user, mounts, network, limits, signals; `tests/rehearsal` tests all other behaviour."""

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from contract.archives import pack
from contract.editions import load_edition
from contract.errors import EngineError
from rehearsal.cli import main as rehearse_command
from rehearsal.jobs.execution import Rehearsal
from rehearsal.pipeline import rehearse
from rehearsal.platform.images import find_upload_problems
from rehearsal.records import RehearsalResult
from rehearsal.runners.containers import ContainerEngine, ContainerRunner
from rehearsal.runners.runner import Limits
from tests.containers.conftest import build_toy
from tests.rehearsal.conftest import write_case

pytestmark = pytest.mark.container

MIB = 1024**2


@pytest.fixture
def cohort(tmp_path: Path) -> Path:
    root = tmp_path / "cohort"
    write_case(root, "A-1")
    (root / "ground_truth").mkdir()
    (root / "ground_truth" / "A-1.mha").touch()
    return root


@pytest.fixture
def rehearse_image(engine: ContainerEngine, cohort: Path, tmp_path: Path):
    def run(
        image: str,
        behave: str = "well",
        *,
        task: str | None = "segmentation",
        edition: str = "hecktor2025",
        evaluation: str | None = None,
        time_limit_s: float = 60,
        memory_mib: int = 256,
        api_method: str = "auto",
        cases: int = 1,
        arguments: tuple[str, ...] = (),
        model: Path | None = None,
        disk_bytes: int = 10**9,
        file_bytes: int = 10**9,
    ) -> RehearsalResult:
        for number in range(2, cases + 1):
            shutil.copytree(cohort / "A-1", cohort / f"A-{number}")
        return rehearse(
            Rehearsal(
                edition=load_edition(edition),
                task=load_edition(edition).find_algorithm(task),
                cohort=cohort,
                output_dir=tmp_path / "out",
                algorithm=ContainerRunner(engine, image, ("--behave", behave, *arguments)),
                limits=Limits(memory_mib * MIB, time_limit_s, cpus=1, file_bytes=file_bytes, disk_bytes=disk_bytes),
                evaluation=None if evaluation is None else ContainerRunner(engine, evaluation),
                ground_truth_dir=None if evaluation is None else cohort / "ground_truth",
                api_method=api_method,
                model=model,
            )
        )

    return run


def test_rehearsal_and_evaluation_in_containers(rehearse_image, toy_image, toy_evaluation_image, tmp_path: Path):
    result = rehearse_image(toy_image, task="rfs", evaluation=toy_evaluation_image)
    assert result.succeeded, (result.failures, result.problems)
    assert result.ranked["aggregates.c_index.value"] == 1.0
    assert json.loads((tmp_path / "out" / "predictions" / "A-1.json").read_text()) == 0.5


def check_surroundings(report: dict) -> None:
    """Check the image's user and home, half of 256 MiB as shared memory, variables, no network, and a read-only input."""
    assert (report["uid"], report["home"]) == (1000, "/home/toy")
    assert report["shm_bytes"] == 128 * MIB
    assert report["variables"] == []
    assert report["log_level"] == "INFO"
    assert len(report["inputs"]) == 4
    assert report["output"] == []
    assert "unreachable" in report["network"]
    assert "Read-only file system" in report["write-input"]


def test_a_container_is_confined(rehearse_image, toy_image, tmp_path: Path):
    result = rehearse_image(toy_image, "confined")
    assert result.succeeded, (result.refusals, result.failures)
    report = json.loads((tmp_path / "out" / "logs" / "A-1.stderr").read_text().splitlines()[-1])
    check_surroundings(report)
    assert report["tmp"] == []
    assert report["output_mode"] == "0o777"


def test_a_server_is_confined_and_answers_all_cases(rehearse_image, invoke_image, tmp_path: Path):
    """One container has the same limits as a container for each case; the label decides."""
    result = rehearse_image(invoke_image, "confined", cases=2)
    assert result.succeeded, (result.refusals, result.failures)
    assert result.api_method == "invoke"
    assert len(result.startup_s) == 1
    reports = [json.loads((tmp_path / "out" / "logs" / f"A-{number}.stderr").read_text()) for number in (1, 2)]
    assert len({report["pid"] for report in reports}) == 1
    for report in reports:
        check_surroundings(report)


def test_the_package_that_answers_is_the_given_one(rehearse_image, toy_image, tmp_path: Path):
    """Archives are unpacked where the image's user can read them."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "manifest.json").write_text('{"name": "mine"}')
    pack(tmp_path / "model", tmp_path / "model.tar.gz")
    arguments = ("--four-answers", "--recorded", "{}")
    options = {"task": None, "edition": "hecktor2026", "model": tmp_path / "model.tar.gz"}
    result = rehearse_image(toy_image, **options, arguments=arguments)
    assert result.succeeded, (result.failures, result.problems)
    assert (result.package.name, result.package.recorded) == ("mine", 1)


def test_a_root_user_is_refused(rehearse_image, root_image):
    result = rehearse_image(root_image)
    assert not result.succeeded
    (refusal,) = result.refusals
    assert "no USER, so it runs as root" in refusal


def test_memory_beyond_the_limit_kills(rehearse_image, toy_image):
    result = rehearse_image(toy_image, "memory", memory_mib=64)
    (failure,) = result.failures
    assert result.cases[0].exit_code == 137
    assert "memory beyond 0.0625 GiB" in failure


@pytest.mark.parametrize("behave", ["fill", "fill-elsewhere"])
def test_a_container_that_fills_the_disk_is_killed(rehearse_image, toy_image, behave: str):
    """Write 80 MB where 50 MB are allowed, in /output and /tmp or in the user's home."""
    result = rehearse_image(toy_image, behave, disk_bytes=50_000_000)
    (failure,) = result.failures
    assert "disk limit exceeded: its files take 0.08" in failure
    assert result.cases[0].seconds < 50


def test_a_file_beyond_the_limit_fails_its_case(rehearse_image, toy_image):
    (failure,) = rehearse_image(toy_image, "fill", file_bytes=10_000_000).failures
    assert "File too large" in failure


def test_a_server_that_fills_the_disk_is_killed(rehearse_image, invoke_image):
    result = rehearse_image(invoke_image, "fill", disk_bytes=50_000_000, cases=2)
    assert "disk limit exceeded: its files take 0.08" in result.failures[0]
    assert "unhealthy since case" in result.failures[1]


@pytest.mark.parametrize("status", [125, 126, 127])
def test_a_status_of_the_engine_may_be_the_programs_own(
    rehearse_image, toy_image, invoke_image, tmp_path: Path, status: int
):
    """Cases fail separately and rehearsal.json is written, by `exec` as by `invoke`."""
    result = rehearse_image(toy_image, f"status-{status}", cases=2)
    assert [case.exit_code for case in result.cases] == [status, status]
    assert f"exit status {status}; " in result.failures[0]
    assert "my own error" in result.failures[0]
    assert (tmp_path / "out" / "rehearsal.json").exists()
    shutil.rmtree(tmp_path / "out")
    result = rehearse_image(invoke_image, f"status-{status}")
    assert f"the server ended during the case: exit status {status}; " in result.failures[0]


@pytest.mark.parametrize("label", ["exec", "invoke"])
def test_a_card_that_is_not_there_is_named(engine, toy_image, invoke_image, cohort: Path, tmp_path: Path, label: str):
    """Messages have the name as it was typed, the engine's own cause, and what to install."""
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a card")
    image = toy_image if label == "exec" else invoke_image
    options = ["--task", "segmentation", "--cases", str(cohort), "--output", str(tmp_path / "out"), "--gpus"]
    with pytest.raises(EngineError) as error:
        rehearse_command([*options, "--algorithm-image", image, "--engine", engine.client])
    message = str(error.value)
    assert message.startswith(f"{engine.name} could not start {image}: ")
    assert "NVIDIA Container Toolkit" in message
    if not engine.is_podman:
        assert 'could not select device driver "" with capabilities: [[gpu]]' in message


def test_an_entry_point_that_is_not_there_fails_its_case_by_name(engine, rehearse_image, base_image, tmp_path: Path):
    (tmp_path / "toy").mkdir()
    image = build_toy(
        *(engine, tmp_path / "toy", base_image, "hecktor-test-no-entry:latest", "toy_algorithm.py"),
        label="ENV PATH=/nowhere",
    )
    (failure,) = rehearse_image(image).failures
    assert "exit status 127" in failure
    assert "python3" in failure


def test_after_a_memory_kill_no_further_case_is_answered(rehearse_image, invoke_image):
    result = rehearse_image(invoke_image, "memory", memory_mib=64, cases=2)
    assert len(result.startup_s) == 1
    assert "memory beyond 0.0625 GiB" in result.failures[0]
    assert "503, not answered: the process has been unhealthy since case" in result.failures[1]


def test_the_time_limit_stops_the_container(engine, rehearse_image, toy_image):
    """SIGTERM comes after 4 s, when the toy ignores it, SIGKILL 5 s later, and the container is removed."""
    result = rehearse_image(toy_image, "ignore-sigterm", time_limit_s=4)
    (failure,) = result.failures
    assert "still running after 4 s" in failure
    assert 9 < result.cases[0].seconds < 60
    name = f"hecktor-rehearsal-{result.cases[0].job}"
    assert engine.run("ps", "--all", "--quiet", "--filter", f"name={name}") == ""


def test_the_time_limit_stops_the_server(engine, rehearse_image, invoke_image):
    def list_containers() -> set[str]:
        return set(engine.run("ps", "--all", "--quiet", "--filter", "name=hecktor-rehearsal-").split())

    before = list_containers()
    result = rehearse_image(invoke_image, "sleep", time_limit_s=2)
    (failure,) = result.failures
    assert "still running after 2 s" in failure
    # Parallel tests have containers too, but they end.
    own, until = list_containers() - before, time.monotonic() + 60
    while own & list_containers() and time.monotonic() < until:
        time.sleep(1)
    assert not own & list_containers()


def test_wheels_of_a_layer_are_warnings(engine, rehearse_image, base_image, tmp_path: Path):
    """Neither variables nor commands name a version, as after `pip install -r requirements.txt`."""
    (tmp_path / "toy").mkdir()
    folders = (
        "/opt/venv/lib/python3.11/site-packages/torch-2.9.1+cu130.dist-info /opt/b/nvidia_cublas-13.1.0.3.dist-info"
    )
    (tmp_path / "toy" / "install").write_text(f"mkdir -p {folders}\n")
    label = "COPY install /install\nUSER root\nRUN sh /install\nUSER toy"
    image = build_toy(
        engine, tmp_path / "toy", base_image, "hecktor-test-wheels:latest", "toy_algorithm.py", label=label
    )
    warnings = rehearse_image(image, task="rfs").warnings
    lines = [line for line in warnings if "expected CUDA 12" in line or "nnU-Net" in line]
    assert [line.split(": ")[1].split(", ")[0] for line in lines] == ["PyTorch 2.9.1", "CUDA cu130"]


def test_a_missing_image_is_an_error(engine: ContainerEngine):
    with pytest.raises(EngineError):
        engine.read_image_facts("hecktor-no-such-image:latest")


def test_a_saved_image_is_loaded_as_the_same_image(engine: ContainerEngine, toy_image, tmp_path: Path):
    archive = tmp_path / "toy.tar"
    subprocess.run([engine.client, "save", "--output", str(archive), toy_image], check=True, capture_output=True)
    facts = engine.read_image_facts(toy_image)
    assert facts.stripped_variables == ("GRAND_CHALLENGE_TOKEN",)
    assert find_upload_problems(facts) == []
    assert engine.load(archive) == engine.find_image_id(toy_image)
