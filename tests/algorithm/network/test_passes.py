"""Sliding windows as in nnU-Net, pass by pass; time and devices limit the number of passes."""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from nnunetv2.inference import predict_from_raw_data
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
from nnunetv2.inference.sliding_window_prediction import compute_gaussian
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager
from torch import nn

from algorithm.deadline import Deadline, NoPassFitsError, StoppedError
from algorithm.network import passes as module
from algorithm.network import tiles as tiles_module
from algorithm.network.networks import Networks, build_network, load_weights
from algorithm.network.package import ModelPackage
from algorithm.network.passes import Passes
from algorithm.network.tiles import Backend, NetworkImage, Pass, list_mirrored_passes
from tests.algorithm.network.conftest import CPU, Tiles, make_noise, predict_logits


@pytest.fixture
def use_float32(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compute in float32: nnU-Net sums in half precision, and this code may multiply in bfloat16."""
    monkeypatch.setattr(tiles_module, "cpu_has_bfloat16", lambda: False)
    monkeypatch.setattr(torch, "half", torch.float32)
    monkeypatch.setattr(
        predict_from_raw_data, "compute_gaussian", functools.partial(compute_gaussian, dtype=torch.float32)
    )
    yield
    compute_gaussian.cache_clear()


def run_all(data: np.ndarray, passes: Sequence[Pass], package: ModelPackage) -> tuple[np.ndarray, int]:
    """Return averaged logits and the number of passes, without a limit of time."""
    progress = Passes(NetworkImage.from_channels(data), passes, Networks(package), Deadline(600), CPU).make_all()
    return progress.logits, progress.done


def predict_by_nnunet(package: ModelPackage, fold: int, data: np.ndarray, mirror: tuple[int, ...]) -> np.ndarray:
    """Predict with nnU-Net's own predictor and the same weights."""
    network = build_network(package)
    load_weights(network, package.fold_files[fold])
    predictor = nnUNetPredictor(
        tile_step_size=0.5,
        use_gaussian=True,
        use_mirroring=bool(mirror),
        perform_everything_on_device=False,
        device=CPU,
        verbose=False,
        allow_tqdm=False,
    )
    plans = copy.deepcopy(dict(package.plans))
    configuration = plans["configurations"]["3d_fullres"]
    configuration["batch_size"] = 2
    manager = PlansManager(plans)
    dataset = {"labels": {"background": 0, "GTVp": 1, "GTVn": 2}, "channel_names": {"0": "CT", "1": "PET"}}
    predictor.manual_initialization(
        network, manager, manager.get_configuration("3d_fullres"), None, dataset, "nnUNetTrainer", mirror or None
    )
    logits = predictor.predict_sliding_window_return_logits(torch.from_numpy(data))
    return np.asarray(logits)


@pytest.mark.usefixtures("use_float32")
@pytest.mark.parametrize(
    "shape",
    [(16, 16, 16), (30, 17, 21), (9, 16, 40), (5, 7, 9)],
    ids=lambda shape: "x".join(map(str, shape)),
)
def test_one_pass_is_nnunets_sliding_window(package: ModelPackage, shape: tuple[int, int, int]) -> None:
    """Shapes are below, at and above the 16^3 patch, odd and even, so padding and steps must agree too."""
    data = make_noise(shape)
    logits, done = run_all(data, (Pass(0, ()),), package)
    assert done == 1
    assert logits.shape == (3, *shape)
    np.testing.assert_allclose(logits, predict_by_nnunet(package, 0, data, ()), atol=2e-5, rtol=1e-4)


@pytest.mark.usefixtures("use_float32")
def test_all_mirrors_are_nnunets_test_time_augmentation(package: ModelPackage) -> None:
    """nnU-Net averages mirrored tiles before it weights them, here whole passes are averaged: the same sum."""
    data = make_noise((20, 18, 25), 1)
    logits, done = run_all(data, list_mirrored_passes(1, (0, 2)), package)
    assert done == 4
    np.testing.assert_allclose(logits, predict_by_nnunet(package, 0, data, (0, 2)), atol=2e-5, rtol=1e-4)


def test_passes_come_most_valuable_first() -> None:
    """First all folds run without mirroring, then one mirror after the other over all folds."""
    assert list_mirrored_passes(2, (2,)) == (Pass(0, ()), Pass(1, ()), Pass(0, (2,)), Pass(1, (2,)))
    passes = list_mirrored_passes(5, (0, 1, 2))
    assert len(passes) == len(set(passes)) == 40
    assert [step.axes for step in passes[::5]] == [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]


def test_all_passes_are_made_in_time(make_timed_passes: Callable[..., Passes]) -> None:
    passes = make_timed_passes(Tiles(1.0), 600.0)
    first, last = passes.make_first(), passes.make_all()
    assert (first.done, last.done, last.planned) == (1, 4, 4)
    np.testing.assert_allclose(first.logits, last.logits)


def test_without_a_limit_the_log_estimates_the_time(
    make_timed_passes: Callable[..., Passes], caplog: pytest.LogCaptureFixture
) -> None:
    """A pass has 8 tiles of 300 s: 40 min. Two more follow the second pass. A limit replaces the estimate."""
    caplog.set_level(logging.INFO, "hecktor")
    assert make_timed_passes(Tiles(300.0), None).make_all().done == 4
    lines = [record.getMessage() for record in caplog.records]
    assert lines[1] == "pass 2 of 4: 2400.0 s, about 80 min for the other 2 (Ctrl-C keeps the best answer so far)"
    assert lines[3] == "pass 4 of 4: 2400.0 s"
    make_timed_passes(Tiles(1.0), 600.0).make_all()
    assert caplog.messages[4] == "pass 1 of 4: 8.0 s"


def test_a_pass_that_does_not_fit_is_not_started(make_timed_passes: Callable[..., Passes]) -> None:
    """Passes of 8 tiles of 3 s are 24 s, 90 s of 100 usable: after three a fourth of 1.2 x 24 s does not fit 18 s."""
    assert make_timed_passes(Tiles(3.0), 100.0).make_all().done == 3


def test_a_later_pass_that_slows_down_is_left_out(make_timed_passes: Callable[..., Passes]) -> None:
    """The first pass takes 8 s. Then tiles take 20 s: after two of them six remain, 120 s, but only 90 - 48 s."""
    tiles = Tiles(1.0)
    passes = make_timed_passes(tiles, 100.0)
    assert passes.make_first().done == 1
    tiles.seconds = 20.0
    assert passes.make_all().done == 1
    assert (tiles.count(), tiles.now) == (8 + 2, 8.0 + 40.0)


def test_nothing_fits(make_timed_passes: Callable[..., Passes]) -> None:
    with pytest.raises(NoPassFitsError, match="s a tile, "):
        make_timed_passes(Tiles(60.0), 100.0).make_all()


# Devices that fail


FIRST, SPARED, LAST = (Backend(CPU, CPU) for _ in range(3))


@pytest.fixture
def three_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "list_backends", lambda *_: (FIRST, SPARED, LAST))


