"""Shared fixtures: a case on disk in the platform's layout, tiny model packages, real scans."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

from contract.editions import load_edition
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, write_volume
from contract.io.files import write_json
from tests.faults.forked import forks  # noqa: F401 - a fixture
from tests.shared_data import shared

hypothesis.settings.register_profile("hecktor", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("hecktor")

# Test networks are too small for several threads, and tests run in parallel. Must be set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parents[1]
# Seconds of a test that trains networks, or builds or runs images; all others have the limit of pyproject.toml.
SLOW_TEST_LIMIT_S = 3600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow tests more time, unless they have their own limit."""
    for item in items:
        is_slow = any(item.get_closest_marker(name) for name in ("slow", "container", "browser"))
        if is_slow and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SLOW_TEST_LIMIT_S))


EHR = {
    "Age": 61,
    "Gender": 1,
    "Tobacco Consumption": 0,
    "Alcohol Consumption": 1,
    "Performance Status": 0,
    "Treatment": 1,
    "M-stage": "M0",
}
INPUTS = load_edition().inputs


def small_patient(geometry: Geometry) -> np.ndarray:
    """Sample a soft-tissue cylinder of radius 70 mm along z in air, in HU, on `geometry`."""
    z, y, x = np.meshgrid(*(np.arange(n, dtype=np.float64) for n in geometry.array_shape), indexing="ij")
    matrix = geometry.index_to_physical_matrix()
    px = matrix[0, 0] * x + matrix[0, 1] * y + matrix[0, 2] * z + matrix[0, 3]
    py = matrix[1, 0] * x + matrix[1, 1] * y + matrix[1, 2] * z + matrix[1, 3]
    return np.where(px**2 + py**2 < 70**2, 40, -1000).astype(np.int16)


@dataclass
class CaseFolder:
    """A case in the platform's layout; change the volumes, then `write`."""

    root: Path
    ct: Volume = field(init=False)
    pet: Volume = field(init=False)
    ehr: Any = field(default_factory=lambda: dict(EHR))

    def __post_init__(self) -> None:
        ct = Geometry((24, 24, 20), (8.0, 8.0, 9.0), (-92.0, -92.0, -85.0))
        pet = Geometry((20, 20, 18), (10.0, 10.0, 10.0), (-95.0, -95.0, -85.0))
        self.ct = Volume(small_patient(ct), ct)
        suv = np.where(small_patient(pet) > 0, 1.0, 0.0).astype(np.float32)
        suv[8:10, 9:11, 9:11] = 12.0
        self.pet = Volume(suv, pet)

    @property
    def input(self) -> Path:
        return self.root / "input"

    @property
    def output(self) -> Path:
        return self.root / "output"

    @property
    def ct_path(self) -> Path:
        return INPUTS["ct"].path_under(self.input) / "0a1b2c3d-ct.mha"

    @property
    def pet_path(self) -> Path:
        return INPUTS["pet"].path_under(self.input) / "4e5f6a7b-pet.mha"

    @property
    def ehr_path(self) -> Path:
        return INPUTS["ehr"].path_under(self.input)

    def write(self, *, compress: bool = True) -> CaseFolder:
        write_volume(self.ct_path, self.ct, compress=compress)
        write_volume(self.pet_path, self.pet, compress=compress)
        self.ehr_path.write_text(json.dumps(self.ehr))
        self.output.mkdir(exist_ok=True)
        return self


@pytest.fixture
def case_folder(tmp_path: Path) -> CaseFolder:
    """Make a small valid case below `tmp_path`, not yet written."""
    return CaseFolder(tmp_path)


def tiny_plans() -> dict[str, Any]:
    """Return nnU-Net plans of a two-stage network with 16^3 patches at 9 mm."""
    convolution = "torch.nn.modules.conv.Conv3d"
    channel = {"mean": 0.0, "std": 400.0, "percentile_00_5": -1000.0, "percentile_99_5": 1000.0}
    return {
        "plans_name": "tinyPlans",
        "label_manager": "LabelManager",
        "foreground_intensity_properties_per_channel": {"0": channel, "1": channel},
        "configurations": {
            "3d_fullres": {
                "patch_size": [16, 16, 16],
                "spacing": [9.0, 9.0, 9.0],
                "normalization_schemes": ["CTNormalization", "ZScoreNormalization"],
                "use_mask_for_norm": [False, False],
                "architecture": {
                    "network_class_name": "dynamic_network_architectures.architectures.unet.PlainConvUNet",
                    "arch_kwargs": {
                        "n_stages": 2,
                        "features_per_stage": [4, 8],
                        "conv_op": convolution,
                        "kernel_sizes": [[3, 3, 3]] * 2,
                        "strides": [[1, 1, 1], [2, 2, 2]],
                        "n_conv_per_stage": [1, 1],
                        "n_conv_per_stage_decoder": [1],
                        "conv_bias": True,
                        "norm_op": "torch.nn.modules.instancenorm.InstanceNorm3d",
                        "norm_op_kwargs": {"eps": 1e-5, "affine": True},
                        "dropout_op": None,
                        "dropout_op_kwargs": None,
                        "nonlin": "torch.nn.LeakyReLU",
                        "nonlin_kwargs": {"inplace": True},
                    },
                    "_kw_requires_import": ["conv_op", "norm_op", "dropout_op", "nonlin"],
                },
            }
        },
    }


def head_json(*terms: tuple[str, float], threshold: float | None = None) -> dict[str, Any]:
    """Return a head of (feature, weight) terms with mean 0, SD 1 and fill value 1."""
    term_list = [
        {"feature": name, "transform": "identity", "fill": 1.0, "mean": 0.0, "sd": 1.0, "weights": [weight]}
        for name, weight in terms
    ]
    parts = {} if threshold is None else {"threshold": threshold}
    return {"kind": "linear", "scale": "test", "intercepts": [0.5], "terms": term_list} | parts


def class_head_json(intercepts: Mapping[str, float], **weights: Sequence[float]) -> dict[str, Any]:
    """Return a head of classes with these intercepts, and for each feature a weight for each class, as in `head_json`."""
    terms = [head_json((name, 0.0))["terms"][0] | {"weights": list(row)} for name, row in weights.items()]
    return head_json() | {"classes": list(intercepts), "intercepts": list(intercepts.values()), "terms": terms}


def write_manifest(root: Path, **changes: Any) -> None:
    """Write a manifest of all files below `root` with their sizes and checksums."""
    from contract.packages import make_file_entry

    files = sorted(path for path in root.rglob("*") if path.is_file() and path.name != "manifest.json")
    manifest = {
        "format_version": 1,
        "name": "tiny",
        "purpose": "for tests",
        "edition": "hecktor2025",
        "mirror_axes": [2],
        "channels": ["CT", "PET"],
        "labels": {"0": "background", "1": "GTVp", "2": "GTVn"},
        "configuration": "3d_fullres",
        "folds": [path.name for path in files if path.suffix == ".safetensors"],
        "files": {path.relative_to(root).as_posix(): make_file_entry(path) for path in files},
    }
    write_json(root / "manifest.json", manifest | changes)


def segresnet_architecture() -> dict[str, Any]:
    """Return a SegResNet of three resolutions with eight filters, the minimum for eight groups."""
    return {
        "network_class_name": "monai.networks.nets.segresnet.SegResNet",
        "arch_kwargs": {
            "init_filters": 8,
            "blocks_down": [1, 1, 1],
            "blocks_up": [1, 1],
            "norm": ["GROUP", {"num_groups": 8}],
        },
        "_kw_requires_import": [],
    }


def write_tiny_package(root: Path, folds: Sequence[str] = ("3d_fullres",) * 2) -> Path:
    """Write a package of tiny networks with random weights; `folds` gives the configuration of each fold."""
    import torch
    from safetensors.torch import save_file

    from algorithm.network.backbones import build_untrained_network
    from algorithm.network.networks import iterate_tensors

    plans = tiny_plans()
    plans["configurations"]["segresnet"] = plans["configurations"]["3d_fullres"] | {
        "patch_size": [24, 16, 20],
        "architecture": segresnet_architecture(),
    }
    plans["configurations"] = {name: plans["configurations"][name] for name in dict.fromkeys(folds)}
    write_json(root / "plans.json", plans)
    for fold, configuration in enumerate(folds):
        torch.manual_seed(fold)
        network = build_untrained_network(plans["configurations"][configuration], 2, 3)
        weights = {name: tensor.detach().clone().contiguous() for name, tensor in iterate_tensors(network)}
        save_file(weights, str(root / f"fold_{fold}.safetensors"))
    write_json(root / "heads" / "rfs.json", head_json(("gtvp_volume_ml", 0.1), ("age_years", 0.02)))
    write_json(root / "heads" / "rfs_clinical.json", head_json(("age_years", 0.02)))
    write_json(root / "heads" / "hpv.json", head_json(("gtvp_suv_max", 0.1), threshold=0.6))
    write_json(root / "heads" / "hpv_clinical.json", head_json(("tobacco", -1.0), threshold=0.0))
    several = len(set(folds)) > 1
    write_manifest(root, configuration=folds[0], **({"fold_configurations": list(folds)} if several else {}))
    return root


