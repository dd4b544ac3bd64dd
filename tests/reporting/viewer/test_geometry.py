"""Which part of a case is shown, and where, read back with SimpleITK from the volumes that a browser gets."""

from __future__ import annotations

import struct
from base64 import b64decode
from gzip import decompress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from reporting.viewer.case import build_case, interpolate_values, resample_for_display
from reporting.viewer.cohort import ViewerCohort
from reporting.viewer.lesions import find_lesions
from reporting.viewer.region import MAX_VOXELS, find_display_grid, to_index, to_mm
from tests.reporting.viewer.conftest import GRID, ToyCohort, read_volume_of


def make_rotation(about_x: float, about_z: float) -> tuple[float, ...]:
    """Return the direction of a grid that is tilted about x, then turned about z (degrees)."""
    a, b = np.radians([about_x, about_z])
    tilt = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
    turn = np.array([[np.cos(b), -np.sin(b), 0], [np.sin(b), np.cos(b), 0], [0, 0, 1]])
    return tuple((turn @ tilt).ravel())


OBLIQUE = Geometry((60, 60, 30), (1.3, 1.3, 2.5), (-30.0, -50.0, -520.0), make_rotation(12.0, -20.0))
OBLIQUE_PET = Geometry((30, 30, 30), (4.0, 4.0, 4.0), (-60.0, -60.0, -540.0), make_rotation(-5.0, 8.0))
MIRRORED = Geometry((40, 40, 20), (2.0, 2.0, 3.0), (40.0, -40.0, -440.0), (-1.0, 0, 0, 0, 1.0, 0, 0, 0, -1.0))


def compute_lps(geometry: Geometry) -> np.ndarray:
    """Return the LPS coordinates of every voxel, (z, y, x, 3)."""
    z, y, x = np.indices(geometry.array_shape)
    matrix = geometry.index_to_physical_matrix()
    return np.stack([x, y, z], axis=-1) @ matrix[:3, :3].T + matrix[:3, 3]


def compute_ramp(points: np.ndarray) -> np.ndarray:
    """Return a linear function of the place, which linear interpolation reproduces exactly."""
    return points @ np.array([2.0, -3.0, 1.0]) + 600.0


