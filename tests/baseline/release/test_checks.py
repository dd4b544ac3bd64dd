"""The image checks on real scans: no problem is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from baseline.release.cases import ReleaseCase
from baseline.release.checks import check_images
from contract.patient import Patient

pytestmark = pytest.mark.shared


@pytest.mark.parametrize("patient", ["STS_001", "STS_035"])
def test_real_scans_are_sound(sts_scans: Path, patient: str) -> None:
    ct, pet = (sts_scans / patient / f"{role}_image.nii.gz" for role in ("CT", "PET"))
    assert check_images(ReleaseCase("STS-1", "STS", ct, pet, None, Patient()), sts_scans) == ()
