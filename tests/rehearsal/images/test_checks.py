"""The platform's checks of an uploaded image."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from contract.errors import EngineError
from rehearsal.images import ImageFacts, facts_of_archive, upload_problems


def facts(**changes) -> ImageFacts:
    sound = {"name": "i", "user": "hecktor", "architecture": "amd64", "api_method": "exec", "size_bytes": 1}
    return ImageFacts(**{**sound, "variables": (), **changes})


@pytest.mark.parametrize("user", ["", "root", "0", "0:0", "0:1000", "root:root"])
def test_root_is_refused(user):
    (problem,) = upload_problems(facts(user=user))
    assert "expected a user that is not root; the platform would refuse the image" in problem


@pytest.mark.parametrize("user", ["hecktor", "1000", "1000:0", "rooty", "00x"])
def test_other_users_are_accepted(user):
    assert upload_problems(facts(user=user)) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "arm64"}, "built for arm64, expected amd64"),
        ({"api_method": "batch"}, "'batch', expected exec or invoke"),
        ({"size_bytes": 10_000_000_001}, "expected at most 10 GB"),
        ({"manifests": 2}, "2 images in the archive"),
    ],
)
def test_other_reasons_for_refusal(changes, message):
    (problem,) = upload_problems(facts(**changes))
    assert message in problem


def saved_image(path: Path, config: dict, images: int = 1) -> Path:
    manifest = [{"Config": "blobs/sha256/abc", "RepoTags": ["i:latest"], "Layers": []}] * images
    with tarfile.open(path, "w:gz") as archive:
        for name, document in (("blobs/sha256/abc", config), ("manifest.json", manifest)):
            content = json.dumps(document).encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_a_saved_image_is_read_without_an_engine(tmp_path: Path):
    config = {
        "architecture": "amd64",
        "config": {
            "User": "1000",
            "Labels": {"org.grand-challenge.api-method": "invoke"},
            "Env": ["PATH=/bin", "GRAND_CHALLENGE_X=1"],
        },
    }
    image = facts_of_archive(saved_image(tmp_path / "i.tar.gz", config))
    assert (image.user, image.architecture, image.api_method, image.manifests) == ("1000", "amd64", "invoke", 1)
    assert image.stripped_variables == ("GRAND_CHALLENGE_X",)
    assert upload_problems(image) == []
    two = facts_of_archive(saved_image(tmp_path / "two.tar.gz", {"architecture": "arm64", "config": {}}, images=2))
    assert len(upload_problems(two)) == 3


@pytest.mark.parametrize(("name", "content"), [("i.zip", b""), ("i.tar", b"garbage"), ("j.tar.gz", b"garbage")])
def test_unreadable_archives_are_errors(tmp_path: Path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(EngineError, match=name):
        facts_of_archive(path)


def test_an_archive_without_a_manifest(tmp_path: Path):
    with tarfile.open(tmp_path / "e.tar", "w"):
        pass
    with pytest.raises(EngineError, match=r"no manifest\.json"):
        facts_of_archive(tmp_path / "e.tar")
