"""SUV factors against hand-derived numbers.

Dose 370 MBq of F-18 (half-life 6586.2 s), weight 75 kg, injection at 13:00, scan at 14:00: 370 MBq * 2^(-3600 / 6586.2)
= 370 MBq * 0.684633 = 253.314 MBq remain, so 1 Bq/ml is 75,000 g / 253.314e6 Bq = 2.96075e-4. Without decay
(ADMIN) it is 75,000 / 370e6 = 2.02703e-4.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydicom.dataset import Dataset

from contract.errors import InputError
from convert.dicom.files import read_folder
from convert.dicom.suv import SuvScale, suv_scale
from tests.convert.studies import HOUR_FACTOR, StudyFolder

AN_HOUR = 2.96075e-4
AT_INJECTION = 2.02703e-4
# 100 min: 370 MBq * 2^(-6000 / 6586.2) = 370 * 0.531818 = 196.773 MBq; 75,000 / 196.773e6.
HUNDRED_MINUTES = 3.81151e-4


def scale(study: StudyFolder, **options: Any) -> SuvScale:
    study.pet(**options)
    return suv_scale(read_folder(study.root).headers)


def factor(study: StudyFolder, **options: Any) -> float:
    factors = scale(study, **options).factors
    assert len(factors) == 12
    assert len(set(factors)) == 1
    return factors[0]


def philips(*, suv_factor: float | None, activity_factor: float | None, creator: bool = True) -> Any:
    def edit(dataset: Dataset, index: int) -> None:
        block = dataset.private_block(0x7053, "Philips PET Private Group", create=True)
        if suv_factor is not None:
            block.add_new(0x00, "DS", str(suv_factor))
        if activity_factor is not None:
            block.add_new(0x09, "DS", str(activity_factor))
        if not creator:
            del dataset[0x7053, 0x0010]

    return edit


def test_factor_of_the_other_tests() -> None:
    assert pytest.approx(AN_HOUR, rel=2e-6) == HOUR_FACTOR


def test_decay_correction_to_the_start_of_the_scan(study: StudyFolder) -> None:
    result = scale(study)
    assert result.factors[0] == pytest.approx(AN_HOUR, rel=2e-6)
    assert result.derivation == (
        "Bq/ml, dose 370 MBq, weight 75 kg, 60.0 min from injection to SeriesTime (START), half-life 6586.2 s, "
        "dose at the scan 253.3 MBq"
    )


OTHER_TRACER = {"RadionuclideCodeSequence": None, "Radiopharmaceutical": "DOTATATE"}
# 370 MBq * 2^(-3600 / 4057.7) = 370 * 0.540662 = 200.045 MBq of Ga-68, so 75,000 / 200.045e6.
GALLIUM = 3.74916e-4
FACTORS: dict[str, tuple[dict[str, Any], float]] = {
    "corrected to the injection": ({"DecayCorrection": "ADMIN"}, AT_INJECTION),
    "injected at 23:30, scanned at 00:30": (
        {"SeriesTime": "003000", "AcquisitionTime": "003000", "tracer": {"RadiopharmaceuticalStartTime": "233000"}},
        AN_HOUR,
    ),
    "F-18 without a half-life": ({"tracer": {"RadionuclideHalfLife": None}}, AN_HOUR),
    "Ga-68, 4057.7 s": ({"tracer": {**OTHER_TRACER, "RadionuclideHalfLife": "4057.7"}}, GALLIUM),
    "stored SUV": ({"Units": "GML", "SUVType": None, "PatientWeight": None}, 1.0),
    "stored SUV by weight": ({"Units": "GML", "SUVType": "BW", "PatientWeight": None}, 1.0),
    "Philips' SUV factor": (
        {"Units": "CNTS", "PatientWeight": None, "edit": philips(suv_factor=0.000551, activity_factor=1.5)},
        0.000551,
    ),
    # 1.5 Bq/ml a count; an SUV factor of 0 counts as absent.
    "Philips' activity factor": ({"Units": "CNTS", "edit": philips(suv_factor=0, activity_factor=1.5)}, 1.5 * AN_HOUR),
    "Philips' activity factor without its creator": (
        {"Units": "CNTS", "edit": philips(suv_factor=0, activity_factor=1.5, creator=False)},
        1.5 * AN_HOUR,
    ),
}


@pytest.mark.parametrize("name", FACTORS)
def test_factors(study: StudyFolder, name: str) -> None:
    options, expected = FACTORS[name]
    assert factor(study, **options) == pytest.approx(expected, rel=2e-6)


DOSE, HALF_LIFE = r"RadionuclideTotalDose \(0018,1074\)", r"RadionuclideHalfLife \(0018,1075\)"
WEIGHT, CORRECTED = r"PatientWeight \(0010,1030\)", r"CorrectedImage \(0028,0051\)"
TOO_LONG_AGO = "expected an injection at most 6 hours before the scan"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"DecayCorrection": "OTHER"}, r"found DecayCorrection \(0054,1102\) OTHER, expected START, ADMIN or NONE"),
    ({"DecayCorrection": "NONE"}, rf"found {CORRECTED} DECY, ATTN, SCAT, expected ATTN without DECY, since"),
    (
        {"DecayCorrection": "NONE", "CorrectedImage": ["ATTN"]},
        r"found no ActualFrameDuration \(0018,1242\), expected time and duration of a PET without decay correction",
    ),
    ({"tracer": {"RadiopharmaceuticalStartTime": "141000"}}, TOO_LONG_AGO),  # ten minutes after the scan
    ({"tracer": {"RadiopharmaceuticalStartTime": "073000"}}, TOO_LONG_AGO),  # 6.5 hours before it
    ({"Units": "CNTS"}, r"CNTS without \(7053,1000\) and \(7053,1009\), expected Philips' SUV factor"),
    # LBM names two formulas, which differ by 2%.
    ({"Units": "GML", "SUVType": "LBM"}, r"found SUVType \(0054,1006\) LBM, expected BW or LBMJAMES128 or LBMJANMA or"),
    ({"Units": "GML", "SUVType": "BSA"}, r"found SUVType \(0054,1006\) BSA, expected BW or .* with Units .* GML"),
    ({"Units": "CM2ML", "SUVType": "BW"}, r"found SUVType \(0054,1006\) BW, expected BSA with Units .* CM2ML"),
    ({"Units": "PROPCPS"}, r"found Units \(0054,1001\) PROPCPS, expected BQML, CNTS"),
    ({"Units": "CM2ML"}, r"found no PatientSize \(0010,1020\), expected the height in m"),
    ({"Units": "CM2ML", "PatientSize": "180"}, r"found PatientSize \(0010,1020\) 180, expected the height in m"),
    ({"Units": "CM2ML", "PatientSize": "1.8", "PatientWeight": None}, rf"found no {WEIGHT}, expected the weight in kg"),
    (
        {"Units": "GML", "SUVType": "IBW", "PatientSize": "1.8", "PatientSex": None},
        r"found no PatientSex \(0010,0040\), expected M, F or O for SUV by IBW",
    ),
    # A woman of 300 kg and 1.5 m: 1.07 x 300 - 148 x (300 / 150)^2 = -271 kg.
    (
        {"Units": "GML", "SUVType": "LBMJAMES128", "PatientSize": "1.5", "PatientSex": "F", "PatientWeight": "300"},
        "found weight 300 kg and height 1.5 m, for which LBMJAMES128 is -271 kg, expected a positive mass",
    ),
    ({"PatientWeight": None}, rf"PT/IM0001.dcm: found no {WEIGHT}, expected the weight in kg"),
    ({"PatientWeight": "0"}, rf"found {WEIGHT} 0, expected the weight in kg"),
    ({"PatientWeight": "75000"}, rf"found {WEIGHT} 75000, expected the weight in kg"),
    # 370,000 may be kBq or a very small dose.
    *(
        ({"tracer": {"RadionuclideTotalDose": dose}}, rf"found {DOSE} .*expected the injected dose in Bq")
        for dose in ("0", "-370000000", "370000", "3.7e11")
    ),
    ({"tracer": {"RadionuclideTotalDose": None}}, rf"found no {DOSE}"),
    (
        {"RadiopharmaceuticalInformationSequence": None},
        r"found no RadiopharmaceuticalInformationSequence \(0054,0016\)",
    ),
    (
        {"tracer": {**OTHER_TRACER, "RadionuclideHalfLife": None}},
        rf"found no {HALF_LIFE}, expected the half-life",
    ),
    ({"tracer": {"RadionuclideHalfLife": "109.77"}}, rf"found {HALF_LIFE} 109.77, expected 6586.2 s"),  # minutes
    ({"CorrectedImage": ["DECY", "SCAT"]}, rf"{CORRECTED} DECY, SCAT, expected ATTN and DECY"),
    ({"CorrectedImage": ["ATTN", "SCAT"]}, rf"{CORRECTED} ATTN, SCAT, expected ATTN and DECY"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[str(options) for options, _ in REFUSED])
def test_a_pet_without_a_factor_is_refused(study: StudyFolder, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        scale(study, **options)


# 75 kg and 1.80 m: James M 1.10 x 75 - 128 x (75/180)^2 = 60.27778 kg, F 1.07 x 75 - 148 x (75/180)^2 = 54.55556 kg.
# The body-mass index is 75 / 1.8^2 = 23.14815: Janmahasatian M 9270 x 75 / (6680 + 216 x 23.14815) = 59.52483 kg,
# F 9270 x 75 / (8780 + 244 x 23.14815) = 48.18706 kg. Ideal M 48 + 1.06 x 28 = 77.68 kg, F 45.5 + 0.91 x 28 = 70.98 kg.
# Du Bois: 71.84 x 75^0.425 x 180^0.725 = 19424.06 cm2.
STORED_SUV = [
    ("LBMJAMES128", "M", 75 / 60.277778),
    ("LBMJAMES128", "F", 75 / 54.555556),
    ("LBMJAMES128", "O", 2 * 75 / (60.277778 + 54.555556)),
    ("LBMJANMA", "M", 75 / 59.524829),
    ("LBMJANMA", "F", 75 / 48.187057),
    ("LBMJANMA", "O", 2 * 75 / (59.524829 + 48.187057)),
    ("IBW", "M", 75 / 77.68),
    ("IBW", "F", 75 / 70.98),
    ("IBW", "O", 2 * 75 / (77.68 + 70.98)),
    ("BSA", "M", 75_000 / 19424.056),
    ("BSA", None, 75_000 / 19424.056),
    (None, None, 75_000 / 19424.056),  # centimetres squared can only be a surface
]


@pytest.mark.parametrize(("suv_type", "sex", "expected"), STORED_SUV)
def test_stored_suv_by_other_measures(study: StudyFolder, suv_type: str, sex: str, expected: float) -> None:
    units = "GML" if suv_type not in ("BSA", None) else "CM2ML"
    result = scale(study, Units=units, SUVType=suv_type, PatientSex=sex, PatientSize="1.80")
    assert result.factors == pytest.approx([expected] * 12, rel=1e-6)
    warnings = [finding.action for finding in result.findings]
    assert warnings == (["the mean of both formulas is used"] if sex == "O" else [])


def test_suv_types_that_change_within_the_series(study: StudyFolder) -> None:
    def edit(dataset: Dataset, index: int) -> None:
        if index == 4:
            dataset.SUVType = "IBW"

    with pytest.raises(
        InputError, match=r"IM0005.dcm: found SUVType \(0054,1006\) IBW, expected absent as in PT/IM0001"
    ):
        scale(study, Units="GML", edit=edit)


def beds(hour: int, minutes: tuple[int, int, int], reference_s: tuple[float, float, float]) -> Any:
    """Three beds of four slices and 603 s: minutes of their acquisition, and seconds of their FrameReferenceTime.

    With L = ln 2 / 6586.2 s and x = 603 L = 0.0634611, the average count is ln(x / (1 - e^-x)) / L = 299.9056 s after
    the start of the frame.
    """

    def edit(dataset: Dataset, index: int) -> None:
        dataset.AcquisitionTime = f"{hour}{minutes[index // 4]:02d}00"
        dataset.FrameReferenceTime = str(1000 * reference_s[index // 4])
        dataset.ActualFrameDuration = "603000"

    return edit


def after(seconds: float) -> float:
    """SUV of 1 Bq/ml `seconds` after the injection."""
    return 75_000 / (370e6 * 2 ** (-seconds / 6586.2))


START_SOURCE = "AcquisitionTime and FrameReferenceTime (START)"


@pytest.mark.parametrize("series", ["153000", "135500", None])
def test_start_of_the_scan_by_the_beds(study: StudyFolder, series: str | None) -> None:
    """Beds from 14:05, 14:10 and 14:15 with 600, 900 and 1,200 s: 14:05 + 299.9056 s - 600 s is 13:59:59.9056.

    The first bed is not in the series; SeriesTime is later, earlier or absent.
    """
    result = scale(study, SeriesTime=series, edit=beds(14, (5, 10, 15), (600, 900, 1200)))
    assert result.factors == pytest.approx([after(3599.9056)] * 12, rel=1e-7)
    assert START_SOURCE in result.derivation
    assert result.findings == ()


def test_ge_refers_to_the_start_of_the_bed(study: StudyFolder) -> None:
    """Beds from 14:05, 14:10 and 14:15 with 300, 600 and 900 s: the scan began at 14:00."""
    edit = beds(14, (5, 10, 15), (300, 600, 900))
    result = scale(study, SeriesTime="153000", Manufacturer="GE MEDICAL SYSTEMS", edit=edit)
    assert result.factors == pytest.approx([after(3600)] * 12, rel=1e-9)


@pytest.mark.parametrize(
    ("reference_s", "problem"),
    [
        ((0, 0, 0), "puts the start at 14:09:59 to 14:19:59"),  # after the first bed's
        ((600, 600, 600), "puts the start at 13:59:59 to 14:09:59"),  # of different starts
        ((6e5, 6e5 + 300, 6e5 + 600), "puts the start at"),  # microseconds
    ],
)
@pytest.mark.parametrize(
    ("series", "source", "seconds"), [("153000", "first AcquisitionTime", 3900), ("135800", "SeriesTime", 3480)]
)
def test_impossible_reference_times_are_named(
    study: StudyFolder, reference_s: tuple[float, float, float], problem: str, series: str, source: str, seconds: float
) -> None:
    result = scale(study, SeriesTime=series, edit=beds(14, (5, 10, 15), reference_s))
    assert result.factors == pytest.approx([after(seconds)] * 12, rel=1e-9)
    (finding,) = result.findings
    assert problem in finding.found
    assert finding.action == f"{source} is taken as the start"


def test_without_decay_correction_each_slice_has_its_time(study: StudyFolder) -> None:
    """Beds from 14:00, 14:10 and 14:20: 3899.9056, 4499.9056 and 5099.9056 s after the injection."""
    edit = beds(14, (0, 10, 20), (0, 0, 0))
    result = scale(study, DecayCorrection="NONE", CorrectedImage=["ATTN", "SCAT"], edit=edit)
    expected = [after(seconds) for seconds in (3899.9056, 4499.9056, 5099.9056) for _ in range(4)]
    assert result.factors == pytest.approx(expected, rel=1e-7)
    assert "65.0 to 85.0 min from injection to the average count of each slice (NONE)" in result.derivation


def test_counts_without_decay_correction(study: StudyFolder) -> None:
    """1.5 Bq/ml a count."""
    vendor, times = philips(suv_factor=None, activity_factor=1.5), beds(14, (0, 10, 20), (0, 0, 0))

    def edit(dataset: Dataset, index: int) -> None:
        vendor(dataset, index)
        times(dataset, index)

    result = scale(study, Units="CNTS", DecayCorrection="NONE", CorrectedImage=["ATTN"], edit=edit)
    expected = [1.5 * after(seconds) for seconds in (3899.9056, 4499.9056, 5099.9056) for _ in range(4)]
    assert result.factors == pytest.approx(expected, rel=1e-7)


def test_series_time_counts_before_later_beds(study: StudyFolder) -> None:
    """Acquisitions of the beds at 14:00, 14:03 and so on; the series began at 14:00."""

    def later_beds(dataset: Dataset, index: int) -> None:
        dataset.AcquisitionTime = f"14{3 * (index // 4):02d}00.00"

    assert factor(study, edit=later_beds) == pytest.approx(AN_HOUR, rel=2e-6)


def test_series_processed_later_counts_from_its_first_acquisition(study: StudyFolder) -> None:
    """Series at 15:30, the first bed at 14:40: 100 min, for want of FrameReferenceTime."""

    def late_beds(dataset: Dataset, index: int) -> None:
        dataset.AcquisitionTime = f"14{40 + 3 * (2 - index // 4):02d}00"

    result = scale(study, SeriesTime="153000", edit=late_beds)
    assert result.factors[0] == pytest.approx(HUNDRED_MINUTES, rel=2e-6)
    (finding,) = result.findings
    assert str(finding) == (
        "PT/IM0001.dcm: found no FrameReferenceTime (0054,1300), expected the time from the start of the scan in ms; "
        "first AcquisitionTime is taken as the start"
    )
    assert "100.0 min from injection to first AcquisitionTime (START)" in result.derivation


VENDORS = {
    "GE": (0x0009, "GEMS_PETD_01", 0x0D, "GE scan time (0009,100D)"),
    "SIEMENS": (0x0071, "SIEMENS MED PT", 0x22, "Siemens decay correction time (0071,1022)"),
}


def recorded(vendor: str, *, creator: bool = True) -> Any:
    """A vendor's private start of the scan, 14:00."""

    def edit(dataset: Dataset, index: int) -> None:
        group, name, element, _ = VENDORS[vendor]
        dataset.private_block(group, name, create=True).add_new(element, "DT", "20250301140000.00")
        if not creator:
            del dataset[group, 0x0010]

    return edit


