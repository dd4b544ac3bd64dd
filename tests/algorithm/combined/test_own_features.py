"""An entrant's own features in the package's heads: measured in each case, and each fault costs them alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from algorithm.heads.parts import Survival
from contract.code import Code
from contract.errors import ModelPackageError
from tests.algorithm.combined.answered import answered, values, write_heads
from tests.algorithm.edition import EDITION_2026
from tests.conftest import CaseFolder, head_json

SURVIVAL = Survival(days=(1000.0, 2000.0), cumulative_hazard=(0.2, 0.6))
CODE = """
class Features:
    names = {"half_age": "years"}

    def measure(self, mask, ct, pet, dose, spacing_mm, clinical):
        assert mask.any() and ct.shape == pet.shape == mask.shape and dose is None
        return {"half_age": clinical["age_years"] / 2}
"""


@pytest.fixture
def packed(package: Path, sign_package: Callable[..., None], tmp_path: Path) -> Callable[..., Path]:
    """Writes code with a change, and a head of rfs that scores (half_age - 30) / 2, with a median of 31."""

    def pack(before: str = "", after: str = "", *, names_code: bool = True) -> Path:
        folder = tmp_path / "my_code"
        folder.mkdir()
        assert before in CODE
        (folder / "__init__.py").write_text(CODE.replace(before, after) if before else CODE)
        term = {"feature": "my_code:half_age", "transform": "identity", "fill": 31.0, "mean": 30.0, "sd": 2.0}
        head = head_json() | {"terms": [term | {"weights": [1.0]}], "intercepts": [0.0]}
        write_heads(package, sign_package, rfs=head | {"survival": SURVIVAL.model_dump(mode="json")})
        digest = {"my_code": Code.from_folders([folder]).digest("my_code")}
        sign_package(package, edition=EDITION_2026.name, **({"code": digest} if names_code else {}))
        return folder

    return pack


def test_it_enters_the_head(case: CaseFolder, package: Path, packed: Callable[..., Path]) -> None:
    """The patient is 61: (30.5 - 30) / 2 = 0.25."""
    record = answered(case, package, packed()).record
    assert values(case)["rfs"] == pytest.approx(SURVIVAL.restricted_mean(0.25))
    assert (record.fallbacks, [one for one in record.notices if "my_code" in str(one)]) == ((), [])


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("/ 2}", "/ 0}", "ZeroDivisionError: "),
        ("/ 2}", "* float('nan')}", "half_age is nan, expected a finite number"),
        ('return {"half_age"', 'return {"other"', "measure returns ['other'], expected values of half_age"),
        ("class Features", "class Other", "my_code has no Features"),
        ("class Features", "import no_such_module\nclass Features", "No module named 'no_such_module'"),
        ("        return", "        raise MemoryError\n        return", "too little memory"),
    ],
)
def test_a_fault_costs_the_feature_alone(
    case: CaseFolder, package: Path, packed: Callable[..., Path], before: str, after: str, fault: str
) -> None:
    """The median of the training replaces it: (31 - 30) / 2 = 0.5."""
    record = answered(case, package, packed(before, after)).record
    assert values(case)["rfs"] == pytest.approx(SURVIVAL.restricted_mean(0.5))
    assert record.fallbacks == ()
    (notice,) = {str(one) for one in record.notices if "features of my_code" in str(one)}
    assert fault in notice
    assert notice.endswith("the heads use their training medians")


@pytest.mark.slow
def test_a_measurement_that_never_ends_costs_itself(
    case: CaseFolder, package: Path, packed: Callable[..., Path]
) -> None:
    """The network's mask and the head with the median are written before."""
    code = packed("        return", "        __import__('time').sleep(60)\n        return")
    begun = time.monotonic()
    record = answered(case, package, code, time_limit_s=8.0).record
    assert time.monotonic() - begun < 8
    assert (record.segmented_by, record.fallbacks) == ("network", ())
    assert values(case)["rfs"] == pytest.approx(SURVIVAL.restricted_mean(0.5))


def test_a_manifest_must_name_the_code(case: CaseFolder, package: Path, packed: Callable[..., Path]) -> None:
    packed(names_code=False)
    with pytest.raises(ModelPackageError, match=r"^manifest\.json: found code none"):
        answered(case, package)
