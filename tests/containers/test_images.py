"""Images of the project: the platform's requirements, and rehearsals in the images."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from contract.editions import Algorithm, list_editions, load_edition
from contract.editions.inputs import CT
from contract.images.volumes import read_header
from contract.io.files import read_json
from contract.platform import PREDICTIONS_JSON
from rehearsal.jobs.evaluation import run_evaluation
from rehearsal.jobs.execution import Rehearsal
from rehearsal.pipeline import rehearse
from rehearsal.platform.images import find_upload_problems
from rehearsal.records import RehearsalResult
from rehearsal.runners.containers import ContainerEngine, ContainerRunner
from rehearsal.runners.runner import GIB, Limits
from tests.containers.conftest import build, hold_build_lock
from tests.evaluation.challenge import ChallengeSize, write_challenge

pytestmark = pytest.mark.container

COMBINED = load_edition("hecktor2026").find_algorithm()
EDITIONS = [edition for edition in map(load_edition, list_editions()) if edition.algorithms_of is None]
EDITION_OF = {task.image: edition for edition in EDITIONS for task in edition.algorithms}
ALGORITHMS = [task for edition in EDITIONS for task in edition.algorithms]
NAMES = [*(task.image for task in ALGORITHMS), *(task.evaluation_image for task in ALGORITHMS)]
# Images of a kind differ only in the last layer, which checks the edition, and in their variables. So the layers below
# are tested on one image of each kind.
ONE_OF_EACH = [COMBINED.image, COMBINED.evaluation_image]
# One pass of the network, where more of them would only take time.
ONE_PASS = ("--passes", "1")


def run_inside(engine: ContainerEngine, image: str, script: str, program: str = "python") -> str:
    """Return the output of a script inside an image, without network and on a read-only root file system."""
    run = ["run", "--rm", "--network=none", "--read-only", "--entrypoint", program, image, "-c", script]
    return engine.run(*run)


@pytest.mark.parametrize("name", NAMES)
def test_the_platform_accepts_the_image(images: ContainerEngine, name: str) -> None:
    """Check the metadata of each image without running it."""
    facts = images.read_image_facts(f"{name}:latest")
    assert find_upload_problems(facts) == []
    assert (facts.user, facts.api_method, facts.stripped_variables) == ("hecktor", "exec", ())
    config = json.loads(images.run("image", "inspect", "--format", "{{json .Config}}", f"{name}:latest"))
    module = "evaluation" if "evaluation" in name else "algorithm"
    assert config["Entrypoint"] == ["/opt/venv/bin/python", "-m", module]
    (task,) = (task for task in ALGORITHMS if name in (task.image, task.evaluation_image))
    assert {f"HECKTOR_TASK={task.name}", "HECKTOR_API_METHOD=exec"} <= set(config["Env"])
    for key in ("version", "revision", "licenses"):
        assert config["Labels"][f"org.opencontainers.image.{key}"]


def read_layers(engine: ContainerEngine, name: str) -> list[str]:
    layers: list[str] = json.loads(engine.run("image", "inspect", "--format", "{{json .RootFS.Layers}}", name))
    return layers


def test_images_of_a_kind_differ_only_in_the_last_layer(images: ContainerEngine) -> None:
    """Therefore a test of one image of each kind holds for all of them."""
    layers = {name: read_layers(images, f"{name}:latest") for name in NAMES}
    algorithms, evaluations = NAMES[: len(ALGORITHMS)], NAMES[len(ALGORITHMS) :]
    for names in (algorithms, evaluations):
        assert len({tuple(layers[name][:-1]) for name in names}) == 1
        assert len({layers[name][-1] for name in names}) == len(names)


def test_two_revisions_of_an_image_have_the_same_layers_and_different_identities(images: ContainerEngine) -> None:
    """Images are known to the platform by the checksum of their archive, which holds the labels."""
    name, identities, layers = f"{COMBINED.evaluation_image}:latest", set(), set()
    with hold_build_lock():
        for revision in (["--revision", "first try"], []):
            build(COMBINED.evaluation_image.removeprefix("hecktor-"), *revision)
            identities.add(images.find_image_id(name))
            layers.add(tuple(read_layers(images, name)))
    assert (len(identities), len(layers)) == (2, 1)


# Commands of a shell, and what they print.
CONTENTS = {
    # The platform mounts these folders.
    "ls -A /tmp; ls -d /opt/ml /input /output 2>/dev/null || true": "",
    # Programs that run with the rights of their owner.
    "find / -xdev -perm /6000 -type f 2>/dev/null || true": "",
    "grep -om1 'Apache License' /opt/app/LICENSE; grep -om1 NVIDIA.s.libraries /opt/app/NOTICE": (
        "Apache License\nNVIDIA's libraries\n"
    ),
    "find /opt/venv/lib/python3*/site-packages -name tests -type d": "",
    "id -u; echo ~": "1000\n/home/hecktor\n",
}
# Flags of 1 in a .pyc (bytes 4 to 8) mean that it belongs to a source by its hash, and that no time is compared.
MODULES = """
import importlib.metadata, importlib.util, pathlib
print({path.read_bytes()[4:8] for root in ("/opt/venv/lib", "/opt/app") for path in pathlib.Path(root).rglob("*.pyc")})
print(importlib.metadata.version("hecktor") != "unknown")
print([name for name in ("torch", "monai", "nnunetv2") if importlib.util.find_spec(name)])
"""


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_contents_of_an_image(images: ContainerEngine, name: str) -> None:
    """Only the algorithm has PyTorch; both know their version."""
    assert run_inside(images, name, "; ".join(CONTENTS), "/bin/sh") == "".join(CONTENTS.values())
    packages = ["torch", "monai", "nnunetv2"] if name == COMBINED.image else []
    assert run_inside(images, name, MODULES).splitlines() == [str({bytes([1, 0, 0, 0])}), "True", str(packages)]


def test_the_evaluation_ranks_teams(images: ContainerEngine, tmp_path: Path) -> None:
    """Three simulated teams, with the edition and the task of the image."""
    results = tmp_path / "results"  # tmp_path itself is closed to the image's user
    write_challenge(results, "hecktor2025", ChallengeSize(3, 40, bootstraps=10, rankings=0))
    files = [f"/results/{path.relative_to(results)}" for path in sorted(results.glob("task2/*/metrics.json"))]
    output = tmp_path / "board"
    output.mkdir(mode=0o777)
    output.chmod(0o777)  # the image's user is not this one
    mounts = [f"--volume={results}:/results:ro", f"--volume={output}:/board"]
    run = ["run", "--rm", "--network=none", "--read-only", *mounts, "hecktor-evaluation-rfs"]
    assert "C-index" in images.run(*run, "rank", *files, "--output", "/board")
    assert len(read_json(output / "leaderboard.json")["teams"]) == 3


def rehearse_images(
    engine: ContainerEngine,
    task: Algorithm,
    cohort: Path,
    output: Path,
    *,
    image: str,
    scored: bool = False,
    evaluation_tag: str = "latest",
    only: Sequence[str] = (),
    model: Path | None = None,
    arguments: tuple[str, ...] = ONE_PASS,
) -> RehearsalResult:
    """Rehearse an image of a task, by default with one pass of its network."""
    evaluation = ContainerRunner(engine, f"{task.evaluation_image}:{evaluation_tag}")
    return rehearse(
        Rehearsal(
            edition=EDITION_OF[task.image],
            task=task,
            cohort=cohort,
            output_dir=output,
            algorithm=ContainerRunner(engine, image, arguments),
            limits=Limits(16 * GIB, task.time_limit_s),
            evaluation=evaluation if scored else None,
            ground_truth_dir=cohort / EDITION_OF[task.image].get_reference_folder(task) if scored else None,
            only=tuple(only),
            model=model,
        )
    )


def list_patients(cohort: Path) -> list[str]:
    return sorted(path.parent.name for path in cohort.glob("*/input"))


@pytest.mark.slow
def test_four_answers_of_2026_are_scored_and_are_the_same_from_a_server(
    server_images: ContainerEngine, phantoms_2026: Path, tmp_path: Path
) -> None:
    """Rehearse two phantoms by one server. Repeat the second phantom, and the evaluation of both, in containers of their
    own: the images differ only in their label.
    """
    served, executed, image = tmp_path / "served", tmp_path / "executed", f"{COMBINED.image}:invoke"
    options = {"image": image, "scored": True, "evaluation_tag": "invoke"}
    result = rehearse_images(server_images, COMBINED, phantoms_2026, served, **options)
    assert result.succeeded, (result.refusals, result.failures, result.problems)
    assert (result.api_method, result.evaluation_api_method) == ("invoke", "invoke")
    assert [case.http_status for case in result.cases] == [201, 201]
    assert len(result.startup_s) == 1
    check_four_answers(served / "predictions", phantoms_2026)
    aggregates = read_json(served / "metrics.json")["aggregates"]
    assert 0.5 < aggregates["dsc_mean"]["value"] <= 1
    assert aggregates["c_index"]["value"] in (0.0, 0.5, 1.0)  # of one pair of patients

    options = {"image": f"{COMBINED.image}:latest", "only": list_patients(phantoms_2026)[1:]}
    result = rehearse_images(server_images, COMBINED, phantoms_2026, executed, **options)
    assert (result.succeeded, result.api_method) == (True, "exec"), result.failures
    answers = [path.relative_to(executed) for path in (executed / "predictions").rglob("*.*")]
    assert len(answers) == 4
    for path in answers:
        assert (executed / path).read_bytes() == (served / path).read_bytes()
    (tmp_path / "work").mkdir()
    runner = ContainerRunner(server_images, f"{COMBINED.evaluation_image}:latest")
    folders = (served / "evaluation" / "input", phantoms_2026 / "ground_truth", tmp_path / "again", tmp_path / "work")
    assert run_evaluation(runner, *folders).problem is None
    assert read_json(tmp_path / "again" / "metrics.json")["aggregates"] == aggregates


def check_four_answers(predictions: Path, cohort: Path) -> None:
    """Check each patient's grid of the mask, T1 to T4, N0 to N3 and a positive number of days."""
    for patient in list_patients(cohort):
        answers = {name: read_json(predictions / name / f"{patient}.json") for name in ("t_stage", "n_stage", "rfs")}
        assert answers["t_stage"] in ("T1", "T2", "T3", "T4")
        assert answers["n_stage"] in ("N0", "N1", "N2", "N3")
        assert answers["rfs"] > 0
        ct = next(COMBINED.inputs[CT].path_under(cohort / patient / "input").iterdir())
        mask = read_header(predictions / "segmentation" / f"{patient}.mha")
        assert mask.geometry.find_differences(read_header(ct).geometry) == []


def test_an_unusable_submission_is_the_last_line_of_an_evaluation_server(
    server_images: ContainerEngine, phantoms_2026: Path, tmp_path: Path
) -> None:
    for name in ("input", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "input" / PREDICTIONS_JSON).write_text("{")
    tmp_path.chmod(0o755)  # the image's user enters it
    runner = ContainerRunner(server_images, f"{COMBINED.evaluation_image}:invoke")
    folders = (tmp_path / "input", phantoms_2026 / "ground_truth", tmp_path / "out", tmp_path / "work")
    run = run_evaluation(runner, *folders)
    assert run.problem is not None
    assert run.problem.startswith("evaluation: POST /invoke: 500 (predictions.json: ")
    assert "error: predictions.json: " in run.problem
    assert not (tmp_path / "out" / "metrics.json").exists()
