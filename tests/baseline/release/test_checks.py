"""The image checks on real scans: sound without changes, and each wrong unit is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from baseline.release.cases import ReleaseCase
from baseline.release.checks import check_images
from contract.images.volumes import Volume, read_volume
from contract.patient import Patient
from rehearsal.phantoms.layouts import write_nifti

pytestmark = pytest.mark.shared
ROLES = ("CT", "PET")


def found(ct: Path, pet: Path, root: Path) -> list[tuple[str, str, str]]:
    case = ReleaseCase("STS-1", "STS", ct, pet, None, Patient(), None, None, None)
    return [(problem.severity, problem.kind, problem.file) for problem in check_images(case, root)]


@pytest.mark.parametrize("patient", ["STS_001", "STS_035"])
def test_real_scans_are_sound(sts_scans: Path, patient: str) -> None:
    ct, pet = (sts_scans / patient / f"{role}_image.nii.gz" for role in ROLES)
    assert found(ct, pet, sts_scans) == []


@pytest.mark.parametrize(
    ("role", "spoil", "kind"),
    [
        ("CT", np.negative, "hounsfield"),
        ("CT", lambda ct: ct + 1024, "hounsfield"),
        ("CT", lambda ct: (ct + 1000) / 1000 * 0.02, "hounsfield"),
        ("CT", lambda ct: ct / 1000, "hounsfield"),
        ("PET", lambda pet: pet * 4000, "suv"),
        ("PET", lambda pet: pet / pet.max(), "suv"),
        ("PET", np.negative, "suv"),
    ],
    ids=["inverted", "offset", "attenuation", "thousandths", "Bq/ml", "normalised", "negated"],
)
def test_units_that_are_wrong(
    sts_scans: Path, tmp_path: Path, role: str, spoil: Callable[[np.ndarray], np.ndarray], kind: str
) -> None:
    paths = {}
    for name in ROLES:
        paths[name] = tmp_path / f"{name}.nii.gz"
        volume = read_volume(sts_scans / "STS_001" / f"{name}_image.nii.gz", np.float32)
        array = spoil(volume.array) if name == role else volume.array
        write_nifti(paths[name], Volume(array.astype(np.float32), volume.geometry))
    assert found(paths["CT"], paths["PET"], tmp_path) == [("error", kind, f"{role}.nii.gz")]
