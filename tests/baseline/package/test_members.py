"""Tests that weights of a package are stored as float16 and integers unchanged."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

from algorithm.network.networks import load_weights
from baseline.network.checkpoint import Checkpoint
from baseline.package.export import _write_weights


class SegResNet(nn.Module):
    """Network with a backbone's name and the integers of a transformer and of batch normalisation."""

    def __init__(self, counter: int = 0) -> None:
        super().__init__()
        self.conv_final = nn.Conv3d(2, 3, 1)
        self.register_buffer("position_index", torch.arange(117_649))
        self.register_buffer("num_batches_tracked", torch.tensor(counter))


def package_network(network: nn.Module, folder: Path) -> Path:
    checkpoint = Checkpoint("fold_0/checkpoint_final.pth", network.state_dict(), "", "", (), {}, {})
    path = folder / "fold_0.safetensors"
    _write_weights(checkpoint, path, network)
    return path


def test_integers_are_packaged_exactly(tmp_path: Path) -> None:
    """float16 holds every integer up to 2,048, then every second integer, and no integer above 65,504."""
    trained = SegResNet(counter=70_000)
    path = package_network(trained, tmp_path)
    weights = load_file(path)
    assert weights["conv_final.weight"].dtype == torch.float16
    assert torch.equal(weights["position_index"], torch.arange(117_649))
    loaded = SegResNet()
    load_weights(loaded, path)
    assert torch.equal(loaded.position_index, torch.arange(117_649))
    assert int(loaded.num_batches_tracked) == 70_000
    torch.testing.assert_close(loaded.conv_final.weight, trained.conv_final.weight, rtol=1e-3, atol=1e-6)
