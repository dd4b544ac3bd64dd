"""`hecktor train heads --code DIR` with features of one's own: from masks to a package that measures them in a case."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm import Predictor
from algorithm.heads.feature_hook import FeatureImages, folders_of
from algorithm.network.package import load_package
from baseline.cli import main
from baseline.heads.models.targets import targets_of, with_own_features
from baseline.package.assemble import PackageRequest, package_training
from baseline.release.cases import read_cases
from baseline.release.splits import read_splits, seed_of
from baseline.report.report import heads_are_current
from baseline.work import WorkFolders
from contract.code import Code
from contract.editions import load_edition
from contract.errors import HecktorError, ModelPackageError
from contract.files import read_json
from contract.images.volumes import write_mask
from contract.packages import read_manifest
from tests.baseline.test_given_masks import block
from tests.conftest import CaseFolder

NAME = "my_code:density"
CODE = """
from pathlib import Path

class Features:
    names = {"density": "HU"}

    def measure(self, mask, ct, pet, dose, spacing_mm, clinical):
        with Path(__file__).with_suffix(".pyc").open("a") as calls:
            calls.write("*")
        return {"density": float(ct[mask == 1].std() / 1)}
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """The module of a test is forgotten after it."""
    yield
    sys.modules.pop("my_code", None)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return written(tmp_path)


def written(folder: Path, before: str = "", after: str = "") -> Path:
    """The code, with a change; calls are counted in a file that is no part of the code."""
    sys.modules.pop("my_code", None)
    path = folder / "my_code"
    path.mkdir(exist_ok=True)
    assert before in CODE
    (path / "__init__.py").write_text(CODE.replace(before, after) if before else CODE)
    return path


def calls(code: Path) -> int:
    """Patients that were measured so far."""
    path = code / "__init__.pyc"
    return len(path.read_text()) if path.is_file() else 0


def heads(work: WorkFolders, masks: Path, *options: str) -> None:
    assert main(["heads", "--work", str(work.root), "--masks", str(masks), "--jobs", "1", *options]) == 0


@pytest.mark.slow
def test_from_masks_to_a_package_that_answers(
    prepared: tuple[WorkFolders, Path], code: Path, results: Path, tmp_path: Path, case_folder: CaseFolder
) -> None:
    """The feature is measured as our own standard deviation of GTVp's density. Patients are measured once; without `--code` the heads are as
    before. Blocks of 5 to 8 voxels a side have other densities.
    """
    work, masks = prepared
    for number, case in enumerate(read_cases(work)):
        write_mask(next(masks.glob(f"{case.patient_id}.*")), *block(case, 5 + number % 4))
    heads(work, masks)
    before = read_json(work.heads_json)
    heads(work, masks, "--code", str(code))
    patients = read_cases(work)
    rows, ours = read_json(work.own_features_json)["rows"], read_json(work.features_json)["result"]
    for case in patients:
        value = rows[case.patient_id]["features"][NAME]
        assert value == pytest.approx(ours[case.patient_id]["gtvp_hu_sd"], rel=1e-6)
    assert calls(code) == len(patients)
    names = [expert["name"] for expert in read_json(work.heads_json)["rfs"]["experts"]]
    assert "Cox, few features, own features" in names
    stamp = work.heads_json.stat().st_mtime_ns
    heads(work, masks, "--code", str(code))
    assert (calls(code), work.heads_json.stat().st_mtime_ns, heads_are_current(work)) == (len(patients), stamp, True)

    with pytest.raises(ModelPackageError, match=r"^features my_code:Features: no code my_code"):
        package_training(PackageRequest((results,), work.heads_json, tmp_path / "refused"))
    package = tmp_path / "package"
    package_training(PackageRequest((results,), work.heads_json, package, code=(code,)))
    assert read_manifest(package).code == {"my_code": Code.of([code]).digest("my_code")}
    assert folders_of(load_package(package).heads.values()) == ["my_code"]
    Predictor(package, task="2", device="cpu", code=[code]).predict(case_folder.write().input)
    assert calls(code) == len(patients) + 1

    heads(work, masks)
    assert read_json(work.heads_json) == before
    assert not work.own_features_json.is_file()


@pytest.mark.slow
def test_other_code_measures_again(prepared: tuple[WorkFolders, Path], code: Path, tmp_path: Path) -> None:
    work, masks = prepared
    heads(work, masks, "--code", str(code))
    first = read_json(work.own_features_json)["rows"]
    segmented = {path: path.stat().st_mtime_ns for path in work.masks.iterdir()}
    written(tmp_path, "/ 1)", "* 2)")
    heads(work, masks, "--code", str(code))
    for name, row in read_json(work.own_features_json)["rows"].items():
        assert row["features"][NAME] == pytest.approx(2 * first[name]["features"][NAME])
    assert {path: path.stat().st_mtime_ns for path in work.masks.iterdir()} == segmented


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "return {",
            "1 / 0\n        return {",
            "patient {}, features my_code:Features: measure: ZeroDivisionError",
        ),
        (
            "float(",
            "float('nan') * float(",
            "patient {}, features my_code:Features: density is nan, expected a finite",
        ),
        ('return {"density"', 'return {"x"', "patient {}, features my_code:Features: measure returns \\['x'\\]"),
        (
            "float(",
            "None and float(",
            "feature my_code:density: found missing for all [0-9]+ patients, expected a value",
        ),
    ],
)
def test_each_fault_names_the_patient(
    prepared: tuple[WorkFolders, Path], tmp_path: Path, before: str, after: str, message: str
) -> None:
    work, masks = prepared
    code = written(tmp_path, before, after)
    with pytest.raises(HecktorError, match="^" + message.format(read_cases(work)[0].patient_id)):
        heads(work, masks, "--code", str(code))
    assert not work.heads_json.is_file()


