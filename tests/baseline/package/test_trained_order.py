"""Channels and labels in another order: the package gives the answers of the training."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algorithm.network import tiles
from algorithm.network.backbones import build_untrained_network
from algorithm.network.networks import load_weights
from algorithm.network.package import INTENSITIES, load_package
from baseline.package.trained_order import TrainedOrder, read_trained_order, reorder_plans
from contract.errors import ModelPackageError
from contract.io.files import read_json
from tests.baseline.package.nnunet_results import edit_dataset, edit_training, our_logits, package

PRESETS = ["plain", "resenc_m", "resenc_l", "segresnet"]
CHANNELS, LABELS = ("--channels", "CT=1,PET=0"), ("--labels", "GTVp=2,GTVn=1")


@pytest.fixture
def swapped(request: pytest.FixtureRequest, trained: dict[str, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Results of one preset, and the same as of a training with PET, CT and GTVn before GTVp."""
    source = trained[request.param]
    target = Path(shutil.copytree(source, tmp_path / "Dataset002_Swapped" / source.name))
    edit_dataset(channel_names={"0": "PET", "1": "CT"}, labels={"background": 0, "GTVn": 1, "GTVp": 2})(target)
    return source, target


@pytest.mark.slow
@pytest.mark.parametrize("swapped", PRESETS, indirect=True)
def test_the_package_of_a_swapped_training_gives_its_answers(
    swapped: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given CT and PET, it returns the logits that the network gives for PET and CT, its last two exchanged.

    The package of the same network without a mapping is the reference; test_assemble compares it with nnU-Net's own
    predictor. Only the order of additions in the first convolution differs.
    """
    monkeypatch.setattr(tiles, "cpu_has_bfloat16", lambda: False)
    source, target = swapped
    assert package(source, tmp_path / "source") == 0
    assert package(target, tmp_path / "target", *CHANNELS, *LABELS) == 0
    data = np.random.default_rng(1).normal(0, 1, (2, 30, 13, 44)).astype(np.float32)
    expected = our_logits(load_package(tmp_path / "source"), data[::-1].copy())[[0, 2, 1]]
    logits = our_logits(load_package(tmp_path / "target"), data)
    assert np.abs(expected[1] - expected[2]).max() > 0.1
    np.testing.assert_allclose(logits, expected, atol=1e-5, rtol=1e-5)
    assert (logits.argmax(0) == expected.argmax(0)).all()


@pytest.mark.parametrize("swapped", ["plain", "resenc_m"], indirect=True)
def test_the_heads_of_every_resolution_are_permuted(swapped: tuple[Path, Path], tmp_path: Path) -> None:
    """With deep supervision a U-Net returns one answer for each resolution.

    Only the order of the first convolution's sums differs. In float32 their rounding can add up to a little more than
    1e-5 in an answer of a low resolution; in float64 it is 5e8 times smaller.
    """
    source, target = swapped
    assert package(source, tmp_path / "source") == 0
    assert package(target, tmp_path / "target", *CHANNELS, *LABELS) == 0
    answers = []
    patch = load_package(tmp_path / "source").patch_of(0)
    data = torch.randn(1, 2, *patch, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for name, channels in (("source", (1, 0)), ("target", (0, 1))):
        model = load_package(tmp_path / name)
        network = build_untrained_network(model.configuration_of(0), 2, 3, deep_supervision=True).eval()
        load_weights(network, model.fold_files[0])
        network.double()
        with torch.inference_mode():
            answers.append(network(data[:, list(channels)]))
    assert len(answers[0]) > 1
    for of_source, of_target in zip(*answers, strict=True):
        torch.testing.assert_close(of_target, of_source[:, [0, 2, 1]], atol=1e-12, rtol=1e-12)


def different_channels(plans: Any) -> None:
    """Intensities of two channels that are not the same."""
    plans[INTENSITIES]["0"]["mean"] = 3.0


@pytest.mark.parametrize("options", [CHANNELS, LABELS, (*CHANNELS, *LABELS)], ids=["channels", "labels", "both"])
def test_normalisation_follows_the_channels(options: tuple[str, ...], results: Path, tmp_path: Path) -> None:
    """Channel 0 of the training is CTNormalization with mean 3, channel 1 ZScoreNormalization with mean 0."""
    edit_training("plans.json", different_channels)(results)
    if CHANNELS[0] in options:
        edit_dataset(channel_names={"0": "PET", "1": "CT"})(results)
    if LABELS[0] in options:
        edit_dataset(labels={"background": 0, "GTVn": 1, "GTVp": 2})(results)
    assert package(results, tmp_path / "model", *options) == 0
    model = load_package(tmp_path / "model")
    schemes = ["CTNormalization", "ZScoreNormalization"]
    means = [3.0, 0.0]
    step = -1 if CHANNELS[0] in options else 1
    assert model.configuration["normalization_schemes"] == schemes[::step]
    assert [model.plans[INTENSITIES][key]["mean"] for key in "01"] == means[::step]
    manifest = read_json(tmp_path / "model" / "manifest.json")
    assert manifest["channels"] == ["CT", "PET"]
    assert manifest["labels"] == {"0": "background", "1": "GTVp", "2": "GTVn"}
    record = manifest["training"]
    assert record.get("channels") == ({"CT": 1, "PET": 0} if CHANNELS[0] in options else None)
    assert record.get("labels") == ({"GTVp": 2, "GTVn": 1} if LABELS[0] in options else None)


def dataset(first: str = "CT", second: str = "PET", **lesions: int) -> dict[str, Any]:
    return {"channel_names": {"0": first, "1": second}, "labels": {"background": 0, **(lesions or {"x": 1, "y": 2})}}


def test_names_of_other_wording_need_the_option() -> None:
    swapped, in_order = {"CT": 1, "PET": 0}, {"CT": 0, "PET": 1}
    assert read_trained_order(dataset("zscore", "zscore"), swapped, (2, 1)) == TrainedOrder((1, 0), (0, 2, 1))
    assert read_trained_order(dataset("noNorm", "PT", GTVP=1, gtvn=2), in_order, None) == TrainedOrder()


def test_known_names_need_no_option() -> None:
    """PET 0 and CT 1, GTVn 1 and GTVp 2, in any case: the names say where each is."""
    assert read_trained_order(dataset("pet", "CT", gtvn=1, GTVp=2), None, None) == TrainedOrder((1, 0), (0, 2, 1))


def test_a_training_may_lack_a_channel() -> None:
    """PET alone is the second of the two channels; the manifest has its number in the training."""
    order = read_trained_order({**dataset(GTVp=1, GTVn=2), "channel_names": {"0": "PET"}}, None, None)
    assert (order.channels, order.sees, order.as_json()) == ((0,), (1,), {"channels": {"PET": 0}})
    plans = {"configurations": {"3d_fullres": {"architecture": {}}}}
    assert reorder_plans(plans, order)["configurations"]["3d_fullres"]["channels"] == [1]


@pytest.mark.parametrize(
    ("channels", "lesions", "message"),
    [
        ({"CT": 0, "PET": 1}, (1, 2), "--channels: found CT=0,PET=1, expected CT=1, as in dataset.json"),
        ({"CT": 1, "PET": 0}, (1, 2), "--labels: found GTVp=1,GTVn=2, expected GTVn=1, as in dataset.json"),
    ],
    ids=["channels", "labels"],
)
def test_options_that_contradict_the_names(channels: dict[str, int], lesions: tuple[int, ...], message: str) -> None:
    """One name is enough: the other channel and the other label have names of their own wording."""
    with pytest.raises(ModelPackageError) as error:
        read_trained_order(dataset("SUVbw", "CT", GTVn=1, tumour=2), channels, lesions)
    assert str(error.value) == message


@pytest.mark.parametrize("option", ["--channels", "--labels"])
@pytest.mark.parametrize("value", ["CT", "CT=-1,PET=0", "CT=0,PET=0", "CT=0,CT=1"])
def test_options_that_are_no_mapping(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        package(tmp_path, tmp_path / "out", option, value)
    expected = {
        "--channels": "different numbers by name, such as CT=1,PET=0",
        "--labels": "GTVp=1,GTVn=2 or other numbers from 1",
    }[option]
    assert f"argument {option}: found {value!r}, expected {expected}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("channels", "expected"),
    [
        ({"CT": 0, "PET": 2}, "found CT=0,PET=2, expected one of CT, PET for each of 0 'CT', 1 'PET' of dataset.json"),
        ({"CT": 0}, "found CT=0, expected one of CT, PET for each of 0 'CT', 1 'PET' of dataset.json"),
        ({"PET": 0, "GTVp": 1}, "found PET=0,GTVp=1, expected one of CT, PET for each of 0 'CT', 1 'PET' of"),
    ],
)
def test_options_that_are_not_the_channels(channels: dict[str, int], expected: str) -> None:
    with pytest.raises(ModelPackageError, match=f"^--channels: {expected}"):
        read_trained_order(dataset(), channels, None)


@pytest.mark.parametrize(
    "names",
    [
        {"CT": "CT", "PET": "CT"},
        {"1": "CT", "2": "PET"},
        {"0000": "CT", "0001": "PET"},
        {"0001": "PET", "0000": "CT"},
        {"10": "PET", "9": "CT"},
        {"first": "CT", "second": "noNorm"},
    ],
    ids=str,
)
@pytest.mark.parametrize("key", ["channel_names", "modality"])
def test_channel_n_is_file_n_whatever_its_key(names: dict[str, str], key: str) -> None:
    """nnU-Net counts the entries and ignores their keys; numbers as keys give the order."""
    dataset = {key: names, "labels": {"background": 0, "GTVp": 1, "GTVn": 2}}
    assert read_trained_order(dataset, {"CT": 0, "PET": 1}, None).channels == (0, 1)
    if set(names.values()) == {"CT", "PET"}:
        assert read_trained_order(dataset, None, None).channels == (0, 1)
