"""From files to a file: the mask is nnU-Net's, and every voxel is in its place."""

from __future__ import annotations

import copy
import json
import math
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from nnunetv2.imageio.simpleitk_reader_writer import SimpleITKIO
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager
from torch import nn

from algorithm.case.inputs import Notices
from algorithm.case.read import read_case
from algorithm.network import tiles
from algorithm.network.loaded_package import DEFAULT_PACKAGE, LoadedPackage
from algorithm.network.networks import Networks, build_network, load_weights
from algorithm.network.package import load_package
from algorithm.network.preprocessing import ScanPart, make_case_image
from algorithm.pipeline import predict
from algorithm.region.grids import make_upright_grid
from algorithm.region.localise import localise
from algorithm.request import METHODS, PredictRequest
from contract import labels, platform
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, write_volume
from contract.io.files import read_json, write_json
from contract.packages import make_file_entry
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import make_case
from rehearsal.phantoms.rendering import render
from tests.algorithm.conftest import copy_package
from tests.algorithm.edition import EDITION, SEGMENTATION
from tests.algorithm.region.oriented_grids import DIRECTIONS, find_voxel_centres_mm

CPU = torch.device("cpu")
# nnU-Net's resampling functions.
KINDS = ("data", "seg", "probabilities")


def write_case(root: Path, ct: Volume, pet: Volume) -> Path:
    write_volume(EDITION.inputs["ct"].path_under(root) / "ct.mha", ct)
    write_volume(EDITION.inputs["pet"].path_under(root) / "pet.mha", pet)
    EDITION.inputs["ehr"].path_under(root).write_text(json.dumps({"Age": 60}))
    return root


def predict_mask(case: Path, output: Path, model: Path) -> Path:
    """Run the pipeline over a case on disk and return the mask's file."""
    request = PredictRequest(EDITION, SEGMENTATION, METHODS["baseline"], case, output, "cpu", 600.0)
    predict(request, LoadedPackage(model, "cpu"))
    return SEGMENTATION.answers[0].socket.path_under(output) / platform.MASK_FILE_NAME


# Comparison with nnU-Net


@pytest.fixture(scope="module")
def phantom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scan a patient on the network's own grid: 72 x 72 x 64 voxels of 3 mm, CT and PET alike, four tiles of 64^3.

    The field is 216 mm wide, so the region is the whole field and nothing is cropped or resampled.
    """
    return write_scanned_case(tmp_path_factory.mktemp("phantom"), (72, 72, 64), 3.0)


def write_scanned_case(root: Path, size: tuple[int, int, int], spacing_mm: float) -> Path:
    """Write CT and PET of one patient on one grid of cubes, from the same corner of the field."""
    case = make_case(3, 17, CENTRES, "head_and_neck")
    places = [case.frame.to_patient(lesion.place) for lesion in case.disease.lesions if lesion.label]
    face = np.round(np.mean(places, axis=0) - np.array([106.5, 91.5, 94.5])) - 1.5
    x, y, z = map(float, face + spacing_mm / 2)
    grid = Geometry(size, (spacing_mm,) * 3, (x, y, z))
    protocol = replace(case.protocol, ct=grid, pet=grid, planning=None, dose=None, pet_shift_mm=(0.0, 0.0, 0.0))
    scan = render(replace(case, protocol=protocol))
    return write_case(root, scan.ct, scan.pet)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the shipped model, which predicts in float32 and by the average of logits, as nnU-Net does."""
    monkeypatch.setattr(tiles, "cpu_has_bfloat16", lambda: False)
    model = Path(shutil.copytree(DEFAULT_PACKAGE, tmp_path / "model"))
    write_json(model / "manifest.json", read_json(model / "manifest.json") | {"average": "logits"})
    return model


