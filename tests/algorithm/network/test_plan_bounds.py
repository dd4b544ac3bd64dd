"""Plans with odd numbers are refused by key and value before anything is built."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from algorithm.network.backbones import build_untrained_network
from algorithm.network.package import load_package
from contract.errors import ModelPackageError
from contract.io.files import read_json, write_json
from tests.conftest import segresnet_architecture, tiny_plans, write_manifest, write_tiny_package


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("n_conv_per_stage", 10**7),
        ("n_conv_per_stage", [1, 0]),
        ("n_conv_per_stage", [1] * 10**5),
        ("n_conv_per_stage_decoder", "1"),
        ("n_stages", 10**6),
        ("n_stages", 1),
        ("n_stages", True),
        ("features_per_stage", [4, 10**9]),
        ("features_per_stage", []),
        ("strides", [[1, 1, 1], [0, 2, 2]]),
        ("strides", [[1, 1, 1], [2, 2, -2]]),
        ("strides", 0),
        ("kernel_sizes", [[3, 3, 3], [3, 3, 10**6]]),
        ("kernel_sizes", [3, 2.5]),
    ],
    ids=lambda value: f"{value!r:.30}",
)
def test_a_number_out_of_bounds_is_named(key: str, value: Any) -> None:
    """Within seconds, where a network of ten million layers took until it was killed."""
    configuration = tiny_plans()["configurations"]["3d_fullres"]
    configuration["architecture"]["arch_kwargs"][key] = value
    begun_s = time.monotonic()
    with pytest.raises(ModelPackageError, match=rf"^plans\.json: {key} ") as caught:
        build_untrained_network(configuration, 2, 3)
    assert f"{value!r:.80}" in str(caught.value)
    assert time.monotonic() - begun_s < 20


@pytest.mark.parametrize(("key", "value"), [("blocks_down", [1, 10**6, 1]), ("init_filters", 0), ("blocks_up", "os")])
def test_a_segresnet_out_of_bounds_is_named(key: str, value: Any) -> None:
    configuration = tiny_plans()["configurations"]["3d_fullres"] | {"architecture": segresnet_architecture()}
    configuration["architecture"]["arch_kwargs"][key] = value
    with pytest.raises(ModelPackageError, match=rf"^plans\.json: {key} "):
        build_untrained_network(configuration, 2, 3)


def architecture(value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda configuration: configuration.update(architecture=value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (architecture(None), "architecture None, expected an object"),
        (architecture(["PlainConvUNet"]), r"architecture \['PlainConvUNet'\], expected an object"),
        (architecture({"arch_kwargs": 3}), "arch_kwargs 3, expected an object"),
        (lambda one: one["architecture"]["arch_kwargs"].update(strides=[[1, 1, 1], [0, 2, 2]]), "strides "),
        (lambda one: one.update(patch_size=[16, 16, 16.5]), "patch_size .* whole ones"),
        (lambda one: one.update(patch_size=[16, 16, "16"]), "patch_size .* whole ones"),
    ],
)
def test_a_package_with_odd_plans_is_not_loaded(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    root = write_tiny_package(tmp_path / "odd")
    plans = read_json(root / "plans.json")
    change(plans["configurations"]["3d_fullres"])
    write_json(root / "plans.json", plans)
    write_manifest(root)
    with pytest.raises(ModelPackageError, match=rf"^plans\.json: {message}"):
        load_package(root)


def test_lists_of_other_lengths_are_refused() -> None:
    configuration = copy.deepcopy(tiny_plans()["configurations"]["3d_fullres"])
    configuration["architecture"]["arch_kwargs"]["n_conv_per_stage"] = [1, 1, 1]
    with pytest.raises(ModelPackageError, match=r"^plans\.json: not an architecture \(AssertionError"):
        build_untrained_network(configuration, 2, 3)
