"""SUV factors against hand-derived numbers.

Dose 370 MBq of F-18 (half-life 6586.2 s), weight 75 kg, injection at 13:00, scan at 14:00: 370 MBq * 2^(-3600 / 6586.2)
= 370 MBq * 0.684633 = 253.314 MBq remain, so 1 Bq/ml is 75,000 g / 253.314e6 Bq = 2.96075e-4. Without decay
(ADMIN) it is 75,000 / 370e6 = 2.02703e-4.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydicom.dataset import Dataset

from contract.errors import InputError
from convert.dicom.files import read_folder
from convert.dicom.suv import SuvScale, compute_suv_scale
from tests.convert.studies import HOUR_FACTOR, PET_GRID, StudyFolder, change

AN_HOUR = 2.96075e-4
AT_INJECTION = 2.02703e-4


def compute_scale(study: StudyFolder, **options: Any) -> SuvScale:
    study.add_pet(**options)
    return compute_suv_scale(read_folder(study.root).headers)


def compute_factor(study: StudyFolder, **options: Any) -> float:
    factors = compute_scale(study, **options).factors
    assert len(factors) == PET_GRID.size[2]
    assert len(set(factors)) == 1
    return factors[0]


def add_philips_factors(*, suv_factor: float | None, activity_factor: float | None, creator: bool = True) -> Any:
    def edit(dataset: Dataset, index: int) -> None:
        block = dataset.private_block(0x7053, "Philips PET Private Group", create=True)
        if suv_factor is not None:
            block.add_new(0x00, "DS", str(suv_factor))
        if activity_factor is not None:
            block.add_new(0x09, "DS", str(activity_factor))
        if not creator:
            del dataset[0x7053, 0x0010]

    return edit


def test_the_constant_equals_the_hand_derived_factor() -> None:
    assert pytest.approx(AN_HOUR, rel=2e-6) == HOUR_FACTOR


def test_decay_correction_to_the_start_of_the_scan(study: StudyFolder) -> None:
    result = compute_scale(study)
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
        {"Units": "CNTS", "PatientWeight": None, "edit": add_philips_factors(suv_factor=0.000551, activity_factor=1.5)},
        0.000551,
    ),
    # 1.5 Bq/ml a count; an SUV factor of 0 counts as absent.
    "Philips' activity factor": (
        {"Units": "CNTS", "edit": add_philips_factors(suv_factor=0, activity_factor=1.5)},
        1.5 * AN_HOUR,
    ),
    "Philips' activity factor without its creator": (
        {"Units": "CNTS", "edit": add_philips_factors(suv_factor=0, activity_factor=1.5, creator=False)},
        1.5 * AN_HOUR,
    ),
}


@pytest.mark.parametrize("name", FACTORS)
def test_factors(study: StudyFolder, name: str) -> None:
    options, expected = FACTORS[name]
    assert compute_factor(study, **options) == pytest.approx(expected, rel=2e-6)


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
    ({"tracer": {**OTHER_TRACER, "RadionuclideHalfLife": None}}, rf"found no {HALF_LIFE}, expected the half-life"),
    ({"tracer": {"RadionuclideHalfLife": "109.77"}}, rf"found {HALF_LIFE} 109.77, expected 6586.2 s"),  # minutes
    ({"CorrectedImage": ["DECY", "SCAT"]}, rf"{CORRECTED} DECY, SCAT, expected ATTN and DECY"),
    ({"CorrectedImage": ["ATTN", "SCAT"]}, rf"{CORRECTED} ATTN, SCAT, expected ATTN and DECY"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[str(options) for options, _ in REFUSED])
def test_a_pet_without_a_factor_is_refused(study: StudyFolder, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compute_scale(study, **options)


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
    result = compute_scale(study, Units=units, SUVType=suv_type, PatientSex=sex, PatientSize="1.80")
    assert result.factors == pytest.approx([expected] * PET_GRID.size[2], rel=1e-6)
    warnings = [finding.action for finding in result.findings]
    assert warnings == (["the mean of both formulas is used"] if sex == "O" else [])


def test_unknown_corrections(study: StudyFolder) -> None:
    result = compute_scale(study, CorrectedImage=None)
    assert result.factors[0] == pytest.approx(AN_HOUR, rel=2e-6)
    assert [finding.action for finding in result.findings] == ["assumed to be corrected"]


def with_tracer(**changes: Any) -> Any:
    def edit(dataset: Dataset) -> None:
        change(dataset.RadiopharmaceuticalInformationSequence[0], changes)

    return edit


def with_values(**changes: Any) -> Any:
    return lambda dataset: change(dataset, changes)


NOT_SHARED: dict[str, tuple[dict[str, Any], Any, str]] = {
    "dose": ({}, with_tracer(RadionuclideTotalDose="300000000"), rf"found {DOSE} 300000000.0, expected 370000000.0 as"),
    "weight": ({}, with_values(PatientWeight="90"), rf"found {WEIGHT} 90.0, expected 75.0 as in"),
    "injection": ({}, with_tracer(RadiopharmaceuticalStartTime="120000"), "found injection at 2025-03-01 12:00:00"),
    "half-life": ({"tracer": OTHER_TRACER}, with_tracer(RadionuclideHalfLife="4057.7"), rf"found {HALF_LIFE} 4057.7"),
    "tracer": ({}, with_values(RadiopharmaceuticalInformationSequence=None), "found no Radiopharmaceutical"),
    "attenuation": ({}, with_values(CorrectedImage=["DECY"]), rf"found {CORRECTED} DECY, expected ATTN and DECY"),
    "no corrections": ({}, with_values(CorrectedImage=None), rf"found {CORRECTED} absent, expected ATTN and DECY"),
    "decay correction": ({}, with_values(DecayCorrection="ADMIN"), r"found DecayCorrection \(0054,1102\) ADMIN"),
    "time of correction": (
        {"DecayCorrectionDateTime": "20250301140000"},
        with_values(DecayCorrectionDateTime="20250301143000"),
        "found a decay correction to 2025-03-01 14:30:00, expected 2025-03-01 14:00:00 as in",
    ),
    "time of correction, absent": (
        {},
        with_values(DecayCorrectionDateTime="20250301143000"),
        "found a decay correction to 2025-03-01 14:30:00, expected absent as in",
    ),
    "series": ({}, with_values(SeriesTime="143000"), r"found SeriesTime \(0008,0031\) 2025-03-01 14:30:00, exp"),
    "acquisition": ({}, with_values(AcquisitionTime=None), r"found no AcquisitionTime \(0008,0032\), expected one, as"),
    "type of SUV": (
        {"Units": "GML"},
        with_values(SUVType="IBW"),
        r"found SUVType \(0054,1006\) IBW, expected absent as",
    ),
    "units": ({}, with_values(Units="GML"), r"found Units \(0054,1001\) GML, expected BQML as in"),
    "height": (
        {"Units": "GML", "SUVType": "IBW", "PatientSize": "1.8"},
        with_values(PatientSize="1.7"),
        "found a body measure IBW 67080.0, expected 77680.0 as in",  # 48,000 + 1,060 * (170 or 180 - 152) g
    ),
    "weight of stored SUV": (
        {"Units": "GML", "SUVType": "IBW", "PatientSize": "1.8"},
        with_values(PatientWeight="90"),
        rf"found {WEIGHT} 90.0, expected 75.0 as in",
    ),
}


@pytest.mark.parametrize("name", NOT_SHARED)
def test_slices_that_disagree_are_refused(study: StudyFolder, name: str) -> None:
    """Slice 3 of 6 has another value than the others; the message names its file."""
    options, edit_slice, message = NOT_SHARED[name]

    def edit(dataset: Dataset, index: int) -> None:
        if index == 3:
            edit_slice(dataset)

    with pytest.raises(InputError, match=rf"IM0004.dcm: {message}"):
        compute_scale(study, edit=edit, **options)


def test_spellings_of_one_value_agree(study: StudyFolder) -> None:
    def edit(dataset: Dataset, index: int) -> None:
        if index == 3:
            with_values(PatientWeight="75.00", SeriesTime="140000.00")(dataset)
            with_tracer(RadionuclideTotalDose="3.7E8", RadiopharmaceuticalStartTime="130000.0")(dataset)

    assert compute_factor(study, edit=edit) == pytest.approx(AN_HOUR, rel=2e-6)