def predict_by_nnunet(case: Path, model: Path = DEFAULT_PACKAGE) -> np.ndarray:
    """Predict from the files with nnU-Net's own reader, preprocessing, tiling, mirroring, ensemble and export."""
    package = load_package(model)
    weights = []
    for path in package.fold_files:
        network = build_network(package)
        load_weights(network, path)
        weights.append(copy.deepcopy(network.state_dict()))
    plans: dict[str, Any] = copy.deepcopy(dict(package.plans))
    plans |= {"transpose_forward": [0, 1, 2], "transpose_backward": [0, 1, 2]}
    manager = PlansManager(plans)
    dataset = {"labels": {name: value for value, name in labels.NAMES.items()}, "file_ending": ".mha"}
    dataset["channel_names"] = {"0": "CT", "1": "PET"}
    predictor = nnUNetPredictor(perform_everything_on_device=False, device=CPU, allow_tqdm=False)
    mirrors = tuple(package.manifest.mirror_axes)
    configuration = manager.get_configuration(package.manifest.configuration)
    predictor.manual_initialization(network, manager, configuration, weights, dataset, "nnUNetTrainer", mirrors)
    images = [next(socket.path_under(case).glob("*.mha")) for socket in (EDITION.inputs["ct"], EDITION.inputs["pet"])]
    data, properties = SimpleITKIO().read_images([str(path) for path in images])
    return np.asarray(predictor.predict_single_npy_array(data, properties))


def test_the_phantom_needs_no_crop(phantom: Path) -> None:
    case = read_case(phantom, EDITION, SEGMENTATION, Notices())
    region, spacing_mm = localise(case), load_package(DEFAULT_PACKAGE).spacing_mm
    assert make_upright_grid(case.scan.geometry, region.lower_mm, region.upper_mm, spacing_mm) == case.scan.geometry


