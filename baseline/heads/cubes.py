"""Images of the training patients for hooks, on the prepared grid or as cubes around the tumour."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from algorithm.heads.feature_hook import CUBE_CHANNELS, FeatureImages
from algorithm.heads.measure import clinical_features
from algorithm.region.grids import resample_mask
from baseline.cache import map_items
from baseline.release.cases import ReleaseCase, image_paths
from baseline.work import WorkFolders, read_training_edition
from contract.images.volumes import read_volume
from contract.packages import CHANNELS

_Cubes = npt.NDArray[np.float16]


@dataclass(frozen=True)
class PatientCubes:
    """Cubes of some patients, shape (patients, channels, z, y, x); an index copies only the selected patients."""

    cubes: _Cubes
    rows: npt.NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.rows), *self.cubes.shape[1:])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, patients: Any) -> Any:
        return self.cubes[self.rows[patients]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.cubes[self.rows], dtype)


@dataclass(frozen=True)
class CubeFiles:
    """Cubes of patients by voxels and spacing, in files that all processes memory-map."""

    files: Mapping[tuple[int, float], tuple[Path, Mapping[str, int]]]

    def __call__(self, ids: Sequence[str], voxels: int, spacing_mm: float) -> npt.NDArray[np.float32]:
        """Read the cubes of these patients; NaN for a patient without a PET or a tumour."""
        path, rows = self.files[voxels, float(spacing_mm)]
        stored = np.load(path, mmap_mode="r")
        cubes = np.full((len(ids), *stored.shape[1:]), np.nan, np.float32)
        for number, name in enumerate(ids):
            if name in rows:
                cubes[number] = stored[rows[name]]
        return cubes


@contextmanager
def write_cube_files(
    work: WorkFolders, cases: Sequence[ReleaseCase], sizes: Iterable[tuple[int, float]], jobs: int
) -> Iterator[CubeFiles]:
    """Write the cubes of the patients to temporary files of the working directory."""
    with tempfile.TemporaryDirectory(prefix=".cubes-", dir=work.root) as folder:
        files = {}
        for number, size in enumerate(sizes):
            known, cubes = cut_cubes(work, cases, *size, jobs)
            np.save(path := Path(folder) / f"{number}.npy", cubes)
            files[size] = path, {case.patient_id: row for row, case in enumerate(known)}
        yield CubeFiles(files)


def read_feature_images(case: ReleaseCase, work: WorkFolders, *, with_dose: bool = True) -> FeatureImages:
    """Read the images of a training patient on the prepared grid."""
    from baseline.release.data_set import read_dose  # imports torch

    ct, pet = (read_volume(path, "float32") for path in image_paths(work.raw, case)[: len(CHANNELS)])
    stored = read_volume(work.mask(case.patient_id), np.uint8)
    mask = stored.array if stored.geometry == ct.geometry else resample_mask(stored, ct.geometry)
    clinical = clinical_features(case.patient, read_training_edition(work).clinical)
    dose = read_dose(case) if with_dose else None
    return FeatureImages(mask, ct.array, pet.array if pet.array.any() else None, ct.geometry, dose, clinical)


def cut_cubes(
    work: WorkFolders, cases: Sequence[ReleaseCase], voxels: int, spacing_mm: float, jobs: int
) -> tuple[list[ReleaseCase], _Cubes]:
    """Cut the cubes around the tumours, in `jobs` processes.

    The array is filled in place to save memory.

    Returns:
        The patients with a PET and a tumour in the order of `cases`, and their cubes in one array.
    """
    rows = {case.patient_id: row for row, case in enumerate(cases)}
    cubes, filled = np.zeros((0, CUBE_CHANNELS, voxels, voxels, voxels), np.float16), set[int]()
    cut = partial(_cut_cube, work=work, voxels=voxels, spacing_mm=spacing_mm)
    for name, cube in map_items(cut, cases, jobs, "cut cubes"):
        if cube is not None:
            if not filled:
                cubes = np.empty((len(cases), *cube.shape), np.float16)
            cubes[rows[name]] = cube
            filled.add(rows[name])
    for target, row in enumerate(sorted(filled)):
        if target != row:
            cubes[target] = cubes[row]
    return [cases[row] for row in sorted(filled)], cubes[: len(filled)]


def _cut_cube(case: ReleaseCase, work: WorkFolders, voxels: int, spacing_mm: float) -> tuple[str, _Cubes | None]:
    cube = read_feature_images(case, work, with_dose=False).cube(voxels, spacing_mm)
    return case.patient_id, None if cube is None else cube.astype(np.float16)
