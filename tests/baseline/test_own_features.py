"""Tests of `hecktor train heads --code DIR` with custom features: from masks to a package that measures them in a case."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm import Predictor
from algorithm.heads.feature_hook import list_feature_folders
from algorithm.network.package import load_package
from baseline import own_features
from baseline.fit import heads_are_current
from baseline.heads.models.targets import make_targets, with_custom_features
from baseline.own_features import PatientCubes, cut_cubes
from baseline.package.assemble import PackageRequest, package_training
from baseline.release.cases import ReleaseCase, read_cases
from baseline.work import WorkFolders
from contract.code import Code
from contract.editions import load_edition
from contract.errors import HecktorError, ModelPackageError
from contract.io.files import read_json
from contract.packages import read_manifest
from contract.patient import Patient
from tests.baseline.prepared import run_heads
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

PATIENTS, EDGE = 20, 28
CUBE_BYTES = 4 * EDGE**3 * 2


@pytest.fixture(autouse=True)
def remove_module() -> Iterator[None]:
    """Remove the test's module after the test."""
    yield
    sys.modules.pop("my_code", None)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return write_code(tmp_path)


def write_code(folder: Path, before: str = "", after: str = "") -> Path:
    """Write the code, with a change; calls are counted in a file that is no part of the code."""
    sys.modules.pop("my_code", None)
    path = folder / "my_code"
    path.mkdir(exist_ok=True)
    assert before in CODE
    (path / "__init__.py").write_text(CODE.replace(before, after) if before else CODE)
    return path


def count_calls(code: Path) -> int:
    """Count the patients that were measured so far."""
    path = code / "__init__.pyc"
    return len(path.read_text()) if path.is_file() else 0


@pytest.mark.slow
def test_from_masks_to_a_package_that_answers(
    work_with_heads: tuple[WorkFolders, Path], code: Path, results: Path, tmp_path: Path, case_folder: CaseFolder
) -> None:
    """Measured values equal our own standard deviation of GTVp's density. Patients are measured once, and again by other
    code, but not segmented again; without `--code` the heads are as before.
    """
    work, masks = work_with_heads
    before = read_json(work.heads_json)
    segmented = {path: path.stat().st_mtime_ns for path in work.masks.iterdir()}
    run_heads(work, masks, "--code", str(code))
    patients = read_cases(work)
    rows, ours = read_json(work.custom_features_json)["rows"], read_json(work.features_json)["result"]
    for case in patients:
        value = rows[case.patient_id]["features"][NAME]
        assert value == pytest.approx(ours[case.patient_id]["gtvp_hu_sd"], rel=1e-6)
    assert count_calls(code) == len(patients)
    names = [expert["name"] for expert in read_json(work.heads_json)["rfs"]["experts"]]
    assert "Cox, few features, custom features" in names
    stamp = work.heads_json.stat().st_mtime_ns
    run_heads(work, masks, "--code", str(code))
    assert (count_calls(code), work.heads_json.stat().st_mtime_ns) == (len(patients), stamp)
    assert heads_are_current(work)

    with pytest.raises(ModelPackageError, match=r"^features my_code:Features: no code my_code"):
        package_training(PackageRequest((results,), work.heads_json, tmp_path / "refused"))
    package = tmp_path / "package"
    package_training(PackageRequest((results,), work.heads_json, package, code=(code,)))
    assert read_manifest(package).code == {"my_code": Code.from_folders([code]).digest("my_code")}
    assert list_feature_folders(load_package(package).heads.values()) == ["my_code"]
    Predictor(package, task="2", device="cpu", code=[code]).predict(case_folder.write().input)
    assert count_calls(code) == len(patients) + 1

    write_code(tmp_path, "/ 1)", "* 2)")
    run_heads(work, masks, "--code", str(code))
    for name, row in read_json(work.custom_features_json)["rows"].items():
        assert row["features"][NAME] == pytest.approx(2 * rows[name]["features"][NAME])
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
    work_and_masks: tuple[WorkFolders, Path], tmp_path: Path, before: str, after: str, message: str
) -> None:
    work, masks = work_and_masks
    code = write_code(tmp_path, before, after)
    with pytest.raises(HecktorError, match="^" + message.format(read_cases(work)[0].patient_id)):
        run_heads(work, masks, "--code", str(code))
    assert not work.heads_json.is_file()


@pytest.mark.slow
def test_heads_of_reference_masks(work_and_masks: tuple[WorkFolders, Path], code: Path) -> None:
    """Reference masks are measured where no mask was segmented."""
    work, _ = work_and_masks
    run_heads(work, "reference", "--code", str(code))
    references = work.with_reference_masks()
    rows, ours = read_json(references.custom_features_json)["rows"], read_json(references.features_json)["result"]
    assert {name: row["features"][NAME] for name, row in rows.items()} == pytest.approx(
        {name: row["gtvp_hu_sd"] for name, row in ours.items()}, rel=1e-6
    )


def test_custom_features_add_a_family() -> None:
    """Targets of 2025, a risk and a class, get a family with the few chosen features and the custom feature."""
    for target in make_targets(load_edition()):
        few = target.families[0]
        *families, family = with_custom_features(target, [NAME]).families
        transforms: Any = family.transforms
        assert tuple(families) == target.families
        assert list(transforms) == [*(few.transforms or {}), NAME]
        assert with_custom_features(target, []) is target


def test_cubes_lie_in_memory_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of 20 patients, the first and the eleventh, have no tumour; the others keep their order. The peak is the
    array of all 20 and two cubes, one being cut and one being copied; a stack of 18 separate cubes would take 36.
    """

    def make_cube(case: ReleaseCase, **_: Any) -> tuple[str, np.ndarray | None]:
        number = int(case.patient_id)
        whole = np.full((4, EDGE, EDGE, EDGE), number, np.float16)
        return case.patient_id, whole if number % 10 else None

    monkeypatch.setattr(own_features, "_cut_cube", make_cube)
    image = Path("image")
    cases = [ReleaseCase(str(number), "A", image, image, None, Patient()) for number in range(PATIENTS)]
    tracemalloc.start()
    try:
        known, array = cut_cubes(WorkFolders(tmp_path), cases, EDGE, 4.0, 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    numbers = [number for number in range(PATIENTS) if number % 10]
    assert [case.patient_id for case in known] == [str(number) for number in numbers]
    assert array.shape == (18, 4, EDGE, EDGE, EDGE)
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
