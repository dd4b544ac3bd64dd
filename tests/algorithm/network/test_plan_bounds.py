"""Plans with impossible numbers are refused by key and value before a network is built."""

from __future__ import annotations

import time
from typing import Any

import pytest

from algorithm.network.backbones import build_untrained_network
from contract.errors import ModelPackageError
from tests.conftest import tiny_plans


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
