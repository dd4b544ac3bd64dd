"""Training images are read as inference reads them, and what inference would name is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from algorithm.case.notices import Notices
from baseline.release.cases import ReleaseCase
from baseline.release.data_set import read_training_case
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_volume
from contract.patient import Patient

GRID = Geometry((48, 48, 60), (8.0, 8.0, 8.0), (-188.0, -188.0, -236.0))


@pytest.mark.parametrize(("bone_hu", "found"), [(900, ["no brain, no lung apices and no airway of a neck"]), (40, [])])
def test_a_scan_of_a_limb_is_named(tmp_path: Path, bone_hu: int, found: list[str]) -> None:
    """A limb of 70 mm radius around a bone of 20 mm; without the bone it cannot be told from a neck."""
    centres = np.arange(48) * 8.0 - 188.0
    radius = np.hypot(centres[:, None], centres[None, :])
    section = np.select([radius < 20, radius < 70], [bone_hu, 40], -1000).astype(np.int16)
    ct = np.repeat(section[None], 60, axis=0)
    for name, array in (("CT", ct), ("PT", (ct > -500).astype(np.float32))):
        write_volume(tmp_path / f"{name}.nii.gz", Volume(array, GRID))
    case = ReleaseCase("X-001", "X", tmp_path / "CT.nii.gz", tmp_path / "PT.nii.gz", None, Patient())
    notices = Notices()
    _, region = read_training_case(case, notices)
    assert [finding.found for finding in notices.findings if finding.what == "CT.nii.gz"] == found
    assert bool(region.no_neck) == bool(found)
