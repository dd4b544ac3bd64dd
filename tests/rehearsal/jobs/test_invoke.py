"""One server for all cases, as plain processes: failures are reported with the platform's reaction."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from contract.errors import EngineError
from contract.files import read_json
from rehearsal.cli import main

TOY = Path(__file__).parents[1] / "toy_algorithm.py"


@pytest.mark.parametrize("task", ["segmentation", "rfs", "hpv"])
def test_a_good_server_passes(rehearse_toy, tmp_path: Path, task):
    result = rehearse_toy(task=task, evaluation="well", api_method="invoke")
    assert result.succeeded, (result.failures, result.problems)
    assert all("2 such file(s)" in line for line in result.warnings)  # the toy answers all tasks, and no other warning
    assert result.api_method == "invoke"
    assert len(result.startup_s) == 1
    assert [(job.outcome.http_status, job.outcome.exit_code) for job in result.jobs] == [(201, None)] * 2
    assert len(list((tmp_path / "out" / "predictions").iterdir())) == 2


def test_durations_stand_under_the_api_method(rehearse_toy, tmp_path: Path):
    for method, other in (("exec", "invoke"), ("invoke", "exec")):
        rehearse_toy(task="hpv", api_method=method)
        for job in read_json(tmp_path / "out" / "evaluation" / "input" / "predictions.json"):
            assert job[f"{method}_duration"].startswith("P0DT00H00M0")
            assert job[f"{other}_duration"] is None


def test_cases_share_a_process_but_not_their_folders(rehearse_toy, tmp_path: Path):
    result = rehearse_toy("report", api_method="invoke")
    reports = [json.loads(job.log.read_text()) for job in result.jobs]
    assert len({report["pid"] for report in reports}) == 1
    for report, job in zip(reports, result.jobs, strict=True):
        images = [entry["image"]["pk"] for entry in job.job.entries if entry["image"]]
        assert report["inputs"] == [
            "ehr.json",
            f"images/ct/{images[0]}.mha",
            f"images/pet/{images[1]}.mha",
            "inputs.json",
        ]
        assert report["output"] == []
    log = tmp_path / "out" / "logs" / "server-1.stderr"
    assert log.read_text() == "".join(job.log.read_text() for job in result.jobs)
    report = read_json(tmp_path / "out" / "rehearsal.json")
    assert report["api_method"] == "invoke"
    assert len(report["startup_s"]) == 1
    assert [case["http_status"] for case in report["cases"]] == [201, 201]
    assert all(case["peak_memory_bytes"] > 1e6 for case in report["cases"])


@pytest.mark.parametrize(
    ("behave", "task", "message"),
    [
        ("200", "hpv", "POST /invoke: 200 (), expected 201; the platform would fail the job"),
        ("missing", "hpv", "the server ended during the case: exit status 0; the platform would fail the job"),
        ("label-3", "segmentation", "label 3, expected only 0, 1, 2"),
        ("NaN", "rfs", "found null (NaN and infinities become null), expected a number"),
        ("write-input", "hpv", "/input is read-only"),
        ("die", "hpv", "the server ended during the case: exit status 3; the platform would fail the job"),
        ("die", "hpv", "show the submitter its last line on stderr: the scanner was off"),
        ("die-at-start", "hpv", "the server ended before it was ready: exit status 1"),
        ("die-at-start", "hpv", "its last line on stderr: error: no model"),
    ],
)
def test_a_bad_server_fails(rehearse_toy, behave, task, message):
    result = rehearse_toy(behave, task=task, api_method="invoke")
    assert len(result.failures) == 2
    assert all(message in failure for failure in result.failures), result.failures
    assert not result.succeeded
    assert len(result.startup_s) == {"die": 2, "missing": 2, "die-at-start": 0}.get(behave, 1)


@pytest.mark.parametrize(("behave", "status"), [("redirect", 302), ("unready", 503)])
def test_a_server_that_is_never_ready_fails(rehearse_toy, behave, status):
    """It starts within 3 s; on a busy machine the last question may come some time after them."""
    result = rehearse_toy(behave, task="hpv", api_method="invoke", ready_within_s=3)
    message = rf"GET /health: {status} \(\) after \d+ s, expected 200 within 3 s; the platform would fail the job"
    assert len(result.failures) == 2
    assert all(re.search(message, failure) for failure in result.failures), result.failures
    assert not result.succeeded
    assert len(result.startup_s) == 0


def test_the_next_case_runs_after_a_bad_one(rehearse_toy):
    result = rehearse_toy("first-is-bad", task="rfs", api_method="invoke")
    assert result.failures == (
        "A-1: POST /invoke: 500 (the scanner was off), expected 201; the platform would fail the job",
    )
    assert result.jobs[1].failure is None
    assert len(result.startup_s) == 1


def test_a_time_limit_ends_the_server_and_the_next_case_gets_a_new_one(rehearse_toy):
    result = rehearse_toy("sleep", task="hpv", api_method="invoke", time_limit_s=1)
    assert all("still running after 1 s" in failure and "SIGTERM" in failure for failure in result.failures)
    assert len(result.failures) == len(result.startup_s) == 2
    assert all(1 <= job.outcome.seconds < 20 and job.outcome.timed_out for job in result.jobs)


def test_files_kept_open_between_cases_give_warnings(rehearse_toy):
    result = rehearse_toy("keep-open", task="hpv", api_method="invoke")
    for job in result.jobs:
        (ct,) = (entry["image"]["pk"] for entry in job.job.entries if entry["socket"]["slug"] == "ct-image")
        paths = [line.split(" is kept open")[0] for line in job.warnings if "is kept open" in line]
        assert any(path.endswith(f"{ct}.mha") for path in paths)
        assert any(path.endswith("/output") for path in paths)


def test_a_server_takes_one_case_at_a_time(rehearse_toy):
    with pytest.raises(EngineError, match="2 cases at a time, expected 1"):
        rehearse_toy(api_method="invoke", parallel=2)


def test_exec_and_invoke_are_compared(cohort: Path, tmp_path: Path, capsys):
    command = shlex.join([sys.executable, str(TOY)])
    arguments = ["--task", "hpv", "--cases", str(cohort), "--output", str(tmp_path / "out"), "--command", command]
    assert main([*arguments, "--api-method", "both"]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = lines[lines.index(next(line for line in lines if line.startswith("seconds"))) :]
    assert [line.split()[0] for line in table[:5]] == ["seconds", "start-up", "A-1", "B-2", "together"]
    assert table[1].split()[1:4] == ["in", "each", "case"]
    assert table[-1] == "equal answers: 2 of 2"
    columns = [[float(cell) for cell in line.split()[1:]] for line in table[2:5]]
    start = float(table[1].split()[4])
    assert columns[2][0] == pytest.approx(columns[0][0] + columns[1][0], abs=0.16)
    assert columns[2][1] == pytest.approx(start + columns[0][1] + columns[1][1], abs=0.21)
    for method in ("exec", "invoke"):
        assert read_json(tmp_path / "out" / method / "rehearsal.json")["api_method"] == method


def test_a_failed_case_of_the_server_fails_the_comparison(cohort: Path, tmp_path: Path, capsys):
    command = shlex.join([sys.executable, str(TOY), "--behave", "first-is-bad"])
    arguments = ["--task", "hpv", "--cases", str(cohort), "--output", str(tmp_path / "out"), "--command", command]
    assert main([*arguments, "--api-method", "both"]) == 1
    printed = capsys.readouterr().out
    assert printed.count("failed after") == 1
    assert "equal answers: 1 of 2" in printed
