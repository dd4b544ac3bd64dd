"""Plans that are none are refused by key and value."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from algorithm.network.networks import untrained_network
from algorithm.network.package import load_package
from contract.errors import ModelPackageError
from contract.files import read_json, write_json
from tests.conftest import tiny_plans, write_manifest, write_tiny_package


def architecture(value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda configuration: configuration.update(architecture=value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (architecture(None), "architecture None, expected an object"),
        (architecture(["PlainConvUNet"]), r"architecture \['PlainConvUNet'\], expected an object"),
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
        untrained_network(configuration, 2, 3)
