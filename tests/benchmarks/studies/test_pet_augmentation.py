"""Figures of the study on misaligned and absent PETs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.studies.pet_augmentation import CONDITIONS, as_table, chosen, interval, mean_primary, overlap, shifted
from benchmarks.studies.pet_augmentation import aggregated_nodes as nodes
from contract.errors import InputError
from contract.files import write_json


def test_overlaps_and_scores_by_hand() -> None:
    """GTVp: one of 1 and 2 voxels in common, 2/3. GTVn: 0 of 1 and 1 in the first, 2 of 2 and 2 in the second: 4/6."""
    first = overlap(np.array([1, 2, 0, 0], np.uint8), np.array([1, 1, 2, 0], np.uint8))
    second = overlap(np.array([2, 2, 0, 0], np.uint8), np.array([2, 2, 0, 0], np.uint8))
    assert first == {"GTVp": (2, 3), "GTVn": (0, 2)}
    assert mean_primary([first, second]) == pytest.approx(2 / 3)
    assert nodes([first, second]) == pytest.approx(4 / 6)
    assert interval([first, second], [first, second], nodes) == (0, 0)


def test_a_shift_is_in_plane_and_the_patients_own() -> None:
    """A slice of uptake stays in its slice; its centre of mass moves by 6 to 10 mm, voxels being 2 mm."""
    pet = np.zeros((3, 31, 31), np.float32)
    pet[1, 15, 15] = 1
    moved = shifted(pet, (2.0, 2.0, 4.0), "A-1")
    assert moved[[0, 2]].sum() == 0
    assert moved.sum() == pytest.approx(1, abs=1e-5)
    centre = [float((moved[1].sum(axis) * np.arange(31)).sum()) for axis in (1, 0)]
    assert 6 <= 2 * np.hypot(centre[0] - 15, centre[1] - 15) <= 10
    np.testing.assert_array_equal(moved, shifted(pet, (2.0, 2.0, 4.0), "A-1"))
    assert not np.array_equal(moved, shifted(pet, (2.0, 2.0, 4.0), "A-2"))


def test_groups_are_disjoint_and_have_a_reference(tmp_path: Path) -> None:
    cases = [{"patient_id": f"A-{number}", "mask": None if number < 3 else "mask"} for number in range(9)]
    write_json(tmp_path / "cases.json", cases)
    train, held_out = chosen(tmp_path / "cases.json", 4, 2)
    assert sorted(train + held_out) == [f"A-{number}" for number in range(3, 9)]
    with pytest.raises(InputError, match=r"cases\.json: 6 patients with a reference, expected 7"):
        chosen(tmp_path / "cases.json", 5, 2)


def test_the_table() -> None:
    one = {"GTVp": (2, 4), "GTVn": (3, 4)}
    results = {name: {condition: [one] for condition in CONDITIONS} for name in ("plain", "dropout")}
    lines = as_table(results).splitlines()
    assert lines[2] == "| as they are | plain | 0.500 | 0.750 |"
    assert lines[3] == "| as they are | dropout | 0.500 (+0.000, +0.000 to +0.000) | 0.750 (+0.000, +0.000 to +0.000) |"
    assert len(lines) == 2 + 2 * len(CONDITIONS)
