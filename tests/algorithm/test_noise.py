"""Log lines, the memory of a case, and the check of `--input`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from algorithm.answers import _describe_missing
from algorithm.arguments import check_case_folder
from algorithm.prediction import peak_memory_mib, reset_peaks
from contract.errors import InputError
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


def test_the_peak_of_memory_belongs_to_the_case() -> None:
    """200 MB that were freed before do not count."""
    array = np.ones(25_000_000)
    before = peak_memory_mib()
    del array
    reset_peaks()
    assert peak_memory_mib() < before - 150


def test_the_folder_of_a_case_that_was_meant_is_named(tmp_path: Path) -> None:
    case = tmp_path / "cohort" / "CASE" / "input"
    (case / "images").mkdir(parents=True)
    check_case_folder(case)
    for folder in (case.parent, case.parents[1]):
        with pytest.raises(InputError, match=r"expected --input .*/CASE/input$"):
            check_case_folder(folder)
    with pytest.raises(InputError, match=r"expected the folder of a case \(of a release: --ct FILE --pet FILE\)$"):
        check_case_folder(case / "images")
