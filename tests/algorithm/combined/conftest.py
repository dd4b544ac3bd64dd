"""A case of HECKTOR 2026, its package, and a network without time."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from algorithm.deadline import NoPassFitsError
from tests.algorithm.combined.answered import RECORD
from tests.conftest import CaseFolder


@pytest.fixture
def case(case_folder: CaseFolder) -> CaseFolder:
    """The small case with one hot spot of 20 mm, the primary."""
    case_folder.ehr = dict(RECORD)
    return case_folder.write()


@pytest.fixture
def package(combined_package: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(combined_package, tmp_path / "package"))


@pytest.fixture
def by_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pass of the network fits: the PET threshold segments."""

    def none(_: object) -> None:
        raise NoPassFitsError("no time")

    monkeypatch.setattr("algorithm.network.passes.Passes.make_first", none)


@pytest.fixture(autouse=True)
def _code_is_forgotten() -> Iterator[None]:
    """The entrant's module of a test is forgotten after it."""
    yield
    sys.modules.pop("my_code", None)
