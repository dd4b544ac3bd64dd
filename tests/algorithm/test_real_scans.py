"""Segment real PET/CT of two patients with the shipped package; both scans show a limb, without a landmark."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from algorithm.network.loaded_package import DEFAULT_PACKAGE
from contract import platform
from contract.images.volumes import read_header, read_volume
from tests.algorithm.edition import EDITION, SEGMENTATION

pytestmark = [pytest.mark.shared, pytest.mark.slow]


@pytest.fixture(scope="module", params=["STS_001", "STS_035"])
def real_case(request: pytest.FixtureRequest, sts_scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (DEFAULT_PACKAGE / "manifest.json").is_file():
        pytest.skip("no default model package in this checkout")
    root = tmp_path_factory.mktemp(request.param)
    for socket, name in ((EDITION.inputs["ct"], "CT_image"), (EDITION.inputs["pet"], "PET_image")):
        folder = socket.path_under(root / "input")
        folder.mkdir(parents=True)
        shutil.copy(sts_scans / request.param / f"{name}.nii.gz", folder / "scan.nii.gz")
    EDITION.inputs["ehr"].path_under(root / "input").write_text(json.dumps({"Age": 55, "Gender": 1, "M-stage": "M0"}))
    return root


def run(root: Path, task: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "algorithm", "--task", task, "--input", str(root / "input"), "--output",
         str(root / "output"), "--device", "cpu", "--passes", "2"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_segmentation(real_case: Path) -> None:
    run(real_case, "segmentation")
    mask = read_volume(SEGMENTATION.answers[0].socket.path_under(real_case / "output") / platform.MASK_FILE_NAME)
    ct = read_header(EDITION.inputs["ct"].path_under(real_case / "input") / "scan.nii.gz")
    assert mask.geometry.find_differences(ct.geometry) == []
    assert mask.array.dtype == np.uint8
