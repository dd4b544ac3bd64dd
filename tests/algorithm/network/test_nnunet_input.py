"""The network's input from a part of a scan, against nnU-Net's own preprocessing of the whole scan."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nnunetv2.inference.sliding_window_prediction import compute_gaussian, compute_steps_for_sliding_window
from nnunetv2.preprocessing.cropping.cropping import crop_to_nonzero
from nnunetv2.preprocessing.preprocessors.default_preprocessor import DefaultPreprocessor
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

from algorithm.case.read import Case
from algorithm.network import nnunet_input, windows
from algorithm.network.images import network_image
from algorithm.network.nnunet_input import nnunet_channels, nnunet_lattice, nonzero_part, spline_of, starts_in, tiled
from algorithm.network.package import ModelPackage
from algorithm.network.windows import PassPlan
from algorithm.region.lattice import Lattice, first_voxel, lattice_over, oriented
from algorithm.region.localise import Region
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, to_sitk
from contract.packages import Manifest
from contract.patient import Patient
from tests.algorithm.region.oriented_grids import oriented as direction_of
from tests.conftest import tiny_plans

CUBIC: dict[str, Any] = {"is_seg": False, "order": 3, "order_z": 0, "force_separate_z": None}
LINEAR: dict[str, Any] = {"is_seg": False, "order": 1, "order_z": 0, "force_separate_z": None}
TORCH: dict[str, Any] = {"is_seg": False, "force_separate_z": False, "memefficient_seg_resampling": False}
STOCK = {
    "resampling_fn_data": "resample_data_or_seg_to_shape",
    "resampling_fn_data_kwargs": CUBIC,
    "resampling_fn_seg": "resample_data_or_seg_to_shape",
    "resampling_fn_seg_kwargs": CUBIC | {"is_seg": True, "order": 1},
    "resampling_fn_probabilities": "resample_data_or_seg_to_shape",
    "resampling_fn_probabilities_kwargs": LINEAR,
}
OURS = {
    "resampling_fn_data": "resample_torch_fornnunet",
    "resampling_fn_data_kwargs": TORCH,
    "resampling_fn_seg": "resample_torch_fornnunet",
    "resampling_fn_seg_kwargs": TORCH | {"is_seg": True},
    "resampling_fn_probabilities": "resample_torch_fornnunet",
    "resampling_fn_probabilities_kwargs": TORCH,
}


def package_of(resampling: dict[str, Any], *schemes: str) -> ModelPackage:
    plans = tiny_plans()
    configuration = plans["configurations"]["3d_fullres"]
    configuration |= resampling | {"spacing": [3.0, 2.0, 2.0]}
    configuration["normalization_schemes"] = list(schemes or ("CTNormalization", "ZScoreNormalization"))
    manifest = Manifest.model_construct(
        configuration="3d_fullres",
        channels=["CT", "PET"],
        resampling="nnunet",
        normalised_over="scan",
        folds=["fold_0"],
    )
    return ModelPackage(Path(), manifest, plans, (), {})


def case_of(ct: Geometry, seed: int = 0, zeros: int = 0) -> Case:
    """Noise in CT and PET of different grids; `zeros` planes of zero on the low side of each axis, without uptake."""
    rng = np.random.default_rng(seed)
    hu = rng.normal(0, 300, ct.array_shape).astype(np.int16) | 1
    for axis in range(3):
        hu.swapaxes(0, axis)[:zeros] = 0
    matrix = ct.index_to_physical_matrix()
    centre = matrix[:3, :3] @ (np.asarray(ct.size) / 2) + matrix[:3, 3]
    pet = Geometry((9, 9, 9), (4.0, 4.0, 5.0), tuple(centre - np.array([12.0, 12.0, 15.0])))
    return Case(Volume(hu, ct), Volume(rng.gamma(2, 2, pet.array_shape).astype(np.float32), pet), Patient({}))


def nnunets_image(case: Case, package: ModelPackage) -> tuple[np.ndarray, dict[str, Any]]:
    """nnU-Net's preprocessing of CT and PET on the CT's grid, as its users must bring them."""
    ct = oriented(case.ct)
    assert case.pet is not None
    grid = sitk.Image(list(ct.geometry.size), sitk.sitkFloat32)
    grid.SetSpacing(ct.geometry.spacing_mm)
    grid.SetOrigin(ct.geometry.origin_mm)
    grid.SetDirection(ct.geometry.direction)
    pet = sitk.GetArrayFromImage(sitk.Resample(to_sitk(case.pet), grid, sitk.Transform(), sitk.sitkLinear, 0.0))
    plans = copy.deepcopy(dict(package.plans)) | {"transpose_forward": [0, 1, 2], "transpose_backward": [0, 1, 2]}
    manager = PlansManager(plans)
    properties = {"spacing": list(ct.geometry.array_spacing_mm)}
    data = np.stack([ct.array.astype(np.float32), pet])
    image, _, properties = DefaultPreprocessor(verbose=False).run_case_npy(
        data, None, properties, manager, manager.get_configuration("3d_fullres"), {}
    )
    return np.asarray(image), properties


@pytest.mark.parametrize("resampling", [STOCK, OURS], ids=["stock", "ours"])
@pytest.mark.parametrize(
    "grid",
    [
        Geometry((34, 30, 20), (1.2, 1.2, 2.5), (3.0, 4.0, 5.0)),
        Geometry((40, 36, 14), (0.9, 0.9, 3.3), (3.0, 4.0, 5.0)),
        Geometry((22, 26, 18), (2.0, 2.0, 3.0), (0.0, 0.0, 0.0)),
        Geometry((34, 20, 30), (1.2, 2.5, 1.2), (3.0, 4.0, 5.0), direction_of((0, 2, 1), (-1, 1, -1), (0.2, 0.1))),
    ],
    ids=["cubic", "slices", "same spacing", "other axes"],
)
@pytest.mark.parametrize("zeros", [0, 3], ids=["whole", "nonzero part"])
def test_the_image_is_a_crop_of_nnunets(
    resampling: dict[str, Any], grid: Geometry, zeros: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With slabs of a few planes, so that several of them make the scan."""
    monkeypatch.setattr(nnunet_input, "_SLAB_VOXELS", 5000)
    case, package = case_of(grid, zeros=zeros), package_of(resampling)
    expected, _ = nnunets_image(case, package)
    middle = grid.corners_mm().mean(0)
    region = Region(tuple(middle - 9), tuple(middle + 9), "test")
    lattice = nnunet_lattice(case, region, package)
    assert lattice.whole.array_shape == expected.shape[1:]
    box = tuple(slice(a, a + n) for a, n in zip(lattice.start[::-1], lattice.grid.array_shape, strict=True))
    found = nnunet_channels(case, lattice, package)
    assert 0 < found[0].size < expected[0].size
    np.testing.assert_allclose(found, expected[(slice(None), *box)], atol=2e-4)


