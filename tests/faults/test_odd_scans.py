"""Unusual scans are answered on the CT's grid, and named if they must not be trusted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm import Predictor
from algorithm.case.read import CT_ONLY
from algorithm.cli import main
from contract import platform
from contract.errors import Finding, run_main
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume
from contract.io.files import read_json
from tests.algorithm.edition import SEGMENTATION
from tests.conftest import EHR, CaseFolder
from tests.faults.odd_scans import OddScan, list_odd_scans

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("root_logger")]

SCANS = list_odd_scans(coarsening=8)
NO_LANDMARK = "CT: neither a brain nor lungs, expected a head or neck in view, the head up (+z); the region is unsure"
EMPTY = (
    "CT: neither a body nor uptake, expected a head or neck in view, the head up (+z); "
    "the mask stays empty, and image features use their training medians"
)
CT, PET = "CT 0a1b2c3d-ct.mha", "PET 4e5f6a7b-pet.mha"
COVERED = "PET: covers {}% of the height of the head and neck that the CT shows; "
SCALED = "expected SUV; assumed to be in Bq/ml and scaled by 0.00026{} from the uptake of muscle and fat, uncertain by about 30%"
IN_KBQ_PER_ML = (
    "median uptake of muscle 3.06, fat 1.33, expected SUV of about muscle 0.7, fat 0.4; possibly kBq/ml; not scaled"
)
NO_INTERCEPT = "expected -1000, and 0 to 100; the rescale intercept of -1024 is missing; continuing with these values"
CASE, APICES, OUTLINE = "brain case", "lung apices", "body outline"


@dataclass(frozen=True)
class Expected:
    """The landmark of the region, whether it is sure, the warnings, and the PET threshold's mask.

    The mask is "tumour" if it overlaps the reference, "elsewhere" if it does not, or "empty".
    """

    found_by: str
    sure: bool = True
    warnings: tuple[str, ...] = ()
    mask: str = "tumour"


SURE, UNSURE = Expected(CASE), Expected(APICES, sure=False)
EXPECTED: dict[str, Expected] = {
    "whole body": SURE,
    "head and neck": SURE,
    "abdomen": Expected(OUTLINE, False, (), "elsewhere"),
    "cut at the mandible": UNSURE,
    "cut at the skull base": UNSURE,
    "20 mm of brain": UNSURE,
    "PET ends at the chin": Expected(CASE, False, (COVERED.format(39) + "no uptake beyond",)),
    "PET ends at the lungs": Expected(CASE, False, (COVERED.format(14) + CT_ONLY,), "empty"),
    "prone, header says prone": SURE,
    "prone, header says supine": SURE,
    "oblique by 20 degrees": SURE,
    "slices of 12 mm": Expected("brain's uptake"),
    "stored sagittally": SURE,
    "PET in Bq/ml": Expected(CASE, True, (f"{PET}: highest value 65543, {SCALED.format(3)}",)),
    "PET in kBq/ml": Expected(CASE, True, (f"{PET}: {IN_KBQ_PER_ML}",)),
    "PET in Bq/ml, 16 bits": Expected(CASE, True, (f"{PET}: highest value 32767, {SCALED.format(1)}",)),
    "PET zero": Expected(
        CASE, False, (f"{PET}: all voxels are zero; continuing with only the CT; expect an empty mask",), "empty"
    ),
    "CT padded with -2000 HU": SURE,
    "CT padded with -3024 HU": SURE,
    "CT from -1000 to 1000 HU": SURE,
    "CT from -160 to 240 HU": SURE,
    "CT without intercept": Expected(
        OUTLINE, False, (f"{CT}: air near 19 HU, soft tissue near 1070 HU, fat in 1.8% of the voxels, {NO_INTERCEPT}",)
    ),
}


@dataclass(frozen=True)
class Run:
    """Exit status, record and mask (None without an answer)."""

    status: int
    record: dict[str, Any] | None
    mask: Volume | None


def write_case(scan: OddScan, folder: Path) -> CaseFolder:
    case = CaseFolder(folder)
    case.ct, case.pet = scan.ct, scan.pet
    return case.write(compress=False)


def run(case: CaseFolder) -> Run:
    record = case.root / "record.json"
    folders = ["--input", str(case.input), "--output", str(case.output), "--record", str(record)]
    status = run_main(main, ["--task", "1", "--method", "threshold", *folders])
    path = SEGMENTATION.answers[0].socket.path_under(case.output) / platform.MASK_FILE_NAME
    answered = path.is_file()
    return Run(status, read_json(record) if record.is_file() else None, read_volume(path) if answered else None)


def test_every_scan_has_an_expectation() -> None:
    assert list(EXPECTED) == list(SCANS)


@pytest.mark.parametrize("name", EXPECTED)
def test_an_odd_scan(name: str, tmp_path: Path) -> None:
    scan, expected = SCANS[name](), EXPECTED[name]
    case = write_case(scan, tmp_path)
    answer = run(case)
    assert (answer.status, answer.record is None, answer.mask is None) == (0, False, False)
    assert answer.record is not None and answer.mask is not None  # noqa: PT018 - narrows the types
    region = answer.record["region"]
    assert (region["found_by"], region["sure"]) == (expected.found_by, expected.sure)
    unsure = (NO_LANDMARK,) if expected.found_by == OUTLINE else ()
    assert tuple(str(Finding(**notice)) for notice in answer.record["notices"]) == (*expected.warnings, *unsure)
    assert answer.mask.geometry.find_differences(scan.ct.geometry) == []
    assert locate_mask(answer.mask.array, scan.mask.array) == expected.mask


def locate_mask(mask: np.ndarray, reference: np.ndarray) -> str:
    if not mask.any():
        return "empty"
    return "tumour" if (mask[reference > 0] > 0).any() else "elsewhere"


# Without image features the tiny package's heads add the intercept 0.5, 0.1 times the training median 1 of volume or SUV
# and 0.02 times the age, which is 61 SD above the mean and therefore limited to 4. With a volume of 0 the risk would be
# 0.58.
NEUTRAL = {"segmentation": None, "rfs": 0.5 + 0.1 * 1 + 0.02 * 4, "hpv": True}


@pytest.fixture
def empty_case(tmp_path: Path) -> CaseFolder:
    """Write a case with a CT of air and a PET of SUV 0.2."""
    case = write_case(SCANS["abdomen"](), tmp_path)
    case.ct = Volume(np.full_like(case.ct.array, -1000), case.ct.geometry)
    case.pet = Volume(np.full_like(case.pet.array, 0.2), case.pet.geometry)
    return case.write(compress=False)


@pytest.mark.parametrize("task", NEUTRAL)
def test_an_empty_scan_in_python(empty_case: CaseFolder, tiny_package: Path, task: str) -> None:
    predictor = Predictor(tiny_package, task=task, device="cpu")
    scans = empty_case.ct.array, empty_case.ct.geometry, empty_case.pet.array, empty_case.pet.geometry
    for prediction in (predictor.predict(empty_case.input), predictor.predict_arrays(*scans, ehr=EHR)):
        assert [str(notice) for notice in prediction.record.notices] == [EMPTY]
        assert (prediction.record.segmented_by, prediction.record.passes_done) == (None, 0)
        if NEUTRAL[task] is None:
            assert prediction.mask is not None
            assert not prediction.mask.any()
        else:
            assert {**prediction.risks, **prediction.classes} == {task: pytest.approx(NEUTRAL[task])}


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("PET in Bq/ml", "assumed to be in Bq/ml and scaled by 0.00025 with the factor of the case"),
        ("abdomen", "the region is unsure"),
    ],
)
def test_four_answers_to_an_odd_scan(name: str, warning: str, tmp_path: Path, combined_package: Path) -> None:
    """A PET of 4,000 Bq/ml per SUV comes with its factor."""
    case = write_case(SCANS[name](), tmp_path)
    factor = {"SUV Factor": 1 / 4000} if "Bq/ml" in name else {}
    case.ehr_path.write_text(
        json.dumps({key: EHR[key] for key in EHR if key != "M-stage"} | {"HPV Status": 1} | factor)
    )
    prediction = Predictor(combined_package, edition="hecktor2026", device="cpu", passes=1).predict(case.input)
    assert warning in [notice.action for notice in prediction.record.notices]
    assert list(prediction.record.fallbacks) == []
    assert prediction.mask is not None
    assert prediction.mask.shape == case.ct.array.shape
    assert (prediction.classes["n_stage"] == "N0") == (not (prediction.mask == 2).any())
    assert prediction.risks["rfs"] > 0


@pytest.mark.slow
def test_four_answers_to_a_ct_of_over_100_million_voxels(combined_package: Path) -> None:
    """Split the pixels of a whole body of 64 x 64 pixels into 11 x 11 each."""
    scan = SCANS["whole body"]()
    ct = np.repeat(np.repeat(scan.ct.array, 11, axis=1), 11, axis=2)
    (columns, rows, slices), (across, along, thickness) = scan.ct.geometry.size, scan.ct.geometry.spacing_mm
    x, y, z = scan.ct.geometry.origin_mm
    origin = (x - across * 10 / 22, y - along * 10 / 22, z)  # the centre of a pixel's first part
    grid = Geometry((columns * 11, rows * 11, slices), (across / 11, along / 11, thickness), origin)
    assert ct.size > 100e6
    predictor = Predictor(combined_package, edition="hecktor2026", device="cpu", passes=1)
    prediction = predictor.predict_arrays(ct, grid, scan.pet.array, scan.pet.geometry)
    assert prediction.mask is not None
    assert prediction.mask.shape == ct.shape
    assert list(prediction.record.fallbacks) == []
    assert prediction.risks["rfs"] > 0
