"""`hecktor convert seg` writes a mask as a DICOM segmentation that a validator accepts."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydicom import dcmread

from contract.errors import HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_mask
from convert.dicom import segmentation as module
from hecktor import cli
from tests.convert.studies import CT_GRID, StudyFolder, make_ct_volume

REQUIRED = "HECKTOR_REQUIRE_DICOM_VALIDATOR" in os.environ
needs_highdicom = pytest.mark.skipif(
    importlib.util.find_spec("highdicom") is None and not REQUIRED, reason="highdicom is not installed"
)
needs_validator = pytest.mark.skipif(
    shutil.which("dciodvfy") is None and not REQUIRED, reason="dciodvfy (dicom3tools) is not installed"
)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
TILTED = (1.0, 0.0, 0.0, 0.0, 0.8, -0.6, 0.0, 0.6, 0.8)


def draw_mask(*values: int) -> np.ndarray:
    """Draw one box for each label, on different slices."""
    mask = np.zeros(CT_GRID.array_shape, np.uint8)
    for place, value in enumerate(values):
        mask[2 * place : 2 * place + 2, 2:5, 3 + place : 7] = value
    return mask


def convert(study: StudyFolder, mask: np.ndarray, grid: Geometry = CT_GRID, *options: str) -> tuple[int, Path]:
    path, output = study.root.parent / "mask.nii.gz", study.root.parent / "seg.dcm"
    write_mask(path, mask, grid)
    words = ["seg", "--mask", str(path), "--input", str(study.root), "--output", str(output)]
    return cli.main(["convert", *words, *options]), output


def read_mask(path: Path, grid: Geometry) -> np.ndarray:
    """Read the labels by the position of each frame, in any order of frames."""
    dataset = dcmread(path)
    names = {"GTVp": 1, "GTVn": 2}
    label_of = {item.SegmentNumber: names[item.SegmentLabel] for item in dataset.SegmentSequence}
    mask = np.zeros(grid.array_shape, np.uint8)
    to_index = grid.physical_to_index_matrix()
    for pixels, frame in zip(dataset.pixel_array, dataset.PerFrameFunctionalGroupsSequence, strict=True):
        position = np.array(frame.PlanePositionSequence[0].ImagePositionPatient, dtype=float)
        x, y, z = to_index[:3, :3] @ position + to_index[:3, 3]
        assert (x, y) == pytest.approx((0, 0), abs=1e-3)
        number = frame.SegmentIdentificationSequence[0].ReferencedSegmentNumber
        mask[round(z)][pixels > 0] = label_of[number]
    return mask


@needs_highdicom
@pytest.mark.parametrize("direction", [CT_GRID.direction, TILTED], ids=["upright", "tilted"])
def test_voxels_keep_their_places(
    study: StudyFolder, capsys: pytest.CaptureFixture[str], direction: tuple[float, ...]
) -> None:
    """The study has another CT, on another grid; the segmentation belongs to the patient and the study."""
    grid = Geometry(CT_GRID.size, CT_GRID.spacing_mm, CT_GRID.origin_mm, direction)
    study.add_ct(make_ct_volume(Geometry((8, 8, 6), (3.0, 3.0, 3.0), (0.0, 0.0, 0.0))), description="other")
    paths = study.add_ct(Volume(make_ct_volume().array, grid))
    study.add_pet()
    mask = draw_mask(2, 1)
    status, output = convert(study, mask, grid)
    assert status == 0
    np.testing.assert_array_equal(read_mask(output, grid), mask)
    dataset, source = dcmread(output), dcmread(paths[0])
    assert (dataset.Modality, dataset.SegmentationType) == ("SEG", "BINARY")
    for keyword in ("PatientID", "StudyInstanceUID", "FrameOfReferenceUID"):
        assert dataset[keyword] == source[keyword]
    # Attributes that anonymised files lack are empty; the slice thickness is the distance of the slices.
    (measures,) = dataset.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence
    assert (dataset.PatientName, dataset.AccessionNumber, measures.SliceThickness) == ("", "", 4.0)
    (series,) = dataset.ReferencedSeriesSequence
    assert series.SeriesInstanceUID == source.SeriesInstanceUID
    assert "segmentation of the CT 'CT WB' (9 slices" in capsys.readouterr().out


@needs_highdicom
def test_the_segments_are_coded(study: StudyFolder) -> None:
    """Labels that the mask lacks have no segment; the numbers of segments are consecutive."""
    study.add_ct_and_pet()
    _, output = convert(study, draw_mask(2), CT_GRID, "--algorithm", "my package")
    (segment,) = dcmread(output).SegmentSequence
    assert (segment.SegmentNumber, segment.SegmentLabel) == (1, "GTVn")
    assert segment.SegmentedPropertyTypeCodeSequence[0].CodeMeaning == "Neoplasm, Secondary"
    assert segment.SegmentAlgorithmType == "AUTOMATIC"
    assert segment.SegmentationAlgorithmIdentificationSequence[0].AlgorithmName == "my package"
    _, output = convert(study, draw_mask(1, 2), CT_GRID, "--manual")
    types = [(item.SegmentLabel, item.SegmentAlgorithmType) for item in dcmread(output).SegmentSequence]
    assert types == [("GTVp", "MANUAL"), ("GTVn", "MANUAL")]


@needs_highdicom
@needs_validator
@pytest.mark.parametrize("options", [(), ("--manual",)])
def test_a_validator_accepts_it(study: StudyFolder, options: tuple[str, ...]) -> None:
    study.add_ct_and_pet()
    _, output = convert(study, draw_mask(1, 2), CT_GRID, *options)
    done = subprocess.run(["dciodvfy", str(output)], capture_output=True, text=True, check=False)
    assert [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("Error")] == []
    assert done.returncode == 0


def refuse(study: StudyFolder, mask: np.ndarray, grid: Geometry = CT_GRID) -> str:
    options: Any = (study.root.parent / "mask.nii.gz", study.root, study.root.parent / "seg.dcm")
    write_mask(options[0], mask, grid)
    with pytest.raises(HecktorError) as error:
        module.write_segmentation(module.SegmentationRequest(*options))
    assert not options[2].exists()
    return str(error.value)


@needs_highdicom
def test_masks_that_cannot_be_written(study: StudyFolder) -> None:
    study.add_ct()
    assert refuse(study, draw_mask()).startswith("mask.nii.gz: an empty mask, expected a lesion: ")
    moved = Geometry(CT_GRID.size, CT_GRID.spacing_mm, (1.0, 2.0, 3.0))
    message = refuse(study, draw_mask(1), moved)
    assert message.startswith("--mask: 'CT WB' (9 slices, UID ")
    assert "origin_mm 1 2 3 against" in message.replace("(", "").replace(",", "").replace(")", "")
    assert message.endswith("expected the grid of a CT of --input")


def test_without_highdicom(study: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    study.add_ct()
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        module.importlib.util, "find_spec", lambda name: None if name == "highdicom" else find_spec(name)
    )
    expected = "writing DICOM: highdicom is not installed, expected the extra `dicom`: pip install 'hecktor[dicom]'"
    assert refuse(study, draw_mask(1)) == expected
