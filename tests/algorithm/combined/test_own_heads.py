"""A custom head in the package: its score enters the ensemble, and a fault fails only this head."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from algorithm.network.loaded_package import LoadedPackage
from algorithm.pipeline import predict
from algorithm.prediction import Prediction
from algorithm.request import METHODS, PredictRequest
from contract.errors import ModelPackageError
from contract.io.files import read_json
from tests.algorithm.combined.four_answers import SURVIVAL, predict_case, read_values, write_heads
from tests.algorithm.edition import EDITION, RFS
from tests.baseline.heads.custom_code import write_custom_head
from tests.conftest import CaseFolder, head_json, write_manifest

OWN = "my_code:Head"
# The code of the tests predicts |x| of the feature x: here of the constant that follows.
AGE = ('features["x"]', 'features["age_years"]')


@pytest.fixture
def pack_code(package: Path, tmp_path: Path) -> Callable[..., Path]:
    """Write changed code, and pack it as half of the ensemble of rfs, whose other head always scores 0.4, or as the
    only head.
    """

    def pack(*changes: tuple[str, str], is_only: bool = False) -> Path:
        code = write_custom_head(tmp_path, AGE, *changes)
        files = package / "heads" / "rfs" / "my_code.Head"
        files.mkdir(parents=True)
        (files / "classes.json").write_text("0")
        custom = {"kind": "custom", "hook": OWN, "folder": "rfs/my_code.Head", "features": ["age_years"]}
        own = custom | {"mean": 60.0, "sd": 2.0}
        experts = [{"name": "ours", "head": head_json() | {"intercepts": [0.4]}}, {"name": OWN, "head": own}]
        ensemble = {"kind": "ensemble", "experts": [expert | {"mean": 0.0, "sd": 1.0} for expert in experts]}
        survival = {"survival": SURVIVAL.model_dump(mode="json")}
        write_heads(package, rfs=(own if is_only else ensemble) | survival, code=code)
        return code

    return pack


def test_its_score_enters_the_mean(case: CaseFolder, package: Path, pack_code: Callable[..., Path]) -> None:
    """The patient is 61: (61 - 60) / 2 = 0.5. With the other head's 0.4 the mean is 0.45."""
    record = predict_case(case, package, pack_code()).record
    assert read_values(case)["rfs"] == pytest.approx(SURVIVAL.restricted_mean(0.45))
    assert (record.fallbacks, [notice for notice in record.notices if "my_code" in str(notice)]) == ((), [])


def answer_risk(case: CaseFolder, package: Path, code: Path) -> Prediction:
    """Answer the risk of 2025, an edition without declared values."""
    request = PredictRequest(EDITION, RFS, METHODS["baseline"], case.input, case.output, "cpu", RFS.time_limit_s)
    return predict(replace(request, code=(code,)), LoadedPackage(package, "cpu", (code,)))


@pytest.mark.parametrize("is_faulty", [False, True])
def test_only_a_custom_head_in_an_edition_without_declared_values(
    case: CaseFolder, package: Path, pack_code: Callable[..., Path], is_faulty: bool
) -> None:
    """Nothing can be answered before the code has run, and the package has no fault; a fault of the code is an error."""
    code = pack_code(*([("        return x\n", "        return 1 / 0\n")] if is_faulty else []), is_only=True)
    write_manifest(package, edition=EDITION.name, code=read_json(package / "manifest.json")["code"])
    if not is_faulty:
        assert answer_risk(case, package, code).risks["rfs"] == pytest.approx(0.5)
        return
    with pytest.raises(ModelPackageError, match=r"^head my_code:Head: predict: .*ZeroDivisionError"):
        answer_risk(case, package, code)
    assert not list(case.output.rglob("*.json"))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("        return x\n", "        return x / 0 * float('nan')\n"), "NaN"),
        (("        return x\n", "        return [1.0, 2.0]\n"), "shape"),
        (("        return head\n", "        raise SystemExit('bye')\n"), "SystemExit: bye"),
        (("import json\n", "import json\nimport no_such_module\n"), "No module named 'no_such_module'"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_fault_fails_only_this_expert(
    case: CaseFolder, package: Path, pack_code: Callable[..., Path], change: tuple[str, str], fault: str
) -> None:
    record = predict_case(case, package, pack_code(change)).record
    assert read_values(case)["rfs"] == pytest.approx(SURVIVAL.restricted_mean(0.4))
    assert record.fallbacks == ()
    (notice,) = {str(notice) for notice in record.notices if "my_code" in str(notice)}
    assert fault in notice
    assert notice.endswith("the ensemble of rfs leaves it out")


def test_a_fault_of_the_only_head_writes_the_fallback(
    case: CaseFolder, package: Path, pack_code: Callable[..., Path]
) -> None:
    """The edition declares 1000 days."""
    code = pack_code(("        return x\n", "        return 1 / 0\n"), is_only=True)
    record = predict_case(case, package, code).record
    assert read_values(case)["rfs"] == 1000.0
    assert record.fallback_why["rfs"].startswith("head my_code:Head: predict: ZeroDivisionError: division by zero")


@pytest.mark.slow
def test_a_head_that_never_ends_is_left_out(case: CaseFolder, package: Path, pack_code: Callable[..., Path]) -> None:
    """The network's mask and the other experts are written before it is called."""
    code = pack_code(("        return x\n", "        __import__('time').sleep(60)\n"))
    begun = time.monotonic()
    record = predict_case(case, package, code, time_limit_s=8.0).record
    assert time.monotonic() - begun < 8
    assert (record.segmented_by, record.fallbacks) == ("network", ())
    assert read_values(case)["rfs"] == pytest.approx(SURVIVAL.restricted_mean(0.4))
    assert "user code: time is nearly up; the answers without user code are kept" in map(str, record.notices)


def test_code_that_is_not_there_is_refused(case: CaseFolder, package: Path, pack_code: Callable[..., Path]) -> None:
    pack_code()
    with pytest.raises(ModelPackageError, match=r"^manifest\.json: found code my_code"):
        predict_case(case, package)
    assert not list(case.output.rglob("*.json"))


def test_changed_code_is_named(case: CaseFolder, package: Path, pack_code: Callable[..., Path]) -> None:
    code = pack_code()
    (code / "notes.txt").write_text("another version")
    record = predict_case(case, package, code).record
    assert any("another version" in str(notice) for notice in record.notices)
    assert read_values(case)["rfs"] == pytest.approx(SURVIVAL.restricted_mean(0.45))
