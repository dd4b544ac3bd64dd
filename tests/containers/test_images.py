"""Images of the project: the platform's requirements, and rehearsals in the images."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from contract.archives import pack
from contract.editions import Algorithm, list_editions, load_edition
from contract.editions.inputs import CT
from contract.images.volumes import read_header
from contract.io.files import read_json
from contract.packages import read_identity
from rehearsal.jobs.execution import Rehearsal
from rehearsal.pipeline import rehearse
from rehearsal.platform.images import find_upload_problems
from rehearsal.records import RehearsalResult
from rehearsal.runners.containers import ContainerEngine, ContainerRunner
from rehearsal.runners.runner import GIB, Limits
from tests.containers.conftest import build, hold_build_lock
from tests.evaluation.challenge import ChallengeSize, write_challenge

pytestmark = pytest.mark.container

ROOT = Path(__file__).parents[2]
SEGMENTATION = load_edition().find_algorithm("segmentation")
COMBINED = load_edition("hecktor2026").find_algorithm()
EDITIONS = [edition for edition in map(load_edition, list_editions()) if edition.algorithms_of is None]
ALGORITHMS = [task for edition in EDITIONS for task in edition.algorithms]
NAMES = [*(task.image for task in ALGORITHMS), *(task.evaluation_image for task in ALGORITHMS)]
# Images of a kind differ only in the last layer, which checks the edition, and in their variables. So the layers below
# are tested on one image of each kind.
ONE_OF_EACH = [COMBINED.image, COMBINED.evaluation_image]


def run_inside(engine: ContainerEngine, image: str, script: str, program: str = "python") -> str:
    """Return the output of a script inside an image, without network and on a read-only root file system."""
    run = ["run", "--rm", "--network=none", "--read-only", "--entrypoint", program, image, "-c", script]
    return engine.run(*run)


@pytest.mark.parametrize("name", NAMES)
def test_the_platform_accepts_the_image(images: ContainerEngine, name):
    """Check the metadata of each image without running it."""
    facts = images.read_image_facts(f"{name}:latest")
    assert find_upload_problems(facts) == []
    assert facts.user == "hecktor"
    assert facts.api_method == "exec"
    assert facts.stripped_variables == ()
    config = json.loads(images.run("image", "inspect", "--format", "{{json .Config}}", f"{name}:latest"))
    module = "evaluation" if "evaluation" in name else "algorithm"
    assert config["Entrypoint"] == ["/opt/venv/bin/python", "-m", module]
    (task,) = (task for task in ALGORITHMS if name in (task.image, task.evaluation_image))
    assert {f"HECKTOR_TASK={task.name}", "HECKTOR_API_METHOD=exec"} <= set(config["Env"])
    for key in ("version", "revision", "licenses"):
        assert config["Labels"][f"org.opencontainers.image.{key}"]


def test_images_of_a_kind_differ_only_in_the_last_layer(images: ContainerEngine):
    """Therefore a test of one image of each kind holds for all of them."""
    layers = {
        name: json.loads(images.run("image", "inspect", "--format", "{{json .RootFS.Layers}}", f"{name}:latest"))
        for name in NAMES
    }
    algorithms, evaluations = NAMES[: len(ALGORITHMS)], NAMES[len(ALGORITHMS) :]
    for names in (algorithms, evaluations):
        assert len({tuple(layers[name][:-1]) for name in names}) == 1
        assert len({layers[name][-1] for name in names}) == len(names)


def test_a_server_image_is_labelled_invoke(server_images: ContainerEngine):
    """Labels say invoke, and the image of the other API method keeps its name and its label."""
    for name in ONE_OF_EACH:
        facts = server_images.read_image_facts(f"{name}:invoke")
        assert find_upload_problems(facts) == []
        assert facts.api_method == "invoke"
        assert server_images.read_image_facts(f"{name}:latest").api_method == "exec"


@pytest.mark.slow
def test_a_required_model_answers_or_nothing(
    images: ContainerEngine, phantoms_2026: Path, combined_package: Path, tmp_path: Path
):
    """Built with `--require-model`, an image refuses to run without a model and answers with the uploaded one, from an
    archive.
    """
    with hold_build_lock():
        build("2026", "--require-model")
    only = (list_patients(phantoms_2026)[0],)
    refused = rehearse_images(images, COMBINED, phantoms_2026, tmp_path / "without", only=only, tag="require-model")
    assert "error: model package: none in /opt/ml/model, expected the uploaded package" in refused.failures[0]
    pack(combined_package, tmp_path / "model.tar.gz")
    options = {"tag": "require-model", "model": tmp_path / "model.tar.gz"}
    result = rehearse_images(images, COMBINED, phantoms_2026, tmp_path / "with", only=only, **options)
    assert result.succeeded, (result.failures, result.problems)
    package = read_json(tmp_path / "with" / "rehearsal.json")["package"]
    assert package == {**read_identity(combined_package).model_dump(), "given": True, "recorded": 1}


def test_two_revisions_of_an_image_have_the_same_layers_and_different_identities(images: ContainerEngine):
    """Images are known to the platform by the checksum of their archive, which holds the labels."""
    name, identities, layers = f"{COMBINED.evaluation_image}:latest", set(), set()
    with hold_build_lock():
        for revision in (["--revision", "first try"], ["--revision", "second try"], []):
            build(COMBINED.evaluation_image.removeprefix("hecktor-"), *revision)
            identities.add(images.run("image", "inspect", "--format", "{{.Id}}", name))
            layers.add(images.run("image", "inspect", "--format", "{{json .RootFS.Layers}}", name))
    assert len(identities) == 3
    assert len(layers) == 1


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_nothing_is_baked_where_the_platform_mounts(images: ContainerEngine, name):
    """/opt/ml, /input and /output do not exist in the image, and /tmp is empty."""
    assert run_inside(images, name, "ls -A /tmp; ls -d /opt/ml /input /output 2>/dev/null || true", "/bin/sh") == ""


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_an_image_holds_its_licence_and_no_file_with_its_owners_rights(images: ContainerEngine, name):
    assert "Apache License" in run_inside(images, name, "cat /opt/app/LICENSE", "/bin/sh")
    assert "NVIDIA's libraries" in run_inside(images, name, "cat /opt/app/NOTICE", "/bin/sh")
    assert run_inside(images, name, "find / -xdev -perm /6000 -type f 2>/dev/null || true", "/bin/sh") == ""


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_packages_come_without_their_tests_and_with_byte_code_that_no_time_invalidates(images: ContainerEngine, name):
    """Flags of 1 in a .pyc (bytes 4 to 8) say that it belongs to a source by its hash and is not compared with it."""
    script = (
        "import pathlib; venv = pathlib.Path('/opt/venv/lib'); "
        "print(len([*venv.glob('python3*/site-packages/**/tests')]), "
        "{path.read_bytes()[4:8] for root in (venv, pathlib.Path('/opt/app')) for path in root.rglob('*.pyc')})"
    )
    assert run_inside(images, name, script).strip() == f"0 {{{bytes([1, 0, 0, 0])!r}}}"


def test_the_evaluation_has_no_torch(images: ContainerEngine):
    script = "import importlib.util as u, evaluation.cli; print([n for n in ('torch', 'monai', 'nnunetv2') if u.find_spec(n)])"
    assert run_inside(images, "hecktor-evaluation-rfs", script).strip() == "[]"


def test_the_evaluation_ranks_teams(images: ContainerEngine, tmp_path: Path):
    """Three simulated teams, with the edition and the task of the image."""
    results = tmp_path / "results"  # tmp_path itself is closed to the image's user
    write_challenge(results, "hecktor2025", ChallengeSize(3, 40, bootstraps=10, rankings=0))
    files = [f"/results/{path.relative_to(results)}" for path in sorted(results.glob("task2/*/metrics.json"))]
    output = tmp_path / "board"
    output.mkdir(mode=0o777)
    output.chmod(0o777)  # the image's user is not this one
    mounts = [f"--volume={results}:/results:ro", f"--volume={output}:/board"]
    run = ["run", "--rm", "--network=none", "--read-only", *mounts, "hecktor-evaluation-rfs"]
    printed = images.run(*run, "rank", *files, "--output", "/board")
    assert "C-index" in printed
    assert len(read_json(output / "leaderboard.json")["teams"]) == 3


def test_the_algorithm_knows_its_version_and_home(images: ContainerEngine):
    script = "import importlib.metadata as m, os; print(m.version('hecktor'), os.getuid(), os.path.expanduser('~'))"
    version, uid, home = run_inside(images, COMBINED.image, script).split()
    assert version != "unknown"
    assert (uid, home) == ("1000", "/home/hecktor")


# One pass of the network, where more of them would only take time.
ONE_PASS = ("--passes", "1")


def rehearse_images(
    engine: ContainerEngine,
    task: Algorithm,
    cohort: Path,
    output: Path,
    *,
    scored: bool = False,
    only: tuple[str, ...] = (),
    arguments: tuple[str, ...] = (),
    tag: str = "latest",
    model: Path | None = None,
) -> RehearsalResult:
    return rehearse(
        Rehearsal(
            edition=load_edition("hecktor2026" if task is COMBINED else "hecktor2025"),
            task=task,
            cohort=cohort,
            output_dir=output,
            algorithm=ContainerRunner(engine, f"{task.image}:{tag}", arguments),
            limits=Limits(16 * GIB, task.time_limit_s),
            evaluation=ContainerRunner(engine, f"{task.evaluation_image}:{tag}") if scored else None,
            ground_truth_dir=cohort / "ground_truth" if scored else None,
            only=only,
            model=model,
        )
    )


def list_patients(cohort: Path) -> list[str]:
    return sorted(path.parent.name for path in cohort.glob("*/input"))


@pytest.mark.slow
def test_masks_of_a_phantom_are_scored(images: ContainerEngine, phantoms: Path, tmp_path: Path):
    first, _ = list_patients(phantoms)
    result = rehearse_images(images, SEGMENTATION, phantoms, tmp_path, scored=True, only=(first,), arguments=ONE_PASS)
    assert result.succeeded, (result.refusals, result.failures, result.problems)
    assert all(0 <= value <= 1 for value in result.ranked.values())
    assert result.ranked["aggregates.gtvp_dsc_mean.value"] > 0


@pytest.mark.slow
def test_four_answers_of_2026_are_scored_and_are_the_same_from_a_server(
    server_images: ContainerEngine, phantoms_2026: Path, tmp_path: Path
):
    """Rehearse two phantoms in a container each and by one server; the images differ only in their label."""
    executed, served = tmp_path / "executed", tmp_path / "served"
    result = rehearse_images(server_images, COMBINED, phantoms_2026, executed, scored=True, arguments=ONE_PASS)
    assert result.succeeded, (result.refusals, result.failures, result.problems)
    check_four_answers(executed / "predictions", phantoms_2026, list_patients(phantoms_2026))
    aggregates = json.loads((executed / "metrics.json").read_text())["aggregates"]
    assert 0.5 < aggregates["dsc_mean"]["value"] <= 1
    assert aggregates["c_index"]["value"] in (0.0, 0.5, 1.0)  # of one pair of patients
    result = rehearse_images(
        server_images, COMBINED, phantoms_2026, served, scored=True, tag="invoke", arguments=ONE_PASS
    )
    assert result.succeeded, (result.refusals, result.failures, result.problems)
    assert result.evaluation_api_method == "invoke"
    assert json.loads((served / "metrics.json").read_text())["aggregates"] == aggregates
    assert [case.http_status for case in result.cases] == [201, 201]
    assert len(result.startup_s) == 1
    answers = [path.relative_to(executed) for path in (executed / "predictions").rglob("*.*")]
    assert len(answers) == 8
    for path in answers:
        assert (executed / path).read_bytes() == (served / path).read_bytes()


def check_four_answers(predictions: Path, cohort: Path, answered: Sequence[str]) -> None:
    """Check the mask's grid, T1 to T4, N0 to N3 and a positive number of days for each patient `answered`."""
    for patient in answered:
        answers = {name: read_json(predictions / name / f"{patient}.json") for name in ("t_stage", "n_stage", "rfs")}
        assert answers["t_stage"] in ("T1", "T2", "T3", "T4")
        assert answers["n_stage"] in ("N0", "N1", "N2", "N3")
        assert answers["rfs"] > 0
        ct = next(COMBINED.inputs[CT].path_under(cohort / patient / "input").iterdir())
        mask = read_header(predictions / "segmentation" / f"{patient}.mha")
        assert mask.geometry.find_differences(read_header(ct).geometry) == []


def test_the_script_saves(images: ContainerEngine, toy_image: str, tmp_path: Path):
    """Saving prints the size and writes the archive; an absent image is an error."""
    missing = subprocess.run([ROOT / "scripts" / "save", "no-such"], check=False, capture_output=True, text=True)
    assert missing.returncode == 1
    assert missing.stderr.strip().splitlines()[-1] == "error: no image hecktor-no-such:latest: run scripts/build"
    dist = tmp_path / "dist"
    saved = subprocess.run(
        [ROOT / "scripts" / "save", toy_image, "--output", dist], check=False, capture_output=True, text=True
    )
    assert saved.returncode == 0, saved.stderr
    (archive,) = dist.iterdir()
    assert str(archive) in saved.stdout
