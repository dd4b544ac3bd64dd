"""Plans with impossible numbers are refused by key and value before a network is built."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from algorithm.network.backbones import build_untrained_network
from algorithm.network.package import load_package
from contract.errors import ModelPackageError
from contract.io.files import read_json, write_json
from tests.conftest import tiny_plans, write_manifest


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("n_conv_per_stage", 10**7),
        ("n_conv_per_stage", [1, 0]),
        ("n_conv_per_stage_decoder", "1"),
        ("n_stages", 1),
        ("features_per_stage", [4, 10**9]),
        ("strides", [[1, 1, 1], [0, 2, 2]]),
        ("kernel_sizes", [3, 2.5]),
    ],
    ids=lambda value: f"{value!r:.30}",
)
def test_a_number_out_of_bounds_is_named(key: str, value: Any) -> None:
    """Refusing takes seconds; building ten million layers would take minutes."""
    configuration = tiny_plans()["configurations"]["3d_fullres"]
    configuration["architecture"]["arch_kwargs"][key] = value
    started_s = time.monotonic()
    with pytest.raises(ModelPackageError, match=rf"^plans\.json: {key} ") as caught:
        build_untrained_network(configuration, 2, 3)
    assert f"{value!r:.80}" in str(caught.value)
    assert time.monotonic() - started_s < 20


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("architecture", ["PlainConvUNet"], r"architecture \['PlainConvUNet'\], expected an object"),
        ("architecture", {"arch_kwargs": 3}, "arch_kwargs 3, expected an object"),
        ("patch_size", [16, 16, 16.5], "patch_size .* whole ones"),
        ("patch_size", [16, 16, "16"], "patch_size .* whole ones"),
    ],
)
def test_a_package_with_odd_plans_is_not_loaded(
    tiny_package: Path, tmp_path: Path, key: str, value: Any, message: str
) -> None:
    root = Path(shutil.copytree(tiny_package, tmp_path / "odd"))
    plans = read_json(root / "plans.json")
    plans["configurations"]["3d_fullres"][key] = value
    write_json(root / "plans.json", plans)
    write_manifest(root)
    with pytest.raises(ModelPackageError, match=rf"^plans\.json: {message}"):
        load_package(root)
