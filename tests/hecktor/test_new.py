"""`hecktor new` writes the skeleton of a custom model or edition."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from contract.code import Code
from evaluation.editions.profile import load_profile
from hecktor.cli import main
from rehearsal.phantoms.cohort import CohortOptions
from rehearsal.phantoms.make import make_cohort

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _forget_code() -> Iterator[None]:
    """Forget the code that a test imports."""
    yield
    for name in [module for module in sys.modules if module.split(".")[0] in ("my_model", "other")]:
        del sys.modules[name]


def write_model(folder: Path) -> Path:
    assert main(["new", "model", str(folder)]) == 0
    return folder


@pytest.mark.slow
def test_the_skeleton_passes_mypy_strict(tmp_path: Path) -> None:
    """The project's settings are strict, too; with its cache torch need not be read again."""
    folder = write_model(tmp_path / "my_model")
    settings = ["--strict", "--config-file", ROOT / "pyproject.toml", "--cache-dir", ROOT / ".mypy_cache"]
    command = [sys.executable, "-m", "mypy", *settings, folder.name]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def pack_model(folder: Path, target: Path) -> Path:
    """Pack the skeleton's network by the command that `hecktor new` prints."""
    command = ["package", "--code", str(folder), "--weights", str(folder / "weights"), "--without-heads"]
    assert main([*command, "--output", str(target)]) == 0
    return target


@pytest.mark.slow
def test_the_skeleton_passes_the_rehearsal_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One head and neck phantom, answered without a fallback and scored; without `--code` there is no answer."""
    folder = write_model(tmp_path / "my_model")
    assert f"--code {folder} --weights {folder / 'weights'}" in capsys.readouterr().out
    model, cohort = pack_model(folder, tmp_path / "model.tar.gz"), tmp_path / "cohort"
    options = CohortOptions(0, ("CHUM",), "platform", "head_and_neck", ct_coarsening=4)
    assert len(list(make_cohort(options, 1, cohort, 1))) == 1
    command = ["rehearse", "--task", "segmentation", "--cases", str(cohort), "--process", "--model", str(model)]
    command += ["--arguments=--device cpu", "--ground-truth", str(cohort / "ground_truth")]
    assert main([*command, "--code", str(folder), "--output", str(tmp_path / "with")]) == 0
    assert "segmentation: 1 answered, 0 by a fallback" in capsys.readouterr().out
    assert main([*command, "--output", str(tmp_path / "without")]) == 1
    assert "expected --code my_model" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*command[:5], "--command", "true", "--code", str(folder), "--output", str(tmp_path / "unused")])
    assert "argument --code: found without --process" in capsys.readouterr().err


def test_a_submission_needs_the_code_that_the_package_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_model(tmp_path / "my_model")
    model = pack_model(folder, tmp_path / "model.tar.gz")
    command = ["submission", "--package", str(model), "--task", "segmentation", "--model-only"]
    assert main([*command, "--output", str(tmp_path / "submission")]) == 1
    assert "found code my_model, expected --code my_model" in capsys.readouterr().err


def test_the_skeleton_has_each_hook_with_a_docstring(tmp_path: Path) -> None:
    code = Code.from_folders([write_model(tmp_path / "my_model")])
    for name in ("Network", "Features", "Head"):
        hook = code.find(f"my_model:{name}", "hook")
        for method in [
            attribute
            for attribute in vars(hook)
            if not attribute.startswith("__") or attribute in ("__init__", "__call__")
        ]:
            if callable(getattr(hook, method)):
                assert getattr(hook, method).__doc__, method


def test_features_and_head_of_the_skeleton_by_hand(tmp_path: Path) -> None:
    """SUVs of 2, 4, 4 and 6 in the tumour spread by the root of (4 + 0 + 0 + 4) / 4. The median of volumes 1 and 3 ml is
    2, so that a missing volume has the risk log(2 + 1), also after it was stored.
    """
    code = Code.from_folders([write_model(tmp_path / "my_model")])
    measure = code.find("my_model:Features", "features")().measure
    mask = np.array([[[0, 1, 2, 1, 2]]], np.uint8)
    suv = np.array([[[90, 2, 4, 4, 6]]], np.float32)
    grid = None, (1.0, 1.0, 1.0), {}
    assert measure(mask, suv, suv, *grid) == {"suv_spread": pytest.approx(2**0.5)}
    assert measure(mask, suv, None, *grid) == measure(mask * 0, suv, suv, *grid) == {"suv_spread": None}
    hook = code.find("my_model:Head", "head")
    head = hook(None)
    head.fit(pd.DataFrame({"total_volume_ml": [1.0, np.nan, 3.0]}), pd.DataFrame(), np.random.default_rng(0))
    head.save(tmp_path)
    risk = hook.load(tmp_path).predict(pd.DataFrame({"total_volume_ml": [np.nan, 0.0]}))
    np.testing.assert_allclose(risk, [np.log(3), 0])


@pytest.mark.parametrize("name", ["my-model", "1st", "class", "numpy", "there"])
def test_names_that_cannot_be_used(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "there").mkdir()
    assert main(["new", "model", str(tmp_path / name)]) == 1
    reasons = {"there": "exists, expected a new folder", "numpy": "the name of an installed module"}
    message = f"{name}: {reasons.get(name, 'a name that Python cannot import')}"
    assert f"error: {message}" in capsys.readouterr().err
    assert not list((tmp_path / name).glob("*"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Larynx", "a name that an edition cannot have"),
        ("hecktor2026", "the name of an edition of the package"),
        ("hecktor2021", "the name of an edition of the package"),
    ],
)
def test_names_that_an_edition_cannot_have(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An edition with other contents cannot be called hecktor2021, although that edition declares no algorithms."""
    assert main(["new", "edition", str(tmp_path / name)]) == 1
    assert f"error: {name}: {message}" in capsys.readouterr().err
    assert not (tmp_path / name).exists()


def test_printed_commands_quote_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "edition", str(tmp_path / "two words" / "larynx")]) == 0
    (command,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  hecktor phantoms")]
    assert shlex.split(command)[3] == str(tmp_path / "two words" / "larynx" / "edition.json")
    assert load_profile(shlex.split(command)[3]).find_task("all").algorithm.image == "hecktor-larynx"
