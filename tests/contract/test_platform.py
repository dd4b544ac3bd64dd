"""Letters in names are composed, and entries of operating systems are recognised."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from contract import platform

COMPOSED, DECOMPOSED = "CH\N{LATIN CAPITAL LETTER U WITH DIAERESIS}-001", "CHU\N{COMBINING DIAERESIS}-001"


def test_letters_are_composed() -> None:
    assert COMPOSED != DECOMPOSED
    assert platform.normalise_unicode(DECOMPOSED) == platform.normalise_unicode(COMPOSED) == COMPOSED


@pytest.mark.parametrize("name", ["__MACOSX", "._A-1.nii.gz", ".DS_Store", "Thumbs.db", "desktop.ini"])
def test_entries_of_a_system(name: str) -> None:
    assert platform.is_system_name(name)
    assert platform.is_added_by_system(name)
    assert platform.is_below_system_name(PurePosixPath(name, "A-1.nii.gz"))


@pytest.mark.parametrize(("name", "is_hidden"), [("A-1.nii.gz", False), ("MACOSX", False), (".config", True)])
def test_entries_of_people(name: str, is_hidden: bool) -> None:
    assert platform.is_system_name(name) == is_hidden
    assert not platform.is_added_by_system(name)
