"""Channels and labels in another order: the package gives the answers of the training."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from algorithm.network import tiles
from algorithm.network.package import INTENSITIES, load_package
from baseline.network.checkpoint import load_starting_weights
from baseline.network.plans import NetworkPlan
from baseline.package.numbering import Numbering, parse_lesion_numbers, read_numbering
from contract.errors import HecktorError, ModelPackageError
from contract.io.files import read_json
from tests.baseline.package.nnunet_results import edit_dataset, edit_training, our_logits, package

PRESETS = ["plain", "segresnet"]
CHANNELS, LABELS = ("--channels", "CT=1,PET=0"), ("--labels", "GTVp=2,GTVn=1")


@pytest.fixture
def swapped(request: pytest.FixtureRequest, training_results: dict[str, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Results of one preset, and the same as of a training with PET, CT and GTVn before GTVp."""
    source = training_results[request.param]
    target = Path(shutil.copytree(source, tmp_path / "Dataset002_Swapped" / source.name))
    edit_dataset(channel_names={"0": "PET", "1": "CT"}, labels={"background": 0, "GTVn": 1, "GTVp": 2})(target)
    return source, target


@pytest.mark.slow
@pytest.mark.parametrize("swapped", PRESETS, indirect=True)
def test_the_package_of_a_swapped_training_gives_its_answers(
    swapped: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its image is PET and CT; it returns the logits that the network gives for them, the last two exchanged.

    The package of the same network without a mapping is the reference; test_assemble compares it with nnU-Net's own
    predictor.
    """
    monkeypatch.setattr(tiles, "cpu_has_bfloat16", lambda: False)
    source, target = swapped
    assert package(source, tmp_path / "source") == 0
    assert package(target, tmp_path / "target", *CHANNELS, *LABELS) == 0
    in_order, model = load_package(tmp_path / "source"), load_package(tmp_path / "target")
    assert (in_order.channel_sources, model.channel_sources) == ((0, 1), (1, 0))
    data = np.random.default_rng(1).normal(0, 1, (2, 30, 13, 44)).astype(np.float32)
    expected = our_logits(in_order, data)[[0, 2, 1]]
    assert np.abs(expected[1] - expected[2]).max() > 0.1
    np.testing.assert_array_equal(our_logits(model, data), expected)


@pytest.mark.parametrize("swapped", ["plain"], indirect=True)
def test_weights_and_plans_are_used_as_they_are(swapped: tuple[Path, Path], tmp_path: Path) -> None:
    """Only `channels` and `labels` of the configuration differ from those of the same training in the usual numbering."""
    source, target = swapped
    assert package(source, tmp_path / "source") == 0
    assert package(target, tmp_path / "target") == 0
    in_order, model = load_package(tmp_path / "source"), load_package(tmp_path / "target")
    for own, other in zip(model.fold_files, in_order.fold_files, strict=True):
        assert own.read_bytes() == other.read_bytes()
    order = {"channels": [1, 0], "labels": [0, 2, 1]}
    assert {**in_order.plans, "configurations": {"3d_fullres": {**in_order.configuration, **order}}} == model.plans
    assert (model.channel_order_of(0), model.label_order_of(0)) == ((0, 1), (0, 2, 1))


@pytest.mark.parametrize("swapped", ["plain"], indirect=True)
def test_a_swapped_training_gives_no_starting_weights(swapped: tuple[Path, Path], tmp_path: Path) -> None:
    """Its first layer would see the PET as CT."""
    assert package(swapped[1], tmp_path / "target") == 0
    message = "--starting-weights: target: a network that sees PET, CT, expected channels in the order CT, PET"
    with pytest.raises(HecktorError, match=f"^{message}"):
        load_starting_weights(
            nn.Conv3d(2, 3, 1), NetworkPlan(starting_weights=str(tmp_path / "target")), 0, "seg_layers"
        )


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
    assert model.configuration["normalization_schemes"] == ["CTNormalization", "ZScoreNormalization"]
    assert [model.intensities[key]["mean"] for key in "01"] == [3.0, 0.0]
    assert model.channel_sources == ((1, 0) if CHANNELS[0] in options else (0, 1))
    assert model.label_order_of(0) == ((0, 2, 1) if LABELS[0] in options else (0, 1, 2))
    manifest = read_json(tmp_path / "model" / "manifest.json")
    # An algorithm that reads only version 1 would exchange GTVp and GTVn.
    assert manifest["format_version"] == (2 if LABELS[0] in options else 1)
    assert manifest["channels"] == ["CT", "PET"]
    assert manifest["labels"] == {"0": "background", "1": "GTVp", "2": "GTVn"}
    record = manifest["training"]
    assert record.get("channels") == ({"CT": 1, "PET": 0} if CHANNELS[0] in options else None)
    assert record.get("labels") == ({"GTVp": 2, "GTVn": 1} if LABELS[0] in options else None)


def dataset(first: str = "CT", second: str = "PET", **lesions: int) -> dict[str, Any]:
    return {"channel_names": {"0": first, "1": second}, "labels": {"background": 0, **(lesions or {"x": 1, "y": 2})}}


SWAPPED = Numbering({"CT": 1, "PET": 0}, (2, 1))


def test_names_of_other_wording_need_the_option() -> None:
    swapped, in_order = {"CT": 1, "PET": 0}, {"CT": 0, "PET": 1}
    assert read_numbering(dataset("zscore", "zscore"), swapped, (2, 1)) == SWAPPED
    numbering = read_numbering(dataset("noNorm", "PT", GTVP=1, gtvn=2), in_order, None)
    assert numbering == Numbering(in_order, (1, 2))
    assert (numbering.to_configuration(), numbering.to_manifest()) == ({}, {})


def test_known_names_need_no_option() -> None:
    """PET 0 and CT 1, GTVn 1 and GTVp 2, in any case: the names say where each is."""
    assert read_numbering(dataset("pet", "CT", gtvn=1, GTVp=2), None, None) == SWAPPED


def test_a_training_may_lack_a_channel() -> None:
    """PET alone is the second of the two channels; the manifest has its number in the training."""
    numbering = read_numbering({**dataset(GTVp=1, GTVn=2), "channel_names": {"0": "PET"}}, None, None)
    assert (numbering.channels, numbering.to_manifest()) == ({"PET": 0}, {"channels": {"PET": 0}})
    assert numbering.to_configuration() == {"channels": [1]}


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
        read_numbering(dataset("SUVbw", "CT", GTVn=1, tumour=2), channels, lesions)
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
        read_numbering(dataset(), channels, None)


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
    """nnU-Net counts the entries and ignores their keys; numbers as keys give the numbering."""
    dataset = {key: names, "labels": {"background": 0, "GTVp": 1, "GTVn": 2}}
    assert read_numbering(dataset, {"CT": 0, "PET": 1}, None).channels == {"CT": 0, "PET": 1}
    if set(names.values()) == {"CT", "PET"}:
        assert read_numbering(dataset, None, None).channels == {"CT": 0, "PET": 1}


def test_numbers_by_name() -> None:
    assert parse_lesion_numbers("GTVn=3, GTVp=7") == (7, 3)
    for text in ("GTVp=0,GTVn=1", "GTVp=2,GTVn=2", "GTVp=2", "GTVp=x,GTVn=1"):
        with pytest.raises(argparse.ArgumentTypeError, match=rf"^found '{text}', expected GTVp=1,GTVn=2 or other"):
            parse_lesion_numbers(text)
