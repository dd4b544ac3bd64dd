"""Tests of `hecktor train heads --code DIR` with features that are fitted to outcomes: over the folds, resumed, and
packed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import DEFAULT, MagicMock

import pytest

from baseline import own_features
from baseline.cli import main
from baseline.network.out_of_fold import measure_masks
from baseline.own_features import make_fits_stamp
from baseline.release.cases import read_cases
from baseline.release.splits import derive_seed, read_splits
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.io.files import read_json
from tests.baseline.prepared import run_heads


@pytest.fixture(autouse=True)
def remove_module() -> Iterator[None]:
    """Remove the test's module after the test."""
    yield
    sys.modules.pop("my_code", None)


def write_code(folder: Path, before: str = "", after: str = "") -> Path:
    """Write the code, with a change."""
    assert before in FITTED
    sys.modules.pop("my_code", None)
    path = folder / "my_code"
    path.mkdir(exist_ok=True)
    (path / "__init__.py").write_text(FITTED.replace(before, after) if before else FITTED)
    return path


FITTED = """
import json

import numpy as np


class Features:
    names = {"mean_ct": "1"}
    cube = (6, 8.0)
    margin = 1

    @classmethod
    def fit(cls, folder, device, cubes, clinical, outcomes, seed):
        assert cubes.shape == (len(outcomes), 4, 8, 8, 8) and np.asarray(cubes).shape == cubes.shape
        assert list(clinical.index) == list(outcomes.index) and device == "cpu"
        events = {"rfs_days", "rfs_event", "hpv"}
        assert set(outcomes) == events
        (folder / "fit.json").write_text(json.dumps({"patients": sorted(outcomes.index), "seed": seed}))

    def __init__(self, folder, device):
        self.shift = json.loads((folder / "fit.json").read_text())["seed"] % 97

    def measure(self, cube, clinical):
        assert cube.shape == (4, 6, 6, 6) and cube.dtype == np.float32 and "age_years" in clinical
        return {"mean_ct": float(cube[0].mean()) + 10 * self.shift}
"""


@pytest.mark.slow
def test_features_that_are_fitted_to_outcomes(work_with_heads: tuple[WorkFolders, Path], tmp_path: Path) -> None:
    """Fits of each fold leave out the fold's patients, who are measured with this fit; it adds 10 times the fold's seed
    modulo 97 to a mean of -1 to 1. Each fold is fitted once. The files of a third fold, of earlier splits, are removed.
    `tests/examples/test_deep_outcome.py` packs such features, `tests/algorithm/combined` measures them in a case.
    """
    work, masks = work_with_heads
    folder = write_code(tmp_path)
    root, splits = work.root / "features" / "my_code", read_splits(work)
    (root / "fold_2").mkdir(parents=True)  # of earlier splits with more folds
    run_heads(work, masks, "--code", str(folder), "--device", "cpu")
    assert not (root / "fold_2").exists()
    features = read_json(root / "features.json")["features"]
    for number, held in enumerate(splits.folds):
        fitted = read_json(root / f"fold_{number}" / "fit.json")
        assert set(fitted["patients"]) == {case.patient_id for case in read_cases(work)} - set(held)
        shift = 10 * (derive_seed(splits.seed, number, "my_code") % 97)
        assert all(abs(features[name]["my_code:mean_ct"] - shift) <= 1 for name in held)
    record = read_json(work.cross_validation_json)["rfs"]
    assert record["left_out_features"] == ["my_code:mean_ct"]
    assert "Cox, few features, custom features" not in record["nested"]["folds"][0]["tried"]
    paths = [root / "fold_0" / "fit.json", work.heads_json]
    stamps = [path.stat().st_mtime_ns for path in paths]
    run_heads(work, masks, "--code", str(folder), "--device", "cpu")
    assert [path.stat().st_mtime_ns for path in paths] == stamps
    run_heads(work, masks)
    assert "my_code" not in work.heads_json.read_text()
    assert paths[0].stat().st_mtime_ns == stamps[0]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("    cube = (6, 8.0)\n", "", "features my_code:Features: fit without cube, expected cube, such as"),
        (
            "(6, 8.0)",
            "(6.5, 8.0)",
            r"features my_code:Features: cube \(6.5, 8.0\), expected voxels per side, at most 256",
        ),
        (
            'names = {"mean_ct": "1"}\n    cube = (6, 8.0)\n    margin = 1\n\n    @classmethod\n    def fit(cls, folder,',
            "cube = (6, 8.0)\n\n    @classmethod\n    def fit(cls,",
            "features my_code:Features: found names None, expected names of features with units",
        ),
        ("assert set", "1 / 0; assert set", "features my_code:Features: fit: ZeroDivisionError"),
        ('(folder / "fit.json").write_text', "str", "features my_code:Features: fit: found no file, expected files"),
        ("float(cube", "float('nan') * float(cube", "features my_code:Features: mean_ct is nan"),
    ],
)
def test_each_fault_of_a_fit_is_one_line(
    work_and_masks: tuple[WorkFolders, Path], tmp_path: Path, before: str, after: str, message: str
) -> None:
    work, masks = work_and_masks
    folder = write_code(tmp_path, before, after)
    with pytest.raises(HecktorError, match="^" + message):
        run_heads(work, masks, "--code", str(folder), "--device", "cpu")
    assert not work.heads_json.is_file()


@pytest.mark.slow
def test_an_interrupted_fit_of_other_code_leaves_no_mixed_set(
    work_and_masks: tuple[WorkFolders, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two folds are done. Other code ends in its second fold, before its record, and then no fitted features are left.
    The first code again fits the folds that the other code has overwritten, with the same result.
    """
    work, masks = work_and_masks
    options = ("--code", str(write_code(tmp_path)), "--device", "cpu")
    run_heads(work, masks, *options)
    result = work.root / "features" / "my_code" / "features.json"
    before = result.read_bytes()
    write_code(tmp_path, "10 * self", "20 * self")
    with monkeypatch.context() as patch:
        stopped = MagicMock(wraps=own_features.store_cached, side_effect=[DEFAULT, KeyboardInterrupt])
        patch.setattr(own_features, "store_cached", stopped)
        with pytest.raises(HecktorError, match=r"^interrupted: "):
            run_heads(work, masks, *options)
    assert make_fits_stamp(work) == {}
    with pytest.raises(HecktorError, match=r"^heads\.json: fitted by another version.* fitted features changed"):
        main(["export", "--work", str(work.root), "--output", str(tmp_path / "package")])
    write_code(tmp_path)
    run_heads(work, masks, *options)
    assert result.read_bytes() == before


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ("CUDA out of memory. Tried to allocate 2 GiB.", "CUDA out of memory, expected .* memory, or smaller cubes"),
        ("CUDA error: unspecified launch failure", "CUDA error: .*, expected a working device; the same command"),
    ],
)
def test_a_full_or_lost_card_is_one_line(
    work_and_masks: tuple[WorkFolders, Path], tmp_path: Path, problem: str, message: str
) -> None:
    work, masks = work_and_masks
    measure_masks(work, masks)
    code = write_code(tmp_path, "assert set", f"raise RuntimeError({problem!r}); assert set")
    with pytest.raises(HecktorError, match=f"^features of my_code, fold 0: {message}"):
        run_heads(work, masks, "--code", str(code))
