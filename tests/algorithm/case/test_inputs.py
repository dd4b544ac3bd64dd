"""Inputs at their declared paths, or at the paths in `inputs.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from algorithm.case.inputs import Notices, find_input
from tests.algorithm.edition import EDITION_2026

CT, EHR = EDITION_2026.inputs["ct"], EDITION_2026.inputs["ehr"]


def make_entry(slug: str, relative_path: str) -> dict[str, Any]:
    """Make an entry as in the organisers' sample: without `pk` and `super_kind`."""
    return {"socket": {"slug": slug, "relative_path": relative_path, "is_image_kind": True}, "image": None}


def write_listing(root: Path, *entries: Any) -> None:
    (root / "inputs.json").write_text(json.dumps(entries))


def write_image(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "a.mha").touch()
    return folder


def test_the_declared_path_comes_first(tmp_path: Path) -> None:
    """Even an unusable `inputs.json` does not matter if the input is at its declared path."""
    (tmp_path / "inputs.json").write_text("[")
    declared, notices = write_image(tmp_path / "images" / "ct"), Notices()
    assert (find_input(tmp_path, CT, notices), notices.findings) == (declared, [])


def test_another_path_is_found_by_the_slug(tmp_path: Path) -> None:
    folder, notices = write_image(tmp_path / "images" / "ct-scan"), Notices()
    write_listing(tmp_path, make_entry("pet-image", "images/pet"), make_entry("ct-image", "images/ct-scan"))
    assert find_input(tmp_path, CT, notices) == folder
    (notice,) = notices.findings
    assert notice.found == "'images/ct-scan' as path of ct-image"
    assert notice.action == "the input is read from images/ct-scan"


def test_a_path_may_name_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text("{}")
    write_listing(tmp_path, make_entry("electronic-health-record", "record.json"))
    assert find_input(tmp_path, EHR, Notices()) == tmp_path / "record.json"
    scan = write_image(tmp_path / "images" / "scan") / "a.mha"
    write_listing(tmp_path, make_entry("ct-image", "images/scan/a.mha"))
    assert find_input(tmp_path, CT, Notices()) == scan


@pytest.mark.parametrize("path", ["../outside", "images/../../outside", "/etc", "link"])
def test_a_path_that_leads_out_is_never_used(tmp_path: Path, path: str) -> None:
    root, notices = tmp_path / "input", Notices()
    root.mkdir()
    write_image(tmp_path / "outside")
    (root / "link").symlink_to(tmp_path / "outside")
    write_listing(root, make_entry("ct-image", path))
    assert find_input(root, CT, notices) == root / "images" / "ct"
    assert [notice.found for notice in notices.findings] == [f"{path!r} of ct-image leads out of the input folder"]


@pytest.mark.parametrize("path", ["circle", "a\0b", "\ud800", "a" * 5000])
def test_a_path_to_nothing_is_left_out(tmp_path: Path, path: str) -> None:
    """Links in a circle, a text that cannot be a path, and a path that is too long end no case."""
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    folder, notices = write_image(tmp_path / "images" / "ct-scan"), Notices()
    write_listing(tmp_path, make_entry("ct-image", path), make_entry("ct-image", "images/ct-scan"))
    assert find_input(tmp_path, CT, notices) == folder
    assert len(notices.findings) == 1


@pytest.mark.parametrize("content", ["", "{}", '[{"socket": {"relative_path": "images/a"}}]'])
def test_an_unusable_listing_is_ignored(tmp_path: Path, content: str) -> None:
    (tmp_path / "inputs.json").write_text(content)
    notices = Notices()
    assert find_input(tmp_path, CT, notices) == tmp_path / "images" / "ct"
    assert [notice.action for notice in notices.findings] == ["ignored"]


def test_no_listing_and_no_input(tmp_path: Path) -> None:
    notices = Notices()
    assert (find_input(tmp_path, CT, notices), notices.findings) == (tmp_path / "images" / "ct", [])
