"""Tests of the options of packages."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from baseline.package.cli import main, parse_package_output
from contract.errors import HecktorError


@pytest.mark.parametrize("text", ["m.tgz", "m.tar", "M.ZIP"])
def test_a_package_is_a_folder_or_tar_gz(text: str) -> None:
    """Other archive names are refused, because they would otherwise name a folder."""
    assert parse_package_output("out/m.tar.gz") == Path("out/m.tar.gz")
    assert parse_package_output("m.v2") == Path("m.v2")
    with pytest.raises(argparse.ArgumentTypeError, match=rf"^found '{text}'"):
        parse_package_output(text)


def test_absent_heads_name_the_heads_of_reference_masks(tmp_path: Path) -> None:
    """`train heads --masks reference` writes them to WORK/reference_masks/heads.json; nothing of nnU-Net is read."""
    (tmp_path / "results").mkdir()
    (tmp_path / "reference_masks").mkdir()
    written = tmp_path / "reference_masks" / "heads.json"
    written.touch()
    options = ["--nnunet", str(tmp_path / "results"), "--heads", str(tmp_path / "heads.json"), "--output", "out"]
    with pytest.raises(HecktorError, match=rf"^--heads: no such file: .*, expected {written}, fitted on the reference"):
        main(options)
