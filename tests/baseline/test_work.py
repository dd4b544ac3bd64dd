"""Tests where the files of a training are stored in its working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from baseline.work import WorkFolders
from contract.errors import HecktorError


def test_the_layout_of_a_working_directory(tmp_path: Path) -> None:
    """Working directories of earlier versions keep their layout."""
    work = WorkFolders(tmp_path)
    assert work.plan_json == tmp_path / "plan.json"
    assert work.masks == tmp_path / "out_of_fold" / "masks"
    assert work.plans == tmp_path / "nnunet/preprocessed/Dataset101_HECKTOR/hecktorPlans.json"
    assert work.fold(1) == (
        tmp_path / "nnunet/results/Dataset101_HECKTOR/HecktorTrainer__hecktorPlans__3d_fullres/fold_1"
    )


def test_an_absent_file_names_the_step_that_writes_it(tmp_path: Path) -> None:
    work = WorkFolders(tmp_path)
    with pytest.raises(HecktorError, match="expected `hecktor train heads` first"):
        work.read(work.heads_json)
    with pytest.raises(HecktorError, match="expected `hecktor train prepare` first"):
        work.read(work.cases_json)
