"""Unusable input: exit status 1, one last line that names file, finding and expectation, and no output.

Degenerate but readable input is answered, with a warning that names it. `tests/contract/images` has more damaged images,
`tests/faults/test_files_in.py` more scans that are answered.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk

from contract.images.volumes import Volume, read_volume, write_volume
from contract.io.files import read_json
from tests.algorithm.conftest import Predict

FORBIDDEN = ("Traceback", 'File "', "WARNING: In", "ITK", "itk::")


def check_refusal(run: Any, message: str) -> None:
    assert run.status == 1
    last = run.lines[-1]
    assert re.search(rf"^error: {message}", last), last
    assert not any(word in line for word in FORBIDDEN for line in run.lines), run.lines
    assert len(last) < 400
    assert run.files == []


def truncate(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * 0.6)])


def truncate_nifti(case: Any) -> None:
    """Replace the PET by a truncated NIfTI image."""
    case.pet_path.unlink()
    write_volume(case.pet_path.parent / "scan.nii.gz", case.pet)
    truncate(case.pet_path.parent / "scan.nii.gz")


BAD: dict[str, tuple[Callable[[Any], object], str]] = {
    "no CT folder": (lambda c: shutil.rmtree(c.ct_path.parent), r"images/ct: no such folder, expected exactly one"),
    "the template's image": (
        lambda c: sitk.WriteImage(sitk.Image([1, 1], sitk.sitkUInt8), str(c.ct_path)),
        r"0a1b2c3d-ct\.mha: 2 dimensions \(1 x 1\), expected a 3D image",
    ),
    "truncated": (lambda c: truncate(c.ct_path), r"0a1b2c3d-ct\.mha: truncated, \d+ bytes .*, expected \d+"),
    "truncated NIfTI": (truncate_nifti, r"scan\.nii\.gz: truncated, the gzip stream"),
    "no record": (lambda c: c.ehr_path.unlink(), r"ehr\.json: not found in .*, expected a JSON file"),
}


@pytest.mark.parametrize("name", BAD)
def test_unusable_input(case_folder: Any, predict: Any, name: str) -> None:
    damage, message = BAD[name]
    damage(case_folder.write())
    check_refusal(predict("rfs", "--method", "clinical"), message)


DEGENERATE: dict[str, tuple[Callable[[Any], object], str]] = {
    "CT all NaN": (
        lambda c: setattr(c, "ct", Volume(np.full(c.ct.array.shape, np.nan, np.float32), c.ct.geometry)),
        "CT 0a1b2c3d-ct.mha: 11520 voxels are NaN or infinite; set to air",
    ),
    "PET elsewhere": (
        lambda c: setattr(c, "pet", Volume(c.pet.array, replace(c.pet.geometry, origin_mm=(900.0, 0.0, 0.0)))),
        "does not overlap the CT",
    ),
    "empty record": (lambda c: c.ehr.clear(), "ehr.json: missing Age, Gender, Tobacco Consumption"),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_a_degenerate_case_is_answered_with_a_warning(case_folder: Any, predict: Predict, name: str) -> None:
    change, warning = DEGENERATE[name]
    change(case_folder)
    case_folder.write()
    run = predict("rfs")
    assert run.status == 0
    assert any(warning in line for line in run.warnings), run.lines
    assert math.isfinite(read_json(case_folder.output / "rfs.json"))
    assert predict("1", "--method", "threshold").status == 0
    mask = read_volume(next(case_folder.output.rglob("*.mha")))
    assert mask.geometry.find_differences(case_folder.ct.geometry) == []
    assert set(np.unique(mask.array)) <= {0, 1, 2}


def test_an_output_folder_that_is_a_file(case_folder: Any, predict: Any, tmp_path: Path) -> None:
    case_folder.write()
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    check_refusal(
        predict("segmentation", output=blocked), r"output\.mha: cannot be written \(.*\), expected a writable"
    )
    assert blocked.read_text() == "a file"
