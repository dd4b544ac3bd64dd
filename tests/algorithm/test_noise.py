"""Log lines, the memory of a case, and the check of `--input`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from algorithm.answers import _describe_missing
from algorithm.arguments import check_case_folder
from algorithm.prediction import peak_memory_mib, reset_peaks
from contract.code import Code
from contract.errors import InputError, ModelPackageError
from tests.algorithm.heads.head_parts import make_linear_head, term

LINEAR = make_linear_head(term("gtvp_dose_mean_gy", 1.0, fill=66.5), term("age_years", 1.0, fill=61.0))


def test_missing_features_share_a_line() -> None:
    assert list(_describe_missing("rfs", LINEAR, {"age_years": 50.0})) == [
        "rfs: gtvp_dose_mean_gy is missing; instead its training median 66.5 is used"
    ]
    assert list(_describe_missing("rfs", LINEAR, {})) == [
        "rfs: 2 features are missing; instead their training medians are used: gtvp_dose_mean_gy 66.5, age_years 61"
    ]
    assert list(_describe_missing("rfs", LINEAR, {"age_years": 50.0, "gtvp_dose_mean_gy": 70.0})) == []


def test_a_failure_names_the_line_of_the_user_code(tmp_path: Path) -> None:
    """The json module raises; line 5 of the user code calls it."""
    folder = tmp_path / "noisy_code"
    folder.mkdir()
    (folder / "__init__.py").write_text("import json\n\n\ndef read():\n    return json.loads('{')\n\n\nread()\n")
    with pytest.raises(ModelPackageError, match=r"\(__init__\.py, line 5\)"):
        Code.from_folders([folder]).find("noisy_code:Network", "network")


def test_the_peak_of_memory_belongs_to_the_case() -> None:
    """200 MB that were freed before do not count."""
    array = np.ones(25_000_000)
    before = peak_memory_mib()
    del array
    reset_peaks()
    assert peak_memory_mib() < before - 150


def test_the_folder_one_level_away_is_named(tmp_path: Path) -> None:
    (tmp_path / "CASE" / "input" / "images").mkdir(parents=True)
    check_case_folder(tmp_path / "CASE" / "input")
    with pytest.raises(InputError, match=r"expected --input .*/CASE/input$"):
        check_case_folder(tmp_path / "CASE")


def test_two_levels_away_and_a_release_are_named(tmp_path: Path) -> None:
    (tmp_path / "cohort" / "CASE" / "input" / "images").mkdir(parents=True)
    with pytest.raises(InputError, match=r"expected --input .*/cohort/CASE/input$"):
        check_case_folder(tmp_path / "cohort")
    with pytest.raises(InputError, match=r"expected the folder of a case \(of a release: --ct FILE --pet FILE\)$"):
        check_case_folder(tmp_path / "cohort" / "CASE" / "input" / "images")
