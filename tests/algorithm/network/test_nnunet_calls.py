"""Functions of nnU-Net that inference calls; a new version with other results or names fails here."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from algorithm.network.backbones import build_untrained_network
from algorithm.network.networks import iterate_tensors
from algorithm.network.nnunet import (
    compute_gaussian,
    compute_steps_for_sliding_window,
    find_normalisation,
    find_resampling,
    find_unet,
)
from tests.conftest import tiny_plans


def test_steps_of_tiles() -> None:
    """110 voxels in tiles of 64, half a tile apart at most: 0, 23 and 46; one tile where one is enough."""
    assert compute_steps_for_sliding_window((110, 64), (64, 64), 0.5) == [[0, 23, 46], [0]]


def test_weights_of_a_tile() -> None:
    """The weights are a Gaussian with its maximum in the middle and no zero.

    They are cached, and the cache can be cleared after a card failed.
    """
    options = {"sigma_scale": 1 / 8, "value_scaling_factor": 10, "dtype": torch.float32, "device": torch.device("cpu")}
    weight = compute_gaussian((8, 8, 8), **options)
    assert weight[4, 4, 4] == weight.max() == 10
    assert float(weight.min()) > 0
    one_sigma = weight[5, 4, 4] / weight[4, 4, 4]
    assert float(one_sigma) == pytest.approx(np.exp(-0.5), rel=1e-3)
    assert compute_gaussian((8, 8, 8), **options) is weight
    compute_gaussian.cache_clear()
    assert compute_gaussian((8, 8, 8), **options) is not weight


def test_normalisation_schemes() -> None:
    """Create and run the schemes as preprocessing does, without a mask."""
    image = np.array([[[-2000.0, 0.0, 50.0]]], dtype=np.float32)
    properties = {"mean": 50.0, "std": 25.0, "percentile_00_5": 0.0, "percentile_99_5": 100.0}
    scheme = find_normalisation("CTNormalization")(use_mask_for_norm=False, intensityproperties=properties)
    np.testing.assert_allclose(scheme.run(image.copy(), None), [[[-2, -2, 0]]])
    for name in ("ZScoreNormalization", "RescaleTo01Normalization", "NoNormalization", "RGBTo01Normalization"):
        assert callable(find_normalisation(name)(use_mask_for_norm=False, intensityproperties={}).run)


@pytest.mark.parametrize("kind", ["data", "probabilities"])
def test_resampling_by_the_plans(kind: str) -> None:
    """Resampling takes image, new shape, old and new spacing; plans may omit the options."""
    plans = {f"resampling_fn_{kind}": "resample_data_or_seg_to_shape", "architecture": {}}
    image = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    resampled = find_resampling(plans, kind)(image, (4, 4, 4), (2.0,) * 3, (1.0,) * 3)
    assert resampled.shape == (1, 4, 4, 4)
    assert float(np.mean(resampled)) == pytest.approx(3.5, abs=0.2)


def test_networks() -> None:
    """nnU-Net's decoder lists the encoder's tensors again, which `iterate_tensors` leaves out."""
    plans = tiny_plans()
    configuration = plans["configurations"]["3d_fullres"]
    name = configuration["architecture"]["network_class_name"].rsplit(".", 1)[-1]
    names = (name, "ResidualEncoderUNet")
    assert tuple(find_unet(known).__name__ for known in names) == names
    network = build_untrained_network(configuration, 2, 3)
    assert isinstance(network, find_unet(name))  # type: ignore[arg-type]
    tensor_names = [tensor_name for tensor_name, _ in iterate_tensors(network)]
    assert any(key.startswith("decoder.encoder.") for key in network.state_dict())
    assert not any(key.startswith("decoder.encoder.") for key in tensor_names)
    with pytest.raises(AttributeError):
        find_unet("no such network")
