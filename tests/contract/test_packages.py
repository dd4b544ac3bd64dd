"""Model packages as plain data: archives, manifests and checksums."""

from __future__ import annotations

import errno
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from contract.archives import pack, unpack
from contract.errors import ModelPackageError
from contract.io.files import MAX_JSON_BYTES
from contract.packages import (
    Manifest,
    check_is_package,
    chosen_edition,
    make_file_entry,
    open_package,
    read_identity,
    read_manifest,
    verify_files,
)

# sha256 of "abc", from FIPS 180-2.
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def make_manifest(**changes: Any) -> dict[str, Any]:
    content = {
        "format_version": 1,
        "name": "tiny",
        "purpose": "for tests",
        "edition": "hecktor2025",
        "channels": ["CT", "PET"],
        "labels": {"0": "background", "1": "GTVp", "2": "GTVn"},
        "configuration": "3d_fullres",
        "folds": ["fold_0.safetensors"],
        "files": {},
    }
    return {key: value for key, value in (content | changes).items() if value is not None}


def list_files(files: dict[str, Any]) -> Manifest:
    return Manifest.model_validate(make_manifest(files=files))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    (folder / "heads").mkdir(parents=True)
    (folder / "heads" / "rfs.json").write_text("abc")
    (folder / "manifest.json").write_text("{}")
    return folder


def test_a_package_packs_to_the_same_bytes_without_owner_and_times(package: Path, tmp_path: Path) -> None:
    pack(package, tmp_path / "first.tar.gz")
    os.utime(package / "heads" / "rfs.json", (1, 1))
    pack(package, tmp_path / "second.tar.gz")
    assert (tmp_path / "first.tar.gz").read_bytes() == (tmp_path / "second.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "first.tar.gz") as archive:
        members = {member.name: (member.uid, member.mtime, member.mode) for member in archive}
    files, folders = ("./heads/rfs.json", "./manifest.json"), (".", "./heads")
    assert members == dict.fromkeys(folders, (0, 0, 0o755)) | dict.fromkeys(files, (0, 0, 0o644))
    unpack(tmp_path / "first.tar.gz", tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / "heads" / "rfs.json").read_text() == "abc"


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ({"heads/rfs.json": {"sha256": ABC, "size": 4}}, "heads/rfs.json: 3 bytes, expected 4"),
        ({"heads/rfs.json": {"sha256": "0" * 64, "size": 3}}, "heads/rfs.json: sha256 ba7816bf8f01..., expected 000"),
        ({"plans.json": {"sha256": ABC, "size": 3}}, "plans.json: not in the model package"),
        ({"../rfs.json": {"sha256": ABC, "size": 3}}, "manifest.json: file name '../rfs.json' leads out of the"),
    ],
)
def test_altered_missing_and_foreign_files_are_refused(package: Path, listed: Any, message: str) -> None:
    sound = {"heads/rfs.json": {"sha256": ABC, "size": 3}}
    assert verify_files(package, list_files(sound)) == {"heads/rfs.json": package / "heads" / "rfs.json"}
    with pytest.raises(ModelPackageError) as error:
        verify_files(package, list_files(listed))
    assert error.value.message.startswith(message)


