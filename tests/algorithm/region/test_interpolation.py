"""nnU-Net's interpolation, computed for a crop, against nnU-Net's own functions on the whole scan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nnunetv2.preprocessing.resampling.default_resampling import resample_data_or_seg_to_shape
from nnunetv2.preprocessing.resampling.resample_torch import resample_torch_fornnunet
from skimage.transform import resize

from algorithm.region.lattice import (
    Lattice,
    Restoration,
    Spline,
    along_z,
    axis_weights,
    in_plane,
    lattice_over,
    lattice_weights,
    oriented,
    restored_labels,
)
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from tests.algorithm.region.oriented_grids import oriented as direction_of

CUBIC, LINEAR, SLICES = Spline((3, 3, 3)), Spline((1, 1, 1)), Spline((0, 1, 1), by_slice=True)
SCAN = Geometry((61, 50, 33), (0.9, 0.9, 3.3), (5.0, 6.0, 7.0))


def box_of(lattice: Lattice) -> tuple[slice, ...]:
    return tuple(slice(a, a + n) for a, n in zip(lattice.start[::-1], lattice.grid.array_shape, strict=True))


def test_weights_of_a_straight_line_by_hand() -> None:
    """Four voxels to two: each target lies between two sources. Two to four: centres at -0.25, 0.25, 0.75, 1.25."""
    halved = axis_weights(4, 2, 1)
    np.testing.assert_allclose(halved.matrix, [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
    doubled = axis_weights(2, 4, 1)
    np.testing.assert_allclose(doubled.matrix, [[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]])
    nearest = axis_weights(2, 4, 0, slice(2, 4))
    assert nearest.first == 1
    np.testing.assert_array_equal(nearest.matrix, [[1], [1]])


@settings(max_examples=40)
@given(st.integers(2, 90), st.integers(1, 90), st.sampled_from([0, 1, 3]), st.integers(0, 89), st.integers(1, 20))
def test_a_part_of_an_axis_has_the_values_of_the_whole(
    source: int, target: int, order: int, first: int, length: int
) -> None:
    """Against skimage's resize, on which nnU-Net's default resampling rests; weights below 1e-7 are left out."""
    first = min(first, target - 1)
    values = np.random.default_rng(source).normal(size=source)
    expected = resize(values, (target,), order, mode="edge", anti_aliasing=False, clip=False)
    weights = axis_weights(source, target, order, slice(first, first + length))
    found = weights.matrix @ values[weights.source]
    tie = order == 0 and np.isclose((np.arange(target) + 0.5) * source / target % 1, 0).any()
    if not tie:
        np.testing.assert_allclose(found, expected[first : first + length], atol=1e-5)


def test_a_cubic_crop_reads_few_voxels_of_a_long_axis() -> None:
    """Weights fall by 0.268 a voxel, to 1e-7 within 12.2; targets 400 to 409 of 450 lie at sources 800.5 to 818.5."""
    weights = axis_weights(900, 450, 3, slice(400, 410))
    assert weights.first >= 800 - 14
    assert weights.source.stop <= 819 + 14


@pytest.mark.parametrize("spline", [CUBIC, LINEAR, Spline((0, 3, 3), by_slice=True)], ids=["cubic", "linear", "slices"])
def test_a_crop_has_the_values_of_the_whole_scan(spline: Spline) -> None:
    lattice = lattice_over(SCAN, (20, 20, 20), (45, 40, 75), (2.0, 2.0, 3.0))
    scan = np.random.default_rng(0).normal(size=SCAN.array_shape).astype(np.float32)
    shape, spacings = lattice.whole.array_shape, (SCAN.array_spacing_mm, (3.0, 2.0, 2.0))
    options = {"order": max(spline.orders), "force_separate_z": spline.by_slice}
    expected = resample_data_or_seg_to_shape(scan[None], shape, *spacings, **options)[0]
    z, y, x = lattice_weights(lattice, spline)
    slices = in_plane(scan[z.source, y.source, x.source], y, x)
    low, high = scan.min(axis=(1, 2)), scan.max(axis=(1, 2))
    if spline.by_slice:
        slices = np.clip(slices, low[z.source, None, None], high[z.source, None, None])
    found = np.clip(along_z(slices, z), low.min(), high.max())
    np.testing.assert_allclose(found, expected[box_of(lattice)], atol=1e-5)


def logits_near(shape: tuple[int, ...], box: tuple[slice, ...], seed: int) -> np.ndarray:
    """Logits of a whole lattice in which the background wins outside the middle of `box`."""
    logits = np.random.default_rng(seed).normal(size=(3, *shape)).astype(np.float32)
    logits[0] += 8
    inner = tuple(slice(cut.start + 3, cut.stop - 3) for cut in box)
    logits[(0, *inner)] -= 8
    return logits


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([(0.9, 0.9, 3.3), (2.5, 2.5, 2.5), (4.0, 4.0, 5.0)]),
    st.permutations([0, 1, 2]),
    st.tuples(*[st.sampled_from([-1.0, 1.0])] * 3),
    st.sampled_from([(0.0, 0.0), (0.2, 0.1)]),
    st.sampled_from([LINEAR, SLICES]),
)
def test_labels_come_back_as_nnunet_brings_them(
    spacing: tuple[float, float, float],
    order: list[int],
    signs: tuple[float, ...],
    tilt: tuple[float, float],
    spline: Spline,
) -> None:
    """The logits of the crop against those of the whole lattice, resampled by nnU-Net, in scans of any orientation."""
    ct = Geometry((40, 36, 24), spacing, (5.0, 6.0, 7.0), direction_of(tuple(order), signs, tilt))
    scan = oriented(Volume(np.zeros(ct.array_shape, np.uint8), ct)).geometry
    middle, new = scan.corners_mm().mean(0), (2.0, 2.0, 3.0)
    lattice = lattice_over(scan, middle - 14, middle + 14, new)
    logits = logits_near(lattice.whole.array_shape, box_of(lattice), seed=sum(order))
    options: dict[str, Any] = {"order": 1, "force_separate_z": spline.by_slice}
    spacings = (new[::-1], scan.array_spacing_mm)
    whole = resample_data_or_seg_to_shape(logits, scan.array_shape, *spacings, **options)
    found = restored_labels(logits[(slice(None), *box_of(lattice))], Restoration(lattice, spline), ct)
    assert (found > 0).any()
    np.testing.assert_array_equal(oriented(Volume(found, ct)).array, whole.argmax(0))


def test_torch_resamples_linearly_too() -> None:
    lattice = lattice_over(SCAN, (20, 20, 20), (45, 40, 75), (2.0, 2.0, 3.0))
    scan = np.random.default_rng(0).normal(size=SCAN.array_shape).astype(np.float32)
    spacings = SCAN.array_spacing_mm, (3.0, 2.0, 2.0)
    expected = resample_torch_fornnunet(scan[None], lattice.whole.array_shape, *spacings, force_separate_z=False)[0]
    z, y, x = lattice_weights(lattice, LINEAR)
    found = along_z(in_plane(scan[z.source, y.source, x.source], y, x), z)
    np.testing.assert_allclose(found, np.asarray(expected)[box_of(lattice)], atol=1e-4)


def test_without_a_label_the_mask_is_empty() -> None:
    lattice = lattice_over(SCAN, (20, 20, 20), (45, 40, 75), (2.0, 2.0, 3.0))
    logits = np.zeros((3, *lattice.grid.array_shape), np.float32)
    assert not restored_labels(logits, Restoration(lattice, LINEAR), SCAN).any()
