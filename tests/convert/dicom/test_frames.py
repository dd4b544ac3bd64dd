"""Enhanced multi-frame PET.

370 MBq at 13:00 and 75 kg, as in test_suv.py: 1 Bq/ml at 14:00 is an SUV of 2.96075e-4. Stored values are 0 to 1,000.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence

from contract.images.geometry import Geometry
from convert.dicom.files import read_folder
from tests.convert.conftest import Convert, refuse
from tests.convert.studies import HOUR_FACTOR, PET_GRID, StudyFolder, compress, ct_volume, pet_volume, real_world

BECQUEREL = real_world("Bq/ml", 2.5)
BY_WEIGHT = real_world("g/ml{SUVbw}", 0.01)


def stored(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1001, PET_GRID.array_shape).astype(np.int16)


def test_frames_become_slices_in_order(study: StudyFolder, convert: Convert) -> None:
    """SUV = stored x 2.5 Bq/ml x the factor of one hour."""
    study.ct()
    study.enhanced_pet(stored(), Sequence([BECQUEREL]))
    converted = convert()
    pet = converted.image("pet")
    assert pet.geometry == PET_GRID
    np.testing.assert_allclose(pet.array, stored() * 2.5 * HOUR_FACTOR, rtol=1e-6)
    assert converted.case.suv_derivation == (
        "Bq/ml, dose 370 MBq, weight 75 kg, 60.0 min from injection to DecayCorrectionDateTime (0018,9701) (START), "
        "half-life 6586.2 s, dose at the scan 253.3 MBq"
    )


@pytest.mark.parametrize(
    ("mappings", "factor"),
    [
        ([BECQUEREL, BY_WEIGHT], 0.01),
        ([BECQUEREL, real_world("{SUVbw}g/ml", 0.02)], 0.02),
        # 75 kg and 1.80 m of a man: 1.10 x 75 - 128 x (75 / 180)^2 = 60.2778 kg.
        ([BECQUEREL, real_world("g/ml{SUVlbm(James128)}", 0.01)], 0.01 * 75 / 60.277778),
        # Du Bois: 71.84 x 75^0.425 x 180^0.725 = 71.84 x 6.264711 x 43.159119 = 19424.06 cm2.
        ([real_world("cm2/ml{SUVbsa}", 0.01)], 0.01 * 75_000 / 19424.056),
        # The density g/ml is no SUV.
        ([real_world("g/ml", 0.01), BECQUEREL], 2.5 * HOUR_FACTOR),
    ],
    ids=["by weight before Bq/ml", "older code", "lean mass", "surface", "density"],
)
def test_the_best_mapping_counts(study: StudyFolder, convert: Convert, mappings: list[Dataset], factor: float) -> None:
    study.ct()
    study.enhanced_pet(stored(), Sequence(mappings), PatientSize="1.80")
    np.testing.assert_allclose(convert().image("pet").array, stored() * factor, rtol=2e-6)


def test_a_frame_overrides_the_shared_mapping(study: StudyFolder, convert: Convert) -> None:
    """Slice 3 has a slope of its own, half of that of the others."""

    def edit(frame: Dataset, index: int) -> None:
        if index == 3:
            frame.RealWorldValueMappingSequence = Sequence([real_world("g/ml{SUVbw}", 0.005)])

    study.ct()
    study.enhanced_pet(stored(), Sequence([BY_WEIGHT]), edit=edit)
    expected = stored() * 0.01
    expected[3] /= 2
    np.testing.assert_allclose(convert().image("pet").array, expected, rtol=1e-6)


def test_rescaling_with_a_type_replaces_a_mapping(study: StudyFolder, convert: Convert) -> None:
    def edit(frame: Dataset, index: int) -> None:
        item = Dataset()
        item.RescaleSlope, item.RescaleIntercept, item.RescaleType = "3", "0", "BQML"
        frame.PixelValueTransformationSequence = Sequence([item])

    study.ct()
    study.enhanced_pet(stored(), Sequence([]), edit=edit)
    np.testing.assert_allclose(convert().image("pet").array, stored() * 3 * HOUR_FACTOR, rtol=1e-6)


def frame_times(**times: Any) -> Any:
    def edit(frame: Dataset, index: int) -> None:
        for keyword, value in times.items():
            setattr(frame.FrameContentSequence[0], keyword, value)

    return edit


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ({"FrameReferenceDateTime": "20250301141000"}, 4200),
        # 603 s have their average count after ln(x / (1 - e^-x)) / L with x = L x 603 = 0.0634611: 299.906 s.
        ({"FrameAcquisitionDateTime": "20250301140000", "FrameAcquisitionDuration": 603_000.0}, 3899.906),
    ],
    ids=["reference", "acquisition"],
)
def test_without_decay_correction_the_time_of_the_frame_counts(
    study: StudyFolder, convert: Convert, times: dict[str, Any], seconds: float
) -> None:
    study.ct()
    changes = {"DecayCorrected": "NO", "DecayCorrectionDateTime": None}
    study.enhanced_pet(stored(), Sequence([BECQUEREL]), edit=frame_times(**times), **changes)
    factor = 2.5 * 75_000 / (370e6 * math.exp(-math.log(2) * seconds / 6586.2))
    np.testing.assert_allclose(convert().image("pet").array, stored() * factor, rtol=2e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"DecayCorrectionDateTime": None},
            r"frame 12: found no DecayCorrectionDateTime \(0018,9701\)",
        ),
        ({"AttenuationCorrected": "NO"}, "no attenuation correction"),
        ({"mappings": []}, r"found no Units \(0054,1001\)"),
        (
            {"NumberOfFrames": 11},
            r"found NumberOfFrames \(0028,0008\) 11 and 12 items in PerFrame",
        ),
        (
            {"PerFrameFunctionalGroupsSequence": None},
            r"PT/IM0010.dcm: found no PerFrameFunctionalGroupsSequence \(5200,9230\)",
        ),
        (
            {"mappings": [real_world("g/ml{SUVlbm}", 0.01)]},
            r"found SUVType \(0054,1006\) LBM",
        ),
    ],
)
def test_what_an_enhanced_pet_lacks_is_named(
    study: StudyFolder, convert: Convert, options: dict[str, Any], message: str
) -> None:
    study.ct()
    mappings = options.pop("mappings", [BECQUEREL]) if "mappings" in options else [BECQUEREL]
    study.enhanced_pet(stored(), Sequence(mappings), **options)
    refuse(convert, message)


def test_compressed_frames(study: StudyFolder, convert: Convert) -> None:
    study.ct()
    compress([study.enhanced_pet(stored(), Sequence([BY_WEIGHT]))], "JPEG2000Lossless")
    np.testing.assert_allclose(convert().image("pet").array, stored() * 0.01, rtol=1e-6)


def test_truncated_frames(study: StudyFolder, convert: Convert) -> None:
    study.ct()
    path = study.enhanced_pet(stored(), Sequence([BY_WEIGHT]))
    path.write_bytes(path.read_bytes()[:-200])
    refuse(convert, r"PT/IM0010.dcm frame 12: cannot be read \(.*\)")


def test_two_time_points_are_refused(study: StudyFolder, convert: Convert) -> None:
    """Twice the same grid in one file."""
    study.ct()
    path = study.enhanced_pet(stored(), Sequence([BECQUEREL]))
    dataset = dcmread(path)
    frames = dataset.PerFrameFunctionalGroupsSequence
    dataset.PerFrameFunctionalGroupsSequence = Sequence([*frames, *frames])
    dataset.NumberOfFrames, dataset.PixelData = 24, dataset.PixelData * 2
    dataset.save_as(path)
    refuse(convert, "frame 24: found the position of PT/IM0010.dcm frame 12 .*two acquisitions or time points")


def test_single_slices_are_chosen_before_a_converted_copy(study: StudyFolder, convert: Convert) -> None:
    study.ct()
    study.enhanced_pet(stored(), Sequence([BECQUEREL]), SeriesDescription="copy")
    study.pet()
    converted = convert()
    np.testing.assert_allclose(converted.image("pet").array, pet_volume().array, atol=15 / 32767)
    assert any("'copy' (12 slices" in line and "single-frame images" in line for line in converted.case.ignored)


def test_an_ignored_file_of_frames_counts_once(study: StudyFolder, convert: Convert) -> None:
    study.ct_and_pet()
    study.enhanced_pet(stored(), Sequence([BECQUEREL]), ImageType=["DERIVED", "SECONDARY", "MIP", "NONE"])
    assert "'series without number' (PT, 1 file): projection" in convert().case.ignored


def test_enhanced_ct(study: StudyFolder, convert: Convert) -> None:
    """HU = stored - 1024, from the groups of the frames."""
    study.pet()
    hu = ct_volume().array.astype(np.int16)
    grid: Geometry = ct_volume().geometry

    def edit(frame: Dataset, index: int) -> None:
        item = Dataset()
        item.RescaleSlope, item.RescaleIntercept, item.RescaleType = "1", "-1024", "HU"
        frame.PixelValueTransformationSequence = Sequence([item])

    study.enhanced_pet(
        (hu + 1024).astype(np.int16),
        Sequence([]),
        geometry=grid,
        edit=edit,
        Modality="CT",
        SOPClassUID="1.2.840.10008.5.1.4.1.1.2.1",
    )
    ct = convert().image("ct")
    assert ct.geometry == grid
    np.testing.assert_array_equal(ct.array, hu)


def test_other_images_stay_one_header_a_file(study: StudyFolder) -> None:
    study.pet()
    assert [header.frame for header in read_folder(study.root).headers] == [None] * 12
