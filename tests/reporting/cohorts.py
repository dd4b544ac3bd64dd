"""Write a cohort of scans with their references in the layout that the platform mounts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from contract.images.volumes import Volume, write_mask, write_volume
from tests.evaluation.tasks import SEGMENTATION


def write_case(cohort: Path, case: str, mask: Volume, pet: Volume, ct: Volume | None = None) -> Path:
    """Write a case and return the cohort's folder; without a CT the patient is water on the mask's grid."""
    ct = ct or Volume(np.zeros(mask.array.shape, np.int16), mask.geometry)
    write_mask(cohort / "ground_truth" / f"{case}.mha", mask.array.astype(np.uint8), mask.geometry)
    for name, volume in (("ct", ct), ("pet", pet)):
        write_volume(SEGMENTATION.inputs[name].path_under(cohort / case / "input") / f"{name}.mha", volume)
    return cohort
