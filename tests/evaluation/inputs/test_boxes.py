"""Voxels inside a bounding box: the crop of 2021 on aligned grids, the centres inside on oblique ones."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from contract.images.geometry import Geometry
from contract.images.volumes import write_mask
from evaluation.inputs.masks import BoundingBox, BoxRegion
from evaluation.inputs.submission import SubmittedAnswer
from evaluation.rows.comparison import MaskPair, compare_pair

SIZE = (9, 7, 5)
HALF = math.sqrt(0.5)
AT_45 = Geometry(
    (6, 6, 1), (math.sqrt(2), math.sqrt(2), 1.0), (0.0, 0.0, 0.0), (HALF, -HALF, 0.0, HALF, HALF, 0.0, 0.0, 0.0, 1.0)
)
DIAMOND = BoundingBox((-1.5, 2.5, -0.5), (1.5, 5.5, 0.5))
EIGHTHS = st.integers(-80, 80).map(lambda number: number / 8)


def make_turned_grid(degrees, spacing=(1.0, 1.0, 1.0), size=(60, 60, 20)):
    """Return a grid that is turned about z, with its middle voxel at (0, 0, 0) mm."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    direction = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1.0]])
    origin = -direction @ (np.array(spacing) * np.array(size) / 2)
    return Geometry(size, spacing, tuple(origin.tolist()), tuple(direction.ravel().tolist()))


def list_voxels(region: BoxRegion) -> set[tuple[int, int, int]]:
    """Return the indices (x, y, z) of the voxels inside."""
    z, y, x = (np.arange(part.start, part.stop) for part in region.slices)
    inside = np.ones((z.size, y.size, x.size), bool) if region.inside is None else region.inside
    return {(int(x[i]), int(y[j]), int(z[k])) for k, j, i in np.argwhere(inside)}


@st.composite
def boxes(draw):
    low = [draw(EIGHTHS) for _ in range(3)]
    return BoundingBox(tuple(low), tuple(corner + draw(st.integers(1, 80)) / 8 for corner in low))


@settings(max_examples=40)
@given(
    box=boxes(),
    order=st.permutations(range(3)),
    signs=st.tuples(*[st.sampled_from([1, -1])] * 3),
    origin=st.tuples(EIGHTHS, EIGHTHS, EIGHTHS),
)
def test_aligned_grids_are_cropped_as_in_2021(box, order, signs, origin):
    """Grid axis `axis` runs along patient axis order[axis], forwards or backwards; spacings are powers of 2.

    From the voxel nearest to the corner of lower index, floor(low + 0.5), rint(length) voxels.
    """
    spacing = (1.0, 0.5, 2.0)
    direction = np.zeros((3, 3))
    for axis, (patient, sign) in enumerate(zip(order, signs, strict=True)):
        direction[patient, axis] = sign
    region = box.find_region(Geometry(SIZE, spacing, origin, tuple(direction.ravel().tolist())))
    assert region.inside is None
    for axis, (patient, sign) in enumerate(zip(order, signs, strict=True)):
        ends = [sign * (mm[patient] - origin[patient]) / spacing[axis] for mm in (box.low_mm, box.high_mm)]
        start = math.floor(min(ends) + 0.5)
        stop = start + round(max(ends) - min(ends))
        cut = [min(max(end, 0), SIZE[axis]) for end in (start, stop)]
        assert [region.slices[2 - axis].start, region.slices[2 - axis].stop] == cut


