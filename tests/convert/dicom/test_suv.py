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


def test_decay_correction_to_the_injection(study: StudyFolder) -> None:
    assert factor(study, DecayCorrection="ADMIN") == pytest.approx(AT_INJECTION, rel=2e-6)


def test_pet_without_decay_correction_is_refused(study: StudyFolder) -> None:
    with pytest.raises(InputError, match=r"found DecayCorrection \(0054,1102\) NONE, expected START or ADMIN"):
        scale(study, DecayCorrection="NONE")


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


def test_injection_before_midnight(study: StudyFolder) -> None:
    """Injected at 23:30, scanned at 00:30 of the next day: 60 min."""
    late = {"RadiopharmaceuticalStartTime": "233000"}
    assert factor(study, SeriesTime="003000", AcquisitionTime="003000", tracer=late) == pytest.approx(AN_HOUR, rel=2e-6)


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


@pytest.mark.parametrize("start", ["141000", "073000"])
def test_impossible_time_of_injection(study: StudyFolder, start: str) -> None:
    """Ten minutes after the scan, and 6.5 hours before it."""
    with pytest.raises(InputError, match="expected an injection at most 6 hours before the scan"):
        scale(study, tracer={"RadiopharmaceuticalStartTime": start})


def test_philips_suv_factor(study: StudyFolder) -> None:
    edit = philips(suv_factor=0.000551, activity_factor=1.5)
    assert factor(study, Units="CNTS", PatientWeight=None, edit=edit) == pytest.approx(0.000551)


@pytest.mark.parametrize("creator", [True, False])
def test_philips_activity_factor(study: StudyFolder, creator: bool) -> None:
    """1.5 Bq/ml a count: 1.5 times the factor of Bq/ml; an SUV factor of 0 counts as absent."""
    edit = philips(suv_factor=0, activity_factor=1.5, creator=creator)
    assert factor(study, Units="CNTS", edit=edit) == pytest.approx(1.5 * AN_HOUR, rel=2e-6)


def test_counts_without_a_factor(study: StudyFolder) -> None:
    with pytest.raises(InputError, match=r"CNTS without \(7053,1000\) and \(7053,1009\), expected Philips' SUV factor"):
        scale(study, Units="CNTS")


@pytest.mark.parametrize("suv_type", [None, "BW"])
def test_stored_suv(study: StudyFolder, suv_type: str | None) -> None:
    assert factor(study, Units="GML", SUVType=suv_type, PatientWeight=None) == 1.0


@pytest.mark.parametrize("suv_type", ["LBM", "BSA"])
def test_suv_of_another_type(study: StudyFolder, suv_type: str) -> None:
    with pytest.raises(InputError, match=rf"found SUVType \(0054,1006\) {suv_type}, expected BW"):
        scale(study, Units="GML", SUVType=suv_type)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (None, r"PT/IM0001.dcm: found no PatientWeight \(0010,1030\), expected the weight in kg"),
        ("0", r"found PatientWeight \(0010,1030\) 0, expected the weight in kg"),
        ("75000", r"found PatientWeight \(0010,1030\) 75000, expected the weight in kg"),
    ],
)
def test_weight(study: StudyFolder, weight: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        scale(study, PatientWeight=weight)


def test_dose_in_mbq(study: StudyFolder) -> None:
    result = scale(study, tracer={"RadionuclideTotalDose": "370"})
    assert result.factors[0] == pytest.approx(AN_HOUR, rel=2e-6)
    assert [str(finding) for finding in result.findings] == [
        "PT/IM0001.dcm: found RadionuclideTotalDose (0018,1074) 370, expected a dose in Bq; taken as MBq"
    ]


@pytest.mark.parametrize("dose", ["0", "-370000000", "370000", "3.7e11"])
def test_impossible_dose(study: StudyFolder, dose: str) -> None:
    """370,000 may be kBq or a very small dose."""
    with pytest.raises(
        InputError, match=r"found RadionuclideTotalDose \(0018,1074\) .*expected the injected dose in Bq"
    ):
        scale(study, tracer={"RadionuclideTotalDose": dose})


def test_missing_dose_and_tracer(study: StudyFolder) -> None:
    with pytest.raises(InputError, match=r"found no RadionuclideTotalDose \(0018,1074\)"):
        scale(study, tracer={"RadionuclideTotalDose": None})


def test_missing_sequence_of_the_tracer(study: StudyFolder) -> None:
    with pytest.raises(InputError, match=r"found no RadiopharmaceuticalInformationSequence \(0054,0016\)"):
        scale(study, RadiopharmaceuticalInformationSequence=None)


def test_half_life_of_f18_if_absent(study: StudyFolder) -> None:
    assert factor(study, tracer={"RadionuclideHalfLife": None}) == pytest.approx(AN_HOUR, rel=2e-6)


def test_half_life_of_another_nuclide(study: StudyFolder) -> None:
    """Ga-68, 4057.7 s: 370 MBq * 2^(-3600 / 4057.7) = 370 * 0.540662 = 200.045 MBq, so 75,000 / 200.045e6."""
    gallium = {"RadionuclideCodeSequence": None, "Radiopharmaceutical": "DOTATATE"}
    result = factor(study, tracer={**gallium, "RadionuclideHalfLife": "4057.7"})
    assert result == pytest.approx(3.74916e-4, rel=2e-6)


def test_unknown_half_life(study: StudyFolder) -> None:
    unknown = {"RadionuclideCodeSequence": None, "Radiopharmaceutical": "DOTATATE", "RadionuclideHalfLife": None}
    with pytest.raises(InputError, match=r"found no RadionuclideHalfLife \(0018,1075\), expected the half-life"):
        scale(study, tracer=unknown)


def test_half_life_in_minutes(study: StudyFolder) -> None:
    with pytest.raises(InputError, match=r"found RadionuclideHalfLife \(0018,1075\) 109.77, expected 6586.2 s"):
        scale(study, tracer={"RadionuclideHalfLife": "109.77"})


@pytest.mark.parametrize("corrections", [["DECY", "SCAT"], ["ATTN", "SCAT"]])
def test_uncorrected_pet(study: StudyFolder, corrections: list[str]) -> None:
    with pytest.raises(
        InputError, match=rf"CorrectedImage \(0028,0051\) {corrections[0]}, SCAT, expected ATTN and DECY"
    ):
        scale(study, CorrectedImage=corrections)


def test_unknown_corrections(study: StudyFolder) -> None:
    result = scale(study, CorrectedImage=None)
    assert result.factors[0] == pytest.approx(AN_HOUR, rel=2e-6)
    assert [finding.action for finding in result.findings] == ["taken as corrected"]


@pytest.mark.parametrize("units", ["PROPCPS", "CM2ML"])
def test_other_units(study: StudyFolder, units: str) -> None:
    with pytest.raises(InputError, match=rf"found Units \(0054,1001\) {units}, expected BQML, CNTS"):
        scale(study, Units=units)


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
