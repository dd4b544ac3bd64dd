"""DICOM files are recognised in a folder."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from pydicom import Dataset, dcmread, dcmwrite

from tests.convert.conftest import Convert, refuse
from tests.convert.studies import StudyFolder, make_ct_volume, make_pet_volume


def remove_preamble(path: Path, *, implicit: bool = True, little: bool = True) -> None:
    """Write only the data set, without preamble and file header."""
    dataset, content = Dataset(), io.BytesIO()
    dataset.update(dcmread(path))
    dcmwrite(content, dataset, implicit_vr=implicit, little_endian=little)
    path.write_bytes(content.getvalue())


@pytest.mark.parametrize("implicit", [True, False])
def test_files_without_a_preamble_are_read(study: StudyFolder, convert: Convert, implicit: bool) -> None:
    for path in (*study.add_ct(), *study.add_pet()):
        remove_preamble(path, implicit=implicit)
    converted = convert()
    np.testing.assert_array_equal(converted.read_image("ct").array, make_ct_volume().array)
    np.testing.assert_allclose(converted.read_image("pet").array, make_pet_volume().array, atol=3e-4)
    assert converted.case.ignored == ()


def test_one_slice_without_a_preamble_is_read(study: StudyFolder, convert: Convert) -> None:
    study.add_ct()
    remove_preamble(study.add_pet()[-1])
    assert convert().read_image("pet").geometry == make_pet_volume().geometry


def test_other_files_are_named(study: StudyFolder, convert: Convert) -> None:
    """Files called .dcm without DICOM data are a warning, others a line; files of operating systems are ignored."""
    paths = study.add_ct_and_pet()
    folder = paths[0].parent
    (folder / "notes.txt").write_text("8")
    (folder / "damaged.dcm").write_bytes(b"\x08\x00" + bytes(200))
    (folder / ".DS_Store").write_bytes(b"x")
    (folder / f"._{paths[0].name}").write_bytes(b"\0\5\x16\7")
    (study.root / "__MACOSX" / "CT").mkdir(parents=True)
    (study.root / "__MACOSX" / "CT" / paths[1].name).write_bytes(paths[1].read_bytes())
    case = convert().case
    assert case.ignored == ("2 files: not a DICOM object, or DICOMDIR (CT/damaged.dcm, CT/notes.txt)",)
    assert [finding.found for finding in case.findings] == ["found no DICOM data in 1 file (CT/damaged.dcm)"]


def test_a_folder_without_dicom_files_names_them(study: StudyFolder, convert: Convert) -> None:
    refuse(convert, "no such folder")
    study.root.mkdir()
    for number in range(7):
        (study.root / f"{number}.nii.gz").write_bytes(b"x")
    names = ", ".join(f"{number}.nii.gz" for number in range(5))
    refuse(convert, rf"found no DICOM file among 7 files \({names} and 2 more\)")
