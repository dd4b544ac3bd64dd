"""Tests of `hecktor train heads --code DIR`: custom features, features that are fitted to outcomes, and custom heads, from
masks to a package that answers a case.
"""

from __future__ import annotations

import shutil
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, MagicMock

import numpy as np
import pandas as pd
import pytest

from algorithm import Predictor
from algorithm.heads.documents import EnsembleHead
from algorithm.heads.feature_hook import list_feature_folders
from algorithm.heads.head_hook import list_custom_heads
from algorithm.network.package import load_package
from baseline import fit_table, make_report, own_features
from baseline.cli import main
from baseline.fit import heads_are_current
from baseline.heads.models.targets import make_targets, with_custom_features
from baseline.own_features import PatientCubes, cut_cubes, make_fits_stamp
from baseline.package.assemble import PackageRequest, package_training
from baseline.release.cases import ReleaseCase, read_cases
from baseline.release.splits import derive_seed, read_splits
from baseline.work import WorkFolders
from contract.code import Code
from contract.editions import load_edition
from contract.errors import HecktorError, ModelPackageError
from contract.images.volumes import write_mask
from contract.io.files import read_json
from contract.packages import read_manifest
from contract.patient import Patient
from tests.baseline.prepared import make_block, run_heads
from tests.conftest import CaseFolder
from tests.examples.readme import EXAMPLES

FOREST = "survival_forest"
DENSITY = "my_code:density"
MEASURED = """
from pathlib import Path

class Features:
    names = {"density": "HU"}

    def measure(self, mask, ct, pet, dose, spacing_mm, clinical):
        with Path(__file__).with_suffix(".pyc").open("a") as calls:
            calls.write("*")
        return {"density": float(ct[mask == 1].std() / 1)}
"""


@pytest.fixture(autouse=True)
def remove_modules() -> Iterator[None]:
    """Remove modules that a test imports, here or in another file, before and after it."""
    for name in ("my_code", FOREST):
        sys.modules.pop(name, None)
    yield
    for name in ("my_code", FOREST):
        sys.modules.pop(name, None)


def write_code(folder: Path, text: str, before: str = "", after: str = "") -> Path:
    """Write the code `my_code`, with a change.

    Python would take the bytecode of an earlier text of the same size that was written in the same second.
    """
    assert before in text
    sys.modules.pop("my_code", None)
    path = folder / "my_code"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    (path / "__init__.py").write_text(text.replace(before, after) if before else text)
    return path


@pytest.fixture
def forest(tmp_path: Path) -> Path:
    """Copy the example with three trees, which are enough here."""
    folder = Path(shutil.copytree(EXAMPLES / FOREST, tmp_path / FOREST))
    text = (folder / "__init__.py").read_text()
    assert "            100, min" in text
    (folder / "__init__.py").write_text(text.replace("            100, min", "            3, min"))
    return folder


