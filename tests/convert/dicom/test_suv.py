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
    ({"DecayCorrection": "NONE"}, r"found DecayCorrection \(0054,1102\) NONE, expected START or ADMIN"),
    ({"tracer": {"RadiopharmaceuticalStartTime": "141000"}}, TOO_LONG_AGO),  # ten minutes after the scan
    ({"tracer": {"RadiopharmaceuticalStartTime": "073000"}}, TOO_LONG_AGO),  # 6.5 hours before it
    ({"Units": "CNTS"}, r"CNTS without \(7053,1000\) and \(7053,1009\), expected Philips' SUV factor"),
    ({"Units": "GML", "SUVType": "LBM"}, r"found SUVType \(0054,1006\) LBM, expected BW"),
    ({"Units": "GML", "SUVType": "BSA"}, r"found SUVType \(0054,1006\) BSA, expected BW"),
    ({"Units": "PROPCPS"}, r"found Units \(0054,1001\) PROPCPS, expected BQML, CNTS"),
    ({"Units": "CM2ML"}, r"found Units \(0054,1001\) CM2ML, expected BQML, CNTS"),
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


def test_series_time_counts_before_later_beds(study: StudyFolder) -> None:
    """Acquisitions of the beds at 14:00, 14:03 and so on; the series began at 14:00."""

    def beds(dataset: Dataset, index: int) -> None:
        dataset.AcquisitionTime = f"14{3 * (index // 4):02d}00.00"

    assert factor(study, edit=beds) == pytest.approx(AN_HOUR, rel=2e-6)


def test_series_processed_later_counts_from_its_first_acquisition(study: StudyFolder) -> None:
    """Series at 15:30, the first bed at 14:40: 100 min."""

    def beds(dataset: Dataset, index: int) -> None:
        dataset.AcquisitionTime = f"14{40 + 3 * (2 - index // 4):02d}00"

    result = scale(study, SeriesTime="153000", edit=beds)
    assert result.factors[0] == pytest.approx(HUNDRED_MINUTES, rel=2e-6)
    assert "100.0 min from injection to first AcquisitionTime (START)" in result.derivation


@pytest.mark.parametrize("creator", [True, False])
def test_series_processed_later_with_the_scan_time_of_ge(study: StudyFolder, creator: bool) -> None:
    """GE's scan time 14:00; the acquisition time stays unused."""

    def ge(dataset: Dataset, index: int) -> None:
        dataset.private_block(0x0009, "GEMS_PETD_01", create=True).add_new(0x0D, "DT", "20250301140000.00")
        if not creator:
            del dataset[0x0009, 0x0010]

    result = scale(study, SeriesTime="153000", AcquisitionTime="143000", edit=ge)
    assert result.factors[0] == pytest.approx(AN_HOUR, rel=2e-6)
    assert "GE scan time (0009,100D)" in result.derivation


def test_acquisition_after_midnight_without_its_date(study: StudyFolder) -> None:
    """Series at 23:50, acquired from 23:50 to 00:10: the series comes first. Injected at 22:50."""

    def beds(dataset: Dataset, index: int) -> None:
        dataset.AcquisitionTime = "235000" if index < 6 else "001000"

    late = {"RadiopharmaceuticalStartTime": "225000"}
    options = {"SeriesTime": "235000", "AcquisitionDate": None, "edit": beds, "tracer": late}
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
