"""Write a cohort of small scans in the release's layout, with masks of two teams."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import SimpleITK as sitk

from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_mask, write_volume
from evaluation.ranking.cli import main as rank
from reporting.viewer.cohort import ViewerCohort, ViewerRequest, find_cohort
from tests.evaluation.tasks import SEGMENTATION
from tests.reporting.cohorts import write_case

# 40 x 40 x 20 voxels of 2 x 2 x 3 mm.
GRID = Geometry((40, 40, 20), (2.0, 2.0, 3.0), (-40.0, -40.0, -500.0))


@dataclass(frozen=True)
class ToyCohort:
    """Cases in `root / cohort`, masks of the teams in `root / TEAM`."""

    root: Path

    def add(self, case: str, mask: np.ndarray, pet: Volume | None = None, ct: Volume | None = None) -> None:
        """Write a case; without volumes a body of water, and a PET of SUV 1 with 5 in the mask."""
        folder = self.root / "cohort" / case
        ct = ct or Volume(np.zeros(GRID.array_shape, np.int16), GRID)
        pet = pet or Volume(np.where(mask > 0, 5, 1).astype(np.float32), ct.geometry)
        write_volume(folder / f"{case}__CT.nii.gz", ct)
        write_volume(folder / f"{case}__PT.nii.gz", pet)
        write_mask(folder / f"{case}.nii.gz", mask, ct.geometry)

    def predict(self, team: str, case: str, mask: np.ndarray, grid: Geometry = GRID) -> None:
        write_mask(self.root / team / f"{case}.mha", mask, grid)

    def find(self, *teams: str) -> ViewerCohort:
        return find_cohort(ViewerRequest(self.root / "cohort", masks={team: self.root / team for team in teams}))


def read_volume_of(base64: str) -> Volume:
    """Read a volume of the page with SimpleITK."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "volume.nii.gz"
        path.write_bytes(b64decode(base64))
        image = sitk.ReadImage(str(path))
    return Volume(sitk.GetArrayFromImage(image), Geometry.from_image(image))


@pytest.fixture
def toy(tmp_path: Path) -> ToyCohort:
    return ToyCohort(tmp_path)


@pytest.fixture
def nodes() -> np.ndarray:
    """Return a GTVp of 4 x 4 x 4 voxels, and GTVn of 3 x 3 x 2 and of 1 voxel."""
    mask = np.zeros(GRID.array_shape, np.uint8)
    mask[8:12, 16:20, 10:14] = 1
    mask[4:6, 25:28, 25:28] = 2
    mask[15, 30, 30] = 2
    return mask


@pytest.fixture
def cohort(toy: ToyCohort, nodes: np.ndarray) -> ViewerCohort:
    """Write two cases; team A has a mask of both, team B only of the first."""
    for case in ("C-1", "C-2"):
        toy.add(case, nodes)
        toy.predict("A", case, nodes)
    toy.predict("B", "C-1", np.where(nodes == 1, nodes, 0))
    return toy.find("A", "B")


@pytest.fixture
def ranked_cohort(tmp_path: Path, phase_of, nodes: np.ndarray) -> Path:
    """Write two cases as the platform mounts them, and results of `near` and of `none`, which predicts nothing for C-2."""
    folder = tmp_path / "results" / "task1"
    folder.mkdir(parents=True)
    for team in ("near", "none"):
        phase = phase_of(SEGMENTATION)
        for case in ("C-1", "C-2"):
            phase.add_truth_mask(case, nodes, GRID)
            shift = 1 if case == "C-2" else 0
            phase.add_mask(case, np.roll(nodes, shift, axis=2) * (team == "near" or case == "C-1"), GRID)
        phase.run()
        phase.output_dir.rename(folder / team)
        phase.root.rename(tmp_path / f"phase-{team}")
    files = [str(folder / team / "metrics.json") for team in ("near", "none")]
    rank(["--task", "segmentation", *files, "--bootstraps", "5", "--output", str(folder)])
    for case, centre in (("C-1", "CHUM"), ("C-2", "MDA")):
        write_case(tmp_path / "cohort", case, Volume(nodes, GRID), Volume(np.ones(GRID.array_shape, np.float32), GRID))
        (tmp_path / "cohort" / case / "input" / "ehr.json").write_text(json.dumps({"CenterID": centre}))
        write_mask(folder / "near" / "predictions" / f"{case}.mha", nodes, GRID)
    return tmp_path
