"""Peaks of air, fat and soft tissue show a missing intercept; correct scans are unchanged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithm.case.inputs import Notices
from algorithm.case.read import clean_ct
from algorithm.case.units import find_peaks
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume
from rehearsal.phantoms.rendering import Rendered

GRID = Geometry((40, 40, 10), (10.0, 10.0, 10.0), (0.0, 0.0, 0.0))


def make_hu(
    air: float = -1000, fat: float = -100, muscle: float = 50, bone: float = 700, noise: float = 0.0
) -> np.ndarray:
    """Make columns 0 to 19 of 40 air (1/2 of the voxels), 20 to 25 fat (15%), 26 to 37 muscle (30%), the rest bone."""
    array = np.empty(GRID.array_shape)
    array[..., :20], array[..., 20:26], array[..., 26:38], array[..., 38:] = air, fat, muscle, bone
    return np.rint(array + np.random.default_rng(1).normal(0, noise, array.shape))


def clean(array: np.ndarray, notices: Notices) -> np.ndarray:
    return clean_ct(Volume(array, GRID), "CT", notices).array


def test_peaks_of_a_sound_ct() -> None:
    """Shares follow from the columns of `make_hu`; bone makes 2 of 40 columns, 5%."""
    peaks = find_peaks(make_hu())
    assert [peak.hu for peak in peaks] == [-1000, -100, 50, 700]
    assert [peak.share for peak in peaks] == pytest.approx([0.5, 0.15, 0.3, 0.05])


def test_padding_makes_no_peak() -> None:
    array = make_hu()
    array[:, :10] = -3024
    assert [peak.hu for peak in find_peaks(array)] == [-1000, -100, 50, 700]


@pytest.mark.parametrize(("offset", "dtype"), [(1024, np.int16), (1024, np.uint16), (1000, np.float32)])
def test_a_missing_intercept_is_named(offset: int, dtype: type) -> None:
    """Air at -1000 + 1024 = 24 and muscle at 50 + 1024 = 1074, or at 0 and 1050; the values stay."""
    notices = Notices()
    array = clean((make_hu() + offset).astype(dtype), notices)
    np.testing.assert_array_equal(array, make_hu() + offset)
    assert array.dtype == np.int16
    (finding,) = notices.findings
    assert finding.found == (
        f"air near {offset - 1000} HU, soft tissue near {offset + 50} HU, fat in 15.0% of the voxels"
    )
    assert finding.expected == "-1000, and 0 to 100"
    assert finding.action == f"the rescale intercept of -{offset} is missing; continuing with these values"


def test_air_that_is_stored_as_zero_is_a_peak() -> None:
    """Of 20 columns of air, 19 hold 0 and one holds 55. The window of 60 with both begins at 0, so the peak's centre is
    30.

    All 20 of 40 columns lie within 30 HU of 30; within 30 HU of 35 lies only the column of 55.
    """
    raw = make_hu() + 1024
    raw[..., :19], raw[..., 19:20] = 0, 55
    (air, *_) = find_peaks(raw)
    assert (air.hu, air.share) == (0, 0.5)
    notices = Notices()
    clean(raw.astype(np.int16), notices)
    assert_intercept_is_missing(notices, 1024)


def assert_intercept_is_missing(notices: Notices, offset: int) -> None:
    (finding,) = notices.findings
    assert f"the rescale intercept of -{offset} is missing" in finding.action


def test_padding_of_a_ct_without_intercept_is_air() -> None:
    raw = make_hu() + 1024
    raw[:, :10] = -2000
    expected = make_hu() + 1024
    expected[:, :10] = -1024
    notices = Notices()
    np.testing.assert_array_equal(clean(raw, notices), expected)
    assert_intercept_is_missing(notices, 1024)


@settings(max_examples=40)
@given(
    offset=st.sampled_from([1024, 1000]),
    muscle=st.integers(40, 65),
    fat=st.integers(-115, -75),
    noise=st.integers(0, 25),
    lowest=st.sampled_from([-1000, -1024]),
)
def test_a_missing_intercept_is_found_in_noise(offset: int, muscle: int, fat: int, noise: int, lowest: int) -> None:
    """Scanners clip at -1024 HU, some converters at -1000."""
    hu = np.maximum(make_hu(fat=fat, muscle=muscle, noise=noise), lowest)
    notices = Notices()
    clean(hu.astype(np.int16), notices)
    assert notices.findings == []
    clean((hu + offset).astype(np.int16), notices)
    assert_intercept_is_missing(notices, offset)


SOUND = {
    "a patient": make_hu(noise=15),
    "clipped air": np.maximum(make_hu(noise=15), -1024),
    "muscle and fat without air": make_hu(air=50, noise=15),
    "muscle without fat and air": make_hu(air=50, fat=50, noise=15),
    "a brain and dense bone": make_hu(air=35, fat=1064, muscle=35, bone=1064, noise=5),
    "bone and marrow": make_hu(air=200, fat=700, muscle=250, bone=1100, noise=30),
    "lung without air": make_hu(air=-780, fat=-820, muscle=50, noise=60),
    "metal": make_hu(bone=3071, noise=15),
    "only fat": make_hu(air=-100, fat=-100, muscle=-100, bone=-100, noise=15),
    "one value": np.zeros(GRID.array_shape),
    "only air": np.full(GRID.array_shape, -1000.0),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_values_pass(name: str) -> None:
    array = np.maximum(SOUND[name], -1024)
    notices = Notices()
    np.testing.assert_array_equal(clean(array.astype(np.int16), notices), array)
    assert notices.findings == []


def test_phantoms_pass(phantom: Rendered) -> None:
    """Without the intercept, padding of -2000 HU would look like air near -976."""
    ct = phantom.ct
    expected = np.maximum(ct.array, -1024)  # some of these phantoms are padded
    notices = Notices()
    np.testing.assert_array_equal(clean_ct(ct, "CT", notices).array, expected)
    assert notices.findings == []
    raw = Volume((expected + 1024).astype(np.int16), ct.geometry)
    clean_ct(raw, "CT", notices)
    assert_intercept_is_missing(notices, 1024)


@pytest.mark.shared
@pytest.mark.parametrize("patient_id", ["STS_001", "STS_035"])
@pytest.mark.parametrize("offset", [0, 1000, 1024])
def test_real_limbs_pass_and_a_missing_intercept_is_named(sts_scans: Path, patient_id: str, offset: int) -> None:
    ct = read_volume(sts_scans / patient_id / "CT_image.nii.gz")
    notices = Notices()
    clean_ct(ct, "CT", notices)
    assert notices.findings == []
    clean_ct(Volume(ct.array + offset, ct.geometry), "CT", notices)
    assert len(notices.findings) == (offset > 0)


@pytest.mark.shared
@pytest.mark.parametrize("patient_id", ["STS_001", "STS_035"])
def test_crops_inside_real_limbs_pass(sts_scans: Path, patient_id: str) -> None:
    """Nine crops of 40 x 40 pixels around the tumour's centre, with and without air and bone."""
    ct = read_volume(sts_scans / patient_id / "CT_image.nii.gz")
    tumour = np.argwhere(read_volume(sts_scans / patient_id / "CT_mask.nii.gz").array).mean(0).astype(int)
    notices = Notices()
    for down in (-30, 0, 30):
        for right in (-30, 0, 30):
            y, x = max(tumour[1] + down - 20, 0), max(tumour[2] + right - 20, 0)
            crop = np.ascontiguousarray(ct.array[:, y : y + 40, x : x + 40])
            z, height, width = crop.shape
            clean_ct(Volume(crop, replace(ct.geometry, size=(width, height, z))), "CT", notices)
    assert notices.findings == []