@pytest.mark.parametrize("creator", [True, False])
@pytest.mark.parametrize("series", ["153000", "135500"])
@pytest.mark.parametrize("vendor", VENDORS)
def test_the_start_that_a_vendor_recorded(study: StudyFolder, vendor: str, series: str, creator: bool) -> None:
    """14:00; SeriesTime is later or earlier, and AcquisitionTime, 14:30, stays unused."""
    edit = recorded(vendor, creator=creator)
    result = scale(study, SeriesTime=series, AcquisitionTime="143000", edit=edit)
    assert result.factors[0] == pytest.approx(AN_HOUR, rel=2e-6)
    assert VENDORS[vendor][3] in result.derivation


def test_a_private_attribute_of_another_vendor_is_not_read(study: StudyFolder) -> None:
    edit = recorded("SIEMENS", creator=False)
    result = scale(study, SeriesTime="133000", AcquisitionTime="133000", Manufacturer="AGFA", edit=edit)
    assert result.factors[0] == pytest.approx(after(1800), rel=1e-9)


def test_acquisition_after_midnight_without_its_date(study: StudyFolder) -> None:
    """Series at 23:50, acquired from 23:50 to 00:10: the series comes first. Injected at 22:50."""

    def two_beds(dataset: Dataset, index: int) -> None:
        dataset.AcquisitionTime = "235000" if index < 6 else "001000"

    late = {"RadiopharmaceuticalStartTime": "225000"}
    options = {"SeriesTime": "235000", "AcquisitionDate": None, "edit": two_beds, "tracer": late}
    assert factor(study, **options) == pytest.approx(AN_HOUR, rel=2e-6)