def test_a_file_of_another_user_is_refused(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate the refusal of another user, since root may read everything."""

    def refuse(_: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    listed = {"heads/rfs.json": make_file_entry(package / "heads" / "rfs.json")}
    monkeypatch.setattr("contract.packages.make_file_entry", refuse)
    message = r"^heads/rfs\.json: cannot be read \(Permission denied\), expected a file that every user may read"
    with pytest.raises(ModelPackageError, match=message):
        verify_files(package, list_files(listed))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 3, "new": 1}, "manifest.json: format version 3, expected 1 or 2"),
        ({"files": None}, "manifest.json.files: found nothing, expected this key"),
        ({"spacing": 1}, "manifest.json.spacing: found 1, expected no such key"),
        ({"configuration": []}, "manifest.json.configuration: found [], expected a string"),
    ],
)
def test_manifests_that_are_refused(package: Path, change: dict[str, Any], message: str) -> None:
    (package / "manifest.json").write_text(json.dumps(make_manifest(**change)))
    with pytest.raises(ModelPackageError) as error:
        read_manifest(package)
    assert str(error.value) == message


def test_an_archive_is_unpacked_to_a_folder_that_is_removed(package: Path, tmp_path: Path) -> None:
    pack(package, tmp_path / "model.tar.gz")
    with open_package(tmp_path / "model.tar.gz") as folder:
        assert (folder / "heads" / "rfs.json").read_text() == "abc"
    assert not folder.exists()
    with open_package(package) as folder:
        assert folder == package
    assert package.is_dir()


def test_paths_that_are_not_a_package(package: Path, tmp_path: Path) -> None:
    """Packages without a manifest have files named fold_0.safetensors, results of nnU-Net folders named fold_0."""
    (package / "manifest.json").unlink()
    (package / "fold_0.safetensors").touch()
    (tmp_path / "nnres" / "Trainer__Plans__3d_fullres" / "fold_0").mkdir(parents=True)
    (tmp_path / "x.pth").touch()
    for name, message in (
        ("package", "package: no manifest.json, expected a model package"),
        ("nnres", "nnres: found nnU-Net's results, expected a model package; `hecktor package --nnunet` makes one"),
        ("x.pth", "x.pth: found a checkpoint, expected a model package; `hecktor package` makes one"),
        ("nope", "nope: not found, expected a model package, as a folder or .tar.gz"),
    ):
        with pytest.raises(ModelPackageError) as refusal:
            check_is_package(tmp_path / name)
        assert str(refusal.value) == message


def test_the_edition_of_a_folder_and_of_its_archive(package: Path, tmp_path: Path) -> None:
    (package / "manifest.json").write_text('{"edition": "hecktor2026", "new": 1}')
    pack(package, tmp_path / "model.tar.gz")
    for path in (package, tmp_path / "model.tar.gz"):
        assert chosen_edition(None, path).name == "hecktor2026"
        assert chosen_edition("hntsmrg2024", path).name == "hntsmrg2024"
    assert chosen_edition(None, None).name == "hecktor2025"
    (package / "manifest.json").write_text('{"edition": "mine"}')
    with pytest.raises(ModelPackageError, match=r"found edition 'mine'"):
        chosen_edition(None, package)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("name", f"x{part}") for part in ("\x1b]0;pwned\x07", "\nerror: forged line", "\u202eforged", "x" * 200)),
        ("configuration", "3d\rforged"),
        ("code", {"my_model\nforged": "0"}),
        ("edition", "hecktor2025\nforged"),
    ],
)
def test_a_name_that_is_not_one_printable_line_is_refused(package: Path, key: str, value: object) -> None:
    """All readers refuse it: of the whole manifest, of the name and of the edition."""
    (package / "manifest.json").write_text(json.dumps(make_manifest(**{key: value})))
    for read in (read_manifest, read_identity, lambda path: chosen_edition(None, path)):
        with pytest.raises(ModelPackageError, match=rf"^manifest\.json\.?{key}?|^manifest\.json: ") as problem:
            read(package)
        assert problem.value.message.isprintable()


@pytest.mark.parametrize("name", ["../x", "", "my-model"])
def test_a_name_of_code_that_is_no_plain_folder_is_refused(name: str) -> None:
    with pytest.raises(ModelPackageError, match=r"manifest\.json\.code: found .*, expected the name of an importable"):
        Manifest.model_validate(make_manifest(code={name: "0" * 64}))


def test_folds_are_distinct_and_bounded(package: Path) -> None:
    (package / "manifest.json").write_text(json.dumps(make_manifest(folds=["a", "b", "a"])))
    with pytest.raises(ModelPackageError, match=r"^manifest\.json\.folds: found 'a' twice, expected each fold once$"):
        read_manifest(package)
    (package / "manifest.json").write_text(json.dumps(make_manifest(folds=["a"] * 100_000)))
    with pytest.raises(ModelPackageError, match=r"^manifest\.json\.folds: .*at most 200 entries"):
        read_manifest(package)


def test_all_readers_of_a_manifest_bound_its_size_and_accept_a_byte_order_mark(package: Path) -> None:
    readers = (read_manifest, read_identity, lambda path: chosen_edition(None, path))
    text = json.dumps(make_manifest())
    (package / "manifest.json").write_text(text, encoding="utf-8-sig")
    manifest, identity, edition = (read(package) for read in readers)
    assert (manifest.name, identity.name, edition.name) == ("tiny", "tiny", "hecktor2025")
    with (package / "manifest.json").open("a") as file:
        file.write(" " * MAX_JSON_BYTES)
    for read in readers:
        with pytest.raises(ModelPackageError, match=rf"^manifest\.json: \d+ bytes, expected at most {MAX_JSON_BYTES}$"):
            read(package)
