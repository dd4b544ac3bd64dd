"""An entrant's head in the package: its score enters the ensemble, and each of its faults costs it alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from algorithm import answers
from algorithm.heads.parts import Survival
from algorithm.network.loaded_package import LoadedPackage
from algorithm.pipeline import predict
from algorithm.prediction import Prediction
from algorithm.request import METHODS, PredictRequest
from contract.code import Code
from contract.errors import ModelPackageError
from contract.io.files import read_json
from tests.algorithm.combined.answered import answered, values, write_heads
from tests.algorithm.edition import EDITION, EDITION_2026, RFS
from tests.baseline.heads.custom_code import custom_head
from tests.conftest import CaseFolder, head_json

OWN = "my_code:Head"
SURVIVAL = {"days": [1000.0, 2000.0], "cumulative_hazard": [0.2, 0.6]}
# The code of the tests predicts |x| of the feature x: here of the constant that follows.
AGE = ('features["x"]', 'features["age_years"]')


@pytest.fixture
def packed(package: Path, sign_package: Callable[..., None], tmp_path: Path) -> Callable[..., Path]:
    """Writes code with changes, and packs it as half of the ensemble of rfs (ours always scores 0.4), or alone."""

    def pack(*changes: tuple[str, str], alone: bool = False) -> Path:
        code = custom_head(tmp_path, AGE, *changes)
        files = package / "heads" / "rfs" / "my_code.Head"
        files.mkdir(parents=True)
        (files / "classes.json").write_text("0")
        custom = {"kind": "custom", "hook": OWN, "folder": "rfs/my_code.Head", "features": ["age_years"]}
        own = custom | {"mean": 60.0, "sd": 2.0}
        ours = head_json() | {"intercepts": [0.4]}
        experts = [{"name": "ours", "head": ours}, {"name": OWN, "head": own}]
        ensemble = {"kind": "ensemble", "experts": [one | {"mean": 0.0, "sd": 1.0} for one in experts]}
        write_heads(package, sign_package, rfs=(own if alone else ensemble) | {"survival": SURVIVAL})
        sign_package(package, edition=EDITION_2026.name, code={"my_code": Code.from_folders([code]).digest("my_code")})
        return code

    return pack


def days(score: float) -> float:
    return Survival.model_validate_json(str(SURVIVAL).replace("'", '"')).restricted_mean(score)


def test_its_score_enters_the_mean(case: CaseFolder, package: Path, packed: Callable[..., Path]) -> None:
    """The patient is 61: (61 - 60) / 2 = 0.5. With ours, 0.4, the mean is 0.45; alone it is 0.5."""
    prediction = answered(case, package, packed())
    assert values(case)["rfs"] == pytest.approx(days(0.45))
    assert prediction.record.fallbacks == ()
    assert not [one for one in prediction.record.notices if "my_code" in str(one)]


def test_alone(case: CaseFolder, package: Path, packed: Callable[..., Path]) -> None:
    assert answered(case, package, packed(alone=True)).risks["rfs"] == pytest.approx(days(0.5))


def answer_risk(case: CaseFolder, package: Path, code: Path) -> Prediction:
    """Answer the risk of 2025, an edition without declared values."""
    request = PredictRequest(EDITION, RFS, METHODS["baseline"], case.input, case.output, "cpu", RFS.time_limit_s)
    return predict(replace(request, code=(code,)), LoadedPackage(package, "cpu", (code,)))


def test_alone_in_an_edition_without_declared_values(
    case: CaseFolder, package: Path, packed: Callable[..., Path], sign_package: Callable[..., None]
) -> None:
    """Nothing can be answered before the code has run, which is no fault of the package."""
    code = packed(alone=True)
    sign_package(package, edition=EDITION.name, code=read_json(package / "manifest.json")["code"])
    assert answer_risk(case, package, code).risks["rfs"] == pytest.approx(0.5)


def test_a_fault_of_the_only_head_without_declared_values(
    case: CaseFolder, package: Path, packed: Callable[..., Path], sign_package: Callable[..., None]
) -> None:
    code = packed(("        return x\n", "        return 1 / 0\n"), alone=True)
    sign_package(package, edition=EDITION.name, code=read_json(package / "manifest.json")["code"])
    with pytest.raises(ModelPackageError, match=r"^head my_code:Head: predict: .*ZeroDivisionError"):
        answer_risk(case, package, code)
    assert not list(case.output.rglob("*.json"))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("        return x\n", "        return x / 0 * float('nan')\n"), "NaN"),
        (("        return x\n", "        return [1.0, 2.0]\n"), "shape"),
        (("        return x\n", "        raise ValueError('no forest')\n"), "ValueError: no forest (__init__.py, line"),
        (("        return x\n", "        raise MemoryError\n"), "too little memory"),
        (("        return head\n", "        raise SystemExit('bye')\n"), "SystemExit: bye"),
        (("class Head:", "class Other:"), "my_code has no Head"),
        (("import json\n", "import json\nimport no_such_module\n"), "No module named 'no_such_module'"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_fault_costs_this_expert_alone(
    case: CaseFolder, package: Path, packed: Callable[..., Path], change: tuple[str, str], fault: str
) -> None:
    record = answered(case, package, packed(change)).record
    assert values(case)["rfs"] == pytest.approx(days(0.4))
    assert record.fallbacks == ()
    (notice,) = {str(one) for one in record.notices if "my_code" in str(one)}
    assert fault in notice
    assert notice.endswith("the ensemble of rfs goes without it")


def test_a_fault_of_the_only_head_costs_the_fallback(
    case: CaseFolder, package: Path, packed: Callable[..., Path]
) -> None:
    """The edition declares 1000 days."""
    record = answered(case, package, packed(("        return x\n", "        return 1 / 0\n"), alone=True)).record
    assert values(case)["rfs"] == 1000.0
    assert record.fallback_why["rfs"].startswith("head my_code:Head: predict: ZeroDivisionError: division by zero")


@pytest.mark.slow
def test_a_head_that_never_ends_costs_itself(case: CaseFolder, package: Path, packed: Callable[..., Path]) -> None:
    """The network's mask and the other experts are written before it is called."""
    code = packed(("        return x\n", "        __import__('time').sleep(60)\n"))
    begun = time.monotonic()
    record = answered(case, package, code, time_limit_s=8.0).record
    assert time.monotonic() - begun < 8
    assert (record.segmented_by, record.fallbacks) == ("network", ())
    assert values(case)["rfs"] == pytest.approx(days(0.4))
    assert "user code: time is nearly up; the answers without it are kept" in map(str, record.notices)