@pytest.mark.slow
def test_heads_of_reference_masks(prepared: tuple[WorkFolders, Path], code: Path) -> None:
    """The reference is measured where no mask was segmented."""
    work, _ = prepared
    assert main(["heads", "--work", str(work.root), "--masks", "reference", "--jobs", "1", "--code", str(code)]) == 0
    other = work.of_reference_masks()
    rows, ours = read_json(other.own_features_json)["rows"], read_json(other.features_json)["result"]
    assert {name: row["features"][NAME] for name, row in rows.items()} == pytest.approx(
        {name: row["gtvp_hu_sd"] for name, row in ours.items()}, rel=1e-6
    )


def test_a_family_with_own_features_beside_those_without() -> None:
    """Of 2025's risk and class: the few chosen features and the own one."""
    for target in targets_of(load_edition()):
        few = target.families[0]
        *others, family = with_own_features(target, [NAME]).families
        transforms: Any = family.transforms
        assert tuple(others) == target.families
        assert list(transforms) == [*(few.transforms or {}), NAME]
        assert with_own_features(target, []) is target


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
    prepared: tuple[WorkFolders, Path], results: Path, tmp_path: Path, case_folder: CaseFolder
) -> None:
    """Each fold is fitted without its patients, who are measured with that fit; it adds 10 times the fold's seed
    modulo 97 to a mean of -1 to 1. In a case the answer is the mean over both folds. They are fitted once. The files of
    a third fold, of earlier splits, are removed.
    """
    work, masks = prepared
    for number, case in enumerate(read_cases(work)):
        write_mask(next(masks.glob(f"{case.patient_id}.*")), *block(case, 5 + number % 4))
    folder = written(tmp_path)
    (folder / "__init__.py").write_text(FITTED)
    root, splits = work.root / "features" / "my_code", read_splits(work)
    (root / "fold_2").mkdir(parents=True)  # of earlier splits with more folds
    heads(work, masks, "--code", str(folder), "--device", "cpu")
    assert not (root / "fold_2").exists()
    features = read_json(root / "features.json")["features"]
    shifts = [10 * (seed_of(splits.seed, number, "my_code") % 97) for number in (0, 1)]
    for number, held in enumerate(splits.folds):
        fitted = read_json(root / f"fold_{number}" / "fit.json")
        assert set(fitted["patients"]) == {case.patient_id for case in read_cases(work)} - set(held)
        for name in held:
            assert abs(features[name]["my_code:mean_ct"] - shifts[number]) <= 1
    record = read_json(work.cross_validation_json)["rfs"]
    assert record["left_out_features"] == ["my_code:mean_ct"]
    assert "Cox, few features, own features" not in record["nested"]["folds"][0]["tried"]
    stamp = (root / "fold_0" / "fit.json").stat().st_mtime_ns, work.heads_json.stat().st_mtime_ns
    heads(work, masks, "--code", str(folder), "--device", "cpu")
    assert stamp == ((root / "fold_0" / "fit.json").stat().st_mtime_ns, work.heads_json.stat().st_mtime_ns)

    package = tmp_path / "package"
    package_training(PackageRequest((results,), work.heads_json, package, code=(folder,)))
    assert {f"features/my_code/fold_{n}/fit.json" for n in (0, 1)} <= set(read_manifest(package).files)
    (hook,) = load_package(package, Code.of([folder])).features
    case = images(case_folder)
    assert hook.measured(case)["my_code:mean_ct"] == pytest.approx(sum(shifts) / 2, abs=1)
    record = Predictor(package, task="2", device="cpu", code=[folder]).predict(case_folder.write().input).record
    assert "features of my_code" in record.seconds
    assert "my_code" not in str(record.notices)

    with pytest.raises(HecktorError, match=r"^--code: found no my_code, whose features were fitted before"):
        heads(work, masks)
    assert (root / "fold_0" / "fit.json").stat().st_mtime_ns == stamp[0]


def images(case: CaseFolder) -> FeatureImages:
    """The case's CT, a PET of SUV 1, and a tumour of 4 voxels a side."""
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
        ("margin = 1", "margin = 9", "features my_code:Features: margin 9, expected voxels on each side"),
        ("margin = 1", "margins = 1", "features my_code:Features: found attribute margins, .* expected margin"),
        ("assert set", "1 / 0; assert set", "features my_code:Features: fit: ZeroDivisionError"),
        ("cls, folder", "cls", "features my_code:Features: fit: TypeError"),
        ('(folder / "fit.json").write_text', "str", "features my_code:Features: fit: found no file, expected files"),
        ("(6, 8.0)", "(6, None)", r"features my_code:Features: cube \(6, None\), expected voxels per side"),
        ("float(cube", "float('nan') * float(cube", "features my_code:Features: mean_ct is nan"),
    ],
)
def test_each_fault_of_a_fit_is_one_line(
    prepared: tuple[WorkFolders, Path], tmp_path: Path, before: str, after: str, message: str
) -> None:
    work, masks = prepared
    folder = written(tmp_path)
    assert before in FITTED
    (folder / "__init__.py").write_text(FITTED.replace(before, after))
    with pytest.raises(HecktorError, match="^" + message):
        heads(work, masks, "--code", str(folder), "--device", "cpu")
    assert not work.heads_json.is_file()
