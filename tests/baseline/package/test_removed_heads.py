"""Heads that only version 0.2 could compute, boosted trees and centre shifts, are refused in one line everywhere."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from algorithm import Predictor
from baseline.package.assemble import read_heads
from baseline.package.existing import use_networks
from contract.editions import load_edition
from contract.errors import ModelPackageError
from contract.files import write_json
from hecktor.cli import main
from tests.baseline.prepared import planned_work
from tests.conftest import head_json

LINEAR = head_json(("age_years", 0.1))
SHIFT = {"centres": {"CHUM": {"shift": 0.4, "scale": 1.1}}}
TREES: dict[str, Any] = {"kind": "boosted trees, survival:cox", "features": ["age_years"], "trees": {"learner": {}}}
REMOVED = {
    "trees": (TREES, "found boosted trees, expected linear heads (fit the heads again)"),
    "experts": (
        {"experts": [{"name": "trees", "mean": 0.0, "sd": 1.0, "head": TREES}], "threshold": None},
        "found boosted trees, expected linear heads (fit the heads again)",
    ),
    "shift": (
        {**LINEAR, "terms": [{**LINEAR["terms"][0], **SHIFT}]},
        "found a centre's shift (ComBat), expected a head without (fit the heads again)",
    ),
}


@pytest.fixture(params=REMOVED)
def removed(
    request: pytest.FixtureRequest, tiny_package: Path, sign_package: Callable[..., None], tmp_path: Path
) -> tuple[Path, str, dict[str, Any]]:
    """A package with such a head, the refusal, and the head."""
    head, refusal = REMOVED[request.param]
    package = Path(shutil.copytree(tiny_package, tmp_path / "package"))
    write_json(package / "heads" / "rfs.json", head)
    sign_package(package)
    return package, refusal, head


@pytest.mark.usefixtures("root_logger")
def test_a_package_with_a_removed_head_is_refused_at_each_entry(
    removed: tuple[Path, str, dict[str, Any]], case_folder: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package, refusal, head = removed
    line = f"heads/rfs.json: {refusal}"
    with pytest.raises(ModelPackageError) as fault:
        Predictor(package, device="cpu")
    assert str(fault.value) == line
    with pytest.raises(ModelPackageError) as fault:
        use_networks(planned_work(tmp_path / "work"), package)
    assert str(fault.value) == line
    case_folder.write()
    options = ["--task", "segmentation", "--input", str(case_folder.input), "--output", str(case_folder.output)]
    assert main(["predict", *options, "--model", str(package), "--device", "cpu", "--passes", "1"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith(line)
    (tmp_path / "heads.json").write_text(json.dumps({"rfs": {"head": head}}))
    with pytest.raises(ModelPackageError) as fault:
        read_heads(tmp_path / "heads.json", load_edition())
    assert str(fault.value) == f"heads.json: rfs: {refusal}"
