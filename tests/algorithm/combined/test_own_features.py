"""Custom features in the package's heads: they are measured in each case, and a fault fails only them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from contract.errors import ModelPackageError
from tests.algorithm.combined.four_answers import (
    SURVIVAL,
    answer_rfs_by,
    predict_case,
    read_values,
    write_code,
    write_heads,
)
from tests.conftest import CaseFolder

CODE = """
class Features:
    names = {"half_age": "years"}

    def measure(self, mask, ct, pet, dose, spacing_mm, clinical):
        assert mask.any() and ct.shape == pet.shape == mask.shape and dose is None
        return {"half_age": clinical["age_years"] / 2}
"""


@pytest.fixture
def pack_code(package: Path, tmp_path: Path) -> Callable[..., Path]:
    """Write changed code, and a head of rfs that scores (half_age - 30) / 2, with a median of 31."""

    def pack(before: str = "return", after: str = "return", *, names_code: bool = True) -> Path:
        assert before in CODE
        code = write_code(tmp_path, CODE.replace(before, after))
        term = {"feature": "my_code:half_age", "transform": "identity", "fill": 31.0, "mean": 30.0, "sd": 2.0}
        head = answer_rfs_by(terms=[term | {"weights": [1.0]}], intercepts=[0.0])
        write_heads(package, rfs=head, code=code if names_code else None)
        return code

    return pack


def test_it_enters_the_head(case: CaseFolder, package: Path, pack_code: Callable[..., Path]) -> None:
    """The patient is 61: (30.5 - 30) / 2 = 0.25."""
    record = predict_case(case, package, pack_code()).record
    assert read_values(case)["rfs"] == pytest.approx(SURVIVAL.restricted_mean(0.25))
    assert (record.fallbacks, [notice for notice in record.notices if "my_code" in str(notice)]) == ((), [])


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("/ 2}", "/ 0}", "ZeroDivisionError: "),
        ("class Features", "import no_such_module\nclass Features", "No module named 'no_such_module'"),
        ("        return", "        raise MemoryError\n        return", "too little memory"),
    ],
)
def test_a_fault_fails_only_the_feature(
    case: CaseFolder, package: Path, pack_code: Callable[..., Path], before: str, after: str, fault: str
) -> None:
    """The training's median replaces it: (31 - 30) / 2 = 0.5."""
    record = predict_case(case, package, pack_code(before, after)).record
    assert read_values(case)["rfs"] == pytest.approx(SURVIVAL.restricted_mean(0.5))
    assert record.fallbacks == ()
    (notice,) = {str(notice) for notice in record.notices if "features of my_code" in str(notice)}
    assert fault in notice
    assert notice.endswith("the heads use their training medians")


def test_a_manifest_must_name_the_code(case: CaseFolder, package: Path, pack_code: Callable[..., Path]) -> None:
    pack_code(names_code=False)
    with pytest.raises(ModelPackageError, match=r"^manifest\.json: found code none"):
        predict_case(case, package)
