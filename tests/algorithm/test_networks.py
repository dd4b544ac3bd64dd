"""Weights and plans choose nothing that is not known."""

from __future__ import annotations

import copy
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from algorithm.model_package import ModelPackage, load_package
from algorithm.networks import Networks, build_network, load_weights, own_tensors, untrained_network
from contract.errors import ModelPackageError

CPU = torch.device("cpu")


@pytest.fixture
def package(tiny_package: Path) -> ModelPackage:
    return load_package(tiny_package)


def change(package: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(package, tmp_path / "package"))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda w: w.pop(next(iter(w))), "is in only one of weights and network"),
        (lambda w: w.update(extra=torch.zeros(1)), "tensor extra is in only one"),
        (lambda w: w.update({next(iter(w)): torch.zeros(7, 7)}), r"of shape \(7, 7\), expected"),
        (lambda w: next(iter(w.values())).fill_(float("nan")), "NaN or infinity"),
    ],
)
def test_weights_that_do_not_fit(
    tiny_package: Path, tmp_path: Path, edit: Callable[[dict[str, torch.Tensor]], Any], message: str
) -> None:
    path = change(tiny_package, tmp_path) / "fold_0.safetensors"
    weights = load_file(str(path))
    edit(weights)
    save_file(weights, str(path))
    with pytest.raises(ModelPackageError, match=rf"^fold_0\.safetensors: .*{message}"):
        load_weights(build_network(load_package(tiny_package)), path)


def test_a_pickle_under_the_name_of_weights_is_not_loaded(tiny_package: Path, tmp_path: Path) -> None:
    path = tmp_path / "fold_0.safetensors"
    torch.save({"network_weights": torch.zeros(3)}, path)
    with pytest.raises(ModelPackageError, match="not a safetensors file"):
        load_weights(build_network(load_package(tiny_package)), path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("network_class_name", "os.system", "network 'system', expected one of PlainConvUNet, ResidualEncoderUNet"),
        ("_kw_requires_import", ["n_stages"], "module 2, expected one of"),
        ("arch_kwargs", {}, "not an architecture"),
    ],
)
def test_plans_choose_only_among_known_networks(package: ModelPackage, key: str, value: object, message: str) -> None:
    configuration = copy.deepcopy(dict(package.configuration))
    configuration["architecture"][key] = value
    with pytest.raises(ModelPackageError, match=rf"^plans\.json: {message}"):
        untrained_network(configuration, 2, 3)


def test_a_module_that_is_not_known_is_not_imported(package: ModelPackage) -> None:
    configuration = copy.deepcopy(dict(package.configuration))
    configuration["architecture"]["arch_kwargs"]["nonlin"] = "os.system"
    with pytest.raises(ModelPackageError, match=r"module 'os\.system', expected one of"):
        untrained_network(configuration, 2, 3)


def test_residual_encoders_are_built_too(package: ModelPackage) -> None:
    """The architecture of the larger presets."""
    configuration = copy.deepcopy(dict(package.configuration))
    architecture = configuration["architecture"]
    architecture["network_class_name"] = "dynamic_network_architectures.architectures.unet.ResidualEncoderUNet"
    architecture["arch_kwargs"]["n_blocks_per_stage"] = [1, 1]
    del architecture["arch_kwargs"]["n_conv_per_stage"]
    with torch.inference_mode():
        assert untrained_network(configuration, 2, 3).eval()(torch.zeros(1, 2, 16, 16, 16)).shape == (1, 3, 16, 16, 16)


def test_each_tensor_has_one_name(package: ModelPackage) -> None:
    tensors = [tensor for _, tensor in own_tensors(build_network(package))]
    assert all(first is not second for first, second in itertools.combinations(tensors, 2))


def test_one_network_is_kept_and_its_weights_exchanged(package: ModelPackage) -> None:
    """The same module serves both folds; after it was forgotten a new one is built."""
    networks = Networks(package)
    first = networks.of(0, CPU)
    before = [tensor.clone() for _, tensor in own_tensors(first)]
    assert networks.of(1, CPU) is first
    assert any(not torch.equal(old, new) for old, (_, new) in zip(before, own_tensors(first), strict=True))
    assert networks.of(0, CPU) is first
    assert all(torch.equal(old, new) for old, (_, new) in zip(before, own_tensors(first), strict=True))
    networks.forget()
    assert networks.of(0, CPU) is not first
