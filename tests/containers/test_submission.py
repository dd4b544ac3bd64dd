"""One real archive from the image of this tree: built, saved, checked, loaded back and rehearsed."""

from __future__ import annotations

from pathlib import Path

import pytest

from algorithm.network.package import shipped_package
from contract.editions import load_edition
from contract.errors import EngineError
from contract.files import read_json
from rehearsal.runners.containers import ContainerEngine
from rehearsal.submission.images import BuiltImages, find_images
from rehearsal.submission.pipeline import SubmissionOptions, make_submission

pytestmark = [pytest.mark.container, pytest.mark.slow]


@pytest.fixture
def built(images: ContainerEngine) -> BuiltImages:
    return find_images(None, "cpu", with_gpus=False, level=1)


def test_an_archive_gives_the_four_answers_of_2026(built: BuiltImages, tmp_path: Path) -> None:
    """With the shipped package, by the model alone: a fallback would be a failed check."""
    edition, output = load_edition("hecktor2026"), tmp_path / "submission"
    request = SubmissionOptions(
        shipped_package(edition.name), output, edition=edition, torch="cpu", kinds=("head",), coarsening=4
    )
    made = make_submission(request, built, print)
    archive = output / "hecktor-2026.tar.gz"
    assert read_json(output / "submission.json")["images"][0]["size"] == archive.stat().st_size > 1e8
    (tried,) = made.tried
    assert tried.isolated
    assert 0 < tried.longest_s < tried.time_limit_s
    assert "pass" in tried.cases[0].answered


def test_an_image_as_root_is_refused(built: BuiltImages, root_image: str, tmp_path: Path) -> None:
    """Saved like any other; the check before loading says no."""
    archive = tmp_path / "root.tar"
    built.engine.command("save", "--output", str(archive), root_image)
    with pytest.raises(EngineError, match=r"^root\.tar: no USER, so it runs as root"):
        built.load(archive)
