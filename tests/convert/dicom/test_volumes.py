"""Stored values become HU and SUV."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydicom.dataset import Dataset

from contract.images.volumes import Volume
from tests.convert.conftest import Convert, refuse
from tests.convert.studies import CT_GRID, StudyFolder, edit_slice, make_ct_volume


def test_rescale_of_each_slice(study: StudyFolder, convert: Convert) -> None:
    """Slice 4 has slope 2 and intercept -500 in place of 1 and -1024: HU = 2 * (HU + 1024) - 500."""
    study.add_ct(edit=edit_slice(4, RescaleSlope="2", RescaleIntercept="-500"))
    study.add_pet()
    expected = make_ct_volume().array.copy()
    expected[4] = 2 * (expected[4] + 1024) - 500
    np.testing.assert_array_equal(convert().read_image("ct").array, expected)


def pad_ct(padding_hu: int) -> Volume:
    array = np.clip(make_ct_volume().array, -1000, 2000)
    array[:, :, :3] = padding_hu
    return Volume(array, CT_GRID)


@pytest.mark.parametrize(
    "changes",
    [
        {"PixelPaddingValue": -2000},
        {"PixelPaddingValue": -3024, "PixelPaddingRangeLimit": -1900},
        {"PixelPaddingValue": 63536},  # -2000 written as unsigned
    ],
)
def test_padding_becomes_air(study: StudyFolder, convert: Convert, changes: dict[str, int]) -> None:
    unsigned = changes["PixelPaddingValue"] > 0

    def edit(dataset: Dataset, index: int) -> None:
        for keyword, value in changes.items():
            dataset.add_new(
                {"PixelPaddingValue": 0x00280120}.get(keyword, 0x00280121), "US" if unsigned else "SS", value
            )

    study.add_ct(pad_ct(-2000), signed=True, edit=edit)
    study.add_pet()
    np.testing.assert_array_equal(convert().read_image("ct").array, pad_ct(-1024).array)


def test_padding_of_soft_tissue_is_not_believed(study: StudyFolder, convert: Convert) -> None:
    """Here the padding value is 1064 - 1024 = 40 HU."""
    study.add_ct(PixelPaddingValue=1064)
    study.add_pet()
    converted = convert()
    np.testing.assert_array_equal(converted.read_image("ct").array, make_ct_volume().array)
    assert [str(finding) for finding in converted.case.findings] == [
        "CT/IM0001.dcm: PixelPaddingValue (0028,0120) 1064 is 40 HU, expected air; not treated as padding"
    ]


def double_frames(dataset: Dataset) -> None:
    dataset.NumberOfFrames = 2
    dataset.PixelData = dataset.PixelData * 2


@pytest.mark.parametrize(
    ("of_ct", "of_pet", "message"),
    [
        ({"RescaleSlope": None}, {}, r"IM0001\.dcm: found no RescaleSlope \(0028,1053\)"),
        ({}, {"RescaleIntercept": None}, r"IM0010\.dcm: found no RescaleIntercept \(0028,1052\)"),
        ({"RescaleSlope": "0"}, {}, r"found RescaleSlope \(0028,1053\) 0"),
        ({}, {"RescaleSlope": "-1"}, r"found RescaleSlope \(0028,1053\) -1"),
        ({"edit": edit_slice(2, double_frames)}, {}, r"CT/IM0003\.dcm: found pixels of shape 2 x 16 x 20"),
    ],
)
def test_unusable_pixels(
    study: StudyFolder, convert: Convert, of_ct: dict[str, Any], of_pet: dict[str, Any], message: str
) -> None:
    study.add_ct(**of_ct)
    study.add_pet(**of_pet)
    refuse(convert, message)


@pytest.mark.parametrize("value", ["soft", "inf"])
def test_value_that_is_no_number(study: StudyFolder, convert: Convert, value: str) -> None:
    paths = study.add_ct_and_pet()
    content = paths[0].read_bytes()
    at = content.index(b"-1024")
    paths[0].write_bytes(content[:at] + value.ljust(5).encode() + content[at + 5 :])
    refuse(convert, r"CT/IM0001.dcm: .*RescaleIntercept \(0028,1052\)")
