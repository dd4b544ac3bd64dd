from __future__ import annotations

import pytest
import torch

from algorithm.network.devices import device_named, is_device_failure, is_out_of_memory
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


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("CUDA error: unspecified launch failure"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), True),
        (RuntimeError("FIND was unable to find an engine to execute this computation"), True),
        (MemoryError(), True),
        (RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"), False),
        (ValueError("CUDA"), False),
    ],
    ids=["out of memory", "launch failure", "RAM", "cuDNN", "no engine", "MemoryError", "a bug", "another error"],
)
def test_failures_of_a_device_are_distinguished_from_bugs(problem: Exception, expected: bool) -> None:
    assert is_device_failure(problem) is expected


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (RuntimeError("FIND was unable to find an engine to execute this computation"), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
        (RuntimeError("CUDA error: unspecified launch failure"), False),
        (RuntimeError("a bug that talks of out of memory"), False),
    ],
)
def test_a_full_card_is_distinguished_from_a_lost_one(problem: Exception, expected: bool) -> None:
    assert is_out_of_memory(problem) is expected
