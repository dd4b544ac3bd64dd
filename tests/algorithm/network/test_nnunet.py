"""Parts of a scan, compared with nnU-Net's own preprocessing and export of the same part."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nnunetv2.inference.export_prediction import convert_predicted_logits_to_segmentation_with_correct_shape
from nnunetv2.preprocessing.cropping.cropping import crop_to_nonzero
from nnunetv2.preprocessing.preprocessors.default_preprocessor import DefaultPreprocessor
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

from algorithm.case.read import Case
from algorithm.network import preprocessing
from algorithm.network.package import ModelPackage
from algorithm.network.preprocessing import ScanPart, make_case_image
from algorithm.region.grids import find_first_voxel, make_slices, reorient
from algorithm.region.localise import Region
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, to_sitk
from contract.packages import Manifest
from contract.patient import Patient
from tests.algorithm.region.oriented_grids import make_direction
from tests.conftest import tiny_plans

CUBIC: dict[str, Any] = {"is_seg": False, "order": 3, "order_z": 0, "force_separate_z": None}
LINEAR: dict[str, Any] = {"is_seg": False, "order": 1, "order_z": 0, "force_separate_z": None}
TORCH: dict[str, Any] = {"is_seg": False, "force_separate_z": False, "memefficient_seg_resampling": False}


def make_resampling(function: str, data: dict[str, Any], probabilities: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of plans that resample with a function of nnU-Net and these options."""
    options = {"data": data, "seg": data | {"is_seg": True}, "probabilities": probabilities}
    names = {f"resampling_fn_{kind}": function for kind in options}
    return names | {f"resampling_fn_{kind}_kwargs": chosen for kind, chosen in options.items()}


STOCK = make_resampling("resample_data_or_seg_to_shape", CUBIC, LINEAR)
OURS = make_resampling("resample_torch_fornnunet", TORCH, TORCH)


def make_package(resampling: dict[str, Any], *schemes: str) -> ModelPackage:
    plans = tiny_plans()
    configuration = plans["configurations"]["3d_fullres"]
    configuration |= resampling | {"spacing": [3.0, 2.0, 2.0]}
    configuration["normalization_schemes"] = list(schemes or ("CTNormalization", "ZScoreNormalization"))
    entries = {"configuration": "3d_fullres", "channels": ["CT", "PET"], "folds": ["fold_0"]}
    manifest = Manifest.model_construct(**entries, resampling="nnunet", normalised_over="scan")
    return ModelPackage(Path(), manifest, plans, (), {})


def make_case(ct: Geometry, seed: int = 0, zeros: int = 0) -> Case:
    """Make noise in CT and PET on different grids; `zeros` planes on the low side of each axis are zero and without
    uptake.
    """
    rng = np.random.default_rng(seed)
    hu = rng.normal(0, 300, ct.array_shape).astype(np.int16) | 1
    for axis in range(3):
        hu.swapaxes(0, axis)[:zeros] = 0
    matrix = ct.index_to_physical_matrix()
    centre = matrix[:3, :3] @ (np.asarray(ct.size) / 2) + matrix[:3, 3]
    pet = Geometry((9, 9, 9), (4.0, 4.0, 5.0), tuple(centre - np.array([12.0, 12.0, 15.0])))
    return Case(Volume(hu, ct), Volume(rng.gamma(2, 2, pet.array_shape).astype(np.float32), pet), Patient({}))


def crop_channels(case: Case, image: ScanPart) -> np.ndarray:
    """Return CT and PET (channel, z, y, x) at the voxels of the part, as nnU-Net's users provide them."""
    ct, part = reorient(case.scan), image.part
    assert case.pet is not None
    grid = sitk.Image(list(ct.geometry.size), sitk.sitkFloat32)
    grid.SetSpacing(ct.geometry.spacing_mm)
    grid.SetOrigin(ct.geometry.origin_mm)
    grid.SetDirection(ct.geometry.direction)
    pet = sitk.GetArrayFromImage(sitk.Resample(to_sitk(case.pet), grid, sitk.Transform(), sitk.sitkLinear, 0.0))
    z, y, x = find_first_voxel(part, ct.geometry)
    box = make_slices((x, y, z), part.size)
    return np.stack([ct.array.astype(np.float32)[box], pet[box]])


def make_managers(package: ModelPackage) -> tuple[PlansManager, Any]:
    plans = copy.deepcopy(dict(package.plans)) | {"transpose_forward": [0, 1, 2], "transpose_backward": [0, 1, 2]}
    return (manager := PlansManager(plans)), manager.get_configuration("3d_fullres")


