"""Integrity of saved images."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from contract.errors import EngineError
from rehearsal.images import facts_of_archive


def saved(path: Path, layers: dict[str, bytes], contents: Sequence[bytes], links: dict[str, str] | None = None) -> Path:
    """What `docker save` writes: a manifest, a configuration with the checksums of `contents`, layers and links."""
    sums = [f"sha256:{hashlib.sha256(content).hexdigest()}" for content in contents]
    manifest = [{"Config": "c.json", "Layers": [*layers, *(links or {})]}]
    files = {**layers, "c.json": json.dumps({"architecture": "amd64", "rootfs": {"diff_ids": sums}}).encode()}
    files["manifest.json"] = json.dumps(manifest).encode()
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
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


def test_an_altered_layer_is_named(tmp_path: Path) -> None:
    archive = saved(tmp_path / "image.tar.gz", {"a/layer.tar": b"first", "b/layer.tar": b"altered"}, [b"first", b"x"])
    with pytest.raises(EngineError, match=r"^image\.tar\.gz: layer b/layer\.tar has sha256 \w{12}\.\.\., expected"):
        facts_of_archive(archive, verify=True)


def test_a_missing_layer_is_named(tmp_path: Path) -> None:
    archive = saved(tmp_path / "image.tar.gz", {}, [b"first"], {"a/layer.tar": "../b/layer.tar"})
    with pytest.raises(EngineError, match=r"layer a/layer\.tar is not in the archive"):
        facts_of_archive(archive, verify=True)


def test_archives_without_an_image_are_errors(tmp_path: Path) -> None:
    cut = saved(tmp_path / "cut.tar.gz", {"a": bytes(range(256)) * 4096}, [b"a"])
    cut.write_bytes(cut.read_bytes()[:-2000])
    with pytest.raises(EngineError, match=r"^cut\.tar\.gz: not a readable archive"):
        facts_of_archive(cut, verify=True)
    with pytest.raises(EngineError, match=r"^few\.tar\.gz: no image with layers in it, expected what `docker save`"):
        facts_of_archive(saved(tmp_path / "few.tar.gz", {"a": b"a"}, []), verify=True)