@settings(max_examples=40)
@given(box=boxes(), turns=st.tuples(*[st.floats(0.2, 1.3)] * 3), origin=st.tuples(EIGHTHS, EIGHTHS, EIGHTHS))
def test_oblique_grids_hold_the_voxels_whose_centre_is_inside(box, turns, origin):
    """Compare every voxel of a grid that is turned about three axes."""
    direction = np.eye(3)
    for axis, turn in enumerate(turns):
        first, second = (plane_axis for plane_axis in range(3) if plane_axis != axis)
        rotation = np.eye(3)
        rotation[[first, second], [first, second]] = math.cos(turn)
        rotation[first, second], rotation[second, first] = -math.sin(turn), math.sin(turn)
        direction = direction @ rotation
    spacing = (1.0, 0.5, 2.0)
    indices = np.array(list(itertools.product(*map(range, SIZE))))
    centres = np.array(origin) + (indices * spacing) @ direction.T
    assume(
        min(np.abs(centres - corner).min() for corner in (box.low_mm, box.high_mm)) > 1e-3
    )  # the tolerance of borders
    inside = ((centres >= box.low_mm) & (centres < box.high_mm)).all(axis=1)
    expected = set(map(tuple, indices[inside].tolist()))
    grid = Geometry(SIZE, spacing, origin, tuple(direction.ravel().tolist()))
    region = box.find_region(grid)
    assert list_voxels(region) == expected
    assert region.is_empty == (not expected)


def test_a_tilt_below_the_tolerance_of_grids_is_no_tilt():
    """0.05 degrees: a direction cosine of 0.0009."""
    box = BoundingBox((-3.0, -3.0, -3.0), (3.0, 3.0, 3.0))
    assert box.find_region(make_turned_grid(0.05)).inside is None
    assert box.find_region(make_turned_grid(0.06)).inside is not None


def test_dsc_inside_an_oblique_box(tmp_path, rules):
    """At 45 degrees with a spacing of sqrt(2) mm voxel (i, j) is centred at (i - j, i + j) mm, so that the box holds
    i - j in {-1, 0, 1} and i + j in {3, 4, 5}, both odd or both even: 5 voxels.

    The reference fills the image, the prediction is row j = 2 with 3 voxels inside. DSC = 2 x 3 / (5 + 3).
    """
    assert list_voxels(DIAMOND.find_region(AT_45)) == {(1, 2, 0), (2, 3, 0), (2, 2, 0), (2, 1, 0), (3, 2, 0)}
    reference, predicted = np.ones((1, 6, 6), np.uint8), np.zeros((1, 6, 6), np.uint8)
    predicted[0, 2, :] = 1
    paths = [tmp_path / "reference.mha", tmp_path / "predicted.mha"]
    for path, mask in zip(paths, (reference, predicted), strict=True):
        write_mask(path, mask, AT_45)
    row = compare_pair(MaskPair(paths[0], SubmittedAnswer("A", paths[1]), rules(), DIAMOND))
    assert (row.gtvp.intersection_voxels, row.gtvp.reference_voxels, row.gtvp.predicted_voxels) == (3, 5, 3)
    assert row.gtvp.dsc == 0.75


@pytest.mark.parametrize("degrees", [0, 45])
@pytest.mark.parametrize("spacing_mm", [0.4, 0.7])
def test_the_precision_of_the_header_changes_no_voxel_of_a_box(degrees, spacing_mm):
    """Both ends lie on the border between voxels: index 1.5 to 5.0 along the axes, or a diamond through centres.

    Single precision, as in NIfTI, moves them to either side. Aligned: floor(1.5 + 0.5) = 2, rint(3.5) = 4 voxels.
    """
    turn = math.sqrt(2) if degrees else 1.0
    origin = -250.3
    low, high = (origin + end * spacing_mm * turn for end in (1.5, 5.0))
    box = BoundingBox((low if not degrees else -1e3, low, -1e3), (high if not degrees else 1e3, high, 1e3))
    cosine = math.cos(math.radians(degrees))
    direction = (cosine, -math.sqrt(1 - cosine**2), 0.0, math.sqrt(1 - cosine**2), cosine, 0.0, 0.0, 0.0, 1.0)
    regions = []
    for store in (float, np.float32):
        spacing, start = float(store(spacing_mm)), float(store(origin))
        grid = Geometry(SIZE, (spacing, spacing, 1.0), (start, start, 0.0), direction)
        regions.append(list_voxels(box.find_region(grid)))
    assert regions[0] == regions[1]
    if not degrees:
        assert {x for x, _, _ in regions[0]} == {2, 3, 4, 5}
    else:
        assert {x + y for x, y, _ in regions[0]} == {3, 4, 5, 6, 7, 8, 9}
