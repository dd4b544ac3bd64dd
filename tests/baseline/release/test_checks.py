"""Tests of image checks on real scans, mirrored masks and scans of limbs, and of the smallest lesions of references."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from algorithm.case.inputs import Notices
from baseline.release.cases import ReleaseCase
from baseline.release.checks import check_images, check_mirrored
from baseline.release.data_set import PreparedCase, find_min_lesion_sizes, read_training_case
from baseline.release.folders import ProblemReporter
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, write_volume
from contract.packages import DEFAULT_MIN_LESION_SIZES, MinLesionSizes
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
        ((8, 2), 9.0, "x", None),  # in the middle
        ((2, 2), 1.9, "x", None),  # not twice as much
    ],
)
def test_a_mask_outside_the_uptake_that_its_mirror_image_covers(
    start: tuple[int, int], hot: float, along: str, expected: str | None
) -> None:
    """Masks of 4 x 4 voxels start at `start` (x, y) in 20 x 20 voxels of 1 mm. The PET of 2 mm voxels is `hot` in voxels 7
    and 8 along x, y or both, which are the voxels 14 to 17 of the mask, the mirror image of 2 to 5; it is 1 elsewhere.
    """
    labels, suv = np.zeros((3, 20, 20), np.uint8), np.ones((3, 10, 10), np.float32)
    x, y = start
    labels[:, y : y + 4, x : x + 4] = 2
    y_part, x_part = (slice(7, 9) if axis in along else slice(None) for axis in "yx")
    suv[:, y_part, x_part] = hot
    mask = Volume(labels, Geometry((20, 20, 3), (1.0, 1.0, 2.0), (0.0, 0.0, 0.0)))
    pet = Volume(suv, Geometry((10, 10, 3), (2.0, 2.0, 2.0), (0.5, 0.5, 0.0)))
    findings = [problem.found for problem in check_mirrored(mask, pet, ProblemReporter("A", "A.nii.gz"))]
    assert findings == ([] if expected is None else [expected])


GRID = Geometry((48, 48, 60), (8.0, 8.0, 8.0), (-188.0, -188.0, -236.0))


def test_a_scan_of_a_limb_is_named(tmp_path: Path) -> None:
    """Limbs have neither a brain nor lungs; here a limb of 70 mm radius around a bone of 20 mm."""
    centres = np.arange(48) * 8.0 - 188.0
    radius = np.hypot(centres[:, None], centres[None, :])
    section = np.select([radius < 20, radius < 70], [900, 40], -1000).astype(np.int16)
    ct = np.repeat(section[None], 60, axis=0)
    for name, array in (("CT", ct), ("PT", (ct > -500).astype(np.float32))):
        write_volume(tmp_path / f"{name}.nii.gz", Volume(array, GRID))
    case = ReleaseCase("X-001", "X", tmp_path / "CT.nii.gz", tmp_path / "PT.nii.gz", None, Patient())
    notices = Notices()
    read_training_case(case, notices)
    findings = [finding.found for finding in notices.findings if finding.what == "CT.nii.gz"]
    assert findings == ["neither a brain nor lungs"]


def make_reference(gtvp_ml: list[float], gtvn_ml: list[float]) -> PreparedCase:
    return PreparedCase("X-001", 9.0, "brain", 1.0, {"GTVp": gtvp_ml, "GTVn": gtvn_ml}, (), 1.0, "")


def test_the_smallest_lesions_of_references_by_hand() -> None:
    """Of 101 volumes 1, 2, ... the percentile 1 is the second. Spheres of 5 and 10 mm have 0.065 and 0.524 ml.

    GTVn 0.02 ml (a speck), 0.8, 1.8, ...: a quarter of 0.8 is 0.2. GTVp from 1 ml on: a quarter of 2 ml is 0.5.
    """
    nodes = [0.02, *(0.8 + n for n in range(100))]
    halves = (
        make_reference([1.0 + n for n in range(50)], nodes[:40]),
        make_reference([51.0 + n for n in range(51)], nodes[40:]),
    )
    assert find_min_lesion_sizes(halves) == MinLesionSizes(gtvp_ml=0.5, gtvn_ml=0.2)
    assert find_min_lesion_sizes([make_reference([0.04], [90.0])]) == MinLesionSizes(gtvp_ml=0.065, gtvn_ml=0.524)
    assert find_min_lesion_sizes([make_reference([], [])]) == DEFAULT_MIN_LESION_SIZES
