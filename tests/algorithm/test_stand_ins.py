"""Four answers, each with its own stand-in: a fault costs one answer, and no case ends without all of them."""

from __future__ import annotations

import json
import math
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk

from algorithm import Predictor, answers, steps
from algorithm.cli import main
from algorithm.heads.methods import METHODS
from algorithm.network.passes import NoPassFitsError
from algorithm.network.resident import Resident
from algorithm.pipeline import predict
from algorithm.prediction import Prediction, PredictRequest
from contract.errors import HecktorError, InputError, ModelPackageError, run_main
from contract.files import read_json, write_json
from contract.images.volumes import read_volume
from tests.algorithm.conftest import files_below
from tests.algorithm.edition import COMBINED, EDITION_2026
from tests.algorithm.test_serve import algorithm, call
from tests.conftest import CaseFolder, head_json

MASK = "images/head-neck-tumor-segmentation/output.mha"
NODE = (slice(8, 10), slice(13, 15), 9)
FILES = [MASK, "n-stage.json", "rfs.json", "t-stage.json"]
RECORD = {"CenterID": "NEW", "Age": 61, "Gender": 1, "Tobacco Consumption": 0, "Alcohol Consumption": 1,
          "Performance Status": 0, "Treatment": 1, "HPV Status": 1}  # fmt: skip


@pytest.fixture
def case(case_folder: CaseFolder) -> CaseFolder:
    """The small case with one hot spot of 20 mm, the primary."""
    case_folder.ehr = dict(RECORD)
    return case_folder.write()


@pytest.fixture
def package(combined_package: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(combined_package, tmp_path / "package"))


@pytest.fixture
def by_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pass of the network fits: the PET threshold segments."""

    def none(_: object) -> None:
        raise NoPassFitsError("no time")

    monkeypatch.setattr("algorithm.network.segment.Passes.run", none)


def with_node(case: CaseFolder) -> CaseFolder:
    """A second, smaller hot spot 40 mm behind the primary: a node."""
    case.pet.array[NODE] = 12.0
    return case.write()


def answered(case: CaseFolder, package: Path, **changes: Any) -> Prediction:
    request = PredictRequest(
        EDITION_2026, COMBINED, METHODS["baseline"], case.input, case.output, "cpu", COMBINED.time_limit_s
    )
    return predict(replace(request, **changes), Resident(package, "cpu"))


def values(case: CaseFolder) -> dict[str, Any]:
    """The written values; the mask is on the CT's grid."""
    assert files_below(case.output) == FILES
    assert read_volume(case.output / MASK).geometry.differences(case.ct.geometry) == []
    return {path.stem: read_json(path) for path in case.output.glob("*.json")}


def has_nodes(case: CaseFolder) -> bool:
    return bool((read_volume(case.output / MASK).array == 2).any())


def write_heads(package: Path, sign: Callable[..., None], *, stand_ins: Any = None, **heads: Any) -> None:
    """Replace heads (None removes one) and the training's stand-ins."""
    for name, content in heads.items():
        path = package / "heads" / f"{name}.json"
        path.unlink()
        if content is not None:
            write_json(path, content)
    sign(package, edition=EDITION_2026.name, **({} if stand_ins is None else {"stand_ins": stand_ins}))


def n_head(preferred: str) -> dict[str, Any]:
    """A head that gives one class to everybody."""
    return {"classes": {f"N{k}": head_json() | {"intercept": float(f"N{k}" == preferred)} for k in range(4)}}