def test_the_scale_of_an_image_is_that_of_the_whole_scan() -> None:
    """RescaleTo01: the CT's range, CT and PET without gaps between slabs."""
    case = case_of(Geometry((34, 30, 20), (1.2, 1.2, 2.5), (3.0, 4.0, 5.0)))
    package = package_of(STOCK, "RescaleTo01Normalization", "NoNormalization")
    expected, _ = nnunets_image(case, package)
    corners = case.ct.geometry.corners_mm()
    lattice = nnunet_lattice(case, Region(tuple(corners.min(0)), tuple(corners.max(0)), "test"), package)
    np.testing.assert_allclose(nnunet_channels(case, lattice, package), expected, atol=2e-4)


def test_the_nonzero_part_by_hand() -> None:
    """CT zero but for voxels (z, y, x) 2 to 4, 3 to 5, 1 to 6; without a PET this box is the scan."""
    grid = Geometry((9, 8, 7), (1.0, 2.0, 3.0), (10.0, 20.0, 30.0))
    hu = np.zeros(grid.array_shape, np.int16)
    hu[2:5, 3:6, 1:7] = -1000
    part = nonzero_part(Case(Volume(hu, grid), None, Patient({})))
    assert (part.size, part.origin_mm) == ((6, 3, 3), (11.0, 26.0, 36.0))
    pet = Volume(np.ones(grid.array_shape, np.float32), grid)
    assert nonzero_part(Case(Volume(hu, grid), pet, Patient({}))) == grid


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), *(st.integers(0, n - 1) for n in (4, 5, 3))), max_size=4), st.booleans())
@example([(False, 0, 0, 0)], False)
@example([(True, 3, 4, 2)], False)
@example([], False)
@example([], True)
def test_the_nonzero_part_is_nnunets_crop(voxels: list[tuple[bool, int, int, int]], ring: bool) -> None:
    """Voxels (z, y, x) of CT or PET, single planes and empty scans included, and a ring with a hole."""
    grid = Geometry((3, 5, 4), (1.0, 2.0, 3.0), (10.0, 20.0, 30.0))
    ct, pet = np.zeros(grid.array_shape, np.int16), np.zeros(grid.array_shape, np.float32)
    for of_pet, *place in voxels:
        (pet if of_pet else ct)[tuple(place)] = 1
    if ring:
        ct[:3, 1:4], ct[1, 2, 1] = -1000, 0
    _, _, box = crop_to_nonzero(np.stack([ct.astype(np.float32), pet]))
    (z, _), (y, _), (x, _) = box
    part = nonzero_part(Case(Volume(ct, grid), Volume(pet, grid), Patient({})))
    assert part.array_shape == tuple(stop - start for start, stop in box)
    assert part.origin_mm == (10.0 + x, 20.0 + 2 * y, 30.0 + 3 * z)


