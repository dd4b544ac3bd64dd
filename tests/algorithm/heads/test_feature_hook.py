"""Custom features: what the code gets, and that each fault is one line."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from algorithm.heads.feature_hook import FeatureImages, list_feature_hooks
from contract.code import Code
from contract.errors import ModelPackageError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from contract.processes import WorkerDeath, map_in_processes

GRID = Geometry((6, 5, 4), (2.0, 2.0, 3.0), (0.0, 0.0, 0.0))
# Features: the volume in ml and the largest SUV of the mask, the mean dose, and twice the age.
MEASURED = """
class Features:
    names = {"ml": "ml", "hottest": "SUV", "dose": "Gy", "twice": "years"}

    def measure(self, mask, ct, pet, dose, spacing_mm, clinical):
        x, y, z = spacing_mm
        inside = mask > 0
        age = clinical["age_years"]
        values = {
            "ml": inside.sum() * x * y * z / 1000,
            "hottest": None if pet is None else pet[inside].max(),
            "dose": None if dose is None else dose[inside].mean(),
            "twice": None if age is None else 2 * age,
        }
        mask[:], ct[:] = 0, 0
        return values
"""


def write_code(folder: Path, *changes: tuple[str, str]) -> Code:
    text = MEASURED
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    (folder / "my_code").mkdir()
    (folder / "my_code" / "__init__.py").write_text(text)
    return Code.from_folders([folder / "my_code"])


def make_images(*, with_pet: bool = True, age: float | None = 61.0) -> FeatureImages:
    mask = np.zeros(GRID.array_shape, np.uint8)
    mask[1, 1:3, 1], mask[2, 2, 2:4] = 1, 2
    pet = np.arange(mask.size, dtype=np.float32).reshape(mask.shape)
    ct, gray = np.ones(mask.shape, np.float32), Volume(np.full(mask.shape, 66, np.float32), GRID)
    return FeatureImages(mask, ct, pet if with_pet else None, GRID, gray if with_pet else None, {"age_years": age})


def test_values_by_hand_and_unchanged_images(tmp_path: Path) -> None:
    """Four voxels of 2 x 2 x 3 mm are 0.048 ml. Voxel (2, 2, 3) of 4 x 5 x 6 is number 2 * 30 + 2 * 6 + 3 = 75."""
    (hook,) = list_feature_hooks(write_code(tmp_path))
    before = make_images()
    assert hook.units == {"my_code:ml": "ml", "my_code:hottest": "SUV", "my_code:dose": "Gy", "my_code:twice": "years"}
    assert hook.measure_features(before) == {
        "my_code:ml": pytest.approx(0.048),
        "my_code:hottest": 75.0,
        "my_code:dose": pytest.approx(66.0),
        "my_code:twice": 122.0,
    }
    assert (int((before.mask > 0).sum()), float(before.ct.min())) == (4, 1.0)


def test_another_process_imports_the_code_from_its_folder(tmp_path: Path) -> None:
    (hook,) = list_feature_hooks(write_code(tmp_path))
    assert not hook.is_fitted  # loads the class, which a spawned process cannot import by its name
    [(_, values)] = map_in_processes(hook.measure_features, [make_images()], 1)
    assert not isinstance(values, WorkerDeath)
    assert values["my_code:hottest"] == 75.0


def test_absent_inputs_are_none(tmp_path: Path) -> None:
    (hook,) = list_feature_hooks(write_code(tmp_path))
    values = hook.measure_features(make_images(with_pet=False, age=None))
    missing = [name for name, value in values.items() if value is None]
    assert missing == ["my_code:hottest", "my_code:dose", "my_code:twice"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("return values", "raise ValueError('no rim')"), r": measure: ValueError: no rim \(__init__\.py, line 16\)"),
        (("return values", "raise SystemExit(0)"), r": measure: SystemExit: 0 "),
        (("return values", "return values | {'ml': float('nan')}"), r": ml is nan, expected a finite number, or None"),
        (("return values", "return values | {'ml': 1e200}"), r": ml is 1e\+200"),
        (("return values", "return values | {'ml': '3'}"), r": ml is '3', expected a finite number"),
        (("return values", "return {'ml': 1.0}"), r": measure returns \['ml'\]"),
        (("return values", "return 3.0"), r": measure returns float"),
        (("def measure", "def measures"), r": no method measure"),
        (('"ml": "ml"', '"m:l": "ml"'), r": found names"),
        (("names = {", "other = {"), r": found names None"),
    ],
)
def test_each_fault_is_one_line(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    (hook,) = list_feature_hooks(write_code(tmp_path, change))
    with pytest.raises(ModelPackageError, match=rf"^features my_code:Features{message}"):
        hook.measure_features(make_images())


def test_numbers_of_other_libraries(tmp_path: Path) -> None:
    (hook,) = list_feature_hooks(
        write_code(tmp_path, ("return values", "import numpy; return values | {'ml': numpy.float32(0.5)}"))
    )
    value = hook.measure_features(make_images())["my_code:ml"]
    assert type(value) is float
    assert math.isclose(value, 0.5)


def test_code_without_features(tmp_path: Path) -> None:
    assert list_feature_hooks(write_code(tmp_path, ("class Features", "class Other"))) == []
    assert list_feature_hooks(None) == []