@pytest.mark.usefixtures("three_backends")
@pytest.mark.parametrize(
    "problem",
    [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"), RuntimeError("CUDA error: device lost")],
    ids=["out of memory", "lost"],
)
def test_the_pass_is_repeated_on_the_next_backend(
    make_timed_passes: Callable[..., Passes], problem: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Tile 3 fails, in the first pass, and tile 20, the first of the third: both passes are made again whole."""
    tiles = Tiles(1.0, {3: problem, 20: problem})
    progress = make_timed_passes(tiles, 600.0).make_all()
    assert (progress.done, tiles.count()) == (4, 3 + 8 + 8 + 1 + 8 + 8)
    assert caplog.text.count("continuing with cpu") == 2
    np.testing.assert_allclose(progress.logits[:, 5, 5, 5], [0, 5, 1], atol=1e-5)


@pytest.mark.usefixtures("three_backends")
def test_the_sum_outlives_all_devices(make_timed_passes: Callable[..., Passes]) -> None:
    lost = RuntimeError("CUDA error: device lost")
    assert make_timed_passes(Tiles(1.0, {10: lost, 11: lost, 12: lost}), 600.0).make_all().done == 1


@pytest.mark.usefixtures("three_backends")
def test_all_devices_fail_in_the_first_pass(make_timed_passes: Callable[..., Passes]) -> None:
    lost = MemoryError()
    with pytest.raises(NoPassFitsError, match="failed: MemoryError"):
        make_timed_passes(Tiles(1.0, {1: lost, 2: lost, 3: lost}), 600.0).make_all()


def test_a_bug_is_not_taken_for_a_lost_device(make_timed_passes: Callable[..., Passes]) -> None:
    with pytest.raises(RuntimeError, match="size of tensor"):
        make_timed_passes(Tiles(1.0, {1: RuntimeError("The size of tensor a must match")}), 600.0).make_all()


def test_the_deadline_stops_the_passes(make_timed_passes: Callable[..., Passes]) -> None:
    """Stopping in the first pass gives no result; in the second one the first pass is the result."""
    tiles = Tiles(1.0)
    with pytest.raises(StoppedError):
        make_timed_passes(tiles, 600.0, stop_after=3).make_all()
    tiles = Tiles(1.0)
    assert make_timed_passes(tiles, 600.0, stop_after=12).make_all().done == 1
    assert tiles.count() == 12


# NaN and infinity


@pytest.mark.parametrize("has_bfloat16", [True, False])
def test_half_precision_that_overflows_is_computed_again_in_full(
    package: ModelPackage, monkeypatch: pytest.MonkeyPatch, has_bfloat16: bool
) -> None:
    """Infinite answers are computed again in float32; the record has the number of tiles.

    Two passes over 24^3 voxels have 2 x 2 x 2 tiles of 16^3 each.
    """
    monkeypatch.setattr(
        tiles_module,
        "_forward",
        lambda _n, part, half: torch.full((1, 3, *part.shape[2:]), float("inf") if half else 2.0),
    )
    monkeypatch.setattr(tiles_module, "cpu_has_bfloat16", lambda: has_bfloat16)
    image = NetworkImage.from_channels(make_noise((24, 24, 24)))
    progress = Passes(image, [Pass(0), Pass(1)], Networks(package), Deadline(600.0), CPU).make_all()
    assert np.unique(progress.logits).tolist() == [2.0]
    assert progress.backend == ("cpu (bfloat16, 16 tiles in float32)" if has_bfloat16 else "cpu (float32)")


def test_a_network_without_half_precision_is_never_called_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Backend.half` decides how the network computes, not only its name in the record."""
    calls: list[bool] = []

    def forward(_network: nn.Module, part: torch.Tensor, *, half: bool) -> torch.Tensor:
        calls.append(half)
        return torch.zeros((1, 3, *part.shape[2:]))

    monkeypatch.setattr(tiles_module, "_forward", forward)
    for half in (True, False):
        backend = Backend(CPU, CPU, half)
        tiles_module.slide(torch.zeros(2, 16, 16, 16), (), nn.Identity(), (16, 16, 16), backend, Deadline(600.0))
    assert calls == [True, False]


def test_a_network_that_answers_nan(package: ModelPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tiles_module, "_forward", lambda _n, part, half: torch.full((1, 3, *part.shape[2:]), float("nan"))
    )
    with pytest.raises(NoPassFitsError, match="returns NaN"):
        run_all(make_noise((8, 8, 8)), (Pass(0),), package)


# Averages


@pytest.fixture
def probability_package(package: ModelPackage) -> ModelPackage:
    return replace(package, manifest=package.manifest.model_copy(update={"average": "probabilities"}))


def test_averaged_probabilities_against_a_naive_mean(package: ModelPackage, probability_package: ModelPackage) -> None:
    """Compare with the softmax of four separate passes, averaged in float64."""
    data, passes = make_noise((24, 24, 24)), list_mirrored_passes(2, (2,))
    single = [predict_logits(package, data, (step,)).astype(np.float64) for step in passes]
    naive = np.mean([np.exp(logits) / np.exp(logits).sum(0) for logits in single], axis=0)
    logits, done = run_all(data, passes, probability_package)
    assert (done, logits.dtype) == (4, np.float32)
    np.testing.assert_allclose(np.exp(logits), naive, atol=1e-6)
    top = np.sort(naive, axis=0)
    clear = top[-1] - top[-2] > 1e-5
    np.testing.assert_array_equal(logits.argmax(0)[clear], naive.argmax(0)[clear])
    assert clear.mean() > 0.99


def test_a_probability_of_zero_stays_finite(probability_package: ModelPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tiles_module,
        "_compute_tile_logits",
        lambda _network, part, _axes, **_: torch.tensor([0.0, 500.0, -500.0])[:, None, None, None].expand(
            3, *part.shape[2:]
        ),
    )
    logits, _ = run_all(make_noise((16, 16, 16)), [Pass(0)], probability_package)
    assert np.isfinite(logits).all()
    assert np.unique(logits.argmax(0)).tolist() == [1]


def test_the_longest_pass_says_whether_one_more_fits(make_timed_passes: Callable[..., Passes]) -> None:
    """Ninety of 100 s are usable. Pass 1 takes 8 x 5 = 40 s, and 1.2 x 40 = 48 s fit 50; pass 2 takes 8 s.

    In the remaining 42 s a pass like the second would fit five times, but not one like the first.
    """
    tiles = Tiles(5.0)
    passes = make_timed_passes(tiles, 100.0)
    assert passes.make_first().done == 1
    tiles.seconds = 1.0
    assert passes.make_all().done == 2