def test_splines_are_those_of_the_plans() -> None:
    """nnU-Net interpolates slices apart if one spacing is more than three times another, of the scan or the network."""
    package = package_of(STOCK)
    thick = lattice_over(Geometry((9, 9, 9), (0.9, 0.9, 3.3), (0.0, 0.0, 0.0)), (0, 0, 0), (5, 5, 5), (2.0, 2.0, 3.0))
    cubes = lattice_over(Geometry((9, 9, 9), (2.0, 2.0, 2.0), (0.0, 0.0, 0.0)), (0, 0, 0), (5, 5, 5), (2.0, 2.0, 3.0))
    of_thick = [spline_of(package.configuration, kind, thick) for kind in ("data", "probabilities")]
    assert [(one.orders, one.by_slice) for one in of_thick] == [((0, 3, 3), True), ((0, 1, 1), True)]
    assert spline_of(package.configuration, "data", cubes).orders == (3, 3, 3)
    ours = spline_of(package_of(OURS).configuration, "data", thick)
    assert (ours.orders, ours.by_slice) == ((1, 1, 1), False)


def test_a_package_without_the_key_keeps_the_upright_grid() -> None:
    case = case_of(
        Geometry((34, 30, 20), (1.2, 1.2, 2.5), (3.0, 4.0, 5.0), direction_of((0, 1, 2), (1, 1, 1), (0.2, 0)))
    )
    package = package_of(STOCK)
    middle = case.ct.geometry.corners_mm().mean(0)
    region = Region(tuple(middle - 9), tuple(middle + 9), "test")
    plain = replace(package, manifest=package.manifest.model_copy(update={"resampling": "grid"}))
    assert network_image(case, region, plain, pytest.fail).grid.direction == (
        1.0,
        0.0,
        0.0,
        0.0,
        1.0,
        0.0,
        0.0,
        0.0,
        1.0,
    )
    image = network_image(case, region, package, pytest.fail)
    assert image.answer_grid.direction == pytest.approx(case.ct.geometry.direction)
    assert image.restoration is not None
    assert image.scans[0].shape == image.answer_grid.array_shape
    assert image.data.shape[1:] == image.grid.array_shape
    places = np.arange(image.data[0].size, dtype=np.float32).reshape(1, *image.grid.array_shape)
    z, y, x = first_voxel(image.answer_grid, image.grid)
    assert image.to_answer(places)[0, 0, 0, 0] == places[0, z, y, x]
    assert image.to_answer(places).shape[1:] == image.answer_grid.array_shape


