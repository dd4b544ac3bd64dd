"""Where things are shown, read back with SimpleITK from the files that a browser gets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from evaluation.viewer.case import build_case
from tests.evaluation.viewer.conftest import GRID, ToyCohort


def rotation(about_x: float, about_z: float) -> tuple[float, ...]:
    """Direction of a grid that is tilted about x, then turned about z (degrees)."""
    a, b = np.radians([about_x, about_z])
    tilt = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
    turn = np.array([[np.cos(b), -np.sin(b), 0], [np.sin(b), np.cos(b), 0], [0, 0, 1]])
    return tuple((turn @ tilt).ravel())


OBLIQUE = Geometry((60, 60, 30), (1.3, 1.3, 2.5), (-30.0, -50.0, -520.0), rotation(12.0, -20.0))
OBLIQUE_PET = Geometry((30, 30, 30), (4.0, 4.0, 4.0), (-60.0, -60.0, -540.0), rotation(-5.0, 8.0))
MIRRORED = Geometry((40, 40, 20), (2.0, 2.0, 3.0), (40.0, -40.0, -440.0), (-1.0, 0, 0, 0, 1.0, 0, 0, 0, -1.0))


def lps(geometry: Geometry) -> np.ndarray:
    """LPS coordinates of every voxel, (z, y, x, 3)."""
    z, y, x = np.indices(geometry.array_shape)
    matrix = geometry.index_to_physical_matrix()
    return np.stack([x, y, z], axis=-1) @ matrix[:3, :3].T + matrix[:3, 3]


def ramp(points: np.ndarray) -> np.ndarray:
    """A linear function of the place, which linear interpolation reproduces exactly."""
    return points @ np.array([2.0, -3.0, 1.0]) + 600.0


def read(files: dict[str, bytes], name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Values of a file, and the LPS coordinates of each voxel by SimpleITK."""
    path = folder / name
    path.write_bytes(files[name])
    image = sitk.ReadImage(str(path))
    return sitk.GetArrayFromImage(image), lps(Geometry.of(image))


@pytest.mark.parametrize("ct_grid", [GRID, OBLIQUE, MIRRORED], ids=["axial", "oblique", "mirrored"])
def test_scans_are_shown_where_they_are_in_the_patient(toy: ToyCohort, tmp_path: Path, ct_grid: Geometry) -> None:
    """CT and PET are linear functions of the LPS position, so each shown voxel's value gives its position away.

    The CT is rounded to 1 HU, once in the file and once when it is shown; the PET has steps of 0.01.
    """
    mask = np.zeros(ct_grid.array_shape, np.uint8)
    mask[10, 20, 20] = 1
    pet_values = ramp(lps(OBLIQUE_PET)) / 5 + 80
    toy.add(
        "C-1", mask, Volume(pet_values.astype(np.float32), OBLIQUE_PET),
        Volume(np.rint(ramp(lps(ct_grid))).astype(np.int16), ct_grid),
    )  # fmt: skip
    files = build_case(toy.find().cases["C-1"])
    ct, points = read(files, "ct.nii.gz", tmp_path)
    inside = interior(points, ct_grid)
    assert inside.mean() > 0.3
    assert np.abs(ct - ramp(points))[inside].max() <= 1.01
    pet, points = read(files, "pet.nii.gz", tmp_path)
    inside = interior(points, OBLIQUE_PET)
    assert inside.mean() > 0.3
    assert np.abs(pet - ramp(points) / 5 - 80)[inside].max() < 0.02


def interior(points: np.ndarray, grid: Geometry) -> np.ndarray:
    """Which points lie between voxel centres of a grid."""
    matrix = grid.physical_to_index_matrix()
    index = points @ matrix[:3, :3].T + matrix[:3, 3]
    return np.all((index >= 0) & (index <= np.asarray(grid.size) - 1), axis=-1)


@pytest.mark.parametrize("ct_grid", [GRID, OBLIQUE, MIRRORED], ids=["axial", "oblique", "mirrored"])
def test_a_lesion_has_its_ras_position_in_list_and_mask(toy: ToyCohort, tmp_path: Path, ct_grid: Geometry) -> None:
    """One voxel at index (20, 18, 10): RAS is LPS with x and y negated, in the list and in the mask's file."""
    mask = np.zeros(ct_grid.array_shape, np.uint8)
    mask[10, 18, 20] = 2
    toy.add("C-1", mask, ct=Volume(np.zeros(ct_grid.array_shape, np.int16), ct_grid))
    files = build_case(toy.find().cases["C-1"])
    x, y, z = lps(ct_grid)[10, 18, 20]
    (lesion,) = json.loads(files["case.json"])["lesions"]
    assert lesion["centroid_ras_mm"] == pytest.approx([-x, -y, z], abs=1e-3)
    shown, points = read(files, "mask-0.nii.gz", tmp_path)
    assert set(np.unique(shown)) == {2}
    half_voxel = np.asarray(ct_grid.spacing_mm).max() / 2 + 0.5
    assert np.abs(points[shown == 2].mean(axis=0) - (x, y, z)).max() < half_voxel


def by_place(values: np.ndarray, points: np.ndarray) -> dict[tuple[int, ...], int]:
    """Values by their LPS coordinates, which are whole numbers."""
    places = np.rint(points.reshape(-1, 3)).astype(int)
    return {tuple(place): value for place, value in zip(places.tolist(), values.ravel().tolist(), strict=True)}


def test_an_axial_ct_at_1_mm_or_more_is_shown_voxel_by_voxel(toy: ToyCohort, tmp_path: Path) -> None:
    """A small CT is shown on its own voxels, so nothing is interpolated."""
    ct = np.random.default_rng(1).integers(-200, 200, GRID.array_shape).astype(np.int16)
    toy.add("C-1", np.zeros(GRID.array_shape, np.uint8), ct=Volume(ct, GRID))
    shown, points = read(build_case(toy.find().cases["C-1"]), "ct.nii.gz", tmp_path)
    values, original = by_place(shown, points), by_place(ct, lps(GRID))
    common = values.keys() & original.keys()
    assert len(common) == ct.size
    assert all(values[place] == original[place] for place in common)


def test_all_files_of_a_case_share_one_grid(cohort, tmp_path: Path) -> None:
    """A mask's file holds the box around its labels: 21 x 15 x 12 voxels of the CT's grid, and the GTVp of B alone."""
    files = build_case(cohort.cases["C-1"])
    ct, *others = (read(files, f"{name}.nii.gz", tmp_path)[1] for name in ("ct", "pet", "mask-0", "mask-2"))
    assert np.array_equal(ct, others[0])
    assert [points.shape[:3] for points in others[1:]] == [(12, 15, 21), (4, 4, 4)]
    places = {tuple(place) for place in ct.reshape(-1, 3).tolist()}
    assert all(places.issuperset(map(tuple, points.reshape(-1, 3).tolist())) for points in others)
