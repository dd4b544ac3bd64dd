from __future__ import annotations

import pytest
import torch

from algorithm.network.devices import device_named
from contract.errors import HecktorError

CPU = torch.device("cpu")


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_named("auto") == device_named("cpu") == CPU
    with pytest.raises(HecktorError, match="device cuda: no CUDA device answers"):
        device_named("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_named("auto") == device_named("cuda") == torch.device("cuda:0")
    assert device_named("cpu") == CPU
