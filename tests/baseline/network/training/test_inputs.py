"""Files that a plan names belong to its identity."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from baseline.network.plans import NetworkPlan
from baseline.network.training.inputs import digest_of_inputs, with_organ_labels
from contract.errors import InputError


def test_other_files_are_another_plan(tmp_path: Path) -> None:
    """Another content of the same size, and one more patient; the same files give the same digest."""
    plan, mask = NetworkPlan(organs=str(tmp_path / "organs")), tmp_path / "organs" / "A-1" / "brain.nii.gz"
    mask.parent.mkdir(parents=True)
    digests = []
    for content in ("a", "b"):
        mask.write_text(content)
        digests += [digest_of_inputs(plan), digest_of_inputs(plan)]
    (tmp_path / "organs" / "A-2.nii.gz").touch()
    digests.append(digest_of_inputs(plan))
    assert digests[0] == digests[1]
    assert digests[2] == digests[3]
    assert len({*digests, None}) == 4
    assert digest_of_inputs(NetworkPlan()) is None


def test_the_same_files_elsewhere_are_the_same_plan(tmp_path: Path) -> None:
    """Copied under another name with new modification times; the same file in another role is another plan."""
    weights, organs = tmp_path / "weights.pth", tmp_path / "organs"
    weights.write_text("weights")
    (organs / "A-1").mkdir(parents=True)
    (organs / "A-1" / "brain.nii.gz").write_text("mask")
    copied = shutil.copy(weights, tmp_path / "copy.pth"), shutil.copytree(organs, tmp_path / "elsewhere")
    os.utime(copied[0], (1, 1))
    first, second = (
        NetworkPlan(starting_weights=str(one), organs=str(two)) for one, two in ((weights, organs), copied)
    )
    assert digest_of_inputs(first) == digest_of_inputs(second)
    first, second = (replace(plan, inputs=digest_of_inputs(plan)) for plan in (first, second))
    assert first.identity() == second.identity()
    assert digest_of_inputs(NetworkPlan(starting_weights=str(weights))) != digest_of_inputs(
        NetworkPlan(organs=str(weights))
    )


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"weights\.pth: not found"):
        digest_of_inputs(NetworkPlan(starting_weights=str(tmp_path / "weights.pth")))


def test_organs_follow_the_labels() -> None:
    tumours = {"background": 0, "GTVp": 1, "GTVn": 2}
    dataset = {"labels": tumours, "numTraining": 9}
    plans = {"configurations": {"3d_fullres": {"architecture": {"organs": ["brain", "spine"]}}}}
    assert with_organ_labels(dataset, plans)["labels"] == {**tumours, "brain": 3, "spine": 4}
    assert with_organ_labels(dataset, {"configurations": {"3d_fullres": {"architecture": {}}}}) == dataset
