"""The way from the network's grid back to the CT, and from the scans there and back, is exact."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from algorithm.case.read import Case
from algorithm.masks.segmentation import Segmentation
from algorithm.network.preprocessing import make_network_channels
from algorithm.region.grids import make_grid_over, make_upright_grid, restore_labels
from algorithm.region.localise import Region
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from contract.patient import Patient
from tests.algorithm.region.oriented_grids import DIRECTIONS, SPACINGS, covering, oriented, points_mm

NETWORK_SPACING_MM = (3.0, 3.0, 3.0)


# Back to the CT


@settings(max_examples=60)
@given(
    SPACINGS, DIRECTIONS, st.tuples(*[st.floats(-1, 1)] * 3), st.floats(-15, 15), st.tuples(*[st.floats(-25, 25)] * 3)
)
def test_a_plane_is_restored_exactly(
    spacing: tuple[float, float, float],
    direction: tuple[float, ...],
    normal: tuple[float, ...],
    offset: float,
    shift: tuple[float, ...],
) -> None:
    """Logits that are linear in space are interpolated without error, so every CT voxel gets the right label.

    Left out are voxels within 0.01 mm of the plane (float32) and, where the CT is coarser than the network's grid
    and logits are averaged, those in the outermost blocks. Beyond the network's grid all is background.
    """
    assume(np.linalg.norm(normal) > 0.1)
    unit = np.asarray(normal) / np.linalg.norm(normal)
    grid = make_grid_over((-24, -24, -24), (24, 24, 24), NETWORK_SPACING_MM)
    ct = covering(np.asarray(shift), 25.0, spacing, direction)
    distance = (points_mm(grid) @ unit - offset).astype(np.float32)
    logits = np.stack([-distance, distance, np.full_like(distance, -1e3)])
    found = restore_labels(logits, grid, ct)
    assert found.shape == ct.array_shape
    assert found.dtype == np.uint8
    points = points_mm(ct)
    truth = points @ unit - offset
    deep = np.all(np.abs(points) < 24 - 2.5 * max(*spacing, 3.0), axis=-1) & (np.abs(truth) > 0.01)
    np.testing.assert_array_equal(found[deep], (truth > 0)[deep])
    assert not found[np.any(np.abs(points) > 24 + max(*spacing, 3.0), axis=-1)].any()


# There and back again


def round_trip(case: Case, channel: int) -> tuple[np.ndarray, Geometry]:
    """What a perfect network would answer that marks what is bright in one channel (0 CT, 1 PET) above 0.5."""
    corners = case.scan.geometry.corners_mm()
    region = Region(tuple(corners.min(0)), tuple(corners.max(0)), "test")
    grid = make_upright_grid(case.scan.geometry, region.lower_mm, region.upper_mm, NETWORK_SPACING_MM)
    ct, pet = make_network_channels(case, grid)
    bright = np.clip((ct, pet)[channel], 0, 1) - 0.5
    logits = np.stack([-bright, bright, np.full_like(bright, -1e3)])
    return Segmentation(logits, ct, pet, grid).mask_on(case.scan.geometry), case.scan.geometry


RADIUS_MM = 18.0


@settings(max_examples=25)
@given(
    st.tuples(st.floats(0.8, 1.5), st.floats(0.8, 1.5), st.floats(1.5, 5)),
    DIRECTIONS,
    st.tuples(st.floats(2.0, 5.5), st.floats(2.0, 5.5), st.floats(2.0, 5.0)),
    DIRECTIONS,
    st.tuples(*[st.floats(-6, 6)] * 3),
    st.tuples(*[st.floats(-10, 10)] * 3),
    st.sampled_from([0, 1]),
)
def test_a_known_shape_survives_the_round_trip(
    ct_spacing: tuple[float, float, float],
    ct_direction: tuple[float, ...],
    pet_spacing: tuple[float, float, float],
    pet_direction: tuple[float, ...],
    pet_shift: tuple[float, ...],
    place: tuple[float, ...],
    channel: int,
) -> None:
    """A ball of radius 18 mm in CT or PET, through the network's 3 mm grid, back onto the CT.

    A scanner records a voxel's mean, here the share of the ball in it (a linear edge over one voxel), so that the
    surface's position is not lost to sampling. Bounds: if the surface moves by no more than half a network voxel
    (1.5 mm), the volume of what is wrong is at most that of the shell, 3 * 1.5 / 18 of the ball, so Dice is at
    least 1 - 0.25 / 2 = 0.875. Errors of the surface are the same on opposite sides, so the centroid stays within
    a quarter of a network voxel (0.75 mm), where a shift of half a voxel anywhere on the way would show.
    """
    middle = np.asarray(place) + 100
    ct = covering(np.full(3, 100.0), 42.0, ct_spacing, ct_direction)
    pet = covering(middle + pet_shift, 38.0, pet_spacing, pet_direction)
    case = Case(Volume(ball(ct, middle), ct), Volume(ball(pet, middle), pet), Patient())
    mask, geometry = round_trip(case, channel)
    assert mask.shape == geometry.array_shape
    points = points_mm(geometry)
    truth = np.linalg.norm(points - middle, axis=-1) < RADIUS_MM
    dice = 2 * np.count_nonzero(truth & (mask == 1)) / (np.count_nonzero(truth) + np.count_nonzero(mask))
    assert dice > 0.875
    np.testing.assert_allclose(points[mask == 1].mean(0), points[truth].mean(0), atol=0.75)
    reach = np.abs(np.linalg.norm(points - middle, axis=-1) - RADIUS_MM)
    wrong = (mask == 1) != truth
    assert reach[wrong].max(initial=0) < 0.5 * max(3.0, *(ct_spacing, pet_spacing)[channel]) + 0.5


def ball(geometry: Geometry, middle: np.ndarray) -> np.ndarray:
    """The share of a ball in each voxel: 1 within, 0 without, linear over a voxel's width at the surface."""
    width = max(geometry.spacing_mm)
    depth = RADIUS_MM - np.linalg.norm(points_mm(geometry) - middle, axis=-1)
    return np.clip(depth / width + 0.5, 0, 1).astype(np.float32)


def test_a_pet_that_covers_half_the_ct_marks_only_that_half() -> None:
    """Two equal balls 60 mm apart, the PET reaching over one: only that one comes back, and in its place."""
    first, second = np.array([0.0, 0.0, -30.0]), np.array([0.0, 0.0, 30.0])
    ct = covering(np.zeros(3), 55.0, (1.2, 1.1, 3.0), oriented((1, 0, 2), (1.0, -1.0, -1.0), (0.1, 0.0)))
    pet = covering(second, 25.0, (4.0, 4.0, 3.0), oriented((0, 1, 2), (-1.0, 1.0, 1.0), (0.0, 0.1)))
    both = np.maximum(ball(ct, first), ball(ct, second))
    case = Case(Volume(both, ct), Volume(ball(pet, second), pet), Patient())
    mask, geometry = round_trip(case, 1)
    centre = points_mm(geometry)[mask == 1].mean(0)
    np.testing.assert_allclose(centre, second, atol=0.75)
