"""Geometry: coordinates, comparison and checks."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import SimpleITK as sitk
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import GroundTruthError, InputError
from contract.images.geometry import Geometry

ROTATED = (0.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0)


def make_rotation(a: float, b: float, c: float) -> tuple[float, ...]:
    ca, sa, cb, sb, cc, sc = (f(v) for v in (a, b, c) for f in (math.cos, math.sin))
    first = np.array([[ca, -sa, 0], [sa, ca, 0], [0, 0, 1]])
    second = np.array([[cb, 0, sb], [0, 1, 0], [-sb, 0, cb]])
    third = np.array([[1, 0, 0], [0, cc, -sc], [0, sc, cc]])
    return tuple(float(v) for v in (first @ second @ third).ravel())


ANGLES = st.floats(-math.pi, math.pi)
GEOMETRIES = st.builds(
    lambda size, spacing, origin, angles, flip: Geometry(
        size,
        spacing,
        origin,
        tuple(v * (-1 if flip and i % 3 == 2 else 1) for i, v in enumerate(make_rotation(*angles))),
    ),
    st.tuples(*[st.integers(1, 40)] * 3),
    st.tuples(*[st.floats(0.3, 6)] * 3),
    st.tuples(*[st.floats(-900, 900)] * 3),
    st.tuples(ANGLES, ANGLES, ANGLES),
    st.booleans(),
)


def test_physical_coordinates_by_hand() -> None:
    """Rotated by 90 degrees about z, the first axis runs along +y and the second along -x.

    Voxel (2, 1, 3) with spacing (2, 3, 4): 4 mm along +y, 3 mm along -x, 12 mm along z, from origin (10, 20, 30):
    (7, 24, 42).
    """
    geometry = Geometry((5, 5, 5), (2.0, 3.0, 4.0), (10.0, 20.0, 30.0), ROTATED)
    np.testing.assert_allclose(geometry.index_to_physical_matrix() @ [2, 1, 3, 1], [7, 24, 42, 1])


@given(GEOMETRIES, st.tuples(*[st.integers(0, 39)] * 3))
def test_agrees_with_simpleitk(geometry: Geometry, index: tuple[int, int, int]) -> None:
    image = sitk.Image(list(geometry.size), sitk.sitkUInt8)
    image.SetSpacing(geometry.spacing_mm)
    image.SetOrigin(geometry.origin_mm)
    image.SetDirection(geometry.direction)
    point = geometry.index_to_physical_matrix() @ [*index, 1]
    np.testing.assert_allclose(point[:3], image.TransformIndexToPhysicalPoint(index), atol=1e-9)
    np.testing.assert_allclose(geometry.physical_to_index_matrix() @ point, [*index, 1], atol=1e-6)
    assert Geometry.from_image(image).find_differences(geometry) == []
    assert geometry.array_shape == sitk.GetArrayViewFromImage(image).shape
    geometry.check("image")


def test_order_of_axes_and_volume() -> None:
    geometry = Geometry((2, 3, 4), (1.0, 2.0, 5.0), (0.0, 0.0, 0.0))
    assert geometry.array_shape == (4, 3, 2)
    assert geometry.array_spacing_mm == (5.0, 2.0, 1.0)
    assert geometry.voxel_count == 24
    assert geometry.voxel_volume_mm3 == 10.0


def test_corners_lie_half_a_voxel_beyond_the_centres() -> None:
    """Ten voxels of 2 mm from 0: centres 0 to 18, edges -1 to 19."""
    corners = Geometry((10, 10, 10), (2.0, 2.0, 2.0), (0.0, 0.0, 0.0)).corners_mm()
    assert corners.shape == (8, 3)
    np.testing.assert_allclose([corners.min(0), corners.max(0)], [[-1] * 3, [19] * 3])


@given(GEOMETRIES, st.tuples(*[st.integers(0, 10)] * 3))
def test_cropping_keeps_the_position_of_voxels(geometry: Geometry, start: tuple[int, int, int]) -> None:
    part = geometry.crop(start, (1, 1, 1))
    np.testing.assert_allclose(part.origin_mm, (geometry.index_to_physical_matrix() @ [*start, 1])[:3], atol=1e-9)
    assert part.direction == geometry.direction


BASE = Geometry((4, 5, 6), (1.0, 2.0, 3.0), (10.0, 20.0, 30.0))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"size": (4, 5, 7)}, "size"),
        ({"spacing_mm": (1.0, 2.0, 3.01)}, "spacing_mm"),
        ({"origin_mm": (10.01, 20.0, 30.0)}, "origin_mm"),
        ({"direction": ROTATED}, "direction"),
    ],
)
def test_differences_are_named(change: dict[str, tuple[float, ...]], field: str) -> None:
    changed = dataclasses.replace(BASE, **change)
    (difference,) = BASE.find_differences(changed)
    assert difference.startswith(field)


def test_differences_below_a_thousandth_of_the_spacing_are_ignored() -> None:
    close = Geometry((4, 5, 6), (1.0009, 2.0019, 3.0029), (10.0009, 19.9981, 30.0029))
    assert BASE.find_differences(close) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": (0, 5, 6)}, "at least one voxel"),
        ({"spacing_mm": (0.0, 2.0, 3.0)}, "expected positive"),
        ({"spacing_mm": (1.0, math.nan, 3.0)}, "not finite"),
        ({"origin_mm": (math.inf, 0.0, 0.0)}, "not finite"),
        ({"direction": (1.0, 0.5, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)}, "not orthonormal"),
    ],
)
def test_invalid_grids_are_rejected(change: dict[str, tuple[float, ...]], message: str) -> None:
    geometry = dataclasses.replace(BASE, **change)
    with pytest.raises(InputError, match=f"ct.mha: .*{message}"):
        geometry.check("ct.mha")
    with pytest.raises(GroundTruthError):
        geometry.check("truth.mha", GroundTruthError)
