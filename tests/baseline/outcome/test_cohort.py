"""Cubes of the outcome network's patients."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.outcome.plan import OutcomePlan, OutcomeTask
from baseline.outcome import cohort
from baseline.outcome.cohort import read_cohort
from baseline.release.cases import ReleaseCase
from baseline.work import WorkFolders
from contract.patient import Patient
from tests.baseline.prepared import EDITION

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

    monkeypatch.setattr(cohort, "_cube", cube)
    image = Path("image")
    cases = [ReleaseCase(str(number), "A", image, image, None, Patient()) for number in range(PATIENTS)]
    plan = OutcomePlan(voxels=24, spacing_mm=4.0, width=2, clinical=(), tasks=(OutcomeTask(answer="rfs"),))
    tracemalloc.start()
    try:
        read = read_cohort(WorkFolders(tmp_path), cases, EDITION, plan, 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    numbers = [number for number in range(PATIENTS) if number % 10]
    assert read.ids == tuple(map(str, numbers))
    assert read.cubes.shape == (18, 4, EDGE, EDGE, EDGE)
    assert read.cubes[:, 0, 0, 0, 0].tolist() == numbers
    assert read.margin == 2
    assert 20 * CUBE_BYTES < peak < 24 * CUBE_BYTES
