"""Bills of materials name the packages of an image, and a second build makes the same image."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from rehearsal.runners.containers import ContainerEngine
from tests.containers.conftest import ROOT, build, hold_build_lock
from tests.containers.test_images import ONE_OF_EACH, run_inside

pytestmark = pytest.mark.container

LIST_FOLDERS = "ls -d /opt/venv/lib/python3*/site-packages/*.dist-info"
LIST_DEBIAN = "dpkg-query --show --showformat '${Status} ${Package} ${Version}\\n' | sed -n 's/^.* installed //p'"


def save_image(name: str, output: Path) -> tuple[bytes, str]:
    """Return the archive of an image and its bill of materials."""
    command = [ROOT / "scripts" / "save", f"{name}:latest", "--output", output, "--level", "1"]
    subprocess.run(command, check=True, capture_output=True)
    (archive,), (bill,) = output.glob("*.tar.gz"), output.glob("*.cdx.json")
    assert bill.name == archive.name.replace(".tar.gz", ".cdx.json")
    return archive.read_bytes(), bill.read_text()


def check_bill(engine: ContainerEngine, name: str, text: str, locks: tuple[str, ...]) -> None:
    """Check that the bill has exactly the packages in the image, with licences and checksums of the locks."""
    bill = json.loads(text)
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert bill["metadata"]["component"]["name"] == f"{name}:latest"
    components = bill["components"]
    assert len({component["bom-ref"] for component in components}) == len(components)
    python = [component for component in components if component["purl"].startswith("pkg:pypi/")]
    folders = [
        Path(line).name.removesuffix(".dist-info") for line in run_inside(engine, name, LIST_FOLDERS, "/bin/sh").split()
    ]
    in_image = {(canonicalize_name(name), version) for name, _, version in (path.rpartition("-") for path in folders)}
    assert {(component["name"], component["version"]) for component in python} == in_image
    allowed = "".join((ROOT / "requirements" / f"{lock}.lock").read_text() for lock in locks)
    for component in python:
        ((kind, digest),) = (tuple(entry.values()) for entry in component["hashes"])
        assert kind == "SHA-256"
        assert f"--hash=sha256:{digest}" in allowed, component["name"]
        assert not re.search("GPL|GNU", json.dumps(component["licenses"])), component["name"]
    debian = {
        (component["name"], component["version"])
        for component in components
        if component["purl"].startswith("pkg:deb/debian/")
    }
    assert debian == {tuple(line.split()) for line in run_inside(engine, name, LIST_DEBIAN, "/bin/sh").splitlines()}


def test_the_bill_of_an_algorithm_is_what_its_image_contains(images: ContainerEngine) -> None:
    """Print the bill in the image itself, because saving the image takes longer."""
    algorithm = ONE_OF_EACH[0]
    program = (ROOT / "docker" / "bill-of-materials").read_text()
    run = ["run", "--rm", "--network=none", "--entrypoint", "python3", algorithm, "-c", program, f"{algorithm}:latest"]
    check_bill(images, algorithm, images.run(*run), ("torch-cpu", "build", "algorithm"))


@pytest.mark.skipif("HECKTOR_RUN_REBUILD" not in os.environ, reason="builds without the cache: HECKTOR_RUN_REBUILD=1")
@pytest.mark.slow
def test_a_build_without_cache_gives_the_same_archive(images: ContainerEngine, tmp_path: Path) -> None:
    """Archives are equal to the byte, and so are the bills; the platform knows an image by its checksum."""
    evaluation = ONE_OF_EACH[1]
    revision = ("--revision", "test")  # a commit during the test changes the default
    with hold_build_lock():
        build(evaluation.removeprefix("hecktor-"), *revision)
        archive, bill = save_image(evaluation, tmp_path / "first")
        build(evaluation.removeprefix("hecktor-"), *revision, "--no-cache")
        again = save_image(evaluation, tmp_path / "second")
    assert again[1] == bill
    assert again[0] == archive
    check_bill(images, evaluation, bill, ("evaluation",))
