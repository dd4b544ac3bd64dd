"""The Python interface gives the command line's answers, from folders and from arrays."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm import Prediction, Predictor
from contract.errors import InputError
from contract.images.volumes import read_volume, write_volume

DOCUMENT = Path(__file__).parents[2] / "docs" / "research.md"


def predict_from_arrays(predictor: Predictor, case: Any) -> Prediction:
    return predictor.predict_arrays(case.ct.array, case.ct.geometry, case.pet.array, case.pet.geometry, ehr=case.ehr)


def test_the_mask_is_the_same_as_from_the_command_line(case_folder: Any, predict: Any, tiny_package: Path) -> None:
    case_folder.write()
    (name,) = predict("segmentation").files
    mask = read_volume(case_folder.output / name).array
    predictor = Predictor(tiny_package, device="cpu")
    for prediction in (predictor.predict(case_folder.input), predict_from_arrays(predictor, case_folder)):
        np.testing.assert_array_equal(prediction.mask, mask)
        assert prediction.geometry.find_differences(case_folder.ct.geometry) == []
        assert (prediction.risks, prediction.classes, prediction.record.passes_done) == ({}, {}, 4)


def test_a_value_is_the_same_as_from_the_command_line(case_folder: Any, predict: Any, tiny_package: Path) -> None:
    case_folder.write()
    assert predict("hpv", "--passes", "1").files == ["hpv-status.json"]
    value = json.loads((case_folder.output / "hpv-status.json").read_text())
    assert isinstance(value, bool)
    content = predict_from_arrays(Predictor(tiny_package, task="hpv", device="cpu", passes=1), case_folder).to_dict()
    assert (content["mask"], content["risks"], content["classes"]) == (None, {}, {"hpv": value})
    assert json.loads(json.dumps(content["record"]))["answers"] == {"hpv": value}


def test_plain_files_as_for_the_command_line(case_folder: Any, tiny_package: Path) -> None:
    """Files of the case give its answers; without clinical variables only a mask can be predicted."""
    case_folder.write()
    paths = (case_folder.ct_path, case_folder.pet_path)
    masks = Predictor(tiny_package, device="cpu", passes=1)
    expected = masks.predict(case_folder.input)
    np.testing.assert_array_equal(masks.predict_files(*paths).mask, expected.mask)
    risks = Predictor(tiny_package, task="rfs", device="cpu", passes=1)
    prediction = risks.predict_files(*map(str, paths), ehr=str(case_folder.ehr_path))
    assert prediction.risks == risks.predict(case_folder.input).risks
    with pytest.raises(InputError, match=r"^ehr: not given"):
        risks.predict_files(*paths)
    with pytest.raises(InputError, match=r"^--pet: not given, with a CT named"):
        masks.predict_files(case_folder.ct_path)


def test_only_the_mask_of_a_task_with_four_answers(case_folder: Any) -> None:
    """Without `ehr` the shipped package of 2026 predicts only the mask, without heads and their fallbacks."""
    case_folder.write()
    predictor = Predictor(edition="hecktor2026", device="cpu", passes=1)
    prediction = predictor.predict_files(case_folder.ct_path, case_folder.pet_path)
    assert prediction.mask is not None
    assert (prediction.risks, prediction.classes, list(prediction.record.answers)) == ({}, {}, ["segmentation"])


def test_importing_the_package_imports_no_torch() -> None:
    """Neither does importing the command line, before its options are read."""
    program = (
        "import sys, algorithm; assert not {'torch', 'SimpleITK', 'numpy'} & set(sys.modules)\n"
        "import algorithm.cli; assert not {'torch', 'scipy', 'SimpleITK', 'monai'} & set(sys.modules)\n"
        "algorithm.Predictor"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(ImportError):
        from algorithm import Nothing  # type: ignore[attr-defined]  # noqa: F401


def test_the_examples_of_the_documentation(
    case_folder: Any, tiny_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case_folder.write()
    (tmp_path / "case").mkdir()
    case_folder.input.rename(tmp_path / "case" / "input")
    (tmp_path / "model").symlink_to(tiny_package)
    monkeypatch.chdir(tmp_path)
    section = DOCUMENT.read_text().split("\n## Predict\n")[1].split("\n## ")[0]
    examples = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(examples) == 3
    write_volume(tmp_path / "imagesTs" / "B7_0000.nii.gz", case_folder.ct)
    write_volume(tmp_path / "imagesTs" / "B7_0001.nii.gz", case_folder.pet)
    names: dict[str, Any] = {}
    for example in examples:
        exec(example, names)
    assert names["mask"].shape == case_folder.ct.array.shape
    assert isinstance(names["risk"], float)
    assert read_volume(tmp_path / "masks" / "B7.nii.gz").array.shape == case_folder.ct.array.shape
