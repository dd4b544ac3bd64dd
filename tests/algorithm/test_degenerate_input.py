"""Degenerate but readable input is answered, with a warning that names it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contract import platform
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import coarsen_protocol, make_case
from rehearsal.phantoms.rendering import render
from tests.algorithm.edition import SEGMENTATION

MASK = f"{SEGMENTATION.answers[0].socket.relative_path}/{platform.MASK_FILE_NAME}"


def alter(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Any], None]:
    """Return a function that changes the voxels of a case's CT or PET."""

    def damage(case: Any) -> None:
        volume = getattr(case, name)
        setattr(case, name, Volume(change(volume.array.copy()), volume.geometry))

    return damage


def move_pet(case: Any) -> None:
    grid = case.pet.geometry
    case.pet = Volume(case.pet.array, Geometry(grid.size, grid.spacing_mm, (900.0, 0.0, 0.0)))


DEGENERATE: dict[str, tuple[Callable[[Any], object], str]] = {
    "CT all NaN": (
        alter("ct", lambda hu: np.full(hu.shape, math.nan, np.float32)),
        "CT 0a1b2c3d-ct.mha: 11520 voxels are NaN or infinite; set to air",
    ),
    "PET zero": (
        alter("pet", np.zeros_like),
        "PET 4e5f6a7b-pet.mha: all voxels are zero; continuing with only the CT; expect an empty mask",
    ),
    "PET elsewhere": (move_pet, "does not overlap the CT"),
    "PET in Bq/ml": (alter("pet", lambda suv: suv * 5000), "assumed to be in Bq/ml and scaled by"),
    "empty record": (lambda case: case.ehr.clear(), "ehr.json: missing Age, Gender, Tobacco Consumption"),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_a_degenerate_case_is_answered_with_a_warning(case_folder: Any, predict: Any, name: str) -> None:
    damage, warning = DEGENERATE[name]
    damage(case_folder)
    case_folder.write()
    run = predict("rfs")
    assert run.status == 0
    assert any(warning in line for line in run.warnings), run.lines
    assert math.isfinite(json.loads((case_folder.output / "rfs.json").read_text()))
    run = predict("1", "--method", "threshold")
    assert run.status == 0
    mask = read_volume(case_folder.output / MASK)
    assert mask.geometry.find_differences(case_folder.ct.geometry) == []
    assert set(np.unique(mask.array)) <= {0, 1, 2}


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"Shoe size": 44}, "ehr.json: unknown key 'Shoe size'; ignored"),
        ({"Age": -3}, "ehr.json: Age '-3', expected an age above 0 and up to 120 years; counts as missing"),
        ({"Treatment": "both"}, "ehr.json: Treatment 'both' is not a number, expected"),
    ],
)
def test_an_odd_record_is_answered_with_a_warning(
    case_folder: Any, predict: Any, changes: dict[str, Any], warning: str
) -> None:
    case_folder.ehr |= changes
    case_folder.write()
    run = predict("rfs", "--method", "clinical")
    assert run.status == 0
    assert any(warning in line for line in run.warnings), run.lines


def test_each_head_states_its_rule_for_missing_values(case_folder: Any, predict: Any) -> None:
    case_folder.ehr["Age"] = None
    case_folder.write()
    run = predict("rfs", "--method", "clinical")
    assert any("rfs: age_years is missing; instead its training median 1 is used" in line for line in run.lines)


def test_numbers_as_text_are_no_defect(case_folder: Any, predict: Any) -> None:
    """`0`, `0.0`, "0" and "0.0" are one value: the answers are equal and nothing is warned of."""
    values = set()
    for value in (0, 0.0, "0", "0.0"):
        case_folder.ehr |= {"Tobacco Consumption": value, "Age": "61"}
        case_folder.write()
        run = predict("hpv", "--method", "clinical")
        assert (run.status, run.warnings) == (0, [])
        values.add((case_folder.output / "hpv-status.json").read_text())
    assert values == {"true\n"}


@pytest.mark.parametrize(
    ("name", "change", "warning"),
    [
        ("pet", lambda suv: suv * np.float32(4900), "from the uptake of muscle and fat"),
        ("pet", lambda suv: suv * np.float32(4.9), "possibly kBq/ml; not scaled"),
        ("ct", lambda hu: hu + np.int16(1024), "the rescale intercept of -1024 is missing"),
    ],
    ids=["PET in Bq/ml", "PET in kBq/ml", "CT without intercept"],
)
def test_other_units_are_named_and_the_pets_unit_does_not_change_the_mask(
    case_folder: Any, predict: Any, name: str, change: Callable[[np.ndarray], np.ndarray], warning: str
) -> None:
    """A threshold at a share of the largest uptake has no unit. The phantom's CT shows fat and muscle."""
    phantom = make_case(21, 0, CENTRES, "head_and_neck")
    scan = render(replace(phantom, protocol=coarsen_protocol(phantom.protocol, 8)))
    case_folder.ct, case_folder.pet = scan.ct, scan.pet
    case_folder.write()
    run = predict("1", "--method", "threshold")
    assert (run.status, run.warnings) == (0, [])
    expected = read_volume(case_folder.output / MASK).array
    alter(name, change)(case_folder)
    case_folder.write()
    run = predict("1", "--method", "threshold")
    assert run.status == 0
    assert sum(warning in line for line in run.warnings) == 1
    assert expected.any()
    if name == "pet":
        assert len(run.warnings) == 1
        np.testing.assert_array_equal(read_volume(case_folder.output / MASK).array, expected)
