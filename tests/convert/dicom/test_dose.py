"""RT dose in Gy, and the planning CT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    """Return doses of up to 70 Gy in steps of 0.01 Gy; 70 Gy is there."""
    array = np.random.default_rng(2).integers(0, 7001, GRID.array_shape) / 100
    array[0, 0, 0] = 70
    return Volume(array.astype(np.float32), GRID)


@pytest.fixture
def full_study(study: StudyFolder) -> StudyFolder:
    study.add_ct_and_pet()
    return study


def test_dose_in_gy_on_its_own_grid(study: StudyFolder, convert: Convert) -> None:
    """Pixels are whole numbers times a scaling of 0.01 Gy. The CT of the dose is the CT of the PET: no second copy."""
    study.add_ct(make_ct_volume(seed=4), description="other", FrameOfReferenceUID=generate_uid())
    study.add_ct_and_pet()
    study.add_dose(make_dose(), 0.01)
    converted = convert()
    dose = converted.read_image("rt_dose")
    assert (dose.geometry, converted.read_image("ct").geometry) == (GRID, CT_GRID)
    np.testing.assert_allclose(dose.array, make_dose().array, atol=1e-5)
    assert converted.case.dose_max_gy == pytest.approx(70)
    assert not (converted.folder / "images" / "ct-planning").exists()


@pytest.mark.parametrize("first", [0.0, 120.0])
def test_planes_from_above(full_study: StudyFolder, convert: Convert, first: float) -> None:
    """The first plane is the highest, at z = 120; offsets fall by 3 mm, from 0 or from the height of the plane."""
    top = Volume(make_dose().array[::-1].copy(), Geometry(GRID.size, GRID.spacing_mm, (-17.5, -12.0, 120.0)))
    full_study.add_dose(top, 0.01, GridFrameOffsetVector=format_numbers(first - 3.0 * np.arange(6)))
    dose = convert().read_image("rt_dose")
    assert dose.geometry == GRID
    np.testing.assert_allclose(dose.array, make_dose().array, atol=1e-5)


def test_planning_ct_in_the_frame_of_the_dose(full_study: StudyFolder, convert: Convert) -> None:
    planning = StudyFolder(full_study.root, study=full_study.study, frame=generate_uid(), count=100)
    planning.add_ct(make_ct_volume(seed=9), description="planning")
    planning.add_dose(make_dose(), 0.01)
    converted = convert()
    np.testing.assert_array_equal(converted.read_image("ct_planning").array, make_ct_volume(seed=9).array)
    np.testing.assert_array_equal(converted.read_image("ct").array, make_ct_volume().array)
    assert converted.read_image("rt_dose").geometry == GRID
    assert converted.case.ignored == ()
    assert converted.found == ["found another FrameOfReferenceUID (0020,0052) than the CT has"]


def test_edition_without_a_dose(full_study: StudyFolder, convert: Convert) -> None:
    full_study.add_dose(make_dose(), 0.01)
    converted = convert(edition=load_edition(str(FOUR_ANSWERS)))
    assert (converted.folder / "images" / "ct-volume").is_dir()
    assert (converted.folder / "health-record.json").read_text() == '{\n  "Years": 61.0\n}\n'
    assert converted.case.dose_max_gy is None
    assert converted.case.ignored == ("RT dose RTDOSE/IM0016.dcm: not an input of the edition",)


@pytest.mark.parametrize(
    ("keyword", "value", "tag"),
    [("DoseSummationType", "BEAM", "3004,000A"), ("DoseType", "ERROR", "3004,0004")],
)
def test_doses_of_beams_and_differences_are_ignored_next_to_the_plan(
    full_study: StudyFolder, convert: Convert, keyword: str, value: str, tag: str
) -> None:
    full_study.add_dose(make_dose(), 0.01, DoseType="PHYSICAL")
    full_study.add_dose(make_dose(), 0.02, **{keyword: value})
    converted = convert()
    assert converted.case.ignored == (f"RT dose RTDOSE/IM0017.dcm: {keyword} ({tag}) {value}",)
    assert converted.found == []


def make_offsets(first: float, step: float = 3.0) -> Any:
    return format_numbers(first + step * np.arange(6))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"DoseType": "ERROR"},
            r"found DoseType \(3004,0004\) ERROR, expected PHYSICAL; without a dose of the plan, r",
        ),
        ({"DoseUnits": "RELATIVE"}, r"found DoseUnits \(3004,0002\) RELATIVE"),
        ({"DoseGridScaling": None}, r"found no DoseGridScaling \(3004,000E\)"),
        ({"DoseGridScaling": "0"}, r"found DoseGridScaling \(3004,000E\) 0"),
        ({"GridFrameOffsetVector": [0, 3, 6, 9, 12, 16]}, r"has distances from 3 to 4 mm"),
        ({"GridFrameOffsetVector": [0, 3]}, r"found GridFrameOffsetVector \(3004,000C\) .*expected 6 distances in mm"),
        # Offsets begin with 0 or with 105, the height of the first plane.
        *(
            ({"GridFrameOffsetVector": make_offsets(first)}, rf"begins with {first:g}, expected 0 or 105, the height")
            for first in (5.0, -105.0)
        ),
        # Feet-first planes have a normal towards the feet, for which DICOM has only relative offsets.
        (
            {
                "ImageOrientationPatient": format_numbers([-1, 0, 0, 0, 1, 0]),
                "GridFrameOffsetVector": make_offsets(105, -3.0),
            },
            r"begins with 105, expected 0$",
        ),
    ],
)
def test_unusable_dose(full_study: StudyFolder, convert: Convert, changes: dict[str, Any], message: str) -> None:
    full_study.add_dose(make_dose(), 0.01, **changes)
    refuse(convert, message)


def test_two_plans(full_study: StudyFolder, convert: Convert) -> None:
    full_study.add_dose(make_dose(), 0.01)
    full_study.add_dose(make_dose(), 0.02)
    refuse(convert, r"found 2 RT doses: RTDOSE/IM0016.dcm \(dose\), RTDOSE/IM0017.dcm \(dose\)")


def test_negative_doses_are_refused(full_study: StudyFolder, convert: Convert) -> None:
    path = full_study.add_dose(make_dose(), 0.01, PixelRepresentation=1)
    dataset = dcmread(path)
    stored = np.frombuffer(dataset.PixelData, np.int32).copy()
    stored[0] = -50
    dataset.PixelData = stored.tobytes()
    dataset.save_as(path)
    refuse(convert, r"found a dose of -0.5 Gy, expected no negative dose")


@pytest.mark.parametrize(
    ("keyword", "value", "finding"),
    [
        ("DoseType", "EFFECTIVE", "found DoseType (3004,0004) EFFECTIVE"),
        ("FrameOfReferenceUID", None, "found no FrameOfReferenceUID (0020,0052) of the dose or the CT"),
        # Pixels of 0.01 Gy up to 7,000 are read as Gy and as 0.0001 Gy.
        ("DoseGridScaling", "1.0", "found a highest dose of 7000 Gy"),
        ("DoseGridScaling", "0.0001", "found a highest dose of 0.7 Gy"),
    ],
)
def test_a_doubtful_dose_is_a_finding(
    full_study: StudyFolder, convert: Convert, keyword: str, value: str | None, finding: str
) -> None:
    full_study.add_dose(make_dose(), 0.01, **{keyword: value})
    assert convert().found == [finding]