@pytest.mark.slow
def test_the_mask_is_nnunets(
    phantom: Path, model: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """At most three of 331,776 voxels differ, in masks with more than 200 voxels of each label.

    nnU-Net averages logits, in half precision, so a voxel whose labels are almost tied may change sides.
    """
    mask, expected = read_volume(predict_mask(phantom, tmp_path / "output", model)).array, predict_by_nnunet(phantom)
    assert mask.shape == expected.shape
    for label in labels.FOREGROUND:
        ours, theirs = mask == label, expected == label
        assert min(np.count_nonzero(ours), np.count_nonzero(theirs)) > 200
    different = int(np.count_nonzero(mask != expected))
    record_property("different_voxels", int(different))
    assert different <= 3


@pytest.mark.slow
def test_a_stock_training_answers_as_nnunet_predicts(
    tmp_path: Path, model: Path, record_property: Callable[[str, object], None]
) -> None:
    """On 86 x 86 x 76 voxels of 2.5 mm, all in the region, both have the same box: Dice 0.995. One fold suffices.

    `network/test_nnunet.py` compares both of nnU-Net's resampling functions.
    """
    case = write_scanned_case(tmp_path / "case", (86, 86, 76), 2.5)
    plans, manifest = read_json(model / "plans.json"), read_json(model / "manifest.json")
    configuration = plans["configurations"][manifest["configuration"]]
    for kind in KINDS:
        options = {"is_seg": kind == "seg"} | ({"order": 3} if kind == "data" else {})
        configuration[f"resampling_fn_{kind}"] = "resample_data_or_seg_to_shape"
        configuration[f"resampling_fn_{kind}_kwargs"] = options
    write_json(model / "plans.json", plans)
    manifest["files"]["plans.json"] = make_file_entry(model / "plans.json")
    changes = {"folds": manifest["folds"][:1], "resampling": "nnunet", "normalised_over": "scan"}
    write_json(model / "manifest.json", manifest | changes)
    mask = read_volume(predict_mask(case, tmp_path / "output", model))
    read = read_case(case, EDITION, SEGMENTATION, Notices())
    assert ScanPart(read, localise(read), load_package(model)).part == read.scan.geometry
    expected = predict_by_nnunet(case, model)
    for label in labels.FOREGROUND:
        ours, theirs = mask.array == label, expected == label
        assert min(np.count_nonzero(ours), np.count_nonzero(theirs)) > 200
        dice = 2 * np.count_nonzero(ours & theirs) / (np.count_nonzero(ours) + np.count_nonzero(theirs))
        record_property(labels.NAMES[label], float(dice))
        assert dice >= 0.995


# Places of voxels

# The PET's values rise by one a millimetre along a line; the network calls layers of them GTVp and GTVn.
GTVP_FROM, GTVN_FROM, GTVN_TO = 100.0, 130.0, 160.0
ROUNDING_MM = 0.02


class LayersOfUptake(nn.Module):
    """A network that is certain of the layer that each voxel's uptake lies in."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        uptake = image[:, 1]
        gtvp = (uptake >= GTVP_FROM) & (uptake < GTVN_FROM)
        gtvn = (uptake >= GTVN_FROM) & (uptake < GTVN_TO)
        return torch.stack([~(gtvp | gtvn), gtvp, gtvn], dim=1).float()


def make_grid(
    middle_mm: np.ndarray, extent_mm: tuple[float, ...], spacing: tuple[float, ...], direction: tuple[float, ...]
) -> Geometry:
    """Make a grid of any orientation about a point; extents are along its own axes."""
    size = [max(math.ceil(extent / step), 16) for extent, step in zip(extent_mm, spacing, strict=True)]
    axes = np.asarray(direction).reshape(3, 3)
    origin = middle_mm - axes @ ((np.asarray(size) - 1) / 2 * np.asarray(spacing))
    return Geometry((size[0], size[1], size[2]), (spacing[0], spacing[1], spacing[2]), tuple(origin), direction)


def find_depth_mm(points: np.ndarray, grid: Geometry) -> np.ndarray:
    """Return how far within the grid's outer faces the points lie; negative beyond them."""
    matrix = grid.physical_to_index_matrix()
    index = points @ matrix[:3, :3].T + matrix[:3, 3]
    inner = np.minimum(index + 0.5, np.asarray(grid.size) - 0.5 - index)
    return np.asarray((inner * grid.spacing_mm).min(-1))


def find_tolerance_mm(normal: np.ndarray, grid: Geometry, ct: Geometry) -> float:
    """Return how far from a plane with this normal the label of a CT voxel may be wrong; see the test."""
    step, to_grid = np.asarray(grid.spacing_mm), np.asarray(grid.direction).reshape(3, 3).T
    reach = np.abs(to_grid @ (np.asarray(ct.direction).reshape(3, 3) * ct.spacing_mm)).max(axis=1)
    block = np.maximum(np.floor(reach / step + 1e-6), 1) * step
    return float(np.sqrt(((to_grid @ normal) ** 2 * (block**2 / 4 + (block**2 - step**2) / 12)).sum()))


@pytest.fixture(
    scope="module",
    params=[((3.0, 3.0, 3.0), "grid"), ((4.0, 2.5, 2.0), "grid"), ((3.0, 3.0, 3.0), "nnunet")],
    ids=["3 mm", "4 x 2.5 x 2 mm", "nnU-Net's resampling"],
)
def layers_model(request: pytest.FixtureRequest, tiny_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a package that shows its network HU and SUV unchanged, on a grid of this spacing (x, y, z)."""
    spacing, resampling = request.param
    linear = "resample_torch_fornnunet", {"force_separate_z": False}

    def change(plans: dict[str, Any]) -> None:
        plans["configurations"]["3d_fullres"] |= {
            "spacing": list(spacing[::-1]),
            **{f"resampling_fn_{kind}": linear[0] for kind in ("data", "probabilities")},
            **{f"resampling_fn_{kind}_kwargs": linear[1] for kind in ("data", "probabilities")},
            "patch_size": [32, 24, 28],
            "normalization_schemes": ["NoNormalization"] * 2,
        }

    return copy_package(tiny_package, tmp_path_factory.mktemp("layers") / "model", change, resampling=resampling)


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.tuples(st.floats(1.5, 3), st.floats(1.5, 3), st.floats(2, 7)),
    DIRECTIONS,
    st.tuples(*[st.floats(90, 150)] * 3),
    st.tuples(st.floats(2, 5.5), st.floats(2, 5.5), st.floats(2, 6)),
    DIRECTIONS,
    st.tuples(*[st.floats(60, 170)] * 3),
    st.tuples(*[st.floats(-25, 25)] * 3),
    st.tuples(*[st.floats(-1, 1)] * 3),
    st.tuples(*[st.floats(-800, 800)] * 3),
)
def test_every_voxel_comes_back_in_its_place(
    layers_model: Path,
    tmp_path: Path,
    ct_spacing: tuple[float, ...],
    ct_direction: tuple[float, ...],
    ct_extent: tuple[float, ...],
    pet_spacing: tuple[float, ...],
    pet_direction: tuple[float, ...],
    pet_extent: tuple[float, ...],
    pet_shift: tuple[float, ...],
    slope: tuple[float, ...],
    place: tuple[float, ...],
) -> None:
    """From files through localiser, resampling, tiles, mirrors and restoring to the file: wrong by half a voxel at most.

    The PET rises by one a millimetre along a line, which linear interpolation and averaging keep exactly, so that
    the network's labels are those of its own voxels' centres: layers 30 mm thick. A CT voxel at p takes the label of
    the greater weight among the network voxels around it. Take one of those voxels at random with those weights: its
    depth below the layer's face has the depth of p as its mean, and the label is decided by its median. A median lies
    within a standard deviation of the mean, and interpolation between voxels h apart has the standard deviation h/2
    at most along each axis, independently: half the network's voxel, measured along the face's normal. Where the CT is
    so coarse that f of the network's voxels are averaged first, the spread of the block adds (f^2 - 1) h^2 / 12 to the
    variance: at most 0.58 of that block, which is no larger than the CT's voxel.

    Not checked is what lies within a voxel of the PET's own faces and of the region's.
    """
    assume(np.linalg.norm(slope) > 0.2)
    normal = np.asarray(slope) / np.linalg.norm(slope)
    middle = np.asarray(place)
    ct = make_grid(middle, ct_extent, ct_spacing, ct_direction)
    pet = make_grid(middle + pet_shift, pet_extent, pet_spacing, pet_direction)
    centre_value = (GTVP_FROM + GTVN_TO) / 2
    uptake = ((find_voxel_centres_mm(pet) - middle) @ normal + centre_value).astype(np.float32)
    assume(uptake.min() > 1)
    body = np.where(np.linalg.norm(find_voxel_centres_mm(ct) - middle, axis=-1) < 0.45 * max(ct_extent), 40, -1000)
    root = Path(tempfile.mkdtemp(dir=tmp_path))
    case = write_case(root / "input", Volume(body.astype(np.int16), ct), Volume(uptake, pet))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Networks, "get", lambda *_: LayersOfUptake())
        mask = read_volume(predict_mask(case, root / "output", layers_model)).array

    package = load_package(layers_model)
    region = localise(read_case(case, EDITION, SEGMENTATION, Notices()))
    grid = make_case_image(read_case(case, EDITION, SEGMENTATION, Notices()), region, package).grid
    points = find_voxel_centres_mm(ct)
    value = (points - middle) @ normal + centre_value
    truth = np.select([value < GTVP_FROM, value < GTVN_FROM, value < GTVN_TO], [0, 1, 2], 0)
    voxel = max(*grid.spacing_mm, *ct_spacing)
    in_pet, in_region = find_depth_mm(points, pet), find_depth_mm(points, grid)
    truth[(in_pet < 0) | (in_region < 0)] = 0
    from_face = np.abs(value[..., None] - (GTVP_FROM, GTVN_FROM, GTVN_TO)).min(-1)
    checked = from_face > find_tolerance_mm(normal, grid, ct) + ROUNDING_MM
    checked &= (np.abs(in_pet) > math.sqrt(3) * max(voxel, *pet_spacing)) & (np.abs(in_region) > math.sqrt(3) * voxel)
    assert np.count_nonzero(checked) > 0.1 * checked.size
    np.testing.assert_array_equal(mask[checked], truth[checked])
