"""Run records name the model package that answered, and the answers by fallbacks."""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from contract.archives import pack
from contract.errors import Finding, ModelPackageError
from contract.io.files import read_json
from rehearsal.cli import main
from rehearsal.records import RecordedRun, format_notices, summarise_answers, warn_without_passes
from tests.rehearsal.conftest import HERE, Rehearse

TOY = HERE / "toy_algorithm.py"
OTHER = {"name": "other", "manifest_sha256": "0" * 64}
ANOTHER = {"package": OTHER}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Write a folder with a manifest; a rehearsal reads only its name."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "manifest.json").write_text('{"name": "mine"}')
    return folder


SHA256 = hashlib.sha256(b'{"name": "mine"}').hexdigest()


def record_option(record: Any) -> tuple[str, ...]:
    return ("--recorded", json.dumps(record))


@pytest.mark.parametrize(("api_method", "packed"), [("exec", False), ("invoke", True)])
def test_the_given_package_answers(
    rehearse_toy: Rehearse, model: Path, tmp_path: Path, api_method: str, packed: bool
) -> None:
    """Pass a folder, or an archive that is unpacked: both records hold its name and the sha256 of its manifest."""
    package = model
    if packed:
        package = tmp_path / "model.tar.gz"
        pack(model, package)
    result = rehearse_toy(model=package, arguments=record_option({}), api_method=api_method)
    assert result.succeeded, (result.failures, result.problems)
    expected = {"name": "mine", "manifest_sha256": SHA256, "given": True, "recorded": 2}
    assert read_json(tmp_path / "out" / "rehearsal.json")["package"] == expected
    assert not any("package" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("api_method", "package", "text"),
    [("exec", OTHER, "other, manifest sha256 000000000000"), ("invoke", None, "no package")],
)
def test_another_package_fails_the_rehearsal(
    rehearse_toy: Rehearse, model: Path, api_method: str, package: Any, text: str
) -> None:
    """Another package, or none, shows that the option was not used."""
    result = rehearse_toy(model=model, arguments=record_option({"package": package}), api_method=api_method)
    assert not result.succeeded
    (problem,) = result.problems
    expected = f"mine, manifest sha256 {SHA256[:12]}"
    assert problem == f"model package: {text} in the run record of A-1, B-2, expected {expected}"


def test_without_a_record_the_package_is_unknown(rehearse_toy: Rehearse, model: Path) -> None:
    """Other algorithms write no record: their answers count, with a warning."""
    result = rehearse_toy(model=model)
    assert result.succeeded
    warning = "model package: no run record of A-1, B-2, so the package that answered is not known"
    assert result.warnings[0] == warning
    assert result.package is not None
    assert (result.package.name, result.package.recorded) == ("mine", 0)
    assert result.answers[0].unrecorded == ("A-1", "B-2")


def test_the_model_of_another_algorithm_needs_no_manifest(rehearse_toy: Rehearse, tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "net.bin").write_bytes(b"1")
    pack(weights, tmp_path / "weights.tar.gz")
    for model in (weights, tmp_path / "weights.tar.gz"):
        result = rehearse_toy(model=model)
        assert result.package is not None
        assert str(result.package) == f"{model.name}, without a manifest.json"


def test_an_unusable_record_is_named(rehearse_toy: Rehearse) -> None:
    result = rehearse_toy(arguments=record_option(["a", "list"]))
    warning = 'run-record.json: found ["a", "list"], expected an object'
    assert {f"A-1: {warning}", f"B-2: {warning}"} < set(result.warnings)
    assert result.answers[0].unrecorded == ("A-1", "B-2")


def test_an_unusable_model_is_refused_before_anything_is_written(rehearse_toy: Rehearse, tmp_path: Path) -> None:
    """Docker would make the absent folder, as root, and the shipped package would answer."""
    with pytest.raises(ModelPackageError) as error:
        rehearse_toy(model=tmp_path / "typo")
    assert str(error.value).startswith("typo: not found")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "typo").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelPackageError, match=r"^empty: contains no file"):
        rehearse_toy(model=tmp_path / "empty")
    (tmp_path / "cut.tar.gz").write_bytes(b"\x1f\x8b\x08\x00")
    with pytest.raises(ModelPackageError, match=r"^cut\.tar\.gz: "):
        rehearse_toy(model=tmp_path / "cut.tar.gz")


FOUR = {"task": None, "edition": "hecktor2026"}
FALLBACKS = {
    "fallbacks": ["t_stage", "n_stage"],
    "fallback_by": {"t_stage": "rule", "n_stage": "training"},
    "fallback_why": {"t_stage": "no head 't_stage'"},
    "notices": [{"what": "PET", "found": "all voxels are zero", "expected": "uptake", "action": "CT alone"}],
}


