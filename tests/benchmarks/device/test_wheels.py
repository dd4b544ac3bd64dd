"""Wheels in folders that fit a transfer, and the wheels to transfer."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from benchmarks.device import wheels
from contract.errors import HecktorError


def test_largest_first_into_the_first_folder_that_holds_it() -> None:
    """With a limit of 10, 7 opens a folder, 5 another, 3 fills the first, 5 the second, and 1 needs a third."""
    sizes = {"a": 3, "b": 7, "c": 5, "d": 1, "e": 5}
    assert wheels.split_into_folders(sizes, 10) == [["b", "a"], ["c", "e"], ["d"]]
    assert wheels.split_into_folders({}, 10) == []


def test_a_wheel_larger_than_a_transfer_is_an_error_that_names_it() -> None:
    with pytest.raises(HecktorError, match=r"big\.whl: found 2\.0 MiB"):
        wheels.split_into_folders({"big.whl": 2 * wheels.MIB, "small.whl": 1}, wheels.MIB)


def test_wheels_to_transfer() -> None:
    """Transfer everything of the lock that the other machine lacks, with checksums; never torch and numpy."""
    carried = wheels.parse_requirements(wheels.LOCK.read_text())
    assert {"simpleitk", "monai", "nnunetv2", "safetensors", "pydantic", "acvl-utils"} <= carried.keys()
    assert not {*wheels.PRESENT, "imagecodecs"} & carried.keys()
    assert all(name in lines and "--hash=sha256:" in lines for name, lines in carried.items())


def test_a_wheel_packed_smaller_has_the_same_files(tmp_path: Path) -> None:
    wheel, files = tmp_path / "a-1-py3-none-any.whl", {"a/__init__.py": b"x = 1\n" * 5000, "a-1.dist-info/RECORD": b""}
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    before = wheel.stat().st_size
    wheels.recompress(wheel)
    with zipfile.ZipFile(wheel) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files
    assert wheel.stat().st_size < before / 10
    assert list(tmp_path.iterdir()) == [wheel]


def test_missing_packages_are_one_line_that_lists_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "PRESENT", ("no-such-package", "pydantic"))
    with pytest.raises(HecktorError, match="found no package no-such-package, expected") as error:
        wheels.require_all()
    assert "--prepare" in error.value.message
