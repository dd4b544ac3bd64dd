"""A container engine, toy images that misbehave, and the project's own images, each built once."""

import csv
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from contract.errors import EngineError
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import CohortOptions
from rehearsal.phantoms.make import make_cohort
from rehearsal.runners.containers import ContainerEngine, find_engine

ROOT = Path(__file__).parents[2]
TOYS = ROOT / "tests" / "rehearsal"
TOY_DOCKERFILE = """\
FROM {base}
RUN useradd --uid 1000 --create-home toy
ENV GRAND_CHALLENGE_TOKEN=secret
COPY {program} /toy.py
{user}
{label}
ENTRYPOINT ["python3", "/toy.py"]
"""


@pytest.fixture(scope="session")
def engine() -> ContainerEngine:
    """Return the engine that responds; without one skip the tests, or fail them in CI (HECKTOR_REQUIRE_ENGINE)."""
    try:
        return find_engine(os.environ.get("HECKTOR_ENGINE"))
    except EngineError as problem:
        if os.environ.get("HECKTOR_REQUIRE_ENGINE"):
            pytest.fail(problem.message)
        pytest.skip(problem.message)


@contextmanager
def hold_build_lock() -> Iterator[None]:
    """Keep parallel test processes from building the same image at once."""
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / "images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def base_image(engine: ContainerEngine) -> str:
    """Return an image with Python: the one in BASE_IMAGE, a local one, or a public one."""
    local = os.environ.get("HECKTOR_BASE_IMAGE", "hecktor-base:bookworm")
    if "BASE_IMAGE" in os.environ:
        return os.environ["BASE_IMAGE"]
    return local if engine.run("image", "ls", "--quiet", local) else "python:3.11-slim-bookworm"


def build_toy(
    engine: ContainerEngine,
    base: str,
    name: str,
    program: str = "toy_algorithm.py",
    *,
    user: str = "USER toy",
    label: str = "",
    files: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Build an image around a toy program with the old builder, which every client has; `label` may copy `files`."""
    tag = f"hecktor-test-{name}:latest"
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(TOYS / program, folder)
        text = TOY_DOCKERFILE.format(base=base, program=program, user=user, label=label)
        for path, content in {**files, "Dockerfile": text}.items():
            Path(folder, path).write_text(content)
        with hold_build_lock():
            command = [engine.client, "build", "--quiet", "--tag", tag, folder]
            environment = {**os.environ, "DOCKER_BUILDKIT": "0"}
            done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return tag


@pytest.fixture(scope="session")
def toy_image(engine: ContainerEngine, base_image: str) -> str:
    """Build the toy algorithm with its own user."""
    return build_toy(engine, base_image, "toy")


@pytest.fixture(scope="session")
def root_image(engine: ContainerEngine, base_image: str) -> str:
    """Build the toy algorithm as root."""
    return build_toy(engine, base_image, "root", user="")


@pytest.fixture(scope="session")
def invoke_image(engine: ContainerEngine, base_image: str) -> str:
    """Build the toy algorithm as a server."""
    label = "LABEL org.grand-challenge.api-method=invoke\nENV TOY_SERVES=1"
    return build_toy(engine, base_image, "invoke", label=label)


@pytest.fixture(scope="session")
def toy_evaluation_image(engine: ContainerEngine, base_image: str) -> str:
    """Build the toy evaluation."""
    return build_toy(engine, base_image, "evaluation", "toy_evaluation.py")


def build(*arguments: str) -> None:
    """Run `scripts/build`."""
    done = subprocess.run([ROOT / "scripts" / "build", *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


@pytest.fixture(scope="session")
def images(engine: ContainerEngine) -> ContainerEngine:
    """Build the project's images from this tree and return the engine."""
    with hold_build_lock():
        build("all")
    return engine


@pytest.fixture(scope="session")
def server_images(images: ContainerEngine) -> ContainerEngine:
    """Build algorithm and evaluation of HECKTOR 2026 as servers, too, and return the engine."""
    with hold_build_lock():
        build("2026", "evaluation-2026", "--api-method", "invoke")
    return images


def make_phantoms(folder: Path, edition: str) -> Path:
    """Make two coarse head-and-neck phantoms of an edition in the platform's layout."""
    centres = tuple(centre.code for centre in CENTRES)
    options = CohortOptions(5, centres, "platform", "head_and_neck", ct_coarsening=4, edition=edition)
    assert len(list(make_cohort(options, 2, folder, jobs=1))) == 2
    return folder


@pytest.fixture(scope="session")
def phantoms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make two phantoms of HECKTOR 2025."""
    return make_phantoms(tmp_path_factory.mktemp("phantoms"), "hecktor2025")


@pytest.fixture(scope="session")
def phantoms_2026(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make two phantoms of HECKTOR 2026, with different stages and relapses, so that every metric is defined."""
    folder = make_phantoms(tmp_path_factory.mktemp("phantoms-2026"), "hecktor2026")
    (table,) = (folder / "ground_truth").glob("*.csv")
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for number, row in enumerate(rows, start=1):
        row |= {"T-stage": f"T{number}", "N-stage": f"N{number}", "Relapse": "1", "RFS": str(300 * number)}
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder
