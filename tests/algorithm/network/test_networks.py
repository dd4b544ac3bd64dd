"""Weights and plans choose only known networks and modules."""

from __future__ import annotations

import copy
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

from algorithm.network.backbones import build_untrained_network
from algorithm.network.networks import HalfConvolutions, Networks, build_network, iterate_tensors, load_weights
from algorithm.network.package import ModelPackage, load_package
from contract.errors import ModelPackageError
from tests.algorithm.network.conftest import CPU
from tests.conftest import segresnet_architecture, tiny_plans
from tests.faults.fake_card import fake_card

# Installed for training, evaluation and tests, absent from the algorithm's image.
DEVELOPMENT_ONLY = ("matplotlib", "sklearn", "lifelines", "seaborn", "joblib", "pytest", "yaml", "cloudpickle")


def copy_package(package: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(package, tmp_path / "package"))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda w: w.pop(next(iter(w))), "is in only one of weights and network"),
        (lambda w: w.update(extra=torch.zeros(1)), "tensor extra is in only one"),
        (lambda w: w.update({next(iter(w)): torch.zeros(7, 7)}), r"of shape \(7, 7\)"),
        (lambda w: next(iter(w.values())).fill_(float("nan")), "NaN or infinity"),
    ],
)
def test_weights_that_do_not_fit(
    tiny_package: Path, tmp_path: Path, edit: Callable[[dict[str, torch.Tensor]], Any], message: str
) -> None:
    path = copy_package(tiny_package, tmp_path) / "fold_0.safetensors"
    weights = load_file(str(path))
    edit(weights)
    save_file(weights, str(path))
    with pytest.raises(ModelPackageError, match=rf"^fold_0\.safetensors: .*{message}"):
        load_weights(build_network(load_package(tiny_package)), path)


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("architecture", {"network_class_name": "os.system"}, "network 'system'"),
        ("architecture", {"_kw_requires_import": ["n_stages"]}, "module 2, expected one of"),
        ("architecture", {"arch_kwargs": {}}, "not an architecture"),
        ("arguments", {"nonlin": "os.system"}, r"module 'os\.system'"),
        ("arguments", {"n_conv_per_stage": 10**7}, "n_conv_per_stage .*10000000"),
        ("arguments", {"n_conv_per_stage": [1, 0]}, r"n_conv_per_stage .*\[1, 0\]"),
        ("arguments", {"n_conv_per_stage_decoder": "1"}, "n_conv_per_stage_decoder .*'1'"),
        ("arguments", {"n_stages": 1}, "n_stages 1"),
        ("arguments", {"features_per_stage": [4, 10**9]}, r"features_per_stage .*\[4, 1000000000\]"),
        ("arguments", {"strides": [[1, 1, 1], [0, 2, 2]]}, r"strides .*\[0, 2, 2\]"),
        ("arguments", {"kernel_sizes": [3, 2.5]}, r"kernel_sizes .*\[3, 2\.5\]"),
        ("arguments of SegResNet", {"spatial_dims": 2}, "argument 'spatial_dims' of SegResNet"),
        ("arguments of SegResNet", {"blocks_down": [1, 1, 1, 1]}, "4 entries of blocks_down and 2 of blocks_up"),
        ("arguments of SegResNet", {"blocks_down": [1] * 6, "blocks_up": [1] * 5}, r"patch_size \[16, 16, 16\]"),
        ("arguments of SegResNet", {"norm": ["os.system", {}]}, "not an architecture"),
        # Eight groups of a group norm do not divide twelve filters.
        ("arguments of SegResNet", {"init_filters": 12}, "not an architecture"),
    ],
)
def test_an_architecture_that_cannot_be_built(part: str, changes: dict[str, Any], message: str) -> None:
    """Only known networks and modules are imported. Refusing takes seconds; ten million layers would take minutes."""
    configuration = tiny_plans()["configurations"]["3d_fullres"]
    if part.endswith("SegResNet"):
        configuration["architecture"] = segresnet_architecture()
    architecture = configuration["architecture"]
    (architecture if part == "architecture" else architecture["arch_kwargs"]).update(changes)
    started_s = time.process_time()
    with pytest.raises(ModelPackageError, match=rf"^plans\.json: {message}"):
        build_untrained_network(configuration, 2, 3)
    assert time.process_time() - started_s < 20


STRIDES = st.lists(st.lists(st.integers(1, 3), min_size=3, max_size=3), min_size=1, max_size=2)
PATCHES = st.lists(st.integers(1, 13), min_size=3, max_size=3)


@settings(max_examples=60)
@given(STRIDES, PATCHES, st.sampled_from(["PlainConvUNet", "ResidualEncoderUNet"]))
def test_a_patch_is_refused_exactly_where_the_network_fails(
    tiny_package: Path, strides: list[list[int]], patch: list[int], name: str
) -> None:
    """Building the network fails, or the network returns the patch's shape.

    To see which, the same network is built for a patch that fits, twice the product of the strides, and run.
    """
    configuration = copy.deepcopy(dict(load_package(tiny_package).configuration))
    stages, blocks = len(strides) + 1, "n_blocks_per_stage" if name == "ResidualEncoderUNet" else "n_conv_per_stage"
    arguments = configuration["architecture"]["arch_kwargs"]
    del arguments["n_conv_per_stage"]
    arguments |= {"n_stages": stages, "features_per_stage": [2] * stages, "kernel_sizes": [[3, 3, 3]] * stages}
    arguments |= {
        "strides": [[1, 1, 1], *strides],
        blocks: [1] * stages,
        "n_conv_per_stage_decoder": [1] * len(strides),
    }
    configuration["architecture"]["network_class_name"] = name
    fitting = [2 * math.prod(axis) for axis in zip(*strides, strict=True)]
    network = build_untrained_network(configuration | {"patch_size": fitting}, 2, 3).eval()
    try:
        with torch.inference_mode():
            runs = network(torch.zeros(1, 2, *patch)).shape[2:] == tuple(patch)
    except (RuntimeError, ValueError):
        runs = False
    if runs:
        build_untrained_network(configuration | {"patch_size": patch}, 2, 3)
    else:
        with pytest.raises(ModelPackageError, match=r"^plans\.json: patch_size"):
            build_untrained_network(configuration | {"patch_size": patch}, 2, 3)


def test_all_networks_stay_until_the_device_fails(package: ModelPackage) -> None:
    """Afterwards one network is in memory at a time, and is read again with the same weights."""
    networks = Networks(package)
    first, second = (networks.get(fold, CPU) for fold in (0, 1))
    before = [tensor.clone() for _, tensor in iterate_tensors(first)]
    assert networks.get(0, CPU) is first
    assert networks.get(1, CPU) is second
    networks.free(CPU)
    again = networks.get(0, CPU)
    assert again is not first
    assert networks.get(0, CPU) is again
    assert all(torch.equal(old, new) for old, (_, new) in zip(before, iterate_tensors(again), strict=True))
    networks.get(1, CPU)
    assert networks.get(0, CPU) is not again


def change_architecture(package: ModelPackage, architecture: dict[str, Any]) -> dict[str, Any]:
    """Return the package's configuration with another architecture."""
    return {**package.configuration, "architecture": architecture}


def test_segresnet_is_monais(package: ModelPackage, segresnet: dict[str, Any]) -> None:
    """The weights and the answer are the same as from MONAI's own class with the same seed."""
    from monai.networks.nets.segresnet import SegResNet

    torch.manual_seed(5)
    ours = build_untrained_network(change_architecture(package, segresnet), 2, 3, deep_supervision=True).eval()
    torch.manual_seed(5)
    theirs = SegResNet(3, 8, 2, 3, norm=("GROUP", {"num_groups": 8}), blocks_down=(1, 1, 1), blocks_up=(1, 1)).eval()
    data = torch.randn(1, 2, 16, 16, 16)
    with torch.inference_mode():
        assert torch.equal(ours(data), theirs(data))


def test_deep_supervision_is_turned_on_and_off_as_nnunets_trainer_does(package: ModelPackage) -> None:
    """Three stages answer at two resolutions in training, at one afterwards."""
    architecture = copy.deepcopy(package.configuration["architecture"])
    architecture["arch_kwargs"] |= {
        "n_stages": 3,
        "features_per_stage": [4, 8, 8],
        "kernel_sizes": [3, 3, 3],
        "strides": [1, 2, 2],
        "n_conv_per_stage": 1,
        "n_conv_per_stage_decoder": 1,
    }
    network = build_untrained_network(change_architecture(package, architecture), 2, 3, deep_supervision=True)
    data = torch.zeros(1, 2, 16, 16, 16)
    assert [tuple(answer.shape[2:]) for answer in network(data)] == [(16, 16, 16), (8, 8, 8)]
    network.decoder.deep_supervision = False
    assert network(data).shape == (1, 3, 16, 16, 16)


@pytest.mark.parametrize("name", ["PlainConvUNet", "SegResNet", "SegResNet of one activation"])
def test_weights_are_loaded_as_they_were_saved(tiny_package: Path, tmp_path: Path, name: str) -> None:
    """Tensors are in the file once, also where MONAI lists the last activation's tensor under two names."""
    configuration = load_package(tiny_package).configuration
    architecture = copy.deepcopy(dict(configuration["architecture"]))
    if name != "PlainConvUNet":
        arguments: dict[str, Any] = {"init_filters": 8, "blocks_down": [1, 1], "blocks_up": [1]}
        arguments |= {"act": "PRELU"} if "activation" in name else {}
        architecture |= {"network_class_name": "SegResNet", "arch_kwargs": arguments, "_kw_requires_import": []}
    saved, loaded = (
        build_untrained_network(configuration | {"architecture": architecture}, 2, 3).eval() for _ in range(2)
    )
    data = torch.randn(1, 2, 16, 16, 16)
    path = tmp_path / "fold_0.safetensors"
    with torch.inference_mode():
        save_file({key: tensor.contiguous() for key, tensor in iterate_tensors(saved)}, str(path))
        assert not torch.equal(saved(data), loaded(data))
        load_weights(loaded, path)
        assert torch.equal(saved(data), loaded(data))


