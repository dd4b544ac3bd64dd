"""Inputs at their declared paths, or at those that `inputs.json` names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from algorithm.case.inputs import Notices, find_input
from tests.algorithm.edition import EDITION_2026

CT, EHR = EDITION_2026.inputs["ct"], EDITION_2026.inputs["ehr"]


def entry(slug: str, relative_path: str) -> dict[str, Any]:
    """As in the organisers' sample: without `pk` and `super_kind`."""
    return {"socket": {"slug": slug, "relative_path": relative_path, "is_image_kind": True}, "image": None}


def listing(root: Path, *entries: Any) -> None:
    (root / "inputs.json").write_text(json.dumps(entries))


def image(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "a.mha").touch()
    return folder


def test_the_declared_path_comes_first(tmp_path: Path) -> None:
    """An input that is where it should be needs no `inputs.json`, however unusable that file is."""
    (tmp_path / "inputs.json").write_text("[")
    declared, notices = image(tmp_path / "images" / "ct"), Notices()
    assert (find_input(tmp_path, CT, notices), notices.findings) == (declared, [])


def test_another_path_is_found_by_the_slug(tmp_path: Path) -> None:
    other, notices = image(tmp_path / "images" / "ct-scan"), Notices()
    listing(tmp_path, entry("pet-image", "images/pet"), entry("ct-image", "images/ct-scan"))
    assert find_input(tmp_path, CT, notices) == other
    (notice,) = notices.findings
    assert notice.found == "'images/ct-scan' as path of ct-image"
    assert notice.action == "the input is read from images/ct-scan"


def test_a_path_may_name_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text("{}")
    listing(tmp_path, entry("electronic-health-record", "record.json"))
    assert find_input(tmp_path, EHR, Notices()) == tmp_path / "record.json"
    scan = image(tmp_path / "images" / "scan") / "a.mha"
    listing(tmp_path, entry("ct-image", "images/scan/a.mha"))
    assert find_input(tmp_path, CT, Notices()) == scan


@pytest.mark.parametrize("path", ["../outside", "images/../../outside", "/etc", "link"])
def test_a_path_that_leads_out_is_never_used(tmp_path: Path, path: str) -> None:
    root, notices = tmp_path / "input", Notices()
    root.mkdir()
    image(tmp_path / "outside")
    (root / "link").symlink_to(tmp_path / "outside")
    listing(root, entry("ct-image", path))
    assert find_input(root, CT, notices) == root / "images" / "ct"
    assert [notice.found for notice in notices.findings] == [f"{path!r} of ct-image leads out of the input folder"]


@pytest.mark.parametrize("path", ["nowhere", "circle", "a\0b", "\ud800", "a" * 5000])
def test_a_path_to_nothing_is_left_out(tmp_path: Path, path: str) -> None:
    """A circle of links, a text that can be no path, and one that is too long end no case."""
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    other, notices = image(tmp_path / "images" / "ct-scan"), Notices()
    listing(tmp_path, entry("ct-image", path), entry("ct-image", "images/ct-scan"))
    assert find_input(tmp_path, CT, notices) == other
    assert len(notices.findings) == 1


@pytest.mark.parametrize("content", ["", "{}", "[3]", '[{"socket": {"relative_path": "images/a"}}]'])
def test_an_unusable_listing_is_ignored(tmp_path: Path, content: str) -> None:
    (tmp_path / "inputs.json").write_text(content)
    notices = Notices()
    assert find_input(tmp_path, CT, notices) == tmp_path / "images" / "ct"
    assert [notice.action for notice in notices.findings] == ["ignored"]


def test_no_listing_and_no_input(tmp_path: Path) -> None:
    notices = Notices()
    assert (find_input(tmp_path, CT, notices), notices.findings) == (tmp_path / "images" / "ct", [])