@pytest.mark.slow
def test_from_masks_to_a_package_that_answers(
    work_with_heads: tuple[WorkFolders, Path], forest: Path, results: Path, tmp_path: Path, case_folder: CaseFolder
) -> None:
    """Measured values equal our own standard deviation of GTVp's density. The forest competes only for rfs, is compared
    separately, and is among the experts. Patients are measured once, and again by other code, but not segmented again;
    without `--code` the heads are as before.
    """
    work, masks = work_with_heads
    code, patients, reference = write_code(tmp_path, MEASURED), read_cases(work), f"{FOREST}:Head"
    calls, options = code / "__init__.pyc", ("--code", str(code), "--code", str(forest))
    before = read_json(work.heads_json)
    segmented = {path: path.stat().st_mtime_ns for path in work.masks.iterdir()}
    run_heads(work, masks, *options)
    rows, ours = read_json(work.custom_features_json)["rows"], read_json(work.features_json)["result"]
    for case in patients:
        value = rows[case.patient_id]["features"][DENSITY]
        assert value == pytest.approx(ours[case.patient_id]["gtvp_hu_sd"], rel=1e-6)
    assert len(calls.read_text()) == len(patients)
    document, experts = read_json(work.cross_validation_json), read_json(work.heads_json)["rfs"]["experts"]
    assert {"Cox, few features, custom features", reference} < {expert["name"] for expert in experts}
    assert sum(expert["weight"] for expert in experts) == pytest.approx(1)
    assert [reference in document[name]["nested"]["comparators"] for name in ("rfs", "hpv")] == [True, False]
    assert document["custom"] == {reference: Code.from_folders([forest]).digest(FOREST)}
    stamp = work.heads_json.stat().st_mtime_ns
    run_heads(work, masks, *options)
    assert (len(calls.read_text()), work.heads_json.stat().st_mtime_ns) == (len(patients), stamp)
    assert heads_are_current(work)
    assert make_report(work, 1).is_file()
    assert reference in (work.report / "index.html").read_text()

    package = tmp_path / "package"
    for folders, message in (
        ((code,), rf"^head {reference}: no code {FOREST}, expected --code {FOREST}"),
        ((forest,), r"^features my_code:Features: no code my_code"),
    ):
        with pytest.raises(ModelPackageError, match=message):
            package_training(PackageRequest((results,), work.heads_json, package, code=folders))
    request = PackageRequest((results,), work.heads_json, package, code=(code, forest))
    package_training(request)
    digests = Code.from_folders([code, forest])
    assert read_manifest(package).code == {name: digests.digest(name) for name in ("my_code", FOREST)}
    assert "heads/rfs/survival_forest.Head/forest.npz" in read_manifest(package).files
    assert list_feature_folders(load_package(package).heads.values()) == ["my_code"]
    head = load_package(package).head("rfs")
    assert isinstance(head, EnsembleHead)
    assert [custom_head.hook for custom_head in list_custom_heads(head)] == [reference]
    predictor = Predictor(package, task="2", device="cpu", code=[code, forest])
    prediction = predictor.predict(case_folder.write().input)
    assert FOREST not in str(prediction.record.notices)
    assert isinstance(prediction.risks["rfs"], float)
    assert len(calls.read_text()) == len(patients) + 1

    shutil.rmtree(work.custom_heads)
    with pytest.raises(ModelPackageError, match=r"no files heads/rfs/survival_forest\.Head"):
        package_training(request)
    write_code(tmp_path, MEASURED, "/ 1)", "* 2)")
    run_heads(work, masks, "--code", str(code))
    for name, row in read_json(work.custom_features_json)["rows"].items():
        assert row["features"][DENSITY] == pytest.approx(2 * rows[name]["features"][DENSITY])
    assert {path: path.stat().st_mtime_ns for path in work.masks.iterdir()} == segmented
    run_heads(work, masks)
    assert read_json(work.heads_json) == before
    assert not work.custom_features_json.is_file()


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("return {", "1 / 0\n        return {", "patient {}, features my_code:Features: measure: ZeroDivisionError"),
        ("float(", "float('nan') * float(", "patient {}, features my_code:Features: density is nan, expected a finite"),
        ('return {"density"', 'return {"x"', "patient {}, features my_code:Features: measure returns \\['x'\\]"),
        (
            "float(",
            "None and float(",
            "feature my_code:density: found missing for all [0-9]+ patients, expected a value",
        ),
    ],
)
def test_each_fault_names_the_patient(
    work_with_heads: tuple[WorkFolders, Path], tmp_path: Path, before: str, after: str, message: str
) -> None:
    work, masks = work_with_heads
    fitted_heads = work.heads_json.read_bytes()
    code = write_code(tmp_path, MEASURED, before, after)
    with pytest.raises(HecktorError, match="^" + message.format(read_cases(work)[0].patient_id)):
        run_heads(work, masks, "--code", str(code))
    assert work.heads_json.read_bytes() == fitted_heads


@pytest.mark.slow
def test_heads_of_reference_masks(work_and_masks: tuple[WorkFolders, Path], tmp_path: Path) -> None:
    """Reference masks are measured where no mask was segmented."""
    work, _ = work_and_masks
    run_heads(work, "reference", "--code", str(write_code(tmp_path, MEASURED)))
    references = work.with_reference_masks()
    rows, ours = read_json(references.custom_features_json)["rows"], read_json(references.features_json)["result"]
    assert {name: row["features"][DENSITY] for name, row in rows.items()} == pytest.approx(
        {name: row["gtvp_hu_sd"] for name, row in ours.items()}, rel=1e-6
    )


def test_custom_features_add_a_family() -> None:
    """Targets of 2025, a risk and a class, get a family with the few chosen features and the custom feature."""
    for target in make_targets(load_edition()):
        few = target.families[0]
        *families, family = with_custom_features(target, [DENSITY]).families
        transforms: Any = family.transforms
        assert tuple(families) == target.families
        assert list(transforms) == [*(few.transforms or {}), DENSITY]
        assert with_custom_features(target, []) is target


