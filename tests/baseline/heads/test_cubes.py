"""Cubes of the training patients."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baseline.heads import cubes
from baseline.heads.cubes import PatientCubes, cut_cubes
from baseline.release.cases import ReleaseCase
from baseline.work import WorkFolders
from contract.patient import Patient

PATIENTS, EDGE = 20, 28
CUBE_BYTES = 4 * EDGE**3 * 2


def test_cubes_lie_in_memory_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 patients the first and the eleventh have no tumour; the others keep their order. The peak is the array of
    all 20 and two cubes, one being cut and one being copied; a stack of 18 separate cubes would take 36.
    """

    def cube(case: ReleaseCase, **_: Any) -> tuple[str, np.ndarray | None]:
        number = int(case.patient_id)
        whole = np.full((4, EDGE, EDGE, EDGE), number, np.float16)
        return case.patient_id, whole if number % 10 else None

    monkeypatch.setattr(cubes, "_cut_cube", cube)
    image = Path("image")
    cases = [ReleaseCase(str(number), "A", image, image, None, Patient()) for number in range(PATIENTS)]
    tracemalloc.start()
    try:
        known, array = cut_cubes(WorkFolders(tmp_path), cases, EDGE, 4.0, 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    numbers = [number for number in range(PATIENTS) if number % 10]
    assert [case.patient_id for case in known] == [str(number) for number in numbers]
    assert array.shape == (18, 4, EDGE, EDGE, EDGE)
    assert array[:, 0, 0, 0, 0].tolist() == numbers
    assert 20 * CUBE_BYTES < peak < 24 * CUBE_BYTES


def test_cubes_of_some_patients() -> None:
    """Patients 3 and 1 of four: the second of them is 1, and all are those two."""
    array = np.arange(4, dtype=np.float16).reshape(4, 1, 1, 1, 1)
    some = PatientCubes(array, np.array([3, 1]))
    assert (len(some), some.shape) == (2, (2, 1, 1, 1, 1))
    assert some[1].item() == 1
    assert some[np.array([1, 0])].ravel().tolist() == [1, 3]
    assert np.asarray(some, np.float32).ravel().tolist() == [3, 1]