@pytest.mark.parametrize(
    ("start", "zone"),
    [
        ("20250301130000.000000", None),
        ("20250301130000+0100", "+0100"),
        ("20250301120000.00+0000", "+0100"),  # 13:00 of the scanner's clock
        ("20250301130000+0500", None),  # no zone of the file: local time
    ],
)
def test_injection_with_date_and_time_zone(study: StudyFolder, start: str, zone: str | None) -> None:
    tracer = {"RadiopharmaceuticalStartDateTime": start, "RadiopharmaceuticalStartTime": None}
    assert factor(study, tracer=tracer, TimezoneOffsetFromUTC=zone) == pytest.approx(AN_HOUR, rel=2e-6)


def test_injection_on_a_date_that_anonymisation_moved(study: StudyFolder) -> None:
    result = scale(study, tracer={"RadiopharmaceuticalStartDateTime": "20190101130000"})
    assert result.factors[0] == pytest.approx(AN_HOUR, rel=2e-6)
    assert [(finding.found, finding.action) for finding in result.findings] == [
        (
            "RadiopharmaceuticalStartDateTime (0018,1078) 20190101130000 for a scan at 2025-03-01 14:00:00",
            "only its time of day is used",
        )
    ]


def test_dose_in_mbq(study: StudyFolder) -> None:
    result = scale(study, tracer={"RadionuclideTotalDose": "370"})
    assert result.factors[0] == pytest.approx(AN_HOUR, rel=2e-6)
    assert [str(finding) for finding in result.findings] == [
        "PT/IM0001.dcm: found RadionuclideTotalDose (0018,1074) 370, expected a dose in Bq; taken as MBq"
    ]


def test_unknown_corrections(study: StudyFolder) -> None:
    result = scale(study, CorrectedImage=None)
    assert result.factors[0] == pytest.approx(AN_HOUR, rel=2e-6)
    assert [finding.action for finding in result.findings] == ["taken as corrected"]


def test_units_that_change_within_the_series(study: StudyFolder, tmp_path: Path) -> None:
    def edit(dataset: Dataset, index: int) -> None:
        dataset.Units = "GML" if index == 5 else "BQML"

    with pytest.raises(
        InputError, match=r"PT/IM0006.dcm: found Units \(0054,1001\) GML, expected BQML as in PT/IM0001"
    ):
        scale(study, edit=edit)


def test_counts_become_suv_in_the_case(study: StudyFolder, convert: Any) -> None:
    """Philips' counts: SUV = (stored * slope) * factor."""
    from tests.convert.studies import pet_volume

    study.ct()
    study.pet(scale=0.0005, Units="CNTS", edit=philips(suv_factor=0.0005, activity_factor=None))
    pet = convert().image("pet").array
    np.testing.assert_allclose(pet, pet_volume().array, atol=15 / 32767)
