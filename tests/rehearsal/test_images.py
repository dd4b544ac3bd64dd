"""The platform's checks of an uploaded image, and the integrity of saved images."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from contract.errors import EngineError
from rehearsal.images import ImageFacts, facts_of_archive, upload_problems


def facts(**changes) -> ImageFacts:
    sound = {"name": "i", "user": "hecktor", "architecture": "amd64", "api_method": "exec", "size_bytes": 1}
    return ImageFacts(**{**sound, "variables": (), **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ({"user": user}, "expected a user that is not root")
            for user in ("", "root", "0", "0:0", "0:1000", "root:root")
        ),
        ({"architecture": "arm64"}, "built for arm64, expected amd64"),
        ({"api_method": "batch"}, "'batch', expected exec or invoke"),
        ({"size_bytes": 10_000_000_001}, "expected at most 10 GB"),
        ({"manifests": 2}, "2 images in the archive, expected exactly one"),
    ],
)
def test_an_image_is_refused_for_one_reason(changes, message):
    (problem,) = upload_problems(facts(**changes))
    assert message in problem
    assert problem.endswith("; the platform would refuse the image")


@pytest.mark.parametrize("user", ["hecktor", "1000", "1000:0", "rooty", "00x"])
def test_users_other_than_root_are_accepted(user):
    assert upload_problems(facts(user=user)) == []


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


def saved(
    path: Path,
    layers: dict[str, bytes],
    contents: Sequence[bytes],
    links: dict[str, str] | None = None,
    **damaged: bytes,
) -> Path:
    """What `docker save` writes: a manifest, a configuration with the checksums of `contents`, layers and links."""
    sums = [f"sha256:{hashlib.sha256(content).hexdigest()}" for content in contents]
    manifest = [{"Config": "c.json", "Layers": [*layers, *(links or {})]}]
    files = {**layers, "c.json": json.dumps({"architecture": "amd64", "rootfs": {"diff_ids": sums}}).encode()}
    files["manifest.json"] = json.dumps(manifest).encode()
    with tarfile.open(path, "w:gz") as archive:
        for name, content in (files | damaged).items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
    return path


def test_intact_layers_pass(tmp_path: Path) -> None:
    """One as it is, one compressed, one that looks like JSON, and one that links to the first."""
    contents = [b"first", b"second" * 1000, b"[1]", b"first"]
    layers = {"a/layer.tar": contents[0], "b/layer.tar": gzip.compress(contents[1]), "c/layer.tar": contents[2]}
    archive = saved(tmp_path / "image.tar.gz", layers, contents, {"d/layer.tar": "../a/layer.tar"})
    facts = facts_of_archive(archive, verify=True)
    assert (facts.architecture, facts.manifests, facts.user) == ("amd64", 1, "")


@pytest.mark.parametrize(
    "layer",
    [gzip.compress(b"one") + gzip.compress(b"two"), bytes.fromhex("28b52ffd04580100006f6e65")],
    ids=["parts", "zstd"],
)
def test_layers_that_are_not_checked_pass(tmp_path: Path, layer: bytes) -> None:
    """Their compression is not read, so they say nothing against a sound archive."""
    facts_of_archive(saved(tmp_path / "image.tar.gz", {"a/layer.tar": layer}, [b"onetwo"]), verify=True)


def test_an_altered_layer_is_named(tmp_path: Path) -> None:
    archive = saved(tmp_path / "image.tar.gz", {"a/layer.tar": b"first", "b/layer.tar": b"altered"}, [b"first", b"x"])
    with pytest.raises(EngineError, match=r"^image\.tar\.gz: layer b/layer\.tar has sha256"):
        facts_of_archive(archive, verify=True)


def test_a_missing_layer_is_named(tmp_path: Path) -> None:
    archive = saved(tmp_path / "image.tar.gz", {}, [b"first"], {"a/layer.tar": "../b/layer.tar"})
    with pytest.raises(EngineError, match=r"layer a/layer\.tar is not in the archive"):
        facts_of_archive(archive, verify=True)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", b"[" * 100_000),
        ("manifest.json", b'["c.json"]'),
        ("a", gzip.compress(b"layer", mtime=0)[:-9] + b"\xff" * 9),
    ],
)
def test_damaged_members_of_an_image_are_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    """JSON nested too deeply, a manifest without objects, and a compressed layer whose checksum is wrong."""
    archive = saved(tmp_path / "image.tar.gz", {"a": b"layer"}, [b"layer"], **{name: content})
    with pytest.raises(EngineError, match=r"^image\.tar\.gz: (no manifest|no image with layers|found a damaged layer)"):
        facts_of_archive(archive, verify=True)


def test_archives_without_an_image_are_errors(tmp_path: Path) -> None:
    cut = saved(tmp_path / "cut.tar.gz", {"a": bytes(range(256)) * 4096}, [b"a"])
    cut.write_bytes(cut.read_bytes()[:-2000])
    with pytest.raises(EngineError, match=r"^cut\.tar\.gz: "):
        facts_of_archive(cut, verify=True)
    with pytest.raises(EngineError, match=r"^few\.tar\.gz: no image with layers"):
        facts_of_archive(saved(tmp_path / "few.tar.gz", {"a": b"a"}, []), verify=True)


def test_a_layer_that_ends_early_is_named(tmp_path: Path) -> None:
    layer = gzip.compress(b"first" * 1000)[:-9]
    archive = saved(tmp_path / "image.tar.gz", {"a/layer.tar": layer}, [b"first" * 1000])
    with pytest.raises(EngineError, match=r"^image\.tar\.gz: found a damaged layer \("):
        facts_of_archive(archive, verify=True)


def test_a_large_layer_passes(tmp_path: Path) -> None:
    """Beyond 16 MiB a layer is read, and inflated, piece by piece: random bytes do not compress, zeros do."""
    content = np.random.default_rng(1).bytes(18 << 20) + bytes(40 << 20)
    facts_of_archive(
        saved(tmp_path / "image.tar.gz", {"a/layer.tar": gzip.compress(content, 1)}, [content]), verify=True
    )


@pytest.mark.parametrize("dotted", ["manifest.json", "c.json", "a/layer.tar", "link", "in the manifest"])
def test_names_may_begin_with_a_dot(tmp_path: Path, dotted: str) -> None:
    """As `tar -C folder .` writes them; a link names its target either way."""
    content = b"first"
    sums = [f"sha256:{hashlib.sha256(content).hexdigest()}"] * 2
    prefix = "./" if dotted == "in the manifest" else ""
    manifest = [{"Config": f"{prefix}c.json", "Layers": [f"{prefix}a/layer.tar", f"{prefix}b/layer.tar"]}]
    files = {
        "a/layer.tar": content,
        "c.json": json.dumps({"architecture": "amd64", "rootfs": {"diff_ids": sums}}).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    with tarfile.open(tmp_path / "i.tar", "w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"./{name}" if name == dotted else name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
        link = tarfile.TarInfo("./b/layer.tar" if dotted == "link" else "b/layer.tar")
        link.type, link.linkname = tarfile.LNKTYPE, "./a/layer.tar" if dotted == "link" else "a/layer.tar"
        archive.addfile(link)
    assert facts_of_archive(tmp_path / "i.tar", verify=True).architecture == "amd64"
