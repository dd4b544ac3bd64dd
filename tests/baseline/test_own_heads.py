"""Tests of `hecktor train heads --code DIR` from masks to a package with the example's forest and to answers in a case."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from algorithm import Predictor
from algorithm.heads.documents import EnsembleHead
from algorithm.heads.head_hook import list_custom_heads
from algorithm.network.package import load_package
from baseline import fit_table, make_report
from baseline.fit import heads_are_current
from baseline.package.assemble import PackageRequest, package_training
from baseline.work import WorkFolders
from contract.code import Code
from contract.errors import ModelPackageError
from contract.io.files import read_json
from contract.packages import read_manifest
from tests.baseline.heads.custom_code import write_custom_head
from tests.baseline.prepared import run_heads, write_blocks
from tests.conftest import CaseFolder
from tests.examples.readme import EXAMPLES

FOREST = "survival_forest"


@pytest.fixture(autouse=True)
def remove_modules() -> Iterator[None]:
    """Remove modules that a test imports, here or in another file, before and after it."""
    for name in ("my_code", FOREST):
        sys.modules.pop(name, None)
    yield
    for name in ("my_code", FOREST):
        sys.modules.pop(name, None)


@pytest.fixture
def forest(tmp_path: Path) -> Path:
    """Copy the example with three trees, which are enough here."""
    folder = Path(shutil.copytree(EXAMPLES / FOREST, tmp_path / FOREST))
    text = (folder / "__init__.py").read_text()
    assert "            100, min" in text
    (folder / "__init__.py").write_text(text.replace("            100, min", "            3, min"))
    return folder


def remove_weight(expert: dict[str, Any]) -> dict[str, Any]:
    """Return an expert without its weight, which depends on the skill of the other experts."""
    return {key: value for key, value in expert.items() if key != "weight"}


@pytest.mark.slow
def test_from_masks_to_a_package_that_answers(
    work_with_heads: tuple[WorkFolders, Path],
    forest: Path,
    results: Path,
    tmp_path: Path,
    case_folder: CaseFolder,
) -> None:
    """Forests compete only for rfs, are compared separately, and are among the experts that answer. Without `--code`
    the other head of rfs has the same experts except the forest.
    """
    work, masks = work_with_heads
    before = read_json(work.heads_json)
    run_heads(work, masks, "--code", str(forest))
    document, fitted = read_json(work.cross_validation_json), read_json(work.heads_json)
    reference = f"{FOREST}:Head"
    assert reference in document["rfs"]["nested"]["comparators"]
    assert reference not in document["hpv"]["nested"]["comparators"]
    assert fitted["hpv"] == before["hpv"]
    assert [remove_weight(expert) for expert in fitted["rfs"]["experts"][:-1]] == [
        remove_weight(expert) for expert in before["rfs"]["experts"]
    ]
    assert sum(expert["weight"] for expert in fitted["rfs"]["experts"]) == pytest.approx(1)
    assert document["custom"] == {reference: Code.from_folders([forest]).digest(FOREST)}
    modified = work.heads_json.stat().st_mtime_ns
    run_heads(work, masks, "--code", str(forest))
    assert (work.heads_json.stat().st_mtime_ns, heads_are_current(work)) == (modified, True)
    assert make_report(work, 1).is_file()
    assert reference in (work.report / "index.html").read_text()

    package = tmp_path / "package"
    request = PackageRequest((results,), work.heads_json, package, code=(forest,))
    with pytest.raises(ModelPackageError, match=rf"^head {reference}: no code {FOREST}, expected --code {FOREST}"):
        package_training(PackageRequest((results,), work.heads_json, package))
    package_training(request)
    assert read_manifest(package).code == {FOREST: Code.from_folders([forest]).digest(FOREST)}
    assert "heads/rfs/survival_forest.Head/forest.npz" in read_manifest(package).files
    head = load_package(package).head("rfs")
    assert isinstance(head, EnsembleHead)
    assert [custom_head.hook for custom_head in list_custom_heads(head)] == [reference]
    prediction = Predictor(package, task="2", device="cpu", code=[forest]).predict(case_folder.write().input)
    assert prediction.record.notices == () or "survival_forest" not in str(prediction.record.notices)
    assert isinstance(prediction.risks["rfs"], float)

    shutil.rmtree(work.custom_heads)
    with pytest.raises(ModelPackageError, match=r"no files heads/rfs/survival_forest\.Head"):
        package_training(request)
    run_heads(work, masks)
    assert read_json(work.heads_json) == before


HEAD_WITH_IMAGES = """
from pathlib import Path

import numpy as np


class Head:
    kinds = ("risk",)
    cube = (6, 8.0)

    def __init__(self, target):
        pass

    def fit(self, features, outcomes, rng, cubes):
        assert cubes.shape == (len(features), 4, 6, 6, 6) and cubes.dtype == np.float32
        assert np.isfinite(cubes).all()

    def predict(self, features, cubes):
        assert cubes.shape == (len(features), 4, 6, 6, 6)
        with Path(__file__).with_suffix(".pyc").open("a") as calls:
            calls.write(f"{len(cubes)}\\n")
        return np.nan_to_num(cubes[:, 2].mean((1, 2, 3)))

    def save(self, folder):
        (folder / "empty").touch()

    @classmethod
    def load(cls, folder):
        return cls(None)
"""


@pytest.mark.slow
def test_a_head_that_sees_the_images(
    work_and_masks: tuple[WorkFolders, Path], results: Path, tmp_path: Path, case_folder: CaseFolder
) -> None:
    """Scores are the share of GTVp in a cube of 48 mm, which differs between blocks of 1 to 4 voxels. In the case the
    head gets the cube of this patient only. A table has no images.
    """
    work, masks = work_and_masks
    write_blocks(work, masks, (1, 2, 3, 4))
    code = write_custom_head(tmp_path)
    (code / "__init__.py").write_text(HEAD_WITH_IMAGES)
    run_heads(work, masks, "--code", str(code))
    nested = read_json(work.cross_validation_json)["rfs"]["nested"]
    assert len(set(nested["comparators"]["my_code:Head"]["score"])) > 1
    assert not list(work.root.glob(".cubes-*"))
    package = tmp_path / "package"
    package_training(PackageRequest((results,), work.heads_json, package, code=(code,)))
    record = Predictor(package, task="2", device="cpu", code=[code]).predict(case_folder.write().input).record
    assert "my_code" not in str(record.notices)
    assert (code / "__init__.pyc").read_text().splitlines()[-1] == "1"
    table = pd.DataFrame({"days": range(1, 41), "event": 1, "x": range(40)})
    with pytest.raises(ModelPackageError, match=r"^head my_code:Head: needs images, but there are no images"):
        fit_table(table, time="days", event="event", code=[code])
