"""A case of HECKTOR 2026, its package, and a network without time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from algorithm.deadline import NoPassFitsError
from tests.algorithm.combined.four_answers import RECORD
from tests.conftest import CaseFolder


@pytest.fixture
def case(case_folder: CaseFolder) -> CaseFolder:
    """Write the small case with one hot spot of 20 mm, the primary."""
    case_folder.ehr = dict(RECORD)
    return case_folder.write()


@pytest.fixture
def package(combined_package: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(combined_package, tmp_path / "package"))


@pytest.fixture
def network_out_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no pass of the network fit, so that the PET threshold segments."""

    def fail(_: object) -> None:
        raise NoPassFitsError("no time")

    monkeypatch.setattr("algorithm.network.passes.Passes.make_first", fail)