# Features that are fitted to outcomes


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
    folder = write_code(tmp_path, FITTED)
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
    work_with_heads: tuple[WorkFolders, Path], tmp_path: Path, before: str, after: str, message: str
) -> None:
    work, masks = work_with_heads
    fitted_heads = work.heads_json.read_bytes()
    folder = write_code(tmp_path, FITTED, before, after)
    with pytest.raises(HecktorError, match="^" + message):
        run_heads(work, masks, "--code", str(folder), "--device", "cpu")
    assert work.heads_json.read_bytes() == fitted_heads


@pytest.mark.slow
def test_an_interrupted_fit_of_other_code_leaves_no_mixed_set(
    work_and_masks: tuple[WorkFolders, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two folds are done. Other code ends in its second fold, before its record, and then no fitted features are left.
    The first code again fits the folds that the other code has overwritten, with the same result.
    """
    work, masks = work_and_masks
    options = ("--code", str(write_code(tmp_path, FITTED)), "--device", "cpu")
    run_heads(work, masks, *options)
    result = work.root / "features" / "my_code" / "features.json"
    before = result.read_bytes()
    write_code(tmp_path, FITTED, "10 * self", "20 * self")
    with monkeypatch.context() as patch:
        stopped = MagicMock(wraps=own_features.store_cached, side_effect=[DEFAULT, KeyboardInterrupt])
        patch.setattr(own_features, "store_cached", stopped)
        with pytest.raises(HecktorError, match=r"^interrupted: "):
            run_heads(work, masks, *options)
    assert make_fits_stamp(work) == {}
    with pytest.raises(HecktorError, match=r"^heads\.json: fitted by another version.* fitted features changed"):
        main(["export", "--work", str(work.root), "--output", str(tmp_path / "package")])
    write_code(tmp_path, FITTED)
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
    work_with_heads: tuple[WorkFolders, Path], tmp_path: Path, problem: str, message: str
) -> None:
    work, masks = work_with_heads
    code = write_code(tmp_path, FITTED, "assert set", f"raise RuntimeError({problem!r}); assert set")
    with pytest.raises(HecktorError, match=f"^features of my_code, fold 0: {message}"):
        run_heads(work, masks, "--code", str(code))


# Heads that see images


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
    for number, case in enumerate(read_cases(work)):
        write_mask(next(masks.glob(f"{case.patient_id}.*")), *make_block(case, number % 4 + 1))
    code = write_code(tmp_path, HEAD_WITH_IMAGES)
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


# Cubes of images


CUBES, CUBE_EDGE = 20, 28
CUBE_BYTES = 4 * CUBE_EDGE**3 * 2


def test_cubes_lie_in_memory_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of 20 patients, the first and the eleventh, have no tumour; the others keep their order. The peak is the
    array of all 20 and two cubes, one being cut and one being copied; a stack of 18 separate cubes would take 36.
    """

    def make_cube(case: ReleaseCase, **_: Any) -> tuple[str, np.ndarray | None]:
        number = int(case.patient_id)
        whole = np.full((4, CUBE_EDGE, CUBE_EDGE, CUBE_EDGE), number, np.float16)
        return case.patient_id, whole if number % 10 else None

    monkeypatch.setattr(own_features, "_cut_cube", make_cube)
    image = Path("image")
    cases = [ReleaseCase(str(number), "A", image, image, None, Patient()) for number in range(CUBES)]
    tracemalloc.start()
    try:
        known, array = cut_cubes(WorkFolders(tmp_path), cases, CUBE_EDGE, 4.0, 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    numbers = [number for number in range(CUBES) if number % 10]
    assert [case.patient_id for case in known] == [str(number) for number in numbers]
    assert array.shape == (18, 4, CUBE_EDGE, CUBE_EDGE, CUBE_EDGE)
    assert array[:, 0, 0, 0, 0].tolist() == numbers
    assert 20 * CUBE_BYTES < peak < 24 * CUBE_BYTES


def test_cubes_of_some_patients() -> None:
    """Selecting patients 3 and 1 of four puts patient 1 second."""
    array = np.arange(4, dtype=np.float16).reshape(4, 1, 1, 1, 1)
    some = PatientCubes(array, np.array([3, 1]))
    assert (len(some), some.shape) == (2, (2, 1, 1, 1, 1))
    assert some[1].item() == 1
    assert some[np.array([1, 0])].ravel().tolist() == [1, 3]
    assert np.asarray(some, np.float32).ravel().tolist() == [3, 1]
