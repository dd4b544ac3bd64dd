"""Degenerate images are repaired with a notice."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import pytest

from algorithm.case.inputs import Notices
from algorithm.case.read import clean_ct, clean_pet, overlap, reaches_into, read_case
from contract.errors import InputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_volume
from tests.algorithm.edition import EDITION, RFS, SEGMENTATION

GRID = Geometry((4, 4, 4), (2.0, 2.0, 2.0), (0.0, 0.0, 0.0))


def make_volume(*values: float, dtype: type = np.float32) -> Volume:
    array = np.zeros(GRID.array_shape, dtype)
    array.ravel()[: len(values)] = values
    return Volume(array, GRID)


@pytest.fixture
def notices() -> Notices:
    return Notices()


def test_a_sound_ct_is_unchanged(notices: Notices) -> None:
    ct = make_volume(-1024, 3071, dtype=np.int16)
    assert clean_ct(ct, "CT", notices) is ct
    assert notices.findings == []


def test_ct_values_that_are_not_finite_become_air(notices: Notices) -> None:
    ct = clean_ct(make_volume(math.nan, math.inf, -math.inf, 40), "CT a.mha", notices)
    assert ct.array.ravel()[:5].tolist() == [-1024, -1024, -1024, 40, 0]
    assert [str(finding) for finding in notices.findings] == ["CT a.mha: 3 voxels are NaN or infinite; set to air"]


@pytest.mark.parametrize("dtype", [np.int16, np.float64])
def test_values_below_air_are_usual(caplog: pytest.LogCaptureFixture, dtype: type) -> None:
    """Scanners pad with -2000 or -3024: two voxels become air without a notice."""
    with caplog.at_level(logging.INFO, "hecktor"):
        ct = clean_ct(make_volume(-3024, -2000, -1024, 40, dtype=dtype), "CT", Notices())
    assert ct.array.ravel()[:4].tolist() == [-1024, -1024, -1024, 40]
    assert ct.array.dtype == np.int16
    (line,) = caplog.records
    assert line.levelno == logging.INFO
    assert line.getMessage() == "CT: 2 voxels below -1024 HU (lowest -3024) counted as air"


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int64, np.uint64])
def test_every_integer_type_is_read(notices: Notices, dtype: type) -> None:
    ct = clean_ct(make_volume(0, 100, dtype=dtype), "CT", notices)
    assert ct.array.dtype == np.int16
    assert ct.array.ravel()[:2].tolist() == [0, 100]


def test_fractions_are_rounded_and_extremes_held(notices: Notices) -> None:
    ct = clean_ct(make_volume(-0.6, 0.6, 99.5, 1e9, 3e38), "CT", notices)
    assert ct.array.ravel()[:5].tolist() == [-1, 1, 100, 32767, 32767]


def clean(pet: Volume, notices: Notices, ct: Geometry = GRID) -> Volume | None:
    return clean_pet(pet, Volume(np.zeros(ct.array_shape, np.int16), ct), "PET b.mha", notices)


def test_pet_values_that_are_not_finite_or_negative_become_zero(notices: Notices) -> None:
    pet = clean(make_volume(math.nan, math.inf, -0.5, 4.5), notices)
    assert pet is not None
    assert pet.array.ravel()[:4].tolist() == [0, 0, 0, 4.5]
    assert [str(finding) for finding in notices.findings] == [
        "PET b.mha: 2 voxels are NaN or infinite; set to zero",
        "PET b.mha: 1 voxels below zero; set to zero",
    ]


def test_doubles_beyond_float32_count_as_infinite(notices: Notices) -> None:
    pet = clean(make_volume(1e300, 3, dtype=np.float64), notices)
    assert pet is not None
    assert pet.array.max() == 3
    assert "1 voxels are NaN or infinite" in str(notices.findings[0])


@pytest.mark.parametrize("values", [(), (-1.0, -2.0), (math.nan,)])
def test_a_pet_without_uptake_is_left_out(notices: Notices, values: tuple[float, ...]) -> None:
    assert clean(make_volume(*values), notices) is None
    expected = "PET b.mha: all voxels are zero; continuing with only the CT; expect an empty mask"
    assert str(notices.findings[-1]) == expected


def test_a_pet_beside_the_ct_is_left_out(notices: Notices) -> None:
    far = Geometry(GRID.size, GRID.spacing_mm, (500.0, 0.0, 0.0))
    assert clean(make_volume(5), notices, far) is None
    assert "does not overlap the CT" in str(notices.findings[0])


def test_becquerels_are_scaled_to_suv(notices: Notices) -> None:
    """Without muscle or fat in the CT, a body of 32 voxels at 5,000 Bq/ml is scaled to a mean of 1: every voxel is
    divided by 5,000.
    """
    array = np.zeros(GRID.array_shape, np.float32)
    array[:2] = 5000
    pet = clean(Volume(array, GRID), notices)
    assert pet is not None
    np.testing.assert_allclose(pet.array[:2], 1.0, rtol=1e-5)
    (finding,) = notices.findings
    assert (finding.what, finding.found, finding.expected) == ("PET b.mha", "highest value 5000", "SUV")
    action = "assumed to be in Bq/ml and scaled by 0.0002 to a mean of 1, because neither muscle nor fat was found: "
    assert finding.action == f"{action}uncertain by a factor of 5"


def test_a_single_hot_voxel_in_becquerels_is_finite(notices: Notices) -> None:
    pet = clean(make_volume(40000), notices)
    assert pet is not None
    assert np.isfinite(pet.array).all()
    assert pet.array.max() == pytest.approx(1)


def test_a_pet_in_suv_is_unchanged(notices: Notices) -> None:
    pet = clean(make_volume(0, 25, 400), notices)
    assert pet is not None
    assert pet.array.max() == 400
    assert notices.findings == []


def test_overlap() -> None:
    moved = Geometry(GRID.size, GRID.spacing_mm, (7.9, 0.0, 0.0))
    touching = Geometry(GRID.size, GRID.spacing_mm, (8.0, 0.0, 0.0))
    assert overlap(GRID, moved)
    assert not overlap(GRID, touching)
    assert reaches_into(GRID, (6.0, 0.0, 0.0), (9.0, 1.0, 1.0))
    assert not reaches_into(GRID, (7.5, 0.0, 0.0), (9.0, 1.0, 1.0))


def test_a_sound_case(case_folder: Any, notices: Notices) -> None:
    case = read_case(case_folder.write().input, EDITION, SEGMENTATION, notices)
    assert case.pet is not None
    assert case.patient.values["age_years"] == 61
    assert case.scan.geometry.find_differences(case_folder.ct.geometry) == []
    assert notices.findings == []


@pytest.mark.parametrize(("socket", "size"), [("ct", (15, 24, 20)), ("pet", (24, 24, 3))])
def test_a_scan_too_small_for_a_head(case_folder: Any, notices: Notices, socket: str, size: tuple[int, ...]) -> None:
    geometry = Geometry(size, (8.0, 8.0, 9.0), (-92.0, -92.0, -85.0))  # type: ignore[arg-type]
    setattr(case_folder, socket, Volume(np.zeros(geometry.array_shape, np.int16), geometry))
    with pytest.raises(InputError, match=r"size \(.*\), expected at least \(16, 16, 4\) voxels"):
        read_case(case_folder.write().input, EDITION, SEGMENTATION, notices)


@pytest.mark.parametrize(
    ("content", "notice"),
    [
        (None, None),
        (60.0, None),
        (-1.0, "RT dose: values below zero, NaN or infinite, expected Gy; continuing without it"),
        (np.nan, "RT dose: values below zero, NaN or infinite, expected Gy; continuing without it"),
        (b"not an image", "RT dose dose.mha: not a readable image"),
    ],
    ids=["none", "sound", "negative", "nan", "damaged"],
)
def test_the_dose_is_optional(case_folder: Any, content: float | bytes | None, notice: str | None) -> None:
    case_folder.write()
    path = EDITION.inputs["rt_dose"].path_under(case_folder.input) / "dose.mha"
    if isinstance(content, bytes):
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    elif content is not None:
        write_volume(path, Volume(np.full((4, 4, 4), content, np.float32), GRID))
    notices = Notices()
    dose = read_case(case_folder.input, EDITION, RFS, notices).dose
    assert (dose is not None) == (content == 60.0)
    messages = [message for message in [str(finding) for finding in notices.findings] if "RT dose" in message]
    assert len(messages) == (notice is not None)
    assert notice is None or messages[0].startswith(notice)
    assert read_case(case_folder.input, EDITION, SEGMENTATION, Notices()).dose is None
