"""Bad outputs, overruns and failures are reported with the platform's reaction."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from contract.editions import load_edition
from contract.errors import EngineError, OutputError
from contract.images.geometry import Geometry
from contract.images.volumes import write_mask
from contract.io.files import write_json
from contract.predictions import read_predictions
from rehearsal.jobs.execution import list_files
from rehearsal.platform.runs import check_outputs
from rehearsal.runners.runner import Call, Limits, ProcessRunner
from tests.rehearsal.conftest import read_input_entries


@pytest.mark.parametrize(
    ("behave", "task", "message"),
    [
        ("missing", "segmentation", "no output images/tumor-lymph-node-segmentation"),
        ("two-images", "segmentation", "found 2 images (again.mha, output.mha)"),
        ("float-mask", "segmentation", "32-bit float pixels"),
        ("label-3", "segmentation", "label 3, expected only 0, 1, 2"),
        ("nifti", "segmentation", "found output.nii.gz, no importable image"),
        ("truncated", "segmentation", "output.mha: truncated"),
        ("NaN", "rfs", "found null (NaN and infinities become null), expected a number"),
        ("7", "hpv", "found 7, expected one of false, true"),
        ("exit-3", "hpv", "exit status 3"),
        ("exit-3", "hpv", "show the submitter its last line on stderr: the scanner was off"),
        ("write-input", "hpv", "/input is read-only"),
    ],
)
def test_a_bad_job_fails(rehearse_toy, behave, task, message):
    result = rehearse_toy(behave, task=task)
    assert len(result.failures) == 2
    assert all(message in failure and "platform" in failure for failure in result.failures), result.failures
    assert not result.succeeded


def test_a_mask_off_the_ct_grid_is_accepted_with_a_warning(rehearse_toy):
    result = rehearse_toy("wrong-geometry")
    assert result.succeeded
    lines = [line for line in result.warnings if "its grid is not the CT's" in line]
    assert len(lines) == 2
    assert "origin_mm (-10, 4, 100) against (7, 8, 9)" in lines[0]
    assert "the platform would accept it, the evaluation would score it as missing" in lines[0]


def test_surplus_outputs_and_long_logs_give_warnings(rehearse_toy):
    warnings = rehearse_toy("chatter", task="rfs").warnings
    assert any("would drop 2 such file(s)" in line for line in warnings)
    assert any("600 lines on stderr; the platform would keep 500" in line for line in warnings)


@pytest.mark.parametrize("api_method", ["exec", "invoke"])
def test_a_flood_on_the_logs_is_cut(rehearse_toy, api_method, tmp_path):
    """Of 6 + 5,000 * 1,000 + 5 bytes the first and last MiB stay: 5,000,011 - 2,097,152 = 2,902,859 bytes are omitted.

    MiB 1 would end in the second byte of a letter ((1,048,576 - 6) % 1000 = 570, an even place), so one more.
    """
    result = rehearse_toy("flood", task="hpv", api_method=api_method)
    assert result.failures == ()
    assert not any("UTF-8" in line for line in result.warnings)
    logs = tmp_path / "out" / "logs"
    for case in ("A-1", "B-2"):
        for stream in ("stdout", "stderr"):
            log = (logs / f"{case}.{stream}").read_bytes()
            assert log.startswith(b"first\nx")
            assert log.endswith(b"\nlast\n")
            note = b"\n[2902860 bytes are left out here]\n"
            assert log.count(note) == 1
            assert len(log) - len(note) == 5_000_011 - 2_902_860
    if api_method == "invoke":
        whole = (logs / "server-1.stderr").read_bytes()
        assert whole == b"".join((logs / f"{case}.stderr").read_bytes() for case in ("A-1", "B-2"))


def test_the_time_limit_terminates(rehearse_toy):
    result = rehearse_toy("sleep", task="hpv", time_limit_s=1, parallel=2)
    assert all("still running after 1 s" in failure and "SIGTERM" in failure for failure in result.failures)
    assert all(1 < case.seconds < 50 for case in result.cases)
    assert {case.exit_code for case in result.cases} == {-15}


def test_sigkill_follows_an_ignored_sigterm(rehearse_toy, monkeypatch: pytest.MonkeyPatch):
    """SIGKILL follows after 0.5 s here, and after the platform's 5 s in a container (tests/containers/test_toys.py).

    The limit of 3 s is long enough for the toy to ignore the signal, on a busy machine too.
    """
    monkeypatch.setattr("rehearsal.runners.monitor.GRACE_S", 0.5)
    result = rehearse_toy("ignore-sigterm", task="hpv", time_limit_s=3, parallel=2)
    assert {case.exit_code for case in result.cases} == {-9}
    assert all(3.5 < case.seconds < 50 for case in result.cases)


def test_a_failed_job_prevents_the_evaluation_except_with_mark_missing(rehearse_toy, tmp_path: Path):
    stopped = rehearse_toy("label-3", evaluation="well")
    assert stopped.problems == ("a job failed, so the platform would not start the evaluation",)
    assert not (tmp_path / "out" / "metrics.json").exists()
    continued = rehearse_toy("label-3", evaluation="well", on_failure="mark-missing")
    assert continued.problems == ()
    assert set(continued.ranked.values()) == {0.0}
    jobs = read_predictions(tmp_path / "out" / "evaluation" / "input" / "predictions.json")
    assert [(job.status, job.outputs) for job in jobs] == [("Failed", ())] * 2


def test_a_missing_metrics_file_fails_the_evaluation(rehearse_toy):
    (problem,) = rehearse_toy(evaluation="missing").problems
    assert "metrics.json: not found" in problem
    assert "the platform would fail the evaluation" in problem


def test_files_of_a_rehearsal(rehearse_toy, tmp_path: Path):
    result = rehearse_toy(evaluation="well")
    assert (result.succeeded, result.failures, result.problems) == (True, (), ())
    out = tmp_path / "out"
    names = ["evaluation", "logs", "metrics.json", "predictions", "rehearsal.json"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert sorted(path.name for path in (out / "predictions").iterdir()) == ["A-1.mha", "B-2.mha"]
    jobs = read_predictions(out / "evaluation" / "input" / "predictions.json")
    assert {job.find_input_image_name("ct-image") for job in jobs} == {"A-1.mha", "B-2.mha"}
    for job in jobs:
        output = job.find_output("tumor-lymph-node-segmentation")
        folder = out / "evaluation" / "input" / job.pk / "output" / output.relative_path
        assert [path.name for path in folder.iterdir()] == [f"{output.image.pk}.mha"]
    report = json.loads((out / "rehearsal.json").read_text())
    assert [case["case"] for case in report["cases"]] == ["A-1", "B-2"]
    assert all(case["peak_memory_bytes"] > 1e6 for case in report["cases"])


def test_the_input_is_laid_out_as_on_the_platform(rehearse_toy, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("GRAND_CHALLENGE_TOKEN", "secret")
    result = rehearse_toy("report", task="rfs")
    out = tmp_path / "out"
    report = json.loads((out / "logs" / "A-1.stderr").read_text().splitlines()[-1])
    assert report["variables"] == []
    assert report["log_level"] == "INFO"
    assert report["output_mode"] == "0o777" or report["uid"] == 0
    ehr, ct, pet, listed = report["inputs"]
    assert (ehr, listed) == ("ehr.json", "inputs.json")
    entries = read_input_entries(out, result.cases[0].job)
    image_pks = [entry["image"]["pk"] for entry in entries if entry["image"]]
    assert [ct, pet] == [f"images/ct/{image_pks[0]}.mha", f"images/pet/{image_pks[1]}.mha"]
    assert entries[0]["socket"] == entries[0]["interface"]


def test_more_than_a_thousand_files_fail(tmp_path: Path):
    segmentation, rfs = (load_edition().find_algorithm(name) for name in ("segmentation", "rfs"))
    folder = segmentation.answers[0].socket.path_under(tmp_path)
    folder.mkdir(parents=True)
    for number in range(1001):
        (folder / f"{number}.txt").touch()
    with pytest.raises(OutputError, match="1001 files"):
        check_outputs(tmp_path, segmentation, None)
    with pytest.raises(OutputError, match=r"no output rfs\.json"):
        check_outputs(tmp_path, rfs, None)


FOUR = load_edition("hecktor2026").find_algorithm()
GRID = Geometry((4, 3, 2), (1.0, 1.0, 2.0), (0.0, 0.0, 0.0))
T_STAGES = '"T1", "T2", "T3", "T4"'


def write_four_answers(folder: Path) -> None:
    mask = np.zeros(GRID.array_shape, np.uint8)
    mask[0, 0, 0] = 2
    write_mask(FOUR.find_answer("segmentation").socket.path_under(folder) / "output.mha", mask, GRID)
    for name, value in {"t_stage": "T3", "n_stage": "N0", "rfs": 812.5}.items():
        write_json(FOUR.find_answer(name).socket.path_under(folder), value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("t_stage", "T2a", f't-stage.json: found "T2a", expected one of {T_STAGES}'),
        ("t_stage", {"T_stage": "T2"}, f't-stage.json: found {{"T_stage": "T2"}}, expected one of {T_STAGES}'),
        ("rfs", True, "rfs.json: found true, expected a number"),
        ("n_stage", ["N2"] * 20, 'n-stage.json: found ["N2", "N2"'),
        ("t_stage", None, "t-stage.json: not valid JSON"),
    ],
)
def test_one_bad_answer_of_four_fails_the_job(tmp_path: Path, name: str, value: object, message: str):
    """The mask is sound; a stage without quotes is no JSON."""
    write_four_answers(tmp_path)
    assert check_outputs(tmp_path, FOUR, GRID).warnings == ()
    path = FOUR.find_answer(name).socket.path_under(tmp_path)
    path.write_text("T2" if value is None else json.dumps(value))
    with pytest.raises(OutputError) as stop:
        check_outputs(tmp_path, FOUR, GRID)
    assert str(stop.value).startswith(message)
    assert len(str(stop.value)) < 250


@pytest.mark.parametrize(
    ("name", "wrong_name", "message"),
    [
        ("segmentation", "images/tumor-lymph-node-segmentation", "no output images/head-neck-tumor-segmentation"),
        ("t_stage", "tn-staging.json", "no output t-stage.json"),
        ("rfs", "recurrence-free-survival.json", "no output rfs.json"),
    ],
)
def test_an_output_under_another_name_is_explained(tmp_path: Path, name: str, wrong_name: str, message: str):
    """The output is missing, and the message names the file that has another name."""
    write_four_answers(tmp_path)
    FOUR.find_answer(name).socket.path_under(tmp_path).rename(tmp_path / wrong_name)
    with pytest.raises(OutputError) as stop:
        check_outputs(tmp_path, FOUR, GRID)
    assert str(stop.value).startswith(message)
    assert re.search(rf"; {wrong_name}(/output\.mha)?: no output of this task; ", str(stop.value))


def test_a_missing_command_is_an_error(tmp_path: Path):
    call = Call("n", tmp_path, tmp_path, tmp_path, tmp_path / "o", tmp_path / "e", Limits(2**30, 5))
    with pytest.raises(EngineError, match="no such command"):
        ProcessRunner(("no-such-program-here",)).run(call)


def test_input_overwritten_by_as_many_bytes_is_changed(tmp_path: Path) -> None:
    file = tmp_path / "images" / "ct.mha"
    file.parent.mkdir()
    file.write_bytes(b"before")
    status, before = file.stat(), list_files(tmp_path)
    assert list_files(tmp_path) == before
    file.write_bytes(b"behind")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
    assert list_files(tmp_path) != before