def preprocess_by_nnunet(case: Case, package: ModelPackage, image: ScanPart) -> tuple[np.ndarray, dict[str, Any]]:
    """Preprocess the part with nnU-Net; also return the properties that its export needs."""
    properties = {"spacing": list(image.part.array_spacing_mm)}
    image_channels, _, properties = DefaultPreprocessor(verbose=False).run_case_npy(
        crop_channels(case, image), None, properties, *make_managers(package), {}
    )
    return np.asarray(image_channels), properties


def cover_scan(case: Case) -> Region:
    corners = case.scan.geometry.corners_mm()
    return Region(tuple(corners.min(0)), tuple(corners.max(0)), "test")


def cover_middle(case: Case, half_mm: float = 9.0) -> Region:
    centre = case.scan.geometry.corners_mm().mean(0)
    return Region(tuple(centre - half_mm), tuple(centre + half_mm), "test")


GRIDS = pytest.mark.parametrize(
    "grid",
    [
        Geometry((34, 30, 20), (1.2, 1.2, 2.5), (3.0, 4.0, 5.0)),
        Geometry((40, 36, 14), (0.9, 0.9, 3.3), (3.0, 4.0, 5.0)),
        Geometry((22, 26, 18), (2.0, 2.0, 3.0), (0.0, 0.0, 0.0)),
        Geometry((34, 20, 30), (1.2, 2.5, 1.2), (3.0, 4.0, 5.0), make_direction((0, 2, 1), (-1, 1, -1), (0.2, 0.1))),
    ],
    ids=["cubic", "slices", "same spacing", "other axes"],
)
BOTH = pytest.mark.parametrize("resampling", [STOCK, OURS], ids=["stock", "ours"])


@BOTH
@GRIDS
@pytest.mark.parametrize("zeros", [0, 3], ids=["whole", "nonzero part"])
def test_the_image_of_a_whole_scan_is_nnunets(resampling: dict[str, Any], grid: Geometry, zeros: int) -> None:
    """Planes of zeros are cut off, and the z-score covers the rest."""
    case, package = make_case(grid, zeros=zeros), make_package(resampling)
    image = ScanPart(case, cover_scan(case), package)
    expected, _ = preprocess_by_nnunet(case, package, image)
    np.testing.assert_allclose(image.channels(), expected, atol=2e-5)
    assert (image.part.voxel_count < grid.voxel_count) == bool(zeros)


@BOTH
@GRIDS
def test_the_image_of_a_part_is_nnunets(resampling: dict[str, Any], grid: Geometry) -> None:
    """These schemes compute nothing from the image."""
    case, package = make_case(grid), make_package(resampling, "CTNormalization", "NoNormalization")
    image = ScanPart(case, cover_middle(case), package)
    expected, _ = preprocess_by_nnunet(case, package, image)
    assert image.part.voxel_count < grid.voxel_count
    np.testing.assert_allclose(image.channels(), expected, atol=2e-5)


