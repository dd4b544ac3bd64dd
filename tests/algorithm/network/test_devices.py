from __future__ import annotations

import pytest
import torch

from algorithm.network.devices import find_device
from contract.errors import HecktorError

CPU = torch.device("cpu")


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_device("auto") == find_device("cpu") == CPU
    with pytest.raises(HecktorError, match="device cuda: no usable CUDA device"):
        find_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert find_device("auto") == find_device("cuda") == torch.device("cuda:0")
    assert find_device("cpu") == CPU
