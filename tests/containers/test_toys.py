"""The look-alike enforces in containers what the platform enforces."""

import json
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from contract.archives import pack
from contract.editions import load_edition
from contract.editions.inputs import CT, EHR, PET
from contract.errors import EngineError
from contract.files import write_json
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_volume
from rehearsal.images import facts_of_archive, upload_problems
from rehearsal.jobs.execute import Rehearsal
from rehearsal.pipeline import RehearsalResult, rehearse
from rehearsal.runners.containers import ContainerEngine, ContainerRunner
from rehearsal.runners.runner import Limits

pytestmark = pytest.mark.container

MIB = 1024**2


@pytest.fixture
def cohort(tmp_path: Path) -> Path:
    root, geometry = tmp_path / "cohort", Geometry((5, 4, 3), (1.0, 2.0, 3.0), (-10.0, 4.0, 100.0))
    sockets = load_edition().inputs
    for socket in (sockets[CT], sockets[PET]):
        volume = Volume(np.zeros(geometry.array_shape, np.int16), geometry)
        write_volume(socket.path_under(root / "A-1" / "input") / "scan.mha", volume, compress=False)
    write_json(sockets[EHR].path_under(root / "A-1" / "input"), {"Age": 60})
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
    ) -> RehearsalResult:
        for number in range(2, cases + 1):
            shutil.copytree(cohort / "A-1", cohort / f"A-{number}")
        return rehearse(
            Rehearsal(
                edition=load_edition(edition),
                task=load_edition(edition).algorithm(task),
                cohort=cohort,
                output_dir=tmp_path / "out",
                algorithm=ContainerRunner(engine, image, ("--behave", behave, *arguments)),
                limits=Limits(memory_mib * MIB, time_limit_s, cpus=1),
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
    assert result.metrics["aggregates.c_index.value"] == 1.0
    assert json.loads((tmp_path / "out" / "predictions" / "A-1.json").read_text()) == 0.5


FOUR = {"task": None, "edition": "hecktor2026", "arguments": ("--four-answers",)}


@pytest.mark.parametrize("api_method", ["exec", "invoke"])
def test_four_answers_of_one_container(rehearse_image, toy_image, invoke_image, tmp_path: Path, api_method: str):
    image = {"exec": toy_image, "invoke": invoke_image}[api_method]
    result = rehearse_image(image, **FOUR)
    assert result.succeeded, (result.refusals, result.failures)
    values = {
        path.parent.name: json.loads(path.read_text()) for path in (tmp_path / "out").rglob("predictions/*/A-1.json")
    }
    assert values == {"t_stage": "T2", "n_stage": "N1", "rfs": 800.5}
    assert (tmp_path / "out" / "predictions" / "segmentation" / "A-1.mha").is_file()


@pytest.mark.parametrize("api_method", ["exec", "invoke"])
def test_the_package_that_answers_is_the_given_one(
    rehearse_image, toy_image, invoke_image, tmp_path: Path, api_method: str
):
    """An archive is unpacked where the image's user reads it; a record that names another package fails."""
    image = {"exec": toy_image, "invoke": invoke_image}[api_method]
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "manifest.json").write_text('{"name": "mine"}')
    pack(tmp_path / "model", tmp_path / "model.tar.gz")
    given = {**FOUR, "model": tmp_path / "model.tar.gz"}
    result = rehearse_image(image, **{**given, "arguments": (*FOUR["arguments"], "--recorded", "{}")})
    assert result.succeeded, (result.failures, result.problems)
    assert (result.package.name, result.package.recorded) == ("mine", 1)
    other = json.dumps({"package": {"name": "baked", "manifest_sha256": "0" * 64}})
    result = rehearse_image(image, **{**given, "arguments": (*FOUR["arguments"], "--recorded", other)})
    assert not result.succeeded
    assert "model package: baked, manifest sha256 000000000000 in the run record of A-1" in result.problems[0]


@pytest.mark.parametrize(
    ("behave", "message"),
    [
        ("T2a", 't-stage.json: found "T2a", expected one of "T1", "T2", "T3", "T4"'),
        ("stale", "tumor-lymph-node-segmentation: an output of an older description"),
        ("label-3", "label 3"),
    ],
)
def test_one_bad_answer_of_four_fails_the_job(rehearse_image, toy_image, behave, message):
    (failure,) = rehearse_image(toy_image, behave, **FOUR).failures
    assert message in failure


def test_environment_of_a_container(rehearse_image, toy_image):
    result = rehearse_image(toy_image, "report", memory_mib=256)
    found = json.loads(result.jobs[0].log.read_text().splitlines()[-1])
    assert found["uid"] == 1000
    assert found["home"] == "/home/toy"
    assert found["shm_bytes"] == 128 * MIB
    assert found["tmp"] == []
    assert found["output_mode"] == "0o777"
    assert found["variables"] == []
    assert found["log_level"] == "INFO"
    assert len(found["inputs"]) == 4


def test_a_root_user_is_refused(rehearse_image, root_image):
    result = rehearse_image(root_image)
    assert not result.succeeded
    (refusal,) = result.refusals
    assert "no USER, so it runs as root, expected a user that is not root" in refusal
    assert "the platform would refuse the image" in refusal


@pytest.mark.parametrize(
    ("behave", "message"),
    [
        ("missing", "no output images/tumor-lymph-node-segmentation"),
        ("two-images", "found 2 images"),
        ("float-mask", "32-bit float pixels"),
        ("label-3", "label 3"),
        ("exit-3", "the scanner was off"),
        ("network", "Network is unreachable"),
        ("write-input", "/input/inputs.json"),
    ],
)
def test_a_bad_job_fails(rehearse_image, toy_image, behave, message):
    (failure,) = rehearse_image(toy_image, behave).failures
    assert message in failure
    assert "the platform would fail" in failure


def test_a_nan_risk_fails(rehearse_image, toy_image):
    (failure,) = rehearse_image(toy_image, "NaN", task="rfs").failures
    assert "null (NaN and infinities become null), expected a number" in failure


def test_a_mask_off_the_grid_is_accepted_with_a_warning(rehearse_image, toy_image):
    result = rehearse_image(toy_image, "wrong-geometry")
    assert result.succeeded
    assert any("the evaluation would score it as missing" in line for line in result.warnings)


def test_memory_beyond_the_limit_kills(rehearse_image, toy_image):
    result = rehearse_image(toy_image, "memory", memory_mib=64)
    (failure,) = result.failures
    assert result.jobs[0].outcome.exit_code == 137
    assert "most likely for memory beyond 0.0625 GiB; the platform would fail the job" in failure


@pytest.mark.parametrize(("behave", "shortest_s"), [("sleep", 2), ("ignore-sigterm", 7)])
def test_the_time_limit_stops_the_container(engine, rehearse_image, toy_image, behave, shortest_s):
    result = rehearse_image(toy_image, behave, time_limit_s=2)
    (failure,) = result.failures
    assert "still running after 2 s" in failure
    assert shortest_s < result.jobs[0].outcome.seconds < 40
    name = f"hecktor-rehearsal-{result.jobs[0].job.pk}"
    assert engine.command("ps", "--all", "--quiet", "--filter", f"name={name}") == ""


def test_a_server_answers_all_cases_without_a_network(rehearse_image, invoke_image):
    """One container under the same limits as a container a case; the label decides."""
    result = rehearse_image(invoke_image, "report", cases=2)
    assert result.succeeded, (result.refusals, result.failures)
    assert result.api_method == "invoke"
    assert len(result.startup_s) == 1
    reports = [json.loads(job.log.read_text()) for job in result.jobs]
    assert len({report["pid"] for report in reports}) == 1
    for report in reports:
        assert report["uid"] == 1000
        assert report["shm_bytes"] == 128 * MIB
        assert report["variables"] == []
        assert len(report["inputs"]) == 4
        assert report["output"] == []


@pytest.mark.parametrize(
    ("behave", "message"),
    [
        ("network", "POST /invoke: RemoteDisconnected, expected 201; the platform would fail the job"),
        ("label-3", "label 3"),
        ("200", "POST /invoke: 200 (), expected 201; the platform would fail the job"),
        ("die-at-start", "its last line on stderr: error: no model"),
    ],
)
def test_a_bad_server_fails(rehearse_image, invoke_image, behave, message):
    (failure,) = rehearse_image(invoke_image, behave).failures
    assert message in failure


def test_files_that_a_server_keeps_open_give_warnings(rehearse_image, invoke_image):
    warnings = rehearse_image(invoke_image, "keep-open").warnings
    assert any("/input/images/ct/" in line and "is kept open" in line for line in warnings)
    assert any("/output is kept open" in line for line in warnings)


def test_after_a_memory_kill_no_further_case_is_answered(rehearse_image, invoke_image):
    result = rehearse_image(invoke_image, "memory", memory_mib=64, cases=2)
    assert len(result.startup_s) == 1
    assert "most likely for memory beyond 0.0625 GiB" in result.failures[0]
    assert "503, not answered: the process is unhealthy since case" in result.failures[1]


def test_the_time_limit_stops_the_server(engine, rehearse_image, invoke_image):
    result = rehearse_image(invoke_image, "sleep", time_limit_s=2)
    (failure,) = result.failures
    assert "still running after 2 s" in failure

    def present() -> set[str]:
        return set(engine.command("ps", "--all", "--quiet", "--filter", "name=hecktor-rehearsal-").split())

    # Tests that run beside this one have containers too, but theirs end.
    left, until = present(), time.monotonic() + 60
    while left & present() and time.monotonic() < until:
        time.sleep(1)
    assert not left & present()


def test_an_image_labelled_invoke_can_be_called_by_exec(rehearse_image, invoke_image):
    result = rehearse_image(invoke_image, api_method="exec")
    assert result.succeeded, result.failures
    assert result.startup_s == ()
    assert any("label says invoke; the platform would call it so" in line for line in result.warnings)


def test_an_image_without_the_label_is_no_server(rehearse_image, toy_image):
    with pytest.raises(EngineError, match="labelled exec, expected the label org"):
        rehearse_image(toy_image, api_method="invoke")


def test_an_evaluation_labelled_invoke_is_refused(rehearse_image, toy_image, invoke_image):
    with pytest.raises(EngineError, match="an evaluation is called by exec"):
        rehearse_image(toy_image, evaluation=invoke_image)


def test_a_missing_image_is_an_error(rehearse_image):
    with pytest.raises(EngineError):
        rehearse_image("hecktor-no-such-image:latest")


def test_a_saved_image_has_the_same_facts_as_in_the_engine(engine: ContainerEngine, toy_image, tmp_path: Path):
    archive = tmp_path / "toy.tar"
    subprocess.run([engine.client, "save", "--output", str(archive), toy_image], check=True, capture_output=True)
    held, saved = engine.image_facts(toy_image), facts_of_archive(archive)
    assert (saved.user, saved.architecture, saved.api_method) == (held.user, held.architecture, held.api_method)
    assert saved.stripped_variables == held.stripped_variables == ("GRAND_CHALLENGE_TOKEN",)
    assert upload_problems(saved) == []
    assert toy_image in engine.load(archive)
