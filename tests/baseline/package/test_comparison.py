"""Tests that a package uses the plans and the data set that the checkpoints record."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from algorithm.network.package import INTENSITIES
from tests.baseline.package.nnunet_results import edit, edit_checkpoint, edit_training, package


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("plans.json", lambda plans: plans["configurations"]["3d_fullres"].update(spacing=[3.0, 6.0, 4.5])),
        ("plans.json", lambda plans: plans.update(transpose_forward=[0, 1, 2], transpose_backward=[0, 1, 2])),
        ("plans.json", lambda plans: plans[INTENSITIES]["0"].update(std=300.0)),
        ("dataset.json", lambda dataset: dataset["labels"].update(GTVp=2, GTVn=1)),
    ],
    ids=["spacing", "order of axes", "intensities", "labels"],
)
def test_files_that_were_edited_after_the_training_change_nothing(
    name: str, change: Callable[[Any], Any], results: Path, tmp_path: Path
) -> None:
    assert package(results, tmp_path / "model") == 0
    edit(name, change)(results)
    assert package(results, tmp_path / "other") == 0
    for file in ("plans.json", "manifest.json", "fold_0.safetensors"):
        assert (tmp_path / "other" / file).read_bytes() == (tmp_path / "model" / file).read_bytes()


def test_values_that_a_configuration_inherits(results: Path, tmp_path: Path) -> None:
    """3d_wider inherits from 3d_wide, which inherits from 3d_fullres."""
    chain = {"3d_wide": {"inherits_from": "3d_fullres"}, "3d_wider": {"inherits_from": "3d_wide"}}
    edit_training("plans.json", lambda plans: plans["configurations"].update(chain))(results)
    for fold in (0, 1):
        edit_checkpoint(lambda content: content["init_args"].update(configuration="3d_wider"), fold)(results)
    assert package(results, tmp_path / "model") == 0


def test_fields_used_only_in_training_are_not_compared(results: Path, tmp_path: Path) -> None:
    """Folds may differ in the number of cases and the batch size, which do not change the output."""
    edit_checkpoint(lambda content: content["init_args"]["dataset_json"].update(numTraining=700))(results)
    own = {"batch_size": 99, "resampling_fn_seg": "resample_torch_fornnunet", "batch_dice": True}
    edit_checkpoint(lambda c: c["init_args"]["plans"]["configurations"]["3d_fullres"].update(own), 1)(results)
    assert package(results, tmp_path / "model") == 0


@pytest.mark.parametrize(("key", "file"), [("plans", "plans.json"), ("dataset_json", "dataset.json")])
def test_a_training_without_a_record_is_noted(
    key: str, file: str, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for fold in (0, 1):
        edit_checkpoint(lambda content: content["init_args"].pop(key), fold)(results)
    assert package(results, tmp_path / "model") == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if "is taken as it is" in line]
    assert len(notes) == 1
    assert re.search(rf"^note: {file} of Dataset001_Tiny.*: fold_0/checkpoint_final\.pth does not record", notes[0])