def bug(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("a bug")


# N0 goes with a written mask without GTVn


@pytest.mark.usefixtures("by_threshold")
@pytest.mark.parametrize("preferred", ["N0", "N2"])
def test_n0_is_given_exactly_without_gtvn(
    case: CaseFolder, package: Path, sign_package: Callable[..., None], preferred: str
) -> None:
    """A head that prefers N0 has three equal classes left where the mask has a node: the lowest of them is N1."""
    write_heads(package, sign_package, n_stage=n_head(preferred))
    answered(case, package)
    assert (has_nodes(case), values(case)["n-stage"]) == (False, "N0")
    answered(with_node(case), package)
    assert (has_nodes(case), values(case)["n-stage"]) == (True, {"N0": "N1", "N2": "N2"}[preferred])


@pytest.mark.usefixtures("by_threshold")
@pytest.mark.parametrize(
    ("rule", "training", "expected", "by"),
    [("N0", "N0", "N2", "declaration"), (None, "N3", "N3", "training"), ("N1", "N3", "N1", "rule")],
)
def test_no_stand_in_contradicts_the_mask(
    case: CaseFolder,
    package: Path,
    sign_package: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    rule: str | None,
    training: str,
    expected: str,
    by: str,
) -> None:
    """Without the head, the first of rule, training and declaration that is not N0 where the mask has a node."""
    write_heads(package, sign_package, n_stage=None, stand_ins={"n_stage": training})
    monkeypatch.setattr(answers, "staged", lambda *_: rule)
    record = answered(with_node(case), package).record
    assert (values(case)["n-stage"], record.stand_in_by["n_stage"]) == (expected, by)
    case.pet.array[NODE] = 1.0
    record = answered(case.write(), package).record
    assert (values(case)["n-stage"], "n_stage" in record.stand_ins) == ("N0", False)


# The order of the stand-ins


@pytest.mark.parametrize(
    ("rule", "stand_ins", "expected", "by"),
    [
        ("T4", {"t_stage": "T3"}, "T4", "rule"),
        (None, {"t_stage": "T3"}, "T3", "training"),
        ("T9", {"t_stage": "T3"}, "T3", "training"),
        (None, {}, "T2", "declaration"),
        (None, {"t_stage": "t3"}, "T2", "declaration"),
        (None, {"t_stage": 3}, "T2", "declaration"),
    ],
)
def test_the_first_possible_stand_in_of_a_class(
    case: CaseFolder,
    package: Path,
    sign_package: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    rule: str | None,
    stand_ins: dict[str, Any],
    expected: str,
    by: str,
) -> None:
    write_heads(package, sign_package, t_stage=None, stand_ins=stand_ins)
    monkeypatch.setattr(answers, "staged", lambda *_: rule)
    record = answered(case, package).record
    assert values(case)["t-stage"] == expected
    assert (record.stand_ins, record.stand_in_by) == (("t_stage",), {"t_stage": by})
    assert record.stand_in_why["t_stage"].startswith("manifest.json: no head 't_stage'")
    assert f"*** STAND-IN *** t_stage: '{expected}' is written, by the {by} (manifest.json: no head" in caplog.text


@pytest.mark.usefixtures("by_threshold")
def test_the_rule_stages_the_mask(case: CaseFolder, package: Path, sign_package: Callable[..., None]) -> None:
    """On the grid of 3 mm the primary spans 8 voxels along each axis: at least 21 mm and below 37 mm (T2). The node
    spans 8, 7 and 4: sqrt(21^2 + 18^2 + 9^2) = 29 mm at most, one node up to 30 mm (N1)."""
    write_heads(package, sign_package, t_stage=None, n_stage=None, stand_ins={"t_stage": "T3", "n_stage": "N3"})
    record = answered(with_node(case), package).record
    assert (values(case)["t-stage"], values(case)["n-stage"]) == ("T2", "N1")
    assert record.stand_in_by == {"segmentation": "PET threshold", "t_stage": "rule", "n_stage": "rule"}


@pytest.mark.parametrize(
    ("stand_ins", "expected", "by"),
    [
        ({"rfs": 812.0}, 812.0, "training"),
        ({"rfs": 812}, 812, "training"),
        ({"rfs": -1.0}, 1000.0, "declaration"),
        ({"rfs": "812"}, 1000.0, "declaration"),
        ({"rfs": True}, 1000.0, "declaration"),
        ({}, 1000.0, "declaration"),
    ],
)
def test_the_first_possible_stand_in_of_a_time(
    case: CaseFolder, package: Path, sign_package: Callable[..., None], stand_ins: Any, expected: float, by: str
) -> None:
    write_heads(package, sign_package, rfs=None, stand_ins=stand_ins)
    record = answered(case, package).record
    assert (values(case)["rfs"], record.stand_in_by) == (expected, {"rfs": by})


def test_a_failing_rule_is_left_out(
    case: CaseFolder, package: Path, sign_package: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_heads(package, sign_package, t_stage=None, stand_ins={"t_stage": "T3"})
    monkeypatch.setattr(answers, "staged", bug)
    assert answered(case, package).record.stand_in_by == {"t_stage": "training"}
    assert values(case)["t-stage"] == "T3"


# A fault costs one answer


@pytest.mark.usefixtures("by_threshold")
@pytest.mark.parametrize("failing", ["t_stage", "n_stage", "rfs"])
@pytest.mark.parametrize("fault", ["bug", "NaN", "no memory"])
def test_a_fault_in_one_head_costs_its_answer_alone(
    case: CaseFolder, package: Path, monkeypatch: pytest.MonkeyPatch, failing: str, fault: str
) -> None:
    """The second lack of memory counts; the other answers are those of the same case without the fault."""
    with_node(case)
    answered(case, package)
    sound, real = values(case), answers.answer_value

    def faulty(declared: Any, *arguments: Any) -> Any:
        if declared.name != failing:
            return real(declared, *arguments)
        if fault == "NaN":
            return math.nan
        raise MemoryError if fault == "no memory" else ZeroDivisionError("a bug")

    monkeypatch.setattr(answers, "answer_value", faulty)
    record = answered(case, package).record
    key = failing.replace("_", "-")
    written = values(case)
    assert {name: value for name, value in written.items() if name != key} == {
        name: value for name, value in sound.items() if name != key
    }
    assert record.stand_ins == ("segmentation", failing)
    assert record.answers[failing] == written[key]


def test_a_missing_feature_takes_its_training_median(case: CaseFolder, package: Path) -> None:
    """No age: the fill value 1 at a weight of 0.1 and an intercept of 0.5; 1000 (1 - e^-k) / k days with k = e^0.6."""
    case.ehr = {}
    answered(case.write(), package)
    k = math.exp(0.6)
    assert values(case)["rfs"] == pytest.approx(1000 * (1 - math.exp(-k)) / k)


def test_a_mask_that_cannot_be_restored_costs_the_mask(
    case: CaseFolder, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heads still see the segmentation; N0 goes with the empty mask that is written."""
    monkeypatch.setattr("algorithm.masks.segmentation.grids.restore_labels", bug)
    record = answered(with_node(case), package).record
    assert not read_volume(case.output / MASK).array.any()
    assert values(case)["n-stage"] == "N0"
    assert record.stand_in_by == {"segmentation": "empty mask"}
    assert record.stand_in_why == {"segmentation": "the mask cannot be restored (ZeroDivisionError)"}


def test_a_mask_of_another_shape_is_never_written(
    case: CaseFolder, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("algorithm.masks.segmentation.grids.restore_labels", lambda *_: np.ones((2, 3, 4), np.uint8))
    assert answered(case, package).record.stand_in_by == {"segmentation": "empty mask"}
    assert not read_volume(case.output / MASK).array.any()


@pytest.mark.parametrize("where", ["head_and_neck", "threshold_segmentation"])
def test_a_bug_before_the_first_answer_leaves_an_empty_mask(
    case: CaseFolder, package: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(steps, where, bug)
    monkeypatch.setattr("algorithm.pipeline.threshold_segmentation", bug)
    monkeypatch.setattr("algorithm.network.segment.normalise", bug)
    record = answered(case, package).record
    assert values(case) == {"t-stage": "T3", "n-stage": "N0", "rfs": 812.0}
    assert record.stand_in_by == {"segmentation": "empty mask", "t_stage": "training", "rfs": "training"}
    assert set(record.stand_in_why.values()) == {"ZeroDivisionError"}


def test_a_step_that_never_ends_costs_its_own_answers(
    case: CaseFolder, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mask is restored before the features, which hang here, are measured: it is written all the same."""
    monkeypatch.setattr(steps, "image_features", lambda *_: time.sleep(60))
    begun = time.monotonic()
    record = answered(case, package, time_limit_s=12.0).record
    assert time.monotonic() - begun < 12
    assert (record.stand_in_by["t_stage"], record.stand_in_why["rfs"]) == ("training", "a step does not end")
    assert "segmentation" not in record.stand_ins
    assert values(case)["rfs"] == 812.0


# Inputs


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])


def placeholder(path: Path) -> None:
    """The one-pixel image of the challenge's template, as TIFF."""
    path.unlink()
    sitk.WriteImage(sitk.Image([1, 1], sitk.sitkUInt8), str(path.with_suffix(".tif")))


ALONE = "going on with the CT alone"
NO_RECORD = "going on without clinical variables"


@dataclass(frozen=True)
class Fault:
    """How to spoil a case, and the one warning about it."""

    spoil: Callable[[CaseFolder], object]
    warning: str


ANSWERED = {
    "no PET folder": Fault(lambda c: shutil.rmtree(c.pet_path.parent), f"images/pet: no such folder, .*; {ALONE}"),
    "no PET": Fault(lambda c: c.pet_path.unlink(), f"images/pet: found nothing, .*; {ALONE}"),
    "PET truncated": Fault(lambda c: truncated(c.pet_path), rf"4e5f6a7b-pet\.mha: truncated, .*; {ALONE}"),
    "PET a placeholder": Fault(
        lambda c: placeholder(c.pet_path), rf"4e5f6a7b-pet\.tif: 2 dimensions \(1 x 1\), expected a 3D image; {ALONE}"
    ),
    "two PETs": Fault(
        lambda c: shutil.copy(c.pet_path, c.pet_path.parent / "b.mha"), rf"images/pet: found 2 images .*; {ALONE}"
    ),
    "PET garbage": Fault(lambda c: c.pet_path.write_bytes(b"\x00\xff" * 500), rf"4e5f6a7b-pet\.mha: .*; {ALONE}"),
    "no ehr.json": Fault(lambda c: c.ehr_path.unlink(), rf"ehr\.json: not found in .*; {NO_RECORD}"),
    "ehr.json a list": Fault(lambda c: c.ehr_path.write_text("[]"), rf"ehr\.json: found a JSON list, .*; {NO_RECORD}"),
    "ehr.json binary": Fault(lambda c: c.ehr_path.write_bytes(b"\xff\xfe{"), rf"ehr\.json: not UTF-8 .*; {NO_RECORD}"),
    "ehr.json cut off": Fault(lambda c: truncated(c.ehr_path), rf"ehr\.json: not valid JSON .*; {NO_RECORD}"),
}
EMPTY = "an empty mask and stand-ins are written"
EMPTY_MASK = {
    "CT truncated": Fault(lambda c: truncated(c.ct_path), rf"0a1b2c3d-ct\.mha: truncated, .*; {EMPTY}"),
    "CT too small": Fault(
        lambda c: sitk.WriteImage(sitk.Image([4, 5, 6], sitk.sitkInt16), str(c.ct_path)),
        rf"0a1b2c3d-ct\.mha: size \(4, 5, 6\), expected at least .*; {EMPTY}",
    ),
}
REFUSED = {
    "no CT": Fault(lambda c: c.ct_path.unlink(), "images/ct: found nothing, expected exactly one image"),
    "CT a placeholder": Fault(lambda c: placeholder(c.ct_path), r"0a1b2c3d-ct\.tif: 2 dimensions \(1 x 1\), expected"),
    "CT garbage": Fault(lambda c: c.ct_path.write_bytes(b"\x00" * 999), r"0a1b2c3d-ct\.mha: not a readable image"),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_an_unusable_pet_or_record_ends_no_case(case: CaseFolder, package: Path, name: str) -> None:
    ANSWERED[name].spoil(case)
    record = answered(case, package).record
    (notice,) = record.notices
    assert_matches(ANSWERED[name].warning, str(notice))
    assert (record.segmented_by, record.stand_ins) == ("network", ())
    values(case)


@pytest.mark.parametrize("name", EMPTY_MASK)
def test_a_ct_of_which_only_the_grid_is_known(case: CaseFolder, package: Path, name: str) -> None:
    EMPTY_MASK[name].spoil(case)
    record = answered(case, package).record
    assert_matches(EMPTY_MASK[name].warning, str(record.notices[-1]))
    assert files_below(case.output) == FILES
    mask, ct = read_volume(case.output / MASK), sitk.ImageFileReader()
    ct.SetFileName(str(case.ct_path))
    ct.ReadImageInformation()
    assert (mask.geometry.size, mask.array.any()) == (ct.GetSize(), False)
    assert [read_json(case.output / name) for name in FILES[1:]] == ["N0", 812.0, "T3"]


@pytest.mark.parametrize("name", REFUSED)
def test_a_case_without_any_grid_is_an_error(case: CaseFolder, package: Path, name: str) -> None:
    REFUSED[name].spoil(case)
    with pytest.raises(InputError, match=REFUSED[name].warning):
        answered(case, package)
    assert files_below(case.output) == []


def test_strict_mode_refuses_what_is_answered_otherwise(case: CaseFolder, package: Path) -> None:
    truncated(case.ct_path)
    with pytest.raises(InputError, match=r"^0a1b2c3d-ct\.mha: truncated"):
        answered(case, package, strict=True)
    assert files_below(case.output) == []


def assert_matches(pattern: str, text: str) -> None:
    assert re.search(f"{pattern}$", text), text


# The same through every entry point


@pytest.fixture
def spoilt(case: CaseFolder) -> CaseFolder:
    """A case with a truncated CT, no PET and no record."""
    truncated(case.ct_path)
    case.pet_path.unlink()
    case.ehr_path.unlink()
    return case


def test_a_spoilt_case_by_the_command_line(
    spoilt: CaseFolder, package: Path, capfd: pytest.CaptureFixture[str], root_logger: None
) -> None:
    folders = ["--input", str(spoilt.input), "--output", str(spoilt.output), "--model", str(package)]
    assert run_main(main, ["--edition", "hecktor2026", "--device", "cpu", *folders]) == 0
    assert values(spoilt) == {"t-stage": "T3", "n-stage": "N0", "rfs": 812.0}
    lines = [line.split(" ", 2)[2] for line in capfd.readouterr().err.splitlines()]
    assert "rfs: 812 days, higher means later recurrence" in lines
    assert lines[-1].startswith("combined answered by baseline: ")


def test_a_spoilt_case_by_the_server(spoilt: CaseFolder, package: Path) -> None:
    with algorithm(spoilt, package, "combined", "--edition", "hecktor2026") as (_, port):
        assert call(port, "POST", "/invoke")[0] == 201
        assert values(spoilt) == {"t-stage": "T3", "n-stage": "N0", "rfs": 812.0}
        spoilt.write()
        assert call(port, "POST", "/invoke")[0] == 201
        assert values(spoilt)["rfs"] != 812.0


def test_a_spoilt_case_in_python(spoilt: CaseFolder, package: Path) -> None:
    prediction = Predictor(package, edition="hecktor2026", device="cpu").predict(spoilt.input)
    assert (prediction.risks, prediction.classes) == ({"rfs": 812.0}, {"t_stage": "T3", "n_stage": "N0"})
    assert prediction.mask is not None
    assert (prediction.mask.shape, prediction.mask.any()) == (spoilt.ct.array.shape, False)


# Packages of another edition


@pytest.mark.parametrize(("edition", "other"), [("hecktor2026", "hecktor2025"), ("hecktor2025", "hecktor2026")])
def test_a_package_of_another_edition_is_refused_at_once(
    case: CaseFolder,
    tiny_package: Path,
    combined_package: Path,
    capfd: pytest.CaptureFixture[str],
    root_logger: None,
    edition: str,
    other: str,
) -> None:
    """By the command line and the server, before the case is read, and by the Predictor."""
    model = tiny_package if other == "hecktor2025" else combined_package
    message = f"manifest.json: found edition '{other}', expected '{edition}'"
    shutil.rmtree(case.input)
    folders = ["--input", str(case.input), "--output", str(case.output), "--model", str(model)]
    tasks = [[]] if edition == "hecktor2026" else [["--task", "1"], ["--task", "rfs", "--method", "clinical"]]
    for task in tasks:
        for serve in ([], ["--serve", "--port", "0"]):
            assert run_main(main, ["--edition", edition, *task, *folders, *serve]) == 1
            assert capfd.readouterr().err.splitlines()[-1] == f"error: {message}"
    with pytest.raises(ModelPackageError) as error:
        Predictor(model, edition=edition, device="cpu")
    assert str(error.value) == message


# Clinical records


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        json.dumps(dict.fromkeys(RECORD)),
        json.dumps({key: str(value) for key, value in RECORD.items()}),
        json.dumps(dict.fromkeys(RECORD, "textual")),
        json.dumps(dict.fromkeys(RECORD, float("nan"))),
        json.dumps(RECORD | {"Shoe size": [44], "CenterID": {"name": "nowhere"}}),
        json.dumps(RECORD, indent=1)[:-2] + ",\n}",
    ],
    ids=["empty", "null", "strings", "text", "NaN", "unknown", "trailing comma"],
)
def test_no_value_of_the_record_ends_a_case(case: CaseFolder, package: Path, text: str) -> None:
    case.ehr_path.write_text(text)
    assert answered(case, package).record.stand_ins == ()
    values(case)


def test_a_default_task_needs_an_edition_only(combined_package: Path, tiny_package: Path) -> None:
    assert Predictor(combined_package, edition="hecktor2026", device="cpu").algorithm.name == "combined"
    assert Predictor(tiny_package, device="cpu").algorithm.name == "segmentation"
    with pytest.raises(HecktorError, match="found task 'segmentation'"):
        Predictor(combined_package, edition="hecktor2026", task="segmentation")
