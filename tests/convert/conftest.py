"""Fixtures of a study folder and its conversion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from contract.editions import load_edition
from contract.errors import InputError
from contract.images.volumes import Volume, find_single_image, read_volume
from convert import ConvertedCase, ConvertRequest, convert_dicom
from tests.convert.studies import StudyFolder

INPUTS = load_edition().inputs


@dataclass(frozen=True)
class Converted:
    """A written case with its images."""

    case: ConvertedCase
    folder: Path

    def read_image(self, name: str) -> Volume:
        return read_volume(find_single_image(INPUTS[name].path_under(self.folder)))

    @property
    def found(self) -> list[str]:
        """Return the problems of the findings."""
        return [finding.found for finding in self.case.findings]

    def read_mask(self) -> Volume:
        return read_volume(self.folder / "ground_truth" / f"{self.folder.name}.mha")


Convert = Callable[..., Converted]


def refuse(convert: Convert, message: str) -> None:
    with pytest.raises(InputError, match=message):
        convert()


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    return StudyFolder(tmp_path / "dicom")


@pytest.fixture
def convert(study: StudyFolder, tmp_path: Path) -> Convert:
    """Convert `study` with the options of ConvertRequest."""

    def run(**options: Any) -> Converted:
        folder = tmp_path / "CHUM-001"
        return Converted(convert_dicom(ConvertRequest(study.root, folder, **options)), folder)

    return run
