"""A real card that really runs out of memory; skipped where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pytest
import torch

from algorithm.deadline import Deadline
from algorithm.network import devices
from algorithm.network.images import ReadyImage
from algorithm.network.networks import Networks
from algorithm.network.package import load_package
from algorithm.network.passes import Passes, Progress
from algorithm.network.windows import Pass

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device answers")
MIB: Final = 2**20
CARD, CPU = torch.device("cuda", 0), torch.device("cpu")


def passes(package: Path, device: torch.device) -> Progress:
    """One pass over 128^3 voxels: images and sums are 48 MiB in float32, a tile of 16^3 next to nothing."""
    data = np.random.default_rng(0).normal(0, 1, (2, 128, 128, 128)).astype(np.float32)
    return Passes(ReadyImage(data), (Pass(0),), Networks(load_package(package)), Deadline(600), device).run()


@pytest.mark.parametrize(("limit_mib", "where", "failures"), [(36, "sums on cpu", 1), (1, "cpu (", 2)])
def test_memory_runs_out_in_the_middle_of_a_pass(
    tiny_package: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limit_mib: int,
    where: str,
    failures: int,
) -> None:
    """Images (16 MiB) and weights (8 MiB) fit 36 MiB, the sums (24 MiB), made after the first tile, do not.

    With 1 MiB not even a tile does, and the CPU goes on. The masks are those of the CPU but for rounding.
    """
    torch.cuda.empty_cache()
    monkeypatch.setattr(devices, "GPU_MEMORY_LIMIT_BYTES", limit_mib * MIB)
    devices.prepare_gpu(CARD)
    found = passes(tiny_package, CARD)
    assert where in found.backend
    assert caplog.text.count("going on with") == failures
    alone = passes(tiny_package, CPU)
    assert (found.logits.argmax(0) == alone.logits.argmax(0)).mean() > 0.99
    torch.cuda.set_per_process_memory_fraction(1.0, CARD)
