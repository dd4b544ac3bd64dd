"""RT dose in Gy, and the planning CT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydicom import dcmread
from pydicom.uid import generate_uid

from contract.editions import load_edition
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from tests.convert.conftest import Convert, refuse
from tests.convert.studies import CT_GRID, StudyFolder, format_numbers, make_ct_volume

FOUR_ANSWERS = Path(__file__).parents[2] / "editions" / "four_answers.json"
GRID = Geometry((8, 7, 6), (5.0, 4.0, 3.0), (-17.5, -12.0, 105.0))


def make_dose() -> Volume:
    """Return doses of 0 to 70 Gy in steps of 0.01 Gy."""
    array = np.random.default_rng(2).integers(0, 7001, GRID.array_shape) / 100
    return Volume(array.astype(np.float32), GRID)


def test_dose_in_gy_on_its_own_grid(study: StudyFolder, convert: Convert) -> None:
    """Pixels are whole numbers times a scaling of 0.01 Gy."""
    study.add_ct_and_pet()
    study.add_dose(make_dose(), 0.01)
    converted = convert()
    dose = converted.read_image("rt_dose")
    assert dose.geometry == GRID
    np.testing.assert_allclose(dose.array, make_dose().array, atol=1e-5)
    assert converted.case.dose_max_gy == pytest.approx(make_dose().array.max())
    assert not (converted.folder / "images" / "ct-planning").exists()


@pytest.mark.parametrize("first", [0.0, 105.0])
def test_planes_from_above(study: StudyFolder, convert: Convert, first: float) -> None:
    """The first plane is the highest, at z = 120; offsets fall by 3 mm, from 0 or from the height of the plane."""
    study.add_ct_and_pet()
    top = Volume(make_dose().array[::-1].copy(), Geometry(GRID.size, GRID.spacing_mm, (-17.5, -12.0, 120.0)))
    start = 120.0 if first else 0.0
    study.add_dose(top, 0.01, GridFrameOffsetVector=format_numbers(start - 3.0 * np.arange(6)))
    dose = convert().read_image("rt_dose")
    assert dose.geometry == GRID
    np.testing.assert_allclose(dose.array, make_dose().array, atol=1e-5)


def test_planning_ct_in_the_frame_of_the_dose(study: StudyFolder, convert: Convert) -> None:
    planning = StudyFolder(study.root, study=study.study, frame=generate_uid(), count=100)
    study.add_ct_and_pet()
    planning.add_ct(make_ct_volume(seed=9), description="planning")
    planning.add_dose(make_dose(), 0.01)
    converted = convert()
    np.testing.assert_array_equal(converted.read_image("ct_planning").array, make_ct_volume(seed=9).array)
    np.testing.assert_array_equal(converted.read_image("ct").array, make_ct_volume().array)
    assert converted.read_image("rt_dose").geometry == GRID
    assert converted.case.ignored == ()
    assert [finding.found for finding in converted.case.findings] == [
        "found another FrameOfReferenceUID (0020,0052) than the CT has"
    ]


def test_edition_without_a_dose(study: StudyFolder, convert: Convert) -> None:
    study.add_ct_and_pet()
    study.add_dose(make_dose(), 0.01)
    converted = convert(edition=load_edition(str(FOUR_ANSWERS)))
    assert (converted.folder / "images" / "ct-volume").is_dir()
    assert (converted.folder / "health-record.json").read_text() == '{\n  "Years": 61.0\n}\n'
    assert converted.case.dose_max_gy is None
    assert converted.case.ignored == ("RT dose RTDOSE/IM0022.dcm: not an input of the edition",)


def test_doses_of_beams_are_ignored(study: StudyFolder, convert: Convert) -> None:
    study.add_ct_and_pet()
    study.add_dose(make_dose(), 0.01)
    study.add_dose(make_dose(), 0.02, DoseSummationType="BEAM")
    assert convert().case.ignored == ("RT dose RTDOSE/IM0023.dcm: DoseSummationType (3004,000A) BEAM",)


def test_two_plans(study: StudyFolder, convert: Convert) -> None:
    study.add_ct_and_pet()
    study.add_dose(make_dose(), 0.01)
    study.add_dose(make_dose(), 0.02)
    refuse(convert, r"found 2 RT doses: RTDOSE/IM0022.dcm \(dose\), RTDOSE/IM0023.dcm \(dose\)")


@pytest.mark.parametrize(
    ("keyword", "value", "message"),
    [
        (
            "DoseType",
            "ERROR",
            r"found DoseType \(3004,0004\) ERROR, expected PHYSICAL; without a dose of the plan, rem",
        ),
        ("DoseUnits", "RELATIVE", r"found DoseUnits \(3004,0002\) RELATIVE"),
        ("DoseGridScaling", None, r"found no DoseGridScaling \(3004,000E\)"),
        ("DoseGridScaling", "0", r"found DoseGridScaling \(3004,000E\) 0"),
        ("GridFrameOffsetVector", [0, 3, 6, 9, 12, 16], r"has distances from 3 to 4 mm"),
        ("GridFrameOffsetVector", [0, 3], r"found GridFrameOffsetVector \(3004,000C\) .*expected 6 distances in mm"),
    ],
)
def test_unusable_dose(study: StudyFolder, convert: Convert, keyword: str, value: object, message: str) -> None:
    study.add_ct_and_pet()
    study.add_dose(make_dose(), 0.01, **{keyword: value})
    refuse(convert, message)


def test_dose_on_the_ct_of_the_pet(study: StudyFolder, convert: Convert) -> None:
    """There is no second copy of the CT."""
    study.add_ct()
    study.add_ct(make_ct_volume(seed=4), description="other", FrameOfReferenceUID=generate_uid())
    study.add_pet()
    study.add_dose(make_dose(), 0.01)
    converted = convert()
    assert converted.read_image("ct").geometry == CT_GRID
    assert not (converted.folder / "images" / "ct-planning").exists()


def test_a_difference_of_doses_is_ignored_next_to_the_dose(study: StudyFolder, convert: Convert) -> None:
    study.add_ct_and_pet()
    study.add_dose(make_dose(), 0.01, DoseType="PHYSICAL")
    study.add_dose(make_dose(), 0.01, DoseType="ERROR")
    converted = convert()
    assert converted.case.ignored == ("RT dose RTDOSE/IM0023.dcm: DoseType (3004,0004) ERROR",)
    assert converted.case.findings == ()


@pytest.mark.parametrize(
    ("keyword", "value", "finding"),
    [
        ("DoseType", "EFFECTIVE", "found DoseType (3004,0004) EFFECTIVE"),
        ("FrameOfReferenceUID", None, "found no FrameOfReferenceUID (0020,0052) of the dose or the CT"),
    ],
)
def test_a_doubtful_dose_is_a_finding(
    study: StudyFolder, convert: Convert, keyword: str, value: str | None, finding: str
) -> None:
    study.add_ct_and_pet()
    study.add_dose(make_dose(), 0.01, **{keyword: value})
    assert [entry.found for entry in convert().case.findings] == [finding]


@pytest.mark.parametrize(("scaling", "highest"), [(1.0, "7000"), (0.0001, "0.7")])
def test_an_implausible_highest_dose_is_a_finding(
    study: StudyFolder, convert: Convert, scaling: float, highest: str
) -> None:
    """Pixels of 0.01 Gy up to 7,000 are read as Gy and as 0.0001 Gy."""
    study.add_ct_and_pet()
    volume = make_dose()
    volume.array[0, 0, 0] = 70
    study.add_dose(volume, 0.01, DoseGridScaling=str(scaling))
    (finding,) = convert().case.findings
    assert finding.found == f"found a highest dose of {highest} Gy"


@pytest.mark.parametrize("first", [5.0, 102.0, -105.0])
def test_planes_at_an_unclear_place_are_refused(study: StudyFolder, convert: Convert, first: float) -> None:
    """Offsets begin with 0 or with 105, the height of the first plane."""
    study.add_ct_and_pet()
    study.add_dose(make_dose(), 0.01, GridFrameOffsetVector=format_numbers(first + 3.0 * np.arange(6)))
    refuse(convert, rf"begins with {first:g}, expected 0 or 105, the height of the first plane")


def test_heights_of_planes_feet_first_are_refused(study: StudyFolder, convert: Convert) -> None:
    """Feet-first planes have a normal towards the feet, for which DICOM has only relative offsets."""
    study.add_ct_and_pet()
    orientation = format_numbers([-1, 0, 0, 0, 1, 0])
    offsets = format_numbers(105 - 3.0 * np.arange(6))
    study.add_dose(make_dose(), 0.01, ImageOrientationPatient=orientation, GridFrameOffsetVector=offsets)
    refuse(convert, r"begins with 105, expected 0$")


def test_negative_doses_are_refused(study: StudyFolder, convert: Convert) -> None:
    study.add_ct_and_pet()
    path = study.add_dose(make_dose(), 0.01, PixelRepresentation=1)
    dataset = dcmread(path)
    stored = np.frombuffer(dataset.PixelData, np.int32).copy()
    stored[0] = -50
    dataset.PixelData = stored.tobytes()
    dataset.save_as(path)
    refuse(convert, r"found a dose of -0.5 Gy, expected no negative dose")
