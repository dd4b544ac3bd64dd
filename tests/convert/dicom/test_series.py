"""Series are chosen for the case, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydicom import dcmread
from pydicom.uid import generate_uid

from contract.errors import InputError
from contract.images.geometry import Geometry
from tests.convert.conftest import Convert, refuse
from tests.convert.studies import CT_GRID, PET_GRID, StudyFolder, make_ct_volume, make_pet_volume

# The lower third of the PET; the CT of the other tests covers all of it.
SHORT = Geometry((20, 16, 4), (2.0, 3.0, 4.0), (-19.0, -22.5, 100.0))
FINE = Geometry((20, 16, 17), (2.0, 3.0, 2.0), (-19.0, -22.5, 100.0))
SAGITTAL = Geometry(
    (12, 12, 10), (4.0, 3.0, 4.0), (20.0, -22.0, 130.0), (0.0, 0.0, -1.0, 1.0, 0.0, 0.0, 0.0, -1.0, 0.0)
)


def list_reasons(converted: Any) -> list[str]:
    """Return the reasons for ignored series, without UIDs."""
    return [line.split(", UID")[0] + ")" + line.partition(")")[2] for line in converted.case.ignored]


@pytest.mark.parametrize("changes", [{"CorrectedImage": ["DECY"]}, {"CorrectedImage": None}])
def test_pet_without_attenuation_correction_is_not_chosen(
    study: StudyFolder, convert: Convert, changes: dict[str, Any]
) -> None:
    study.add_ct()
    study.add_pet(make_pet_volume(seed=5), description="PET_NAC", **changes)
    study.add_pet(make_pet_volume(seed=1))
    converted = convert()
    assert converted.read_image("pet").array.max() == pytest.approx(make_pet_volume(seed=1).array.max())
    assert list_reasons(converted) == ["PET 'PET_NAC' (12 slices): no attenuation correction"]


def test_only_a_pet_without_attenuation_correction(study: StudyFolder, convert: Convert) -> None:
    study.add_ct()
    study.add_pet(CorrectedImage=["DECY"])
    refuse(convert, r"found only PET 'PET AC' .*: no attenuation correction")


def test_ct_with_the_largest_overlap_is_chosen(study: StudyFolder, convert: Convert) -> None:
    study.add_ct(make_ct_volume(SHORT), description="CT thin neck")
    study.add_ct_and_pet()
    converted = convert()
    assert converted.read_image("ct").geometry == CT_GRID
    assert list_reasons(converted) == [
        "CT 'CT thin neck' (4 slices): 'CT WB' was chosen (largest overlap with the PET)"
    ]


def test_ct_with_more_slices_is_chosen(study: StudyFolder, convert: Convert) -> None:
    """Slices of 2 mm and of 4 mm cover the PET alike, within a tenth."""
    study.add_ct(description="4 mm")
    fine = Geometry((20, 16, 18), (2.0, 3.0, 2.0), (-19.0, -22.5, 99.0))
    study.add_ct(make_ct_volume(fine), description="2 mm")
    study.add_pet()
    converted = convert()
    assert converted.read_image("ct").geometry == fine
    assert list_reasons(converted) == ["CT '4 mm' (9 slices): '2 mm' was chosen (most slices)"]


def test_ct_in_the_frame_of_the_pet_is_chosen(study: StudyFolder, convert: Convert) -> None:
    study.add_ct(make_ct_volume(FINE), description="CT of another day", FrameOfReferenceUID=generate_uid())
    study.add_ct_and_pet()
    converted = convert()
    assert converted.read_image("ct").geometry == CT_GRID
    assert "(frame of reference of the PET)" in converted.case.ignored[0]


def test_axial_pet_is_chosen(study: StudyFolder, convert: Convert) -> None:
    study.add_ct()
    study.add_pet(make_pet_volume(SAGITTAL), description="sagittal")
    study.add_pet()
    converted = convert()
    assert converted.read_image("pet").geometry == PET_GRID
    assert list_reasons(converted) == ["PET 'sagittal' (10 slices): 'PET AC' was chosen (axial slices)"]


def test_two_series_alike_need_an_option(study: StudyFolder, convert: Convert) -> None:
    study.add_ct(description="CT soft")
    study.add_ct(make_ct_volume(seed=3), description="CT bone")
    study.add_pet()
    with pytest.raises(InputError) as stop:
        convert()
    assert "found 2 equally suitable CT series: 'CT soft' (9 slices, UID " in stop.value.found
    assert stop.value.expected == "one; choose by --ct-series"


@pytest.mark.parametrize("wanted", ["CT bone", "ct BONE", "bone", "UID"])
def test_ct_by_option(study: StudyFolder, convert: Convert, wanted: str) -> None:
    study.add_ct(description="CT soft")
    paths = study.add_ct(make_ct_volume(seed=3), description="CT bone")
    study.add_pet()
    uid = str(dcmread(paths[0]).SeriesInstanceUID)
    converted = convert(ct_series=uid if wanted == "UID" else wanted)
    assert (converted.read_image("ct").array == make_ct_volume(seed=3).array).all()
    assert list_reasons(converted) == ["CT 'CT soft' (9 slices): not chosen by --ct-series"]


def test_pet_by_option(study: StudyFolder, convert: Convert) -> None:
    study.add_ct()
    study.add_pet(description="PET OSEM")
    study.add_pet(make_pet_volume(seed=5), description="PET PSF")
    refuse(convert, "found 2 equally suitable PET series")
    with pytest.raises(InputError, match=r"--pet-series: found 'PET'"):
        convert(pet_series="PET")
    converted = convert(pet_series="psf")
    assert converted.read_image("pet").array.max() == pytest.approx(make_pet_volume(seed=5).array.max())


def test_different_frames_of_reference(study: StudyFolder, convert: Convert) -> None:
    study.add_ct(FrameOfReferenceUID=generate_uid())
    study.add_pet()
    refuse(convert, r"FrameOfReferenceUID .* differ")
    findings = convert(ct_series="CT WB").case.findings
    assert [finding.action for finding in findings] == ["assumed to be aligned because of --ct-series"]


def test_absent_frame_of_reference_is_a_warning(study: StudyFolder, convert: Convert) -> None:
    study.add_ct(FrameOfReferenceUID=None)
    study.add_pet()
    assert [finding.action for finding in convert().case.findings] == ["assumed to be aligned"]


@pytest.mark.parametrize(("present", "absent"), [("ct", "PET"), ("pet", "CT")])
def test_a_study_without_a_modality(study: StudyFolder, convert: Convert, present: str, absent: str) -> None:
    getattr(study, f"add_{present}")()
    refuse(convert, f"input folder: found no {absent} series")


def test_images_that_are_no_volume_are_ignored(study: StudyFolder, convert: Convert) -> None:
    study.add_ct_and_pet()
    study.add_ct(make_ct_volume(SHORT), description="Topogram", ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"])
    study.add_pet(description="MIP", ImageType=["DERIVED", "SECONDARY", "PROJECTION IMAGE"])
    study.add_ct(make_ct_volume(SHORT), description="Fused", SOPClassUID="1.2.840.10008.5.1.4.1.1.7")
    study.add_ct(make_ct_volume(SHORT), description="Colour", SamplesPerPixel=3)
    study.add_ct(make_ct_volume(SHORT), description="T1", Modality="MR")
    study.add_ct(description="Z map", RescaleType="Z_EFF")
    three = Geometry((20, 16, 3), (2.0, 3.0, 4.0), CT_GRID.origin_mm)
    study.add_ct(make_ct_volume(three), description="Monitoring")
    assert sorted(convert().case.ignored) == [
        "'Colour' (CT, 4 files): colour image",
        "'Fused' (CT, 4 files): secondary capture",
        "'MIP' (PT, 12 files): projection",
        "'Monitoring' (CT, 3 files): fewer than 4 slices",
        "'T1' (MR, 4 files): modality MR",
        "'Topogram' (CT, 4 files): localizer",
        "'Z map' (CT, 9 files): values of type Z_EFF, not HU",
    ]


def test_localizer_within_the_series(study: StudyFolder, convert: Convert) -> None:
    def edit(dataset: Any, index: int) -> None:
        if index == 8:
            dataset.ImageType = ["ORIGINAL", "PRIMARY", "LOCALIZER"]

    study.add_ct(edit=edit)
    study.add_pet()
    converted = convert()
    assert converted.read_image("ct").geometry.size == (20, 16, 8)
    assert converted.case.ignored == ("'CT WB' (CT, 1 file): localizer",)


def test_several_patients(study: StudyFolder, convert: Convert) -> None:
    study.add_ct()
    study.add_pet(PatientID="P2")
    with pytest.raises(InputError) as stop:
        convert()
    assert stop.value.message == (
        "input folder: found 2 patients: P1 (CT/IM0001.dcm), P2 (PT/IM0010.dcm), expected the folder of one patient"
    )


def test_several_studies(study: StudyFolder, convert: Convert) -> None:
    study.add_ct_and_pet()
    study.add_pet(StudyInstanceUID="1.2.3", description="follow-up")
    refuse(convert, r"found 2 studies: .*1.2.3 \(PT/IM0022.dcm\)")


def test_two_time_points_in_one_series(study: StudyFolder, convert: Convert) -> None:
    first, second = study.add_pet(), study.add_pet(make_pet_volume(seed=5))
    uid = dcmread(first[0]).SeriesInstanceUID
    for path in second:
        dataset = dcmread(path)
        dataset.SeriesInstanceUID = uid
        dataset.save_as(path)
    study.add_ct()
    refuse(convert, "the series contains two acquisitions or time points")


def test_derived_pet_is_used_if_it_is_the_only_one(study: StudyFolder, convert: Convert) -> None:
    study.add_ct()
    study.add_pet(ImageType=["DERIVED", "PRIMARY"])
    assert convert().read_image("pet").geometry == PET_GRID


def test_structures_in_another_study(study: StudyFolder, convert: Convert) -> None:
    """Planning systems often put structure sets into another study."""
    paths = study.add_ct_and_pet()
    square = np.array([(-9, -9, 104), (9, -9, 104), (9, 9, 104)], dtype=float)
    study.add_structures(paths, {"GTVp": [square]}, StudyInstanceUID="1.2.3")
    assert convert().case.structures is not None


def test_an_enhanced_multi_frame_pet_is_refused_with_the_next_step(study: StudyFolder, convert: Convert) -> None:
    """Its SOP class decides, also for a legacy converted PET."""
    study.add_ct()
    study.add_pet(SOPClassUID="1.2.840.10008.5.1.4.1.1.128.1")
    refuse(convert, r"found no PET series \(ignored: .*12 files\): enhanced multi-frame images; export single slices\)")