def read_values(base64: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a volume, and the LPS coordinates of each voxel by SimpleITK."""
    volume = read_volume_of(base64)
    return volume.array, compute_lps(volume.geometry)


@pytest.mark.parametrize("ct_grid", [GRID, OBLIQUE, MIRRORED], ids=["axial", "oblique", "mirrored"])
def test_scans_are_shown_where_they_are_in_the_patient(toy: ToyCohort, ct_grid: Geometry) -> None:
    """CT and PET are linear functions of the LPS position, so each shown voxel's value gives its position away.

    The CT is rounded to 1 HU in its file; the PET has steps of 0.01.
    """
    mask = np.zeros(ct_grid.array_shape, np.uint8)
    mask[10, 20, 20] = 1
    pet_values = compute_ramp(compute_lps(OBLIQUE_PET)) / 5 + 80
    toy.add(
        "C-1", mask, Volume(pet_values.astype(np.float32), OBLIQUE_PET),
        Volume(np.rint(compute_ramp(compute_lps(ct_grid))).astype(np.int16), ct_grid),
    )  # fmt: skip
    case = build_case(toy.find().cases["C-1"])
    ct, points = read_values(case["ct"])
    assert ct.shape == ct_grid.array_shape
    assert np.abs(ct - compute_ramp(points)).max() <= 0.51
    pet, points = read_values(case["pet"]["volume"])
    inside = is_interior(points, OBLIQUE_PET)
    assert inside.mean() > 0.3
    assert np.abs(pet - compute_ramp(points) / 5 - 80)[inside].max() < 0.02


def is_interior(points: np.ndarray, grid: Geometry) -> np.ndarray:
    """Return whether points lie between voxel centres of a grid."""
    matrix = grid.physical_to_index_matrix()
    index = points @ matrix[:3, :3].T + matrix[:3, 3]
    return np.all((index >= 0) & (index <= np.asarray(grid.size) - 1), axis=-1)


@pytest.mark.parametrize("ct_grid", [GRID, OBLIQUE, MIRRORED], ids=["axial", "oblique", "mirrored"])
def test_a_lesion_has_its_ras_position_in_list_and_mask(toy: ToyCohort, ct_grid: Geometry) -> None:
    """One voxel lies at index (20, 18, 10): RAS is LPS with x and y negated, in the list and in the mask's file."""
    mask = np.zeros(ct_grid.array_shape, np.uint8)
    mask[10, 18, 20] = 2
    toy.add("C-1", mask, ct=Volume(np.zeros(ct_grid.array_shape, np.int16), ct_grid))
    case = build_case(toy.find().cases["C-1"])
    x, y, z = compute_lps(ct_grid)[10, 18, 20]
    (lesion,) = case["lesions"]
    assert lesion["centroid_ras_mm"] == pytest.approx([-x, -y, z], abs=1e-3)
    shown, points = read_values(case["masks"][0]["volume"])
    assert points[shown > 0] == pytest.approx(np.array([[x, y, z]]), abs=1e-3)
    assert shown.shape == (3, 3, 3)


def test_a_mask_holds_its_labels_with_a_margin_of_a_voxel(cohort: ViewerCohort) -> None:
    """Labels of C-1 lie in x 10 to 30, y 16 to 30, z 4 to 15: 21 x 15 x 12 voxels; B has 4 x 4 x 4 of GTVp.

    NIfTI-1 has the intent at byte 68; by 1002, labels, NiiVue draws outlines.
    """
    case = build_case(cohort.cases["C-1"])
    masks = [read_volume_of(mask["volume"]) for mask in case["masks"]]
    assert [mask.geometry.size for mask in masks] == [(23, 17, 14), (23, 17, 14), (6, 6, 6)]
    assert [np.bincount(mask.array.ravel()).tolist()[1:] for mask in masks] == [[64, 19], [64, 19], [64]]
    assert all(not mask.array[[0, -1]].any() for mask in masks)
    volumes = [case["ct"], case["pet"]["volume"], *(mask["volume"] for mask in case["masks"])]
    intents = [struct.unpack_from("<h", decompress(b64decode(volume)), 68)[0] for volume in volumes]
    assert intents == [0, 0, 1002, 1002, 1002]


LONG = Geometry((150, 150, 150), (4.0, 4.0, 6.0), (-300.0, -300.0, -900.0))


def test_the_region_lies_around_the_lesions_or_at_the_upper_end() -> None:
    """255 mm are 63.75 steps of 4 mm and 42.5 of 6 mm: 65 and 44 voxels, around index 75 from 43 and 54.

    Without lesions they end at the last slice and lie around the middle, 74.5: from 42.
    """
    focus = find_display_grid(LONG, np.array([[75.0, 75.0, 75.0]] * 2))
    assert focus.size == (65, 65, 44)
    assert to_index(LONG, np.asarray(focus.origin_mm)).tolist() == pytest.approx([43, 43, 54])
    # 511 x 511 x 200 voxels are too many, 256 x 256 x 200 of every second one along x and y are not.
    fine = Geometry((600, 600, 200), (0.5, 0.5, 1.0), (0.0, 0.0, 0.0))
    grid = find_display_grid(fine, np.array([[300.0, 300.0, 100.0]] * 2))
    assert (grid.size, grid.spacing_mm) == ((256, 256, 200), (1.0, 1.0, 1.0))
    top = find_display_grid(LONG, None)
    assert top.size == (65, 65, 44)
    assert to_index(LONG, np.asarray(top.origin_mm)).tolist() == pytest.approx([42, 42, 106])


@settings(max_examples=50)
@given(*[st.tuples(*[st.floats(0.0, 149.0)] * 3)] * 2, st.sampled_from([1, 3]))
def test_the_region_holds_all_lesions_on_voxels_of_the_ct(
    first: tuple[float, ...], second: tuple[float, ...], fineness: int
) -> None:
    ct = Geometry((150 * fineness,) * 3, (4.0 / fineness,) * 3, (-300.0, -300.0, -900.0), OBLIQUE.direction)
    lesions = np.array([first, second]) * fineness
    grid = find_display_grid(ct, np.stack([lesions.min(axis=0), lesions.max(axis=0)]))
    index = to_index(grid, to_mm(ct, lesions))
    assert grid.voxel_count <= MAX_VOXELS
    assert (index >= -1e-6).all()
    assert (index <= np.asarray(grid.size) - 0.5 + 1e-6).all()
    origin = to_index(ct, np.asarray(grid.origin_mm))
    assert origin == pytest.approx(np.rint(origin), abs=1e-6)


FINE = Geometry((24, 24, 24), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
COARSE = Geometry((9, 9, 9), (3.0, 3.0, 3.0), (25.0, 25.0, -1.0), (-1.0, 0, 0, 0, -1.0, 0, 0, 0, 1.0))


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3, *[st.integers(0, 4)] * 3, st.integers(1, 2)), max_size=12))
def test_no_lesion_is_lost_on_a_coarser_grid(places: list[tuple[int, ...]]) -> None:
    """Lesions of one voxel, at most one in each block of 6 mm with a voxel's distance to the next block.

    Two lesions are then at least 2 mm apart; a display voxel of 3 mm holds two of them at most. Every lesion must have
    its label at the display voxel nearest to it, unless another one takes the same display voxel.
    """
    mask = np.zeros(FINE.array_shape, np.uint8)
    for bx, by, bz, x, y, z, label in places:
        block = mask[6 * bz : 6 * bz + 6, 6 * by : 6 * by + 6, 6 * bx : 6 * bx + 6]
        if not block.any():
            block[z, y, x] = label
    shown = resample_for_display(find_lesions(mask, FINE, 26), COARSE)
    lesions = np.argwhere(mask)[:, ::-1]
    nearest = np.rint(to_index(COARSE, to_mm(FINE, lesions))).astype(int)
    for (x, y, z), (i, j, k) in zip(lesions, nearest, strict=True):
        neighbours = np.flatnonzero((nearest == (i, j, k)).all(axis=1))
        labels = {int(mask[tuple(lesions[neighbour][::-1])]) for neighbour in neighbours}
        assert int(shown[k, j, i]) in labels
        assert int(mask[z, y, x]) in labels


def test_values_between_voxels_are_linear_and_0_outside() -> None:
    """Voxels 1, 3 and 5 along x at 0, 2 and 4 mm give 2 at 1 mm, 5 up to half a voxel beyond the last centre, then 0."""
    array = np.broadcast_to(np.array([1.0, 3.0, 5.0], np.float32), (2, 2, 3)).copy()
    volume = Volume(array, Geometry((3, 2, 2), (2.0, 2.0, 2.0), (0.0, 0.0, 0.0)))
    points = np.array([[1.0, 0.5, 0.5], [4.9, 1.0, 1.0], [5.1, 1.0, 1.0], [-1.1, 0.0, 0.0]])
    assert interpolate_values(volume, points) == pytest.approx([2.0, 5.0, 0.0, 0.0])
