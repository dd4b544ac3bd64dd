"""DICOM files are recognised in a folder."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from pydicom import Dataset, dcmread, dcmwrite

from tests.convert.conftest import Convert, refuse
from tests.convert.studies import StudyFolder, compress, make_ct_volume, make_pet_volume


def remove_preamble(path: Path, *, implicit: bool) -> None:
    """Write only the data set, without preamble and file header."""
    dataset, content = Dataset(), io.BytesIO()
    dataset.update(dcmread(path))
    dcmwrite(content, dataset, implicit_vr=implicit, little_endian=True)
    path.write_bytes(content.getvalue())


@pytest.mark.parametrize(("implicit", "files"), [(True, slice(None)), (False, slice(None)), (True, slice(-1, None))])
def test_files_without_a_preamble_are_read(study: StudyFolder, convert: Convert, implicit: bool, files: slice) -> None:
    """All files, or only the last slice."""
    for path in [*study.add_ct(), *study.add_pet()][files]:
        remove_preamble(path, implicit=implicit)
    converted = convert()
    np.testing.assert_array_equal(converted.read_image("ct").array, make_ct_volume().array)
    np.testing.assert_allclose(converted.read_image("pet").array, make_pet_volume().array, atol=3e-4)
    assert converted.case.ignored == ()


def test_other_files_and_copies_are_named(study: StudyFolder, convert: Convert) -> None:
    """Files called .dcm without DICOM data are a warning, others a line; files of operating systems are ignored."""
    paths = study.add_ct_and_pet()
    folder = paths[0].parent
    (study.root / "notes.txt").write_text("8")
    (study.root / "empty").touch()
    (study.root / "copy.dcm").write_bytes(paths[0].read_bytes())
    directory = dcmread(paths[0])
    directory.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.1.3.10"
    directory.save_as(study.root / "DICOMDIR")
    (folder / "damaged.dcm").write_bytes(b"\x08\x00" + bytes(200))
    (folder / ".DS_Store").write_bytes(b"x")
    (folder / f"._{paths[0].name}").write_bytes(b"\0\5\x16\7")
    (study.root / "__MACOSX" / "CT").mkdir(parents=True)
    (study.root / "__MACOSX" / "CT" / paths[1].name).write_bytes(paths[1].read_bytes())
    converted = convert()
    assert converted.case.ignored == (
        "4 files: not a DICOM object, or DICOMDIR (CT/damaged.dcm, DICOMDIR, empty, notes.txt)",
        "1 file: further copies of the same object",
    )
    assert converted.found == ["found no DICOM data in 1 file (CT/damaged.dcm)"]


def test_a_folder_without_dicom_files_names_them(study: StudyFolder, convert: Convert) -> None:
    refuse(convert, "no such folder")
    study.root.mkdir()
    for number in range(7):
        (study.root / f"{number}.nii.gz").write_bytes(b"x")
    names = ", ".join(f"{number}.nii.gz" for number in range(5))
    refuse(convert, rf"found no DICOM file among 7 files \({names} and 2 more\)")


@pytest.mark.parametrize(
    ("stop", "is_compressed", "message"),
    [
        (-100, False, r"CT/IM0004.dcm: cannot be read .*bytes of pixel data is less than expected"),
        (-100, True, r"CT/IM0004.dcm: found no PixelData \(7FE0,0010\)"),
        (200, False, r"CT/IM0004.dcm: found no SOPClassUID \(0008,0016\)"),
    ],
)
def test_nothing_is_written_of_a_truncated_file(
    study: StudyFolder, convert: Convert, stop: int, is_compressed: bool, message: str
) -> None:
    paths = study.add_ct_and_pet()
    if is_compressed:
        compress(paths, "JPEG2000Lossless")
    paths[3].write_bytes(paths[3].read_bytes()[:stop])
    refuse(convert, message)
    assert [path.name for path in study.root.parent.iterdir()] == ["dicom"]
