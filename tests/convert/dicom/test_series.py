"""Series are chosen for the case, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydicom import dcmread
from pydicom.uid import generate_uid

from contract.errors import InputError
from contract.images.geometry import Geometry
from tests.convert.conftest import Convert, Converted, refuse
from tests.convert.studies import (
    CT_GRID,
    PET_GRID,
    StudyFolder,
    edit_slice,
    make_ct_volume,
    make_pet_volume,
)

# The lower third of the PET; the CT of the other tests covers all of it.
SHORT = make_ct_volume(Geometry((20, 16, 4), (2.0, 3.0, 4.0), (-19.0, -22.5, 100.0)))
FINE = make_ct_volume(Geometry((20, 16, 17), (2.0, 3.0, 2.0), (-19.0, -22.5, 100.0)))
# Slices of 2 mm that cover the PET like the slices of 4 mm, within a tenth.
FINE_OF_PET = make_ct_volume(Geometry((20, 16, 18), (2.0, 3.0, 2.0), (-19.0, -22.5, 99.0)))
SAGITTAL = make_pet_volume(
    Geometry((12, 12, 10), (4.0, 3.0, 4.0), (20.0, -22.0, 130.0), (0.0, 0.0, -1.0, 1.0, 0.0, 0.0, 0.0, -1.0, 0.0))
)
LOCALIZER = ["ORIGINAL", "PRIMARY", "LOCALIZER"]


def list_reasons(converted: Converted) -> list[str]:
    """Return the reasons for ignored series, without UIDs."""
    return [line.split(", UID")[0] + ")" + line.partition(")")[2] for line in converted.case.ignored]


@pytest.mark.parametrize(
    ("add", "grid", "reason"),
    [
        (
            lambda study: study.add_ct(SHORT, description="thin neck"),
            CT_GRID,
            "CT 'thin neck' (4 slices): 'CT WB' was chosen (largest overlap with the PET)",
        ),
        (
            lambda study: study.add_ct(FINE_OF_PET, description="2 mm"),
            FINE_OF_PET.geometry,
            "CT 'CT WB' (9 slices): '2 mm' was chosen (most slices)",
        ),
        (
            lambda study: study.add_ct(FINE, description="another day", FrameOfReferenceUID=generate_uid()),
            CT_GRID,
            "CT 'another day' (17 slices): 'CT WB' was chosen (frame of reference of the PET)",
        ),
        (
            lambda study: study.add_pet(SAGITTAL, description="sagittal"),
            CT_GRID,
            "PET 'sagittal' (10 slices): 'PET AC' was chosen (axial slices)",
        ),
        (
            lambda study: study.add_pet(ImageType=["DERIVED", "PRIMARY"], description="derived"),
            CT_GRID,
            "PET 'derived' (6 slices): 'PET AC' was chosen (not derived)",
        ),
        *(
            (
                lambda study, words=words: study.add_pet(description="PET_NAC", CorrectedImage=words),
                CT_GRID,
                "PET 'PET_NAC' (6 slices): no attenuation correction",
            )
            for words in (["DECY"], None)
        ),
    ],
)
def test_the_better_of_two_series_is_chosen(
    study: StudyFolder, convert: Convert, add: Callable[[StudyFolder], Any], grid: Geometry, reason: str
) -> None:
    add(study)
    study.add_ct_and_pet()
    converted = convert()
    assert (converted.read_image("ct").geometry, converted.read_image("pet").geometry) == (grid, PET_GRID)
    assert list_reasons(converted) == [reason]


@pytest.mark.parametrize("wanted", ["CT bone", "ct BONE", "bone", "UID"])
def test_ct_by_option(study: StudyFolder, convert: Convert, wanted: str) -> None:
    study.add_ct(description="CT soft")
    paths = study.add_ct(make_ct_volume(seed=3), description="CT bone")
    study.add_pet()
    uid = str(dcmread(paths[0]).SeriesInstanceUID)
    refuse(convert, r"found 2 equally suitable CT series: 'CT soft' \(9 slices, UID .*, expected one; choose by --ct-s")
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


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda study: study.add_ct(), "input folder: found no PET series"),
        (lambda study: study.add_pet(), "input folder: found no CT series"),
        # The SOP class decides, also for a legacy converted PET.
        (
            lambda study: (study.add_ct(), study.add_pet(SOPClassUID="1.2.840.10008.5.1.4.1.1.128.1")),
            r"found no PET series \(ignored: .*6 files\): enhanced multi-frame images; export single slices\)",
        ),
        (
            lambda study: (study.add_ct(), study.add_pet(CorrectedImage=["DECY"])),
            r"found only PET 'PET AC' .*: no attenuation correction",
        ),
        (
            lambda study: (study.add_ct(), study.add_pet(PatientID="P2")),
            r"found 2 patients: P1 \(CT/IM0001.dcm\), P2 \(PT/IM0010.dcm\), expected the folder of one patient",
        ),
        (
            lambda study: (study.add_ct_and_pet(), study.add_pet(StudyInstanceUID="1.2.3")),
            r"found 2 studies: .*1.2.3 \(PT/IM0016.dcm\)",
        ),
    ],
)
def test_a_study_that_gives_no_case_is_refused(
    study: StudyFolder, convert: Convert, add: Callable[[StudyFolder], Any], message: str
) -> None:
    add(study)
    refuse(convert, message)


def test_images_that_are_no_volume_are_ignored(study: StudyFolder, convert: Convert) -> None:
    study.add_ct(edit=edit_slice(8, ImageType=LOCALIZER))
    study.add_pet()
    study.add_ct(SHORT, description="Topogram", ImageType=LOCALIZER)
    study.add_pet(description="MIP", ImageType=["DERIVED", "SECONDARY", "PROJECTION IMAGE"])
    study.add_ct(SHORT, description="Fused", SOPClassUID="1.2.840.10008.5.1.4.1.1.7")
    study.add_ct(SHORT, description="Colour", SamplesPerPixel=3)
    study.add_ct(SHORT, description="T1", Modality="MR")
    study.add_ct(description="Z map", RescaleType="Z_EFF")
    three = Geometry((20, 16, 3), (2.0, 3.0, 4.0), CT_GRID.origin_mm)
    study.add_ct(make_ct_volume(three), description="Monitoring")
    converted = convert()
    assert converted.read_image("ct").geometry.size == (20, 16, 8)
    assert sorted(converted.case.ignored) == [
        "'CT WB' (CT, 1 file): localizer",
        "'Colour' (CT, 4 files): colour image",
        "'Fused' (CT, 4 files): secondary capture",
        "'MIP' (PT, 6 files): projection",
        "'Monitoring' (CT, 3 files): fewer than 4 slices",
        "'T1' (MR, 4 files): modality MR",
        "'Topogram' (CT, 4 files): localizer",
        "'Z map' (CT, 9 files): values of type Z_EFF, not HU",
    ]


def test_derived_pet_is_used_if_it_is_the_only_one(study: StudyFolder, convert: Convert) -> None:
    study.add_ct()
    study.add_pet(ImageType=["DERIVED", "PRIMARY"])
    assert convert().read_image("pet").geometry == PET_GRID
