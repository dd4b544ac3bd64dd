"""The sliding window is nnU-Net's own, pass by pass; weights and plans choose nothing that is not known."""

from __future__ import annotations

import copy
import functools
import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nnunetv2.inference import predict_from_raw_data
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
from nnunetv2.inference.sliding_window_prediction import compute_gaussian
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager
from safetensors.torch import load_file, save_file

from algorithm import segment as module
from algorithm.budget import Budget
from algorithm.localise import Region
from algorithm.model_package import ModelPackage, load_package
from algorithm.read import Case
from algorithm.segment import (
    Pass,
    build_network,
    device_named,
    load_weights,
    network_channels,
    network_grid,
    normalise,
    own_tensors,
    plan_passes,
    run_passes,
    untrained_network,
)
from contract.errors import HecktorError, ModelPackageError
from contract.geometry import Geometry
from contract.images import Volume
from contract.patient import Patient

CPU = torch.device("cpu")


@pytest.fixture
def package(tiny_package: Path) -> ModelPackage:
    return load_package(tiny_package)


@pytest.fixture
def in_float32(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both sides in float32: nnU-Net sums in half precision, and this code may multiply in bfloat16."""
    monkeypatch.setattr(module, "cpu_has_bfloat16", lambda: False)
    monkeypatch.setattr(torch, "half", torch.float32)
    monkeypatch.setattr(
        predict_from_raw_data, "compute_gaussian", functools.partial(compute_gaussian, dtype=torch.float32)
    )
    yield
    compute_gaussian.cache_clear()


def nnunet_logits(package: ModelPackage, fold: int, data: np.ndarray, mirror: tuple[int, ...]) -> np.ndarray:
    """What nnU-Net's own predictor makes of the same weights."""
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


def noise(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, (2, *shape)).astype(np.float32)


@pytest.mark.usefixtures("in_float32")
@pytest.mark.parametrize(
    "shape",
    [(16, 16, 16), (24, 24, 24), (30, 17, 21), (9, 16, 40), (5, 7, 9), (15, 33, 16)],
    ids=lambda shape: "x".join(map(str, shape)),
)
def test_one_pass_is_nnunets_sliding_window(package: ModelPackage, shape: tuple[int, int, int]) -> None:
    """Shapes below, at and above the 16^3 patch, odd and even, so that padding and steps must agree too."""
    data = noise(shape)
    found, done = run_passes(data, (Pass(0, ()),), package, Budget.start(600), CPU)
    assert done == 1
    assert found.shape == (3, *shape)
    np.testing.assert_allclose(found, nnunet_logits(package, 0, data, ()), atol=2e-5, rtol=1e-4)


@pytest.mark.usefixtures("in_float32")
def test_all_mirrors_are_nnunets_test_time_augmentation(package: ModelPackage) -> None:
    """nnU-Net averages mirrored tiles before it weights them, here whole passes are averaged: the same sum."""
    data = noise((20, 18, 25), 1)
    found, done = run_passes(data, plan_passes(1, (0, 2)), package, Budget.start(600), CPU)
    assert done == 4
    np.testing.assert_allclose(found, nnunet_logits(package, 0, data, (0, 2)), atol=2e-5, rtol=1e-4)


@pytest.mark.usefixtures("in_float32")
def test_folds_are_averaged(package: ModelPackage) -> None:
    data = noise((18, 18, 18), 2)
    both, _ = run_passes(data, plan_passes(2, ()), package, Budget.start(600), CPU)
    apart = [run_passes(data, (Pass(fold, ()),), package, Budget.start(600), CPU)[0] for fold in (0, 1)]
    assert np.abs(apart[0] - apart[1]).max() > 0.01
    np.testing.assert_allclose(both, np.mean(apart, axis=0), atol=1e-5)


def test_passes_come_most_valuable_first() -> None:
    """Every fold unmirrored, then one mirror after the other over all folds."""
    assert plan_passes(2, (2,)) == (Pass(0, ()), Pass(1, ()), Pass(0, (2,)), Pass(1, (2,)))
    passes = plan_passes(5, (0, 1, 2))
    assert len(passes) == len(set(passes)) == 40
    assert [step.axes for step in passes[::5]] == [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]


class Clock:
    """Each look at it is `step_s` later."""

    def __init__(self, step_s: float) -> None:
        self.now, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


@pytest.mark.parametrize(("limit_s", "step_s", "expected"), [(1e9, 0.0, 4), (0.001, 100.0, 1), (10.0, 5.0, 1)])
def test_passes_stop_when_time_is_short_but_one_is_always_made(
    package: ModelPackage, limit_s: float, step_s: float, expected: int
) -> None:
    budget = Budget.start(limit_s, Clock(step_s))
    logits, done = run_passes(noise((8, 8, 8)), plan_passes(2, (2,)), package, budget, CPU)
    assert done == expected
    assert np.isfinite(logits).all()


def test_a_pass_that_would_not_fit_is_not_begun(package: ModelPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of 30 s, 90 s usable of 100: after two a third, reckoned at 1.2 x 30 s, does not fit the 30 s left."""
    now = 0.0

    def slow_pass(data: torch.Tensor, *_: object) -> torch.Tensor:
        nonlocal now
        now += 30.0
        return torch.zeros((3, *data.shape[1:]))

    monkeypatch.setattr(module, "_run_pass", slow_pass)
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    budget = Budget.start(100, lambda: now)
    _, done = run_passes(noise((8, 8, 8)), plan_passes(5, ()), package, budget, CPU)
    assert done == 2


def test_no_pass_at_all_is_a_bug(package: ModelPackage) -> None:
    with pytest.raises(ValueError, match="at least one"):
        run_passes(noise((8, 8, 8)), (), package, Budget.start(600), CPU)


# What the network sees


def test_channels_are_normalised_as_the_plans_say(package: ModelPackage) -> None:
    """CT: clipped to the training percentiles -1000 and 1000, then (x - 0) / 400. PET: z-score over the region."""
    ct = np.array([-2000, -400, 0, 800, 3000, 0, 0, 0], np.float32).reshape(2, 2, 2)
    pet = np.array([0, 1, 2, 3, 4, 5, 6, 7], np.float32).reshape(2, 2, 2)
    data = normalise((ct, pet), package)
    np.testing.assert_allclose(data[0].ravel(), [-2.5, -1, 0, 2, 2.5, 0, 0, 0], atol=1e-6)
    np.testing.assert_allclose(data[1].ravel(), (np.arange(8) - 3.5) / np.std(np.arange(8)), atol=1e-5)
    assert data.dtype == np.float32
    assert ct.min() == -2000


def test_an_empty_pet_gives_finite_numbers(package: ModelPackage) -> None:
    zero = np.zeros((4, 4, 4), np.float32)
    assert np.isfinite(normalise((zero, zero), package)).all()


def test_air_and_no_uptake_beyond_the_scans() -> None:
    scan = Geometry((10, 10, 10), (3.0, 3.0, 3.0), (0.0, 0.0, 0.0))
    case = Case(
        Volume(np.full((10, 10, 10), 40, np.int16), scan), Volume(np.ones((10, 10, 10), np.float32), scan), Patient()
    )
    grid = network_grid(Region((-30.0, 0.0, 0.0), (27.0, 27.0, 27.0), "test"), (3.0, 3.0, 3.0))
    ct, pet = network_channels(case, grid)
    assert (ct[4, 4, 0], pet[4, 4, 0], ct[4, 4, -1], pet[4, 4, -1]) == (-1024.0, 0.0, 40.0, 1.0)
    assert not network_channels(Case(case.ct, None, case.patient), grid)[1].any()


# What a package may name


def change(package: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(package, tmp_path / "package"))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda w: w.pop(next(iter(w))), "is in only one of weights and network"),
        (lambda w: w.update(extra=torch.zeros(1)), "tensor extra is in only one"),
        (lambda w: w.update({next(iter(w)): torch.zeros(7, 7)}), r"of shape \(7, 7\), expected"),
        (lambda w: next(iter(w.values())).fill_(float("nan")), "NaN or infinity"),
    ],
)
def test_weights_that_do_not_fit(
    tiny_package: Path, tmp_path: Path, edit: Callable[[dict[str, torch.Tensor]], Any], message: str
) -> None:
    path = change(tiny_package, tmp_path) / "fold_0.safetensors"
    weights = load_file(str(path))
    edit(weights)
    save_file(weights, str(path))
    with pytest.raises(ModelPackageError, match=rf"^fold_0\.safetensors: .*{message}"):
        load_weights(build_network(load_package(tiny_package)), path)


def test_a_pickle_under_the_name_of_weights_is_not_loaded(tiny_package: Path, tmp_path: Path) -> None:
    path = tmp_path / "fold_0.safetensors"
    torch.save({"network_weights": torch.zeros(3)}, path)
    with pytest.raises(ModelPackageError, match="not a safetensors file"):
        load_weights(build_network(load_package(tiny_package)), path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("network_class_name", "os.system", "network 'system', expected one of PlainConvUNet, ResidualEncoderUNet"),
        ("_kw_requires_import", ["n_stages"], "module 2, expected one of"),
        ("arch_kwargs", {}, "not an architecture"),
    ],
)
def test_plans_choose_only_among_known_networks(package: ModelPackage, key: str, value: object, message: str) -> None:
    configuration = copy.deepcopy(dict(package.configuration))
    configuration["architecture"][key] = value
    with pytest.raises(ModelPackageError, match=rf"^plans\.json: {message}"):
        untrained_network(configuration, 2, 3)


def test_a_module_that_is_not_known_is_not_imported(package: ModelPackage) -> None:
    configuration = copy.deepcopy(dict(package.configuration))
    configuration["architecture"]["arch_kwargs"]["nonlin"] = "os.system"
    with pytest.raises(ModelPackageError, match=r"module 'os\.system', expected one of"):
        untrained_network(configuration, 2, 3)


def test_residual_encoders_are_built_too(package: ModelPackage) -> None:
    """The architecture of the larger presets."""
    configuration = copy.deepcopy(dict(package.configuration))
    architecture = configuration["architecture"]
    architecture["network_class_name"] = "dynamic_network_architectures.architectures.unet.ResidualEncoderUNet"
    architecture["arch_kwargs"]["n_blocks_per_stage"] = [1, 1]
    del architecture["arch_kwargs"]["n_conv_per_stage"]
    with torch.inference_mode():
        assert untrained_network(configuration, 2, 3).eval()(torch.zeros(1, 2, 16, 16, 16)).shape == (1, 3, 16, 16, 16)


def test_each_tensor_has_one_name(package: ModelPackage) -> None:
    tensors = [tensor for _, tensor in own_tensors(build_network(package))]
    assert all(first is not second for first, second in itertools.combinations(tensors, 2))


def test_an_unknown_normalisation(package: ModelPackage) -> None:
    plans = copy.deepcopy(dict(package.plans))
    plans["configurations"]["3d_fullres"]["normalization_schemes"] = ["CTNormalization", "Whitening"]
    odd = ModelPackage(package.root, package.manifest, plans, package.fold_files, package.heads)
    zero = np.zeros((2, 2, 2), np.float32)
    with pytest.raises(ModelPackageError, match="normalisation 'Whitening', expected CTNormalization"):
        normalise((zero, zero), odd)
    plans["configurations"]["3d_fullres"]["normalization_schemes"] = ["CTNormalization"]
    with pytest.raises(ModelPackageError, match="1 channels, expected 2"):
        normalise((zero, zero), odd)


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_named("auto") == device_named("cpu") == CPU
    with pytest.raises(HecktorError, match="device cuda: no CUDA device answers, expected one"):
        device_named("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_named("auto") == device_named("cuda") == torch.device("cuda")
    assert device_named("cpu") == CPU
