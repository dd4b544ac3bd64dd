"""Files that were edited after the training are refused by the name of the field."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.network.package import INTENSITIES
from baseline.package.nnunet_results import differences
from tests.baseline.package.nnunet_results import edit, edit_checkpoint, edit_plan, edit_training, package

Edit = Callable[[Path], None]


def edit_plans(**values: Any) -> Edit:
    return edit("plans.json", lambda plans: plans.update(values))


def edit_architecture(**values: Any) -> Edit:
    def change(plans: Any) -> None:
        plans["configurations"]["3d_fullres"]["architecture"]["arch_kwargs"].update(values)

    return edit("plans.json", change)


def edit_intensities(channel: str, **values: float) -> Edit:
    return edit("plans.json", lambda plans: plans[INTENSITIES][channel].update(values))


def edit_dataset_alone(key: str, **values: Any) -> Edit:
    return edit("dataset.json", lambda dataset: dataset[key].update(values))


# The edit, and the field with its value and the trained one.
EDITS: dict[str, tuple[Edit, str]] = {
    "spacing": (edit_plan(spacing=[3.0, 6.0, 4.5]), "plans.json: spacing [3.0, 6.0, 4.5], expected [18.0, 6.0, 4.5]"),
    "normalisation": (
        edit_plan(normalization_schemes=["CTNormalization"] * 2),
        (
            "plans.json: normalization_schemes ['CTNormalization', 'CTNormalization'], "
            "expected ['CTNormalization', 'ZScoreNormalization']"
        ),
    ),
    "function that resamples images": (
        edit_plan(resampling_fn_data="no_resampling_data_or_seg_to_shape"),
        "plans.json: resampling_fn_data 'no_resampling_data_or_seg_to_shape', expected 'resample_data_or_seg_to_shape'",
    ),
    "resampling of logits": (
        edit_plan(resampling_fn_probabilities="resample_torch_fornnunet"),
        "plans.json: resampling_fn_probabilities 'resample_torch_fornnunet', expected 'resample_data_or_seg_to_shape'",
    ),
    "activation": (
        edit_architecture(nonlin="torch.nn.ReLU"),
        "plans.json: architecture.arch_kwargs.nonlin 'torch.nn.ReLU', expected 'torch.nn.LeakyReLU'",
    ),
    "order of axes": (
        edit_plans(transpose_forward=[0, 1, 2], transpose_backward=[0, 1, 2]),
        "plans.json: transpose_forward [0, 1, 2], expected [1, 0, 2]",
    ),
    "intensities of the CT": (
        edit_intensities("0", std=300.0),
        f"plans.json: {INTENSITIES} of channel 0: std 300.0, expected 400.0",
    ),
    "channel names": (
        edit_dataset_alone("channel_names", **{"0": "PET", "1": "CT"}),
        "dataset.json: channel_names.0 'PET', expected 'CT'",
    ),
    "labels": (
        edit_dataset_alone("labels", GTVp=2, GTVn=1),
        "dataset.json: labels.GTVn 1, expected 2",
    ),
}


@pytest.mark.parametrize("field", sorted(EDITS))
def test_a_field_that_differs_from_the_training(
    field: str, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, message = EDITS[field]
    change(results)
    assert package(results, tmp_path / "out" / "model") == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"error: {message}")
    assert last.endswith(", with which fold_0/checkpoint_final.pth was trained")
    assert not list((tmp_path / "out").rglob("*"))


@pytest.mark.parametrize("edited", ["3d_fullres", "3d_wide", "3d_wider"])
def test_a_field_that_the_trained_configuration_inherits(
    edited: str, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """3d_wider inherits from 3d_wide, which inherits from 3d_fullres; the spacing is edited in one of the three."""
    chain = {"3d_wide": {"inherits_from": "3d_fullres"}, "3d_wider": {"inherits_from": "3d_wide"}}
    edit_training("plans.json", lambda plans: plans["configurations"].update(chain))(results)
    for fold in (0, 1):
        edit_checkpoint(lambda content: content["init_args"].update(configuration="3d_wider"), fold)(results)
    assert package(results, tmp_path / "model") == 0
    edit("plans.json", lambda plans: plans["configurations"][edited].update(spacing=[1.0, 6.0, 4.5]))(results)
    assert package(results, tmp_path / "out" / "model") == 1
    assert "plans.json: spacing [1.0, 6.0, 4.5], expected [18.0, 6.0, 4.5]" in capsys.readouterr().err


def test_fields_of_training_alone_are_not_compared(results: Path, tmp_path: Path) -> None:
    """A batch size, the resampling of reference masks and the number of cases change no answer."""
    edit_plan(batch_size=99, resampling_fn_seg="resample_torch_fornnunet", batch_dice=True)(results)
    edit("dataset.json", lambda dataset: dataset.update(numTraining=700, file_ending=".mha"))(results)
    assert package(results, tmp_path / "model") == 0


@pytest.mark.parametrize(("key", "file"), [("plans", "plans.json"), ("dataset_json", "dataset.json")])
def test_a_training_without_a_record_is_noted(
    key: str, file: str, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for fold in (0, 1):
        edit_checkpoint(lambda content: content["init_args"].pop(key), fold)(results)
    assert package(results, tmp_path / "model") == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if "is not verified" in line]
    assert len(notes) == 1
    assert re.search(rf"^note: {file} of Dataset001_Tiny.*: fold_0/checkpoint_final\.pth does not record", notes[0])


def test_a_coarse_training_is_noted(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit_training("plans.json", lambda p: p["configurations"].update({"3d_lowres": {"inherits_from": "3d_fullres"}}))(
        results
    )
    for fold in (0, 1):
        edit_checkpoint(lambda content: content["init_args"].update(configuration="3d_lowres"), fold)(results)
    assert package(results, tmp_path / "model") == 0
    assert "note: 3d_lowres is the coarse first stage of nnU-Net's cascade, here at 18 x 6 x 4.5 mm" in (
        capsys.readouterr().out
    )


# Differences

LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3)
KEYS = st.text("abc", min_size=1, max_size=2)
PLANS = st.recursive(LEAVES | st.lists(LEAVES, max_size=3), lambda inner: st.dictionaries(KEYS, inner, max_size=3))


def with_tuples_and_numpy(value: Any) -> Any:
    """The same value as a checkpoint may hold it."""
    if isinstance(value, dict):
        return {key: with_tuples_and_numpy(one) for key, one in value.items()}
    if isinstance(value, list):
        return tuple(with_tuples_and_numpy(one) for one in value)
    return np.float64(value) if isinstance(value, float) else value


@given(PLANS)
def test_a_value_does_not_differ_from_itself(value: Any) -> None:
    """NaN included, and whatever types JSON does not keep."""
    assert list(differences(value, with_tuples_and_numpy(value), "plans")) == []
