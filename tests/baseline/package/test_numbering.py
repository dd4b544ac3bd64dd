"""Tests of channels and labels in another order: the package returns the training's logits."""

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
from baseline.package.numbering import Numbering, parse_lesion_numbers, parse_named_numbers, read_numbering
from contract.errors import HecktorError, ModelPackageError
from contract.io.files import read_json
from tests.baseline.package.nnunet_results import compute_logits, edit_dataset, edit_training, package

PRESETS = ["plain", "segresnet"]
CHANNELS, LABELS = ("--channels", "CT=1,PET=0"), ("--labels", "GTVp=2,GTVn=1")


@pytest.fixture
def swapped_results(
    request: pytest.FixtureRequest, training_results: dict[str, Path], tmp_path: Path
) -> tuple[Path, Path]:
    """Return the results of a preset, and a copy as if trained with PET before CT and GTVn before GTVp."""
    source = training_results[request.param]
    target = Path(shutil.copytree(source, tmp_path / "Dataset002_Swapped" / source.name))
    edit_dataset(channel_names={"0": "PET", "1": "CT"}, labels={"background": 0, "GTVn": 1, "GTVp": 2})(target)
    return source, target


@pytest.mark.slow
@pytest.mark.parametrize("swapped_results", PRESETS, indirect=True)
def test_the_package_of_a_swapped_training_gives_its_answers(
    swapped_results: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With PET before CT the package returns the network's logits with the last two labels exchanged.

    The package of the same network without a mapping is the reference; test_assemble compares it with nnU-Net's own
    predictor.
    """
    monkeypatch.setattr(tiles, "cpu_has_bfloat16", lambda: False)
    source, target = swapped_results
    assert package(source, tmp_path / "source") == 0
    assert package(target, tmp_path / "target", *CHANNELS, *LABELS) == 0
    in_order, model = load_package(tmp_path / "source"), load_package(tmp_path / "target")
    assert (in_order.channel_sources, model.channel_sources) == ((0, 1), (1, 0))
    data = np.random.default_rng(1).normal(0, 1, (2, 30, 13, 44)).astype(np.float32)
    expected = compute_logits(in_order, data)[[0, 2, 1]]
    assert np.abs(expected[1] - expected[2]).max() > 0.1
    np.testing.assert_array_equal(compute_logits(model, data), expected)


@pytest.mark.parametrize("swapped_results", ["plain"], indirect=True)
def test_a_swapped_training_gives_no_starting_weights(swapped_results: tuple[Path, Path], tmp_path: Path) -> None:
    """Its first layer would see the PET as CT."""
    assert package(swapped_results[1], tmp_path / "target") == 0
    message = "--starting-weights: target: a network that sees PET, CT, expected channels in the order CT, PET"
    with pytest.raises(HecktorError, match=f"^{message}"):
        load_starting_weights(
            nn.Conv3d(2, 3, 1), NetworkPlan(starting_weights=str(tmp_path / "target")), 0, "seg_layers"
        )


@pytest.mark.parametrize("options", [CHANNELS, LABELS], ids=["channels", "labels"])
def test_normalisation_follows_the_channels(options: tuple[str, ...], results: Path, tmp_path: Path) -> None:
    """Channel 0 of the training is CTNormalization with mean 3, channel 1 ZScoreNormalization with mean 0."""
    edit_training("plans.json", lambda plans: plans[INTENSITIES]["0"].update(mean=3.0))(results)
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


def make_dataset(first: str = "CT", second: str = "PET", **lesions: int) -> dict[str, Any]:
    return {"channel_names": {"0": first, "1": second}, "labels": {"background": 0, **(lesions or {"x": 1, "y": 2})}}


SWAPPED = Numbering({"CT": 1, "PET": 0}, (2, 1))


def test_unknown_names_need_the_option() -> None:
    assert read_numbering(make_dataset("zscore", "zscore"), {"CT": 1, "PET": 0}, (2, 1)) == SWAPPED
    numbering = read_numbering(make_dataset("noNorm", "PT", GTVP=1, gtvn=2), {"CT": 0, "PET": 1}, None)
    assert numbering == Numbering({"CT": 0, "PET": 1}, (1, 2))
    assert (numbering.to_configuration(), numbering.to_manifest()) == ({}, {})


def test_known_names_need_no_option() -> None:
    """Names say where each channel and label is, in any case: PET 0 and CT 1, GTVn 1 and GTVp 2."""
    assert read_numbering(make_dataset("pet", "CT", gtvn=1, GTVp=2), None, None) == SWAPPED


def test_a_training_may_lack_a_channel() -> None:
    """Networks that see only the PET have its number in the training; it is the second of the two channels."""
    numbering = read_numbering({**make_dataset(GTVp=1, GTVn=2), "channel_names": {"0": "PET"}}, None, None)
    assert (numbering.channels, numbering.to_manifest()) == ({"PET": 0}, {"channels": {"PET": 0}})
    assert numbering.to_configuration() == {"channels": [1]}


NAMED = make_dataset("SUVbw", "CT", GTVn=1, tumour=2)
IN_ORDER = {"CT": 0, "PET": 1}


@pytest.mark.parametrize(
    ("dataset", "channels", "lesions", "message"),
    [
        (NAMED, IN_ORDER, (1, 2), "--channels: found CT=0,PET=1, expected CT=1, as in dataset.json"),
        (NAMED, {"CT": 1, "PET": 0}, (1, 2), "--labels: found GTVp=1,GTVn=2, expected GTVn=1, as in dataset.json"),
        (make_dataset(), {"CT": 0, "PET": 2}, None, "--channels: found CT=0,PET=2, expected one of CT, PET for each"),
        (
            make_dataset(),
            {"CT": 0},
            None,
            "--channels: found CT=0, expected one of CT, PET for each of 0 'CT', 1 'PET'",
        ),
        (make_dataset(), {"PET": 0, "GTVp": 1}, None, "--channels: found PET=0,GTVp=1, expected one of CT, PET for"),
    ],
)
def test_options_that_contradict_the_data_set(
    dataset: dict[str, Any], channels: dict[str, int], lesions: tuple[int, ...] | None, message: str
) -> None:
    """One known name is enough, although the other channel and label have unknown names."""
    with pytest.raises(ModelPackageError, match=f"^{message}"):
        read_numbering(dataset, channels, lesions)


@pytest.mark.parametrize(
    "names",
    [
        {"CT": "CT", "PET": "CT"},
        {"1": "CT", "2": "PET"},
        {"0001": "PET", "0000": "CT"},
        {"10": "PET", "9": "CT"},
    ],
    ids=str,
)
@pytest.mark.parametrize("key", ["channel_names", "modality"])
def test_channel_n_is_file_n_for_all_keys(names: dict[str, str], key: str) -> None:
    """nnU-Net counts the entries and ignores their keys; numbers as keys give the numbering."""
    dataset = {key: names, "labels": {"background": 0, "GTVp": 1, "GTVn": 2}}
    assert read_numbering(dataset, IN_ORDER, None).channels == IN_ORDER
    if set(names.values()) == {"CT", "PET"}:
        assert read_numbering(dataset, None, None).channels == IN_ORDER


def test_numbers_by_name() -> None:
    assert parse_lesion_numbers("GTVn=3, GTVp=7") == (7, 3)
    assert parse_named_numbers("CT=1,PET=0") == {"CT": 1, "PET": 0}
    for text in ("GTVp=0,GTVn=1", "GTVp=2,GTVn=2", "GTVp=2", "GTVp=x,GTVn=1"):
        with pytest.raises(argparse.ArgumentTypeError, match=rf"^found '{text}', expected GTVp=1,GTVn=2 or other"):
            parse_lesion_numbers(text)
    for text in ("CT", "CT=-1,PET=0", "CT=0,PET=0", "CT=0,CT=1"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"^found '{text}', expected different numbers by name"):
            parse_named_numbers(text)
