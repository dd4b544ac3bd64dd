"""gpu-smoke runs anywhere; its plans are of full size, and its arithmetic about a T4 is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from algorithm.budget import Budget
from algorithm.masks.segmentation import Segmentation
from algorithm.network.networks import Networks, own_tensors, untrained_network
from algorithm.network.package import load_package
from algorithm.network.passes import planned_passes
from algorithm.stages import Stages
from benchmarks import gpu_smoke
from benchmarks.flop_rate import T4_TFLOPS, flops_a_tile
from benchmarks.full_plans import HOT, PLAN_NAMES, plans_named, write_random_package
from benchmarks.smoke_run import parsed, predicted
from contract import labels
from contract.errors import HecktorError
from contract.files import read_json
from contract.images.geometry import Geometry

FULL = "3d_fullres"


def test_the_whole_script_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--device", "cpu", "--quick", "--output", str(tmp_path), "--plans", "resenc-m"]
    assert gpu_smoke.main([*arguments, "--sizes", "head_and_neck", "--tasks", "rfs"]) == 0
    report = read_json(tmp_path / "gpu-smoke-quick.json")
    (run,) = report["runs"]
    assert run["summary"]["passes_done"] == run["summary"]["passes_planned"] == 4
    assert {"read", "localise", "load", "segment", "measure", "head", "write"} <= run["summary"]["stages"].keys()
    assert run["card_peak_mib"] is None
    assert run["tiles_a_pass"] > 1
    assert [bound["held"] for bound in report["bounds"]] == [True, True]
    assert "resenc-m, head and neck, rfs" in capsys.readouterr().out


def test_without_a_card_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_smoke.main(["--output", str(tmp_path)]) == gpu_smoke.NO_CARD == 3
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "millions"), [("default", 31.2), ("resenc-m", 102.4)])
def test_plans_are_of_full_size(name: str, millions: float) -> None:
    """nnU-Net's default network of six stages for two channels and three labels has 31 million parameters."""
    with torch.device("meta"):
        network = untrained_network(plans_named(name)["configurations"][FULL], 2, 3)
    assert sum(tensor.numel() for _, tensor in own_tensors(network)) / 1e6 == pytest.approx(millions, abs=0.1)


def test_operations_of_a_tile() -> None:
    """The quick default network: two stages of two convolutions, 4 and 8 features, one decoder stage, on 16^3 voxels.

    A convolution of 3^3 costs 2 x 27 x in x out a voxel. Finest stage, 4,096 voxels: 2 -> 4 and 4 -> 4, in the
    decoder 8 -> 4 and 4 -> 4: 54 x (8 + 16 + 32 + 16) = 3,888. Second stage, 512 voxels: 4 -> 8 and 8 -> 8: 54 x
    (32 + 64) = 5,184. Up by 2^3, each of 4,096 voxels from one of 512: 2 x 8 x 4 = 64. Logits: 2 x 4 x 3 = 24.
    """
    expected = 4096 * (3888 + 64 + 24) + 512 * 5184
    assert flops_a_tile(plans_named("default", quick=True)["configurations"][FULL]) == expected


def test_the_t4_is_the_cost_models() -> None:
    """The default network on a tile of 52 x 160 x 160 instead of 128^3 voxels, 108 of them in 8 to 12 s."""
    flops = flops_a_tile(plans_named("default")["configurations"][FULL]) * 52 * 160 * 160 / 128**3
    assert [flops * 108 / seconds / 1e12 for seconds in (12, 8)] == pytest.approx(T4_TFLOPS, rel=0.002)


def test_prediction_for_a_t4() -> None:
    """Of 600 s a tenth is kept and 20.05 s go elsewhere: 519.9 s. Passes of 50 s at the slow end take 33.3 s at the fast.

    8.21 / 5.47 = 1.501 times as fast: 10 passes of 50 s fit, 15 of 33.3 s; of 600 s none, of 399.8 s one.
    """
    slow_end, fast_end = T4_TFLOPS
    found = predicted(slow_end * 50e12, 20.05, 600.0, 40)
    assert found.pass_s == pytest.approx((50.0, 50.0 * slow_end / fast_end))
    assert found.passes == (10, 15)
    assert predicted(slow_end * 600e12, 20.05, 600.0, 40).passes == (0, 1)
    assert predicted(slow_end * 1e12, 20.05, 600.0, 40).passes == (40, 40)


@pytest.mark.parametrize("name", PLAN_NAMES)
def test_a_random_package_finds_what_is_hot_in_the_pet(name: str, tmp_path: Path) -> None:
    """Noise of sd 1 in both channels with a block of 20 in the PET: GTVp there and nowhere else."""
    package = load_package(write_random_package(tmp_path / name, name, quick=True))
    assert len(planned_passes(package)) == 4
    data = torch.randn((1, 2, 16, 16, 16), generator=torch.Generator().manual_seed(0)).clip(-2, 2)
    data[0, 1, 4:7, 4:7, 4:7] = 20.0
    with torch.inference_mode():
        found = Networks(package).of(1, torch.device("cpu"))(data)[0].argmax(0)
    expected = torch.zeros((16, 16, 16), dtype=torch.long)
    expected[4:7, 4:7, 4:7] = labels.GTVP
    assert torch.equal(found, expected)
    assert HOT > 2


def test_the_algorithms_last_line_is_read() -> None:
    """Whatever the stages write is read back as it was."""
    grid = Geometry((2, 2, 2), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    empty = np.zeros((2, 2, 2), np.float32)
    how = "the whole region, tiles 0.75 of a patch apart on NVIDIA (float16, sums on cuda)"
    stages = Stages(Budget(0.0, 600.0, 60.0, clock=lambda: 100.0), {"read": 0.31, "segment": 12.0})
    stages.passes(Segmentation(np.zeros((3, 2, 2, 2), np.float32), empty, empty, grid, 7, 40, how))
    found = parsed(f"2026-01-01 12:00:00,000 segmentation answered by baseline: {stages.summary()}")
    assert found.stages == {"read": 0.3, "segment": 12.0}
    assert (found.passes_done, found.passes_planned, found.how, found.margin_s) == (7, 40, how, 500.0)
    assert found.ram_peak_mib > 50
    assert found.gpu_peak_mib is None
    gpu = parsed("rfs: read 1.0 s, 1 of 4 passes over x, peak memory 733 MiB, on the GPU 512 MiB, 9.5 s of 900 s left")
    assert (gpu.gpu_peak_mib, gpu.margin_s) == (512.0, 9.5)


def test_an_answer_without_the_network_is_an_error() -> None:
    with pytest.raises(HecktorError, match="no pass"):
        parsed(
            "segmentation answered by baseline: read 0.3 s, no pass, by PET threshold, peak memory 3 MiB, 1.0 s left"
        )
