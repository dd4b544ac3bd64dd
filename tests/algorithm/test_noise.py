"""The memory of a case, and the check of `--input`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from algorithm.arguments import check_case_folder
from algorithm.prediction import peak_memory_mib, reset_peaks
from contract.errors import InputError


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
