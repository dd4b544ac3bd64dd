"""Degenerate but readable input is answered, with a warning that names it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm import Predictor
from contract import platform
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import coarsen_protocol, make_case
from rehearsal.phantoms.rendering import Rendered, render
from tests.algorithm.edition import SEGMENTATION
from tests.conftest import but_of_toys

MASK = f"{SEGMENTATION.answers[0].socket.relative_path}/{platform.MASK_FILE_NAME}"


def alter(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Any], None]:
    def spoil(case: Any) -> None:
        volume = getattr(case, name)
        setattr(case, name, Volume(change(volume.array.copy()), volume.geometry))

    return spoil


def put(value: float, *, everywhere: bool = False) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array = array.astype(np.float32)
        array[... if everywhere else (slice(0, 2), 0, 0)] = value
        return array

    return change


def moved(case: Any) -> None:
    there = case.pet.geometry
    case.pet = Volume(case.pet.array, Geometry(there.size, there.spacing_mm, (900.0, 0.0, 0.0)))


def record(**changes: Any) -> Callable[[Any], None]:
    return lambda case: case.ehr.update({key.replace("_", " "): value for key, value in changes.items()})


DEGENERATE: dict[str, tuple[Callable[[Any], object], str]] = {
    "ct-nan": (alter("ct", put(math.nan)), "CT 0a1b2c3d-ct.mha: 2 voxels are NaN or infinite; set to air"),
    "ct-infinite": (alter("ct", put(math.inf)), "2 voxels are NaN or infinite; set to air"),
    "ct-all-nan": (alter("ct", put(math.nan, everywhere=True)), "11520 voxels are NaN or infinite; set to air"),
    "pet-nan": (alter("pet", put(math.nan)), "PET 4e5f6a7b-pet.mha: 2 voxels are NaN or infinite; set to zero"),
    "pet-negative": (alter("pet", put(-1)), "2 voxels below zero; set to zero"),
    "pet-zero": (
        alter("pet", put(0, everywhere=True)),
        "all voxels are zero; going on with the CT alone; expect an empty mask",
    ),
    "pet-elsewhere": (moved, "does not overlap the CT"),
    "pet-in-becquerels": (alter("pet", lambda array: array * 5000), "taken for Bq/ml and scaled by"),
    "unknown-key": (record(Shoe_size=44), "ehr.json: unknown key 'Shoe size'; ignored"),
    "impossible-value": (record(Age=-3), "ehr.json: Age '-3', expected an age from 0 to 120 years; counts as missing"),
    "number-as-text-of-another-kind": (
        record(Treatment="both"),
        "ehr.json: Treatment 'both' is not a number, expected",
    ),
    "no-value-at-all": (lambda case: case.ehr.clear(), "ehr.json: missing Age, Gender, Tobacco Consumption"),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_answered_with_a_warning(case_folder: Any, predict: Any, name: str) -> None:
    spoil, warning = DEGENERATE[name]
    spoil(case_folder)
    case_folder.write()
    answer = predict("rfs")
    assert answer.status == 0
    assert any(warning in line for line in answer.warnings), answer.lines
    assert math.isfinite(json.loads((case_folder.output / "rfs.json").read_text()))


@pytest.mark.parametrize("name", ["ct-all-nan", "pet-zero", "pet-elsewhere", "pet-in-becquerels", "no-value-at-all"])
@pytest.mark.parametrize("method", ["baseline", "threshold"])
def test_masks_of_degenerate_cases(case_folder: Any, predict: Any, name: str, method: str) -> None:
    DEGENERATE[name][0](case_folder)
    case_folder.write()
    answer = predict("1", "--method", method)
    assert (answer.status, answer.files) == (0, [MASK])
    mask = read_volume(case_folder.output / MASK)
    assert mask.geometry.find_differences(case_folder.ct.geometry) == []
    assert set(np.unique(mask.array)) <= {0, 1, 2}


def test_each_head_states_its_rule_for_missing_values(case_folder: Any, predict: Any) -> None:
    case_folder.ehr["Age"] = None
    case_folder.write()
    answer = predict("rfs", "--method", "clinical")
    assert any("rfs: age_years is missing; instead its training median 1 is used" in line for line in answer.lines)


def test_numbers_as_text_are_no_defect(case_folder: Any, predict: Any) -> None:
    """`0`, `0.0`, "0" and "0.0" are one value: the answers are equal and nothing is warned of."""
    answers = set()
    for value in (0, 0.0, "0", "0.0"):
        case_folder.ehr |= {"Tobacco Consumption": value, "Age": "61"}
        case_folder.write()
        answer = predict("hpv", "--method", "clinical")
        assert (answer.status, answer.warnings) == (0, [])
        answers.add((case_folder.output / "hpv-status.json").read_text())
    assert answers == {"true\n"}


@pytest.fixture(scope="module")
def phantom() -> Rendered:
    """A head and neck whose CT shows fat and muscle."""
    case = make_case(21, 0, CENTRES, "head_and_neck")
    return render(replace(case, protocol=coarsen_protocol(case.protocol, 8)))


@pytest.fixture
def phantom_folder(case_folder: Any, phantom: Rendered) -> Any:
    case_folder.ct, case_folder.pet = phantom.ct, phantom.pet
    return case_folder


OTHER_UNITS: dict[str, tuple[Callable[[Any], None], str]] = {
    "PET in Bq/ml": (alter("pet", lambda suv: suv * np.float32(4900)), "by the uptake of muscle and fat"),
    "PET in kBq/ml": (alter("pet", lambda suv: suv * np.float32(4.9)), "possibly kBq/ml; not scaled"),
}


@pytest.mark.parametrize("name", OTHER_UNITS)
def test_the_mask_does_not_depend_on_the_unit(phantom_folder: Any, predict: Any, name: str) -> None:
    """A threshold at a share of the largest uptake has no unit."""
    phantom_folder.write()
    plain = predict("1", "--method", "threshold")
    assert (plain.status, plain.warnings) == (0, [])
    expected = read_volume(phantom_folder.output / MASK).array
    change, warning = OTHER_UNITS[name]
    change(phantom_folder)
    phantom_folder.write()
    answer = predict("1", "--method", "threshold")
    assert answer.status == 0
    assert [warning in line for line in answer.warnings] == [True]
    assert expected.any()
    np.testing.assert_array_equal(read_volume(phantom_folder.output / MASK).array, expected)


NO_INTERCEPT = (alter("ct", lambda hu: hu + np.int16(1024)), "the rescale intercept of -1024 is missing")


@pytest.mark.parametrize("fault", [*OTHER_UNITS.values(), NO_INTERCEPT], ids=[*OTHER_UNITS, "CT without intercept"])
def test_python_checks_units_as_well(phantom_folder: Any, tiny_package: Path, fault: Any) -> None:
    predictor = Predictor(tiny_package, device="cpu", passes=1)
    case = phantom_folder
    change, warning = fault
    change(case)
    prediction = predictor.predict_arrays(case.ct.array, case.ct.geometry, case.pet.array, case.pet.geometry, case.ehr)
    (notice,) = but_of_toys(prediction.record.notices)
    assert warning in notice.action
