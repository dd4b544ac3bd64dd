"""Tests that training reads images as inference does and names what inference would name."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from algorithm.case.inputs import Notices
from baseline.release.cases import ReleaseCase
from baseline.release.data_set import PreparedCase, find_min_lesion_sizes, read_training_case
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_volume
from contract.packages import DEFAULT_MIN_LESION_SIZES, MinLesionSizes
from contract.patient import Patient

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