def test_fallbacks_and_notices_are_counted_for_each_answer(rehearse_toy: Rehearse, tmp_path: Path) -> None:
    """T and N of both cases have a fallback; a notice concerns all answers of its case."""
    result = rehearse_toy(**FOUR, arguments=("--four-answers", *record_option(FALLBACKS)))
    assert result.succeeded
    document = read_json(tmp_path / "out" / "rehearsal.json")
    both = ["A-1", "B-2"]
    counts = {entry["answer"]: (entry["answered"], entry["fallbacks"]) for entry in document["answers"]}
    assert counts == {
        "segmentation": (2, []), "t_stage": (2, both), "n_stage": (2, both), "rfs": (2, []),
    }  # fmt: skip
    assert [(entry["notices"], entry["unrecorded"]) for entry in document["answers"]] == [(both, [])] * 4
    for case in document["cases"]:
        assert {key: case["record"][key] for key in FALLBACKS} == FALLBACKS


def test_counts_of_some_cases() -> None:
    """Of four answered cases one has a fallback, one a notice, and one no record, as from a user's container."""
    notice = {"what": "CT", "found": "padding"}
    records = {
        "a": RecordedRun.model_validate({"fallbacks": ["rfs"]}),
        "b": RecordedRun.model_validate({"notices": [notice]}),
        "c": None,
        "d": RecordedRun(),
    }
    (answer,) = summarise_answers(["rfs"], records)
    assert str(answer) == "rfs: 4 answered, 1 by a fallback (a), 1 with notices (b), 1 without a run record (c)"
    (answer,) = summarise_answers(["rfs"], {"a": None, "b": None})
    assert str(answer) == "rfs: 2 answered; no run records, so fallbacks and notices are unknown"


def test_missing_values_are_one_notice_that_counts_each() -> None:
    """Two of three cases lack the age, one of them the treatment as well; another file has its own notice."""
    lacking = [("ehr.json", "missing Age, Treatment"), ("ehr.json", "missing Age"), ("PET", "all voxels are zero")]
    records = {
        case: RecordedRun(notices=(Finding(what, text),)) for case, (what, text) in zip("abc", lacking, strict=True)
    }
    assert list(format_notices(records)) == [
        "notice in 2 of 3 cases (a, b): ehr.json: missing Age (2), Treatment (1)",
        "notice in 1 of 3 cases (c): PET: all voxels are zero",
    ]


def test_the_summary_names_package_fallbacks_and_notices(
    cohort: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Console and rehearsal.json agree, and the command fails if another package answered.

    The work folder of a killed rehearsal is removed with its other results.
    """
    left = tmp_path / "out" / ".rehearsal-left" / "job"
    left.mkdir(parents=True)
    command = ["--edition", "hecktor2026", "--cases", str(cohort), "--output", str(tmp_path / "out")]
    command += ["--command", f"python {TOY} --four-answers", "--model", str(model)]
    assert main([*command, f"--arguments={shlex.join(record_option(FALLBACKS))}"]) == 0
    printed = capsys.readouterr()
    named = "(given by --model, named in 2 of 2 run records)"
    assert f"model package: mine, manifest sha256 {SHA256[:12]} {named}\n" in printed.out
    assert "\nt_stage: 2 answered, 2 by a fallback (A-1, B-2), 2 with notices (A-1, B-2)\n" in printed.out
    assert "notice in 2 of 2 cases (A-1, B-2): PET: all voxels are zero, expected uptake; CT alone\n" in printed.err
    assert "\nnot scored: no --ground-truth was given\n" in printed.out
    assert not left.parent.exists()
    assert main([*command, f"--arguments={shlex.join(record_option(ANOTHER))}"]) == 1
    assert "error: model package: other, manifest sha256 000000000000 in the run record" in capsys.readouterr().err


def test_the_expected_dsc_of_a_run_is_kept() -> None:
    """Labels without a voxel have no DSC; `hecktor study failures` reads it from rehearsal.json."""
    run = RecordedRun.model_validate({"expected_dsc": {"GTVp": 0.8, "GTVn": None}, "lesions": {}})
    assert run.model_dump(mode="json")["expected_dsc"] == {"GTVp": 0.8, "GTVn": None}
    assert RecordedRun().expected_dsc == {}


@pytest.mark.parametrize(
    ("sources", "method", "is_warned"),
    [
        (["PET threshold", "PET threshold"], "baseline", True),
        (["PET threshold", None], "baseline", True),
        (["PET threshold", "network"], "baseline", False),
        (["PET threshold"], "threshold", False),
        (["contours", None], "baseline", False),
        ([], "baseline", False),
    ],
)
def test_a_rehearsal_without_any_pass_is_warned_about(sources: list[str | None], method: str, is_warned: bool) -> None:
    records = {str(number): RecordedRun(method=method, segmented_by=source) for number, source in enumerate(sources)}
    warning = warn_without_passes({**records, "unrecorded": None})
    assert bool(warning) == is_warned
    if is_warned:
        assert warning.startswith("the network answered none of ")
        assert "--time-limit" in warning
        assert "--passes" in warning