@pytest.mark.parametrize("scheme", ["ZScoreNormalization", "RescaleTo01Normalization"])
def test_a_part_has_the_scale_of_the_whole_scan(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the scan's own spacing nothing is resampled; slabs have 2 planes of 22 x 26 voxels, the last one has 1."""
    monkeypatch.setattr(preprocessing, "_AT_ONCE", 22 * 26 * 2)
    case = make_case(Geometry((22, 26, 19), (2.0, 2.0, 3.0), (0.0, 0.0, 0.0)))
    package = make_package(STOCK, scheme, scheme)
    whole = crop_channels(case, ScanPart(case, cover_scan(case), package))
    part = ScanPart(case, cover_middle(case), package)
    low, high = whole.min((1, 2, 3), keepdims=True), whole.max((1, 2, 3), keepdims=True)
    mean, spread = whole.mean((1, 2, 3), keepdims=True), whole.std((1, 2, 3), keepdims=True)
    shift, scale = (mean, spread) if scheme == "ZScoreNormalization" else (low, high - low)
    np.testing.assert_allclose(part.channels(), (crop_channels(case, part) - shift) / scale, atol=1e-4)


@BOTH
@GRIDS
def test_labels_come_back_as_nnunet_exports_them(resampling: dict[str, Any], grid: Geometry) -> None:
    """Restore smooth logits of a part, in scans of any orientation; the part is surrounded by background."""
    case, package = make_case(grid), make_package(resampling)
    image = ScanPart(case, cover_middle(case), package)
    _, properties = preprocess_by_nnunet(case, package, image)
    logits = np.random.default_rng(1).normal(size=(3, *image.grid.array_shape)).astype(np.float32)
    labels = {"background": 0, "GTVp": 1, "GTVn": 2}
    plans, configuration = make_managers(package)
    expected = convert_predicted_logits_to_segmentation_with_correct_shape(
        logits.copy(),
        plans,
        configuration,
        plans.get_label_manager({"labels": labels}),
        properties,
        num_threads_torch=1,
    )
    restored = reorient(Volume(image.restore(logits, grid), grid))
    part = image.part
    z, y, x = find_first_voxel(part, restored.geometry)
    inside = make_slices((x, y, z), part.size)
    np.testing.assert_array_equal(restored.array[inside], expected)
    assert np.unique(expected).tolist() == [0, 1, 2]
    assert np.count_nonzero(restored.array) == np.count_nonzero(expected)
    nothing = np.stack([np.ones(image.grid.array_shape, np.float32), *np.zeros((2, *image.grid.array_shape))])
    assert not image.restore(nothing, grid).any()


def find_nonzero_part(case: Case) -> Geometry:
    """Return the part of a scan that remains if the region covers all of it."""
    return ScanPart(case, cover_scan(case), make_package(STOCK)).part


def test_the_nonzero_part_by_hand() -> None:
    """The CT is zero except for voxels (z, y, x) 2 to 4, 3 to 5, 1 to 6; without a PET this box is the scan."""
    grid = Geometry((9, 8, 7), (1.0, 2.0, 3.0), (10.0, 20.0, 30.0))
    hu = np.zeros(grid.array_shape, np.int16)
    hu[2:5, 3:6, 1:7] = -1000
    part = find_nonzero_part(Case(Volume(hu, grid), None, Patient({})))
    assert (part.size, part.origin_mm) == ((6, 3, 3), (11.0, 26.0, 36.0))
    pet = Volume(np.ones(grid.array_shape, np.float32), grid)
    assert find_nonzero_part(Case(Volume(hu, grid), pet, Patient({}))) == grid


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), *(st.integers(0, n - 1) for n in (4, 5, 3))), max_size=4), st.booleans())
@example([(False, 0, 0, 0)], False)
@example([(True, 3, 4, 2)], False)
@example([], False)
@example([], True)
def test_the_nonzero_part_is_nnunets_crop(voxels: list[tuple[bool, int, int, int]], ring: bool) -> None:
    """Compare for voxels (z, y, x) of CT or PET, single planes, empty scans, and a ring with a hole."""
    grid = Geometry((3, 5, 4), (1.0, 2.0, 3.0), (10.0, 20.0, 30.0))
    ct, pet = np.zeros(grid.array_shape, np.int16), np.zeros(grid.array_shape, np.float32)
    for of_pet, *place in voxels:
        (pet if of_pet else ct)[tuple(place)] = 1
    if ring:
        ct[:3, 1:4], ct[1, 2, 1] = -1000, 0
    _, _, box = crop_to_nonzero(np.stack([ct.astype(np.float32), pet]))
    (z, _), (y, _), (x, _) = box
    part = find_nonzero_part(Case(Volume(ct, grid), Volume(pet, grid), Patient({})))
    assert part.array_shape == tuple(stop - start for start, stop in box)
    assert part.origin_mm == (10.0 + x, 20.0 + 2 * y, 30.0 + 3 * z)


def test_a_package_without_the_key_keeps_the_upright_grid() -> None:
    direction = make_direction((0, 1, 2), (1, 1, 1), (0.2, 0))
    case = make_case(Geometry((34, 30, 20), (1.2, 1.2, 2.5), (3.0, 4.0, 5.0), direction))
    package = make_package(STOCK)
    plain = replace(package, manifest=package.manifest.model_copy(update={"resampling": "grid"}))
    upright = make_case_image(case, cover_middle(case), plain)
    assert (upright.grid.direction, upright.restore) == ((1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0), None)
    image = make_case_image(case, cover_middle(case), package)
    assert image.grid.direction == pytest.approx(case.scan.geometry.direction)
    assert image.restore is not None
    assert image.scans[0].shape == image.channels().shape[1:] == image.grid.array_shape