@pytest.mark.parametrize("name", ["PlainConvUNet", "ResidualEncoderUNet", "SegResNet"])
def test_convolutions_converted_once_answer_as_autocast_does(package: ModelPackage, name: str) -> None:
    """Answers are equal to the bit, also without autocast, where the float32 weights answer; only convolutions are
    copied.
    """
    architecture = copy.deepcopy(dict(package.configuration["architecture"]))
    architecture["network_class_name"] = name
    architecture["sees"] = "PET"  # a hook, which the copy has to keep
    if name == "ResidualEncoderUNet":
        architecture["arch_kwargs"]["n_blocks_per_stage"] = [1, 1]
        del architecture["arch_kwargs"]["n_conv_per_stage"]
    if name == "SegResNet":
        arguments = {"init_filters": 8, "blocks_down": [1, 1], "blocks_up": [1]}
        architecture |= {"arch_kwargs": arguments, "_kw_requires_import": []}
    network = build_untrained_network(change_architecture(package, architecture), 2, 3).eval()
    converted = HalfConvolutions(network, torch.bfloat16)
    data = torch.randn(1, 2, 16, 16, 16)
    with torch.inference_mode():
        assert torch.equal(converted(data), network(data))
        with torch.autocast("cpu", torch.bfloat16):
            half, autocast = converted(data), network(data)
    assert torch.equal(half, autocast)
    assert not torch.equal(half.float(), network(data))
    for module in converted.half_network.modules():
        kinds = {parameter.dtype for parameter in module.parameters(recurse=False)}
        is_convolution = isinstance(module, nn.Conv3d | nn.ConvTranspose3d)
        assert kinds <= {torch.bfloat16 if is_convolution else torch.float32}
    assert {tensor.dtype for _, tensor in iterate_tensors(network)} == {torch.float32}


def test_a_card_gets_convolutions_in_half_precision(package: ModelPackage) -> None:
    with fake_card():
        on_card = Networks(package).get(0, torch.device("cuda", 0))
    assert isinstance(on_card, HalfConvolutions)
    dtypes = {parameter.dtype for module in on_card.half_network.modules() if isinstance(module, nn.Conv3d)
              for parameter in module.parameters(recurse=False)}  # fmt: skip
    assert dtypes == {torch.float16}
    assert not isinstance(Networks(package).get(0, CPU), HalfConvolutions)


def test_a_tile_that_overflows_is_computed_with_float32_weights(package: ModelPackage) -> None:
    """With a weight beyond the range of float16 autocast returns infinity, and the network without autocast a number."""
    network = Networks(package).get(0, CPU)
    next(module for module in network.modules() if isinstance(module, nn.Conv3d)).weight.fill_(1e5)
    overflowing = HalfConvolutions(network, torch.float16)
    patch = torch.randn(1, 2, 16, 16, 16)
    with torch.inference_mode():
        assert torch.isfinite(overflowing(patch)).all()
        with torch.autocast("cpu", torch.float16):
            assert not torch.isfinite(overflowing(patch)).all()


@pytest.mark.slow
def test_networks_need_nothing_that_the_image_lacks_and_u_nets_no_library_of_others(segresnet: dict[str, Any]) -> None:
    """Only packages of `requirements/algorithm.txt` can be imported, and warnings are errors.

    MONAI is for other networks, pandas and scikit-image are for packages with `resampling: nnunet`. torch imports sympy
    for some calls, half a second in the middle of a case; torch 2.10 of the CUDA images needs sympy to draw weights on
    'meta'.
    """
    unwanted = {"monai", "pandas", "skimage"} | (set() if torch.__version__.startswith("2.10.") else {"sympy"})
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {DEVELOPMENT_ONLY!r}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
from algorithm import cli, command, pipeline
from algorithm.network import passes
from algorithm.network.backbones import build_untrained_network
from algorithm.network.loaded_package import DEFAULT_PACKAGE, LoadedPackage
LoadedPackage(DEFAULT_PACKAGE, "cpu").load()
assert "torch" in sys.modules
if loaded := {unwanted!r} & set(sys.modules):
    sys.exit(" ".join(loaded))
build_untrained_network(dict(architecture={segresnet!r}, patch_size=[16, 16, 16]), 2, 3)
assert "monai" in sys.modules
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], check=False, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr.strip()) == (0, "")
