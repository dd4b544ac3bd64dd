"""Write a cohort of small scans with their references."""

from __future__ import annotations

import numpy as np
import pytest

from contract.images.volumes import Volume
from tests.reporting.cohorts import write_case


@pytest.fixture
def add_case(tmp_path, grid):
    """Write a case; CT of water, PET on the mask's grid unless volumes are passed."""

    def add(case, mask, suv, ct=None):
        pet = suv if isinstance(suv, Volume) else Volume(suv.astype(np.float32), grid)
        return write_case(tmp_path / "cohort", case, Volume(mask, grid), pet, None if ct is None else Volume(ct, grid))

    return add
