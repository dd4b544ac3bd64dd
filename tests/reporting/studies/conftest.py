"""Write a cohort of small scans with their references."""

from __future__ import annotations

import numpy as np
import pytest

from contract.images.volumes import Volume, write_mask, write_volume
from tests.evaluation.tasks import SEGMENTATION


@pytest.fixture
def add_case(tmp_path, grid):
    """Write a case as the platform mounts it; CT of water, PET on the mask's grid unless volumes are passed."""

    def add(case, mask, suv, ct=None):
        inputs = tmp_path / "cohort" / case / "input"
        write_mask(tmp_path / "cohort" / "ground_truth" / f"{case}.mha", mask, grid)
        hu = np.zeros(grid.array_shape, np.int16) if ct is None else ct
        write_volume(SEGMENTATION.inputs["ct"].path_under(inputs) / "ct.mha", Volume(hu, grid))
        pet = suv if isinstance(suv, Volume) else Volume(suv.astype(np.float32), grid)
        write_volume(SEGMENTATION.inputs["pet"].path_under(inputs) / "pet.mha", pet)
        return tmp_path / "cohort"

    return add
