"""Tests that image checks find no problem in real scans, and of the uptake of mirrored masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from baseline.release.cases import ReleaseCase
from baseline.release.checks import check_images, check_mirrored
from baseline.release.folders import ProblemReporter
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume
from contract.patient import Patient


@pytest.mark.shared
@pytest.mark.parametrize("patient", ["STS_001", "STS_035"])
def test_real_scans_are_sound(sts_scans: Path, patient: str) -> None:
    ct, pet = (sts_scans / patient / f"{role}_image.nii.gz" for role in ("CT", "PET"))
    assert check_images(ReleaseCase("STS-1", "STS", ct, pet, None, Patient()), sts_scans) == ()
    mask = read_volume(sts_scans / patient / "PET_mask.nii.gz")
    assert list(check_mirrored(mask, read_volume(pet), ProblemReporter("STS-1", "mask"))) == []


@pytest.mark.parametrize(
    ("start", "hot", "along", "expected"),
    [
        ((2, 2), 9.0, "x", "mean SUV 1 inside the mask, 9 with x mirrored"),
        ((2, 2), 9.0, "y", "mean SUV 1 inside the mask, 9 with y mirrored"),
        ((2, 2), 9.0, "xy", "mean SUV 1 inside the mask, 9 with x and y mirrored"),
        ((14, 14), 9.0, "x", None),  # where the uptake is
        ((8, 2), 9.0, "x", None),  # in the middle: SUV 5 both ways
        ((2, 2), 1.9, "x", None),  # not twice as much
    ],
)
def test_a_mask_outside_the_uptake_that_its_mirror_image_covers(
    start: tuple[int, int], hot: float, along: str, expected: str | None
) -> None:
    """Masks of 4 x 4 voxels start at `start` (x, y) in 20 x 20 voxels of 1 mm. The PET of 2 mm voxels is `hot` in the
    far half along x, y or both (from voxel 5 of 10, which is 10 of the mask's 20) and 1 elsewhere.
    """
    labels, suv = np.zeros((3, 20, 20), np.uint8), np.ones((3, 10, 10), np.float32)
    x, y = start
    labels[:, y : y + 4, x : x + 4] = 2
    suv[:, 5 if "y" in along else 0 :, 5 if "x" in along else 0 :] = hot
    mask = Volume(labels, Geometry((20, 20, 3), (1.0, 1.0, 2.0), (0.0, 0.0, 0.0)))
    pet = Volume(suv, Geometry((10, 10, 3), (2.0, 2.0, 2.0), (0.5, 0.5, 0.0)))
    findings = [problem.found for problem in check_mirrored(mask, pet, ProblemReporter("A", "A.nii.gz"))]
    assert findings == ([] if expected is None else [expected])