@given(
    st.integers(1, 400),
    st.lists(st.sampled_from([16, 24, 40, 64]), min_size=1, max_size=2),
    st.integers(0, 399),
    st.integers(1, 400),
)
def test_the_tiles_of_a_box_are_those_of_the_whole(whole: int, patches: list[int], low: int, length: int) -> None:
    """The box covers the range; in it, each patch has the tiles of nnU-Net that end there, to the voxel."""
    low = min(low, whole - 1)
    high = min(low + length, whole)
    box = _tiled_along_x(whole, patches, low, high)
    start, stop = box.start[0], box.start[0] + box.grid.size[0]
    assert start <= low
    assert stop >= high
    for patch in patches:
        steps = compute_steps_for_sliding_window((whole,), (patch,), 0.5)[0] if whole > patch else [0]
        wanted = [step for step in steps if start <= step and min(step + patch, whole) <= stop]
        assert wanted
        z, y, x = starts_in(box, (patch, patch, patch))
        assert [start + step for step in x] == wanted
        assert list(z) == list(y) == [0]
        plan = PassPlan(windows.whole(box.grid.array_shape), 0.5, (patch, patch, patch), "any", (z, y, x))
        assert [tile[2].start for tile in plan.tiles] == list(x)
        assert all(tile[2].stop <= max(stop - start, patch) for tile in plan.tiles)


@given(st.integers(41, 400), st.sampled_from([16, 40]), st.integers(0, 399), st.integers(1, 400))
def test_each_voxel_of_the_region_keeps_its_heaviest_tile(whole: int, patch: int, low: int, length: int) -> None:
    """Tiles outside the box weigh at most as much as the box's own at the region's side, and little further in.

    The weight at d patches from a tile's centre is exp(-32 d^2). At a depth v inside the region a tile left out is at
    least d = 1/4 + v away, and the next one, s nearer, has exp(32 s (2 d - s)) times its weight. Tiles are s = 1/4 to
    1/2 apart if there are three or more: e^4 for v = 1/8 and both of these s. Rounding moves a tile by up to a voxel,
    which of 16 is 1/16 patch: with s = 1/2 still e^2.
    """
    low = min(low, whole - 1)
    high = min(low + length, whole)
    box = _tiled_along_x(whole, [patch], low, high)
    profile = compute_gaussian((patch,), sigma_scale=1 / 8, dtype=torch.float64, device=torch.device("cpu")).numpy()
    inside, outside = np.zeros(whole), np.zeros(whole)
    for step in compute_steps_for_sliding_window((whole,), (patch,), 0.5)[0]:
        weights = inside if step - box.start[0] in starts_in(box, (patch, patch, patch))[2] else outside
        weights[step : step + patch] = np.maximum(weights[step : step + patch], profile)
    assert (outside[low:high] <= inside[low:high]).all()
    middle = slice(low + patch // 8, max(high - patch // 8, 0))
    assert whole < 1.5 * patch or (outside[middle] <= 0.15 * inside[middle]).all()


def _tiled_along_x(whole: int, patches: list[int], low: int, high: int) -> Lattice:
    """The box of tiles around the voxels from `low` to before `high` along x, of patches of that size along all axes."""
    least = min(patches)
    grid = Geometry((whole, least, least), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    lattice = Lattice(grid, grid, (low, 0, 0), grid.cropped((low, 0, 0), (high - low, least, least)))
    return tiled(lattice, [(patch, patch, patch) for patch in patches])
