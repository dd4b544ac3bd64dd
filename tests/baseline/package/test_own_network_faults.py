"""Tests of custom networks that fail when they are packaged or on a case."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm import Predictor
from algorithm.cli import main as predict_main
from algorithm.network.networks import HookFailedError
from algorithm.network.preprocessing import normalise
from contract.errors import ModelPackageError
from contract.io.files import read_json
from tests.baseline.package.own_model import MODEL, compute_logits, load_with_code, package_model, write_model


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("raise ValueError('no such layer')", r"ValueError: no such layer \(__init__.py, line 27\)"),
        (
            "return self.unet(patch)[:, :2]",
            r"returns float32 of shape \(1, 2, 16, 16, 24\), expected a torch.Tensor of",
        ),
        ("return self.unet(patch).argmax(1)", r"returns int64 of shape \(1, 16, 16, 24\)"),
        ("return self.unet(patch).numpy()", r"returns ndarray, expected a torch.Tensor of logits of shape"),
        ("return self.unet(patch) * float('nan')", r"returns NaN or infinity for an empty patch"),
    ],
)
def test_a_fault_is_seen_when_it_is_packaged(tmp_path: Path, line: str, fault: str) -> None:
    """Packaging tries every network with an empty patch before it writes the package."""
    code, weights = write_model(tmp_path, change=("return self.unet(patch)", line))
    with pytest.raises(ModelPackageError, match=fault):
        package_model(tmp_path, code, weights)
    assert not (tmp_path / "package").exists()


# Faults that only a case shows: an empty patch has no value above 0.
ON_A_CASE = "if bool((patch != 0).any()): {}\n        return self.unet(patch)"
FAULTS = {
    "raises": ("raise KeyError('layer')", "KeyError: 'layer'"),
    "NaN": ("return self.unet(patch) * float('nan')", "the network returns NaN or infinity"),
    "type": ("return 3", "returns int, expected a torch.Tensor of logits of shape (1, 3, 16, 16, 24)"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "shape": ("return self.unet(patch)[..., :3]", "expected a torch.Tensor of logits of shape (1, 3, 16, 16, 24)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_on_a_case_leaves_the_other_members(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    """Sound networks before or after the failing network give the answer, and the log says why it was left out."""
    line, message = FAULTS[fault]
    code, weights = write_model(tmp_path, change=("return self.unet(patch)", ON_A_CASE.format(line)))
    (code / "sound.py").write_text(MODEL)
    with (code / "__init__.py").open("a") as file:
        file.write("\nfrom my_model.sound import Network as Sound\n")
    sound = load_with_code(package_model(tmp_path / "sound", code, weights, network="my_model:Sound"), code)
    broken = load_with_code(package_model(tmp_path / "broken", code, weights), code)
    data = np.random.default_rng(4).normal(0, 1, (2, 16, 16, 24)).astype(np.float32)
    expected = compute_logits(sound, data)
    plans = {**broken.plans["configurations"], **sound.plans["configurations"]}
    for first, second in ((broken, sound), (sound, broken)):
        names = [first.manifest.configuration, second.manifest.configuration]
        manifest = first.manifest.model_copy(update={"fold_configurations": names, "folds": ["a", "b"]})
        files = (*first.fold_files, *second.fold_files)
        both = replace(first, manifest=manifest, fold_files=files, plans={**first.plans, "configurations": plans})
        caplog.clear()
        np.testing.assert_array_equal(compute_logits(both, data), expected)
        assert message in caplog.text


def answer_by_threshold(tmp_path: Path, case: Any, code: Path, package: Path) -> None:
    """Check that Python and the command answer a case by the PET threshold."""
    case.write()
    assert Predictor(package, device="cpu", code=[code]).predict(case.input).record.segmented_by == "PET threshold"
    options = ["--task", "segmentation", "--model", str(package), "--code", str(code), "--device", "cpu"]
    paths = ["--input", str(case.input), "--output", str(case.output), "--record", str(tmp_path / "record.json")]
    assert predict_main([*options, *paths]) == 0
    assert read_json(tmp_path / "record.json")["fallbacks"] == ["segmentation"]


def test_after_a_fault_on_a_case_the_pet_threshold_answers(
    tmp_path: Path, case_folder: Any, caplog: pytest.LogCaptureFixture
) -> None:
    line, message = FAULTS["exit"]
    code, weights = write_model(tmp_path, change=("return self.unet(patch)", ON_A_CASE.format(line)))
    answer_by_threshold(tmp_path, case_folder, code, package_model(tmp_path, code, weights))
    assert f"no pass of the network (network my_model:Network: {message}" in caplog.text


NORMALISATIONS = {
    "raises": ("return 1 / np.zeros(3, int)[3]", "IndexError: index 3 is out of bounds"),
    "NaN": ("return suv * np.nan", "float32 of shape"),
    "shape": ("return suv[1:]", "float32 of shape"),
    "type": ("return 'SUV'", "<U3 of shape ()"),
}


@pytest.mark.parametrize("fault", NORMALISATIONS)
def test_a_normalisation_that_fails_is_named(tmp_path: Path, fault: str) -> None:
    line, message = NORMALISATIONS[fault]
    change = "def root_of_suv(suv):\n", f"def root_of_suv(suv):\n    if suv.any(): {line}\n"
    code, weights = write_model(tmp_path, change=change)
    package = load_with_code(package_model(tmp_path, code, weights), code)
    with pytest.raises(HookFailedError, match=f"^{re.escape(f'normalisation 1 of my_model:Network: {message}')}"):
        normalise((np.ones((1, 1, 4), np.float32),) * 2, package)


def test_without_a_network_the_pet_threshold_answers(
    tmp_path: Path, case_folder: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Networks may need something that only the machine has on which they were packaged."""
    absent = "if Path(__file__).with_name('gone').exists(): raise OSError('gone')"
    code, weights = write_model(
        tmp_path, change=("self.unet = make_unet()", f"{absent}\n        self.unet = make_unet()")
    )
    package = package_model(tmp_path, code, weights)
    (code / "gone").touch()
    answer_by_threshold(tmp_path, case_folder, code, package)
    assert "network my_model:Network: cannot be constructed: OSError: gone" in caplog.text


@pytest.mark.slow
def test_a_network_that_hangs_ends_at_the_time_limit(tmp_path: Path, case_folder: Any) -> None:
    """If the first patch of a case never ends, the answer comes from the PET threshold."""
    line = "__import__('time').sleep(600)"
    code, weights = write_model(tmp_path, change=("return self.unet(patch)", ON_A_CASE.format(line)))
    package = package_model(tmp_path, code, weights)
    case_folder.write()
    command = [
        sys.executable, "-m", "algorithm", "--task", "segmentation", "--input", str(case_folder.input), "--output",
        str(case_folder.output), "--model", str(package), "--code", str(code), "--device", "cpu", "--time-limit", "25",
        "--record", str(tmp_path / "record.json"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert read_json(tmp_path / "record.json")["segmented_by"] == "PET threshold"
