"""The smoke test on a CPU, its full-size plans, and its prediction for a T4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algorithm.network.networks import Networks, own_tensors, untrained_network
from algorithm.network.package import DEFAULT_PACKAGE, PLANS, load_package
from algorithm.network.passes import planned_passes
from benchmarks.smoke import gpu
from benchmarks.smoke.packages import PLAN_NAMES, plans_named, write_random_package
from benchmarks.smoke.runs import (
    CARD_GIB,
    HALF,
    LIMIT_S,
    MARGIN_S,
    PASSES,
    PLANNED,
    T4_TFLOPS,
    flops_per_tile,
    record_figures,
    t4_prediction,
)
from benchmarks.smoke.training import EPOCH_S, FITS, HOURS
from contract import labels
from contract.editions import DEFAULT_EDITION
from contract.errors import HecktorError
from contract.files import read_json


def full_size(name: str, *, quick: bool = False) -> dict[str, Any]:
    """The configuration of a network."""
    configuration: dict[str, Any] = plans_named(name, read_json(DEFAULT_PACKAGE / PLANS), quick=quick)[
        "configurations"
    ]["3d_fullres"]
    return configuration


def test_the_whole_script_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--device", "cpu", "--quick", "--output", str(tmp_path), "--plans", "resenc-m"]
    assert gpu.main([*arguments, "--sizes", "head_and_neck", "--tasks", "combined", "--presets", "nnunet"]) == 0
    convolution, tile, run, training = read_json(tmp_path / "gpu-smoke-quick.json")["runs"]
    single_ms, half_ms, times = convolution["figures"].values()
    assert times == pytest.approx(half_ms / single_ms)
    assert convolution["limits"] == []  # on a card alone
    assert training["figures"][FITS] == 1
    assert training["figures"][HOURS] == pytest.approx(training["figures"][EPOCH_S] * 1000 / 3600)
    figures = run["figures"]
    assert figures[LIMIT_S] == 1500
    assert figures[PASSES] == figures[PLANNED] == 4
    stages = {"read", "localise", "load", "segment", "measure", "head", "write"}
    assert {f"{stage} (s)" for stage in stages} <= figures.keys()
    assert CARD_GIB not in figures
    assert figures["tiles a pass"] > 1
    assert tile["figures"]["GFLOP"] > 0
    assert [line.endswith(": holds") for line in run["limits"]] == [True, True, True]
    output = capsys.readouterr().out
    assert "resenc-m: head and neck, combined" in output
    assert "All limits hold." in output


def test_full_size_after_quick_in_one_folder(tmp_path: Path) -> None:
    """The coarse phantom of `--quick` and that of full size, of one name, lie in folders of their own."""
    arguments = ["--device", "cpu", "--output", str(tmp_path), "--sizes", "head_and_neck", "--tasks", "--presets"]
    assert [gpu.main([*arguments, *quick]) for quick in (["--quick"], [])] == [0, 0]
    assert len(list(tmp_path.glob("data/*/head_and_neck/*/input"))) == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.0, "passes 2, at least 1: holds"),
        (0.0, "passes 0, at least 1: **does not hold**"),
        (float("nan"), "passes nan, at least 1: **does not hold**"),
    ],
)
def test_limits(value: float, text: str) -> None:
    assert gpu.Limit(PASSES, least=1).text({PASSES: value}) == text
    assert gpu.Limit(PASSES, least=1).text({}) == "passes: not measured"


def test_half_precision_that_is_slower_is_told() -> None:
    """A convolution of 8 ms in float16 and 2 ms in float32 takes four times as long."""
    assert gpu.HALF_LIMIT.text({HALF: 8 / 2}) == f"{HALF} 4, at most 1: **does not hold**"
    assert gpu.HALF_LIMIT.text({HALF: 0.25}).endswith(": holds")


def test_without_a_card_nothing_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main(["--output", str(tmp_path)]) == gpu.NO_CARD == 3
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "millions"), [("default", 30.6), ("resenc-m", 101.7)])
def test_plans_are_of_full_size(name: str, millions: float) -> None:
    """nnU-Net's default network of six stages for two channels and three labels has 31 million parameters. The patch is
    that of the presets in docs/training.md, and each edge can be halved as often as the strides say.
    """
    configuration = full_size(name)
    assert configuration["patch_size"] == [192, 112, 112]
    assert np.prod(configuration["architecture"]["arch_kwargs"]["strides"], axis=0).tolist() == [32, 16, 16]
    with torch.device("meta"):
        network = untrained_network(configuration, 2, 3)
    assert sum(tensor.numel() for _, tensor in own_tensors(network)) / 1e6 == pytest.approx(millions, abs=0.1)


def test_operations_of_a_tile() -> None:
    """The quick default network: two stages of two convolutions, 4 and 8 features, one decoder stage, on 16^3 voxels.

    A convolution of 3^3 costs 2 x 27 x in x out a voxel. Finest stage, 4,096 voxels: 2 -> 4 and 4 -> 4, in the
    decoder 8 -> 4 and 4 -> 4: 54 x (8 + 16 + 32 + 16) = 3,888. Second stage, 512 voxels: 4 -> 8 and 8 -> 8: 54 x
    (32 + 64) = 5,184. Up by 2^3, each of 4,096 voxels from one of 512: 2 x 8 x 4 = 64. Logits: 2 x 4 x 3 = 24.
    """
    expected = 4096 * (3888 + 64 + 24) + 512 * 5184
    assert flops_per_tile(full_size("default", quick=True)) == expected


def test_the_rate_of_a_t4() -> None:
    """The default network on a tile of 52 x 160 x 160 instead of 192 x 112 x 112 voxels, 108 of them in 8 to 12 s."""
    flops = flops_per_tile(full_size("default")) * 52 * 160 * 160 / (192 * 112 * 112)
    assert [flops * 108 / seconds / 1e12 for seconds in (12, 8)] == pytest.approx(T4_TFLOPS, rel=0.002)


def test_prediction_for_a_t4() -> None:
    """Of 600 s a tenth is reserved and 20.05 s are used elsewhere: 519.9 s. Passes of 50 s at the slow end take 33.3 s at the fast.

    8.23 / 5.49 = 1.499 times as fast: 10 passes of 50 s fit, 15 of 33.3 s; of 600 s none, of 399.8 s one.
    """
    slow_end, fast_end = T4_TFLOPS
    prediction = t4_prediction(slow_end * 50e12, 20.05, 600.0, 40)
    assert prediction == {
        "T4, slow (s a pass)": pytest.approx(50.0),
        "T4, slow (passes)": 10,
        "T4, fast (s a pass)": pytest.approx(50.0 * slow_end / fast_end),
        "T4, fast (passes)": 15,
    }
    assert passes(600.0) == (0, 1)
    assert passes(1.0) == (40, 40)


def passes(slow_pass_s: float) -> tuple[float, float]:
    """Passes that fit 600 s at the slow and at the fast end."""
    prediction = t4_prediction(T4_TFLOPS[0] * slow_pass_s * 1e12, 20.05, 600.0, 40)
    return prediction["T4, slow (passes)"], prediction["T4, fast (passes)"]


@pytest.mark.parametrize("name", PLAN_NAMES)
def test_a_random_package_segments_hot_voxels_of_the_pet(name: str, tmp_path: Path) -> None:
    """Noise of sd 1 in both channels with a block of 20 in the PET: GTVp there and nowhere else."""
    package = load_package(write_random_package(tmp_path / name, name, DEFAULT_EDITION, quick=True))
    assert len(planned_passes(package)) == 4
    data = torch.randn((1, 2, 16, 16, 16), generator=torch.Generator().manual_seed(0)).clip(-2, 2)
    data[0, 1, 4:7, 4:7, 4:7] = 20.0
    with torch.inference_mode():
        segmented = Networks(package).of(1, torch.device("cpu"))(data)[0].argmax(0)
    expected = torch.zeros((16, 16, 16), dtype=torch.long)
    expected[4:7, 4:7, 4:7] = labels.GTVP
    assert torch.equal(segmented, expected)


def record(**changes: Any) -> dict[str, Any]:
    plain = {
        "segmented_by": "network",
        "passes_done": 7,
        "passes_planned": 40,
        "seconds": {"read": 0.3, "segment": 12.0},
        "left_s": 500.0,
        "gpu_peak_memory_mib": None,
    }
    return plain | changes


def test_figures_of_a_run_record() -> None:
    figures = record_figures(record())
    assert figures == {"read (s)": 0.3, "segment (s)": 12.0, PASSES: 7, PLANNED: 40, MARGIN_S: 500.0}
    assert record_figures(record(gpu_peak_memory_mib=512.0))[CARD_GIB] == 0.5


def test_an_answer_without_the_network_is_an_error() -> None:
    with pytest.raises(HecktorError, match="run record: segmented by PET threshold, expected passes of the network"):
        record_figures(record(segmented_by="PET threshold", passes_done=0))
