"""A package with postprocessing rules, run as the container runs it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from contract.images.volumes import read_volume
from contract.io.files import read_json
from tests.algorithm.conftest import Predict
from tests.conftest import write_manifest


def test_rules_that_change_nothing_and_rules_that_remove_all_lesions(
    predict: Predict, case_folder: Any, tiny_package: Path, tmp_path: Path
) -> None:
    """Rules without a limit give the same bytes. Without lesions the heads take the training's medians, and log and
    record name the removed lesions.
    """
    case_folder.write()
    model, record = shutil.copytree(tiny_package, tmp_path / "model"), tmp_path / "record.json"
    (name,) = predict("segmentation").files
    plain = (tmp_path / "output" / name).read_bytes()
    write_manifest(model, postprocessing={})
    assert any("postprocessing: 0 of " in line for line in predict("segmentation", model=model).lines)
    assert (tmp_path / "output" / name).read_bytes() == plain
    write_manifest(model, postprocessing={"gtvp_volume_ml": 1e5, "gtvn_volume_ml": 1e5})
    for task in ("segmentation", "rfs"):
        answer = predict(task, "--record", str(record), model=model)
        assert answer.status == 0
        assert any("no lesion is left" in line for line in answer.lines)
        assert {lesions["count"] for lesions in read_json(record)["lesions"].values()} == {0}
    assert not np.any(read_volume(tmp_path / "output" / name).array)
