"""Tests of `hecktor train heads --code DIR` with features that are fitted to outcomes: over the folds, resumed, and
packed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import DEFAULT, MagicMock

import numpy as np
import pytest

from algorithm import Predictor
from algorithm.heads.feature_hook import FeatureImages
from algorithm.network.package import load_package
from baseline import own_features
from baseline.cli import main
from baseline.network.out_of_fold import measure_masks
from baseline.own_features import make_fits_stamp
from baseline.package.assemble import PackageRequest, package_training
from baseline.release.cases import read_cases
from baseline.release.splits import derive_seed, read_splits
from baseline.work import WorkFolders
from contract.code import Code
from contract.errors import HecktorError
from contract.images.volumes import write_mask
from contract.io.files import read_json
from contract.packages import read_manifest
from tests.baseline.test_given_masks import make_block
from tests.baseline.test_own_features import run_heads
from tests.conftest import CaseFolder


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
def test_features_that_are_fitted_to_outcomes(
    work_and_masks: tuple[WorkFolders, Path], results: Path, tmp_path: Path, case_folder: CaseFolder
) -> None:
    """Fits of each fold leave out the fold's patients, who are measured with this fit; it adds 10 times the fold's seed
    modulo 97 to a mean of -1 to 1. In a case the feature is the mean over both folds. Each fold is fitted once. The
    files of a third fold, of earlier splits, are removed.
    """
    work, masks = work_and_masks
    for number, case in enumerate(read_cases(work)):
        write_mask(next(masks.glob(f"{case.patient_id}.*")), *make_block(case, 5 + number % 4))
    folder = write_code(tmp_path)
    root, splits = work.root / "features" / "my_code", read_splits(work)
    (root / "fold_2").mkdir(parents=True)  # of earlier splits with more folds
    run_heads(work, masks, "--code", str(folder), "--device", "cpu")
    assert not (root / "fold_2").exists()
    features = read_json(root / "features.json")["features"]
    shifts = [10 * (derive_seed(splits.seed, number, "my_code") % 97) for number in (0, 1)]
    for number, held in enumerate(splits.folds):
        fitted = read_json(root / f"fold_{number}" / "fit.json")
        assert set(fitted["patients"]) == {case.patient_id for case in read_cases(work)} - set(held)
        for name in held:
            assert abs(features[name]["my_code:mean_ct"] - shifts[number]) <= 1
    record = read_json(work.cross_validation_json)["rfs"]
    assert record["left_out_features"] == ["my_code:mean_ct"]
    assert "Cox, few features, custom features" not in record["nested"]["folds"][0]["tried"]
    stamp = (root / "fold_0" / "fit.json").stat().st_mtime_ns, work.heads_json.stat().st_mtime_ns
    run_heads(work, masks, "--code", str(folder), "--device", "cpu")
    assert stamp == ((root / "fold_0" / "fit.json").stat().st_mtime_ns, work.heads_json.stat().st_mtime_ns)

    package = tmp_path / "package"
    package_training(PackageRequest((results,), work.heads_json, package, code=(folder,)))
    assert {f"features/my_code/fold_{n}/fit.json" for n in (0, 1)} <= set(read_manifest(package).files)
    (hook,) = load_package(package, Code.from_folders([folder])).features
    case = make_images(case_folder)
    assert hook.measure_features(case)["my_code:mean_ct"] == pytest.approx(sum(shifts) / 2, abs=1)
    record = Predictor(package, task="2", device="cpu", code=[folder]).predict(case_folder.write().input).record
    assert "features of my_code" in record.seconds
    assert "my_code" not in str(record.notices)

    run_heads(work, masks)
    assert "my_code" not in work.heads_json.read_text()
    assert (root / "fold_0" / "fit.json").stat().st_mtime_ns == stamp[0]


def make_images(case: CaseFolder) -> FeatureImages:
    """Return the case's CT, a PET of SUV 1, and a tumour of 4 voxels a side."""
    mask = np.zeros(case.ct.geometry.array_shape, np.uint8)
    mask[8:12, 10:14, 10:14] = 1
    ct = case.ct.array.astype(np.float32)
    return FeatureImages(mask, ct, np.ones_like(ct), case.ct.geometry, None, {"age_years": 61.0})


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
        ("cls, folder", "cls", "features my_code:Features: fit: TypeError"),
        ('(folder / "fit.json").write_text', "str", "features my_code:Features: fit: found no file, expected files"),
        ("(6, 8.0)", "(6, None)", r"features my_code:Features: cube \(6, None\), expected voxels per side"),
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
