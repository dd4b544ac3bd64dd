"""A package with postprocessing rules, run as the container runs it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.images.volumes import read_volume
from contract.io.files import read_json


@pytest.fixture
def package_with_rules(
    tiny_package: Path, tmp_path: Path, sign_package: Callable[..., None]
) -> Callable[[dict[str, Any]], Path]:
    """Write the tiny package with the rules."""

    def make(rules: dict[str, Any]) -> Path:
        target = tmp_path / "with_rules"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(tiny_package, target)
        sign_package(target, postprocessing=rules)
        return target

    return make


def read_mask(answer: Any, output: Path) -> bytes:
    (name,) = [name for name in answer.files if name.endswith(".mha")]
    return (output / name).read_bytes()


def test_rules_that_change_nothing_give_the_same_bytes(
    predict: Any, case_folder: Any, tmp_path: Path, package_with_rules: Callable[[dict[str, Any]], Path]
) -> None:
    case_folder.write()
    plain = read_mask(predict("segmentation"), tmp_path / "output")
    ruled = predict("segmentation", model=package_with_rules({}))
    assert read_mask(ruled, tmp_path / "output") == plain
    assert any("postprocessing: 0 of " in line for line in ruled.lines)


@pytest.mark.parametrize("task", ["segmentation", "rfs"])
def test_a_case_whose_lesions_are_all_removed_is_answered(
    predict: Any, case_folder: Any, tmp_path: Path, package_with_rules: Callable[[dict[str, Any]], Path], task: str
) -> None:
    """Without lesions the heads take the training's medians, and log and record name the removed lesions."""
    case_folder.write()
    rules = {"gtvp_volume_ml": 1e5, "gtvn_volume_ml": 1e5}
    record = tmp_path / "record.json"
    answer = predict(task, "--record", str(record), model=package_with_rules(rules))
    assert answer.status == 0
    assert any("no lesion is left" in line for line in answer.lines)
    assert {lesions["count"] for lesions in read_json(record)["lesions"].values()} == {0}
    if task == "segmentation":
        (name,) = [name for name in answer.files if name.endswith(".mha")]
        assert not np.any(read_volume(tmp_path / "output" / name).array)