@pytest.fixture(scope="session")
def tiny_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a valid package of random weights; copy it before you change it."""
    return write_tiny_package(tmp_path_factory.mktemp("package"))


def stage_head(classes: Sequence[str], feature: str, per_unit: float) -> dict[str, Any]:
    """Return a head that gives class k where `per_unit` times the feature is nearest to k.

    The scores k u - k^2 / 2 are largest there.
    """
    numbers = range(len(classes))
    intercepts = {name: -k * k / 2 for k, name in zip(numbers, classes, strict=True)}
    return class_head_json(intercepts, **{feature: [k * per_unit for k in numbers]})


def write_combined_package(root: Path, networks: Path) -> Path:
    """Write a package for HECKTOR 2026: the networks of another package, and heads for T, N and RFS.

    The T head counts the primary's diameter in steps of 20 mm, the N head the nodes; the hazard of RFS rises by 1 in
    1,000 days. Heads clip their features at 4.
    """
    shutil.copytree(networks, root)
    shutil.rmtree(root / "heads")
    write_json(root / "heads" / "t_stage.json", stage_head(("T1", "T2", "T3", "T4"), "gtvp_diameter_mm", 1 / 20))
    write_json(root / "heads" / "n_stage.json", stage_head(("N0", "N1", "N2", "N3"), "gtvn_count", 1.0))
    hazard = {"days": [1000.0], "cumulative_hazard": [1.0]}
    write_json(root / "heads" / "rfs.json", head_json(("age_years", 0.1)) | {"survival": hazard})
    manifest = json.loads((root / "manifest.json").read_text())
    manifest |= {"edition": "hecktor2026", "fallbacks": {"t_stage": "T3", "n_stage": "N1", "rfs": 812.0}}
    write_manifest(root, **{key: value for key, value in manifest.items() if key != "files"})
    return root


@pytest.fixture(scope="session")
def combined_package(tmp_path_factory: pytest.TempPathFactory, tiny_package: Path) -> Path:
    """Write the tiny networks with heads for HECKTOR 2026; copy the package before you change it."""
    return write_combined_package(tmp_path_factory.mktemp("combined") / "package", tiny_package)


@pytest.fixture(scope="session")
def pair_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a package of two members with two folds each: a U-Net with 16^3 patches and a SegResNet."""
    return write_tiny_package(tmp_path_factory.mktemp("pair"), ("3d_fullres", "segresnet") * 2)


@pytest.fixture(scope="session")
def single_packages(tmp_path_factory: pytest.TempPathFactory, pair_package: Path) -> dict[str, Path]:
    """Write the members of `pair_package` as separate packages, by configuration."""
    roots = {}
    for first, name in enumerate(("3d_fullres", "segresnet")):
        root = tmp_path_factory.mktemp(name)
        for fold in (0, 1):
            weights = pair_package / f"fold_{2 * fold + first}.safetensors"
            (root / f"fold_{fold}.safetensors").write_bytes(weights.read_bytes())
        (root / "plans.json").write_bytes((pair_package / "plans.json").read_bytes())
        write_manifest(root, configuration=name)
        roots[name] = root
    return roots


@pytest.fixture
def segresnet() -> dict[str, Any]:
    """Return the `architecture` of a small SegResNet."""
    return segresnet_architecture()


@pytest.fixture
def sign_package() -> Callable[..., None]:
    """Rewrite a package's manifest after a change of its files."""
    return write_manifest


def drop_toy_notices(notices: Iterable[Any]) -> list[Any]:
    """Drop the notices of the litres that a tiny network segments and of a small patient without a landmark."""

    def is_of_toy(notice: Any) -> bool:
        text = notice["found"] if isinstance(notice, dict) else notice.found
        return bool(text.endswith(" ml") or text == "neither a brain nor lungs")

    return [notice for notice in notices if not is_of_toy(notice)]


@pytest.fixture
def root_logger() -> Iterator[None]:
    """Restore the root logger, whose handlers and level the algorithm's command line sets."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def sts_scans() -> Path:
    """Return the folder of real PET/CT scans of two patients; skip the test if it is absent."""
    return shared("data/sts_petct")