def test_code_of_a_network_adds_no_attempt(
    case: CaseFolder,
    package: Path,
    packed: Callable[..., Path],
    sign_package: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attempts measure features once each: the threshold, and the only pass. User code without a head adds none."""
    measured = []
    measure = answers.image_features
    monkeypatch.setattr(answers, "image_features", lambda *images: measured.append(1) or measure(*images))
    code = packed()
    answered(case, package, code)
    with_head, measured[:] = len(measured), []
    write_heads(package, sign_package, rfs=head_json() | {"survival": SURVIVAL})
    sign_package(package, edition=EDITION_2026.name, code={"my_code": Code.from_folders([code]).digest("my_code")})
    answered(case, package, code)
    assert len(measured) == with_head - 1


def test_code_that_is_not_there_is_refused(case: CaseFolder, package: Path, packed: Callable[..., Path]) -> None:
    packed()
    with pytest.raises(ModelPackageError, match=r"^manifest\.json: found code my_code"):
        answered(case, package)
    assert not list(case.output.rglob("*.json"))


def test_other_code_than_that_of_the_package_is_named(
    case: CaseFolder, package: Path, packed: Callable[..., Path]
) -> None:
    code = packed()
    (code / "notes.txt").write_text("another version")
    record = answered(case, package, code).record
    assert [str(one) for one in record.notices if "another version" in str(one)]
    assert values(case)["rfs"] == pytest.approx(days(0.45))
