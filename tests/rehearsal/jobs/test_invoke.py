"""One server process for all cases: failures are reported with the platform's reaction."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from contract.errors import EngineError
from contract.io.files import read_json
from rehearsal.jobs import evaluation as evaluation_jobs
from rehearsal.jobs.evaluation import EVALUATION_LIMITS
from rehearsal.jobs.execution import choose_api_method
from rehearsal.runners.monitor import Logs
from rehearsal.runners.runner import GIB, CallResult, Limits, ProcessRunner, RunningServer
from tests.rehearsal.conftest import read_input_entries

TOY = Path(__file__).parents[1] / "toy_algorithm.py"


def test_a_good_server_passes(rehearse_toy, tmp_path: Path):
    result = rehearse_toy(task="segmentation", evaluation="well", api_method="invoke")
    assert result.succeeded, (result.failures, result.problems)
    assert all("2 such file(s)" in line for line in result.warnings)  # the toy answers all tasks, and no other warning
    assert result.api_method == "invoke"
    assert len(result.startup_s) == 1
    assert [(case.http_status, case.exit_code) for case in result.cases] == [(201, None)] * 2
    assert len(list((tmp_path / "out" / "predictions").iterdir())) == 2


def test_durations_have_the_name_of_the_api_method(rehearse_toy, tmp_path: Path):
    for method, other_method in (("exec", "invoke"), ("invoke", "exec")):
        rehearse_toy(task="hpv", api_method=method)
        for job in read_json(tmp_path / "out" / "evaluation" / "input" / "predictions.json"):
            assert job[f"{method}_duration"].startswith("P0DT00H00M0")
            assert job[f"{other_method}_duration"] is None


def test_cases_share_a_process_but_not_their_folders(rehearse_toy, tmp_path: Path):
    result = rehearse_toy("report", api_method="invoke")
    out = tmp_path / "out"
    logs = [out / "logs" / f"{case.case}.stderr" for case in result.cases]
    reports = [json.loads(log.read_text()) for log in logs]
    assert len({report["pid"] for report in reports}) == 1
    for report, case in zip(reports, result.cases, strict=True):
        images = [entry["image"]["pk"] for entry in read_input_entries(out, case.job) if entry["image"]]
        expected = ["ehr.json", f"images/ct/{images[0]}.mha", f"images/pet/{images[1]}.mha", "inputs.json"]
        assert report["inputs"] == expected
        assert report["output"] == []
    assert (out / "logs" / "server-1.stderr").read_text() == "".join(log.read_text() for log in logs)
    report = read_json(out / "rehearsal.json")
    assert report["api_method"] == "invoke"
    assert len(report["startup_s"]) == 1
    assert [case["http_status"] for case in report["cases"]] == [201, 201]
    assert all(case["peak_memory_bytes"] > 1e6 for case in report["cases"])


@pytest.mark.parametrize(
    ("behave", "task", "message"),
    [
        ("200", "hpv", "POST /invoke: 200 (), expected 201; the platform would fail the job"),
        ("label-3", "segmentation", "label 3, expected only 0, 1, 2"),
        ("write-input", "hpv", "/input is read-only"),
        ("die-at-start", "hpv", "the server ended before it was ready: exit status 1"),
    ],
)
def test_a_bad_server_fails(rehearse_toy, behave, task, message):
    result = rehearse_toy(behave, task=task, api_method="invoke")
    assert len(result.failures) == 2
    assert all(message in failure for failure in result.failures), result.failures
    assert not result.succeeded
    assert len(result.startup_s) == (behave != "die-at-start")


@pytest.mark.slow
def test_a_server_that_is_never_ready_fails(rehearse_toy):
    """Redirections do not count. The toy starts well within 50 calls, 0.1 s apart."""
    result = rehearse_toy("redirect", task="hpv", api_method="invoke", health_tries=50)
    message = r"GET /health: 302 \(\) after \d+ s, expected 200 within 50 calls, 0.1 s apart; the platform would"
    assert len(result.failures) == 2
    assert all(re.search(message, failure) for failure in result.failures), result.failures
    assert not result.succeeded
    assert len(result.startup_s) == 0


def test_the_next_case_runs_after_a_bad_one(rehearse_toy):
    result = rehearse_toy("first-is-bad", task="rfs", api_method="invoke")
    shown = "fail the job and show the submitter its last line on stderr: last"
    assert result.failures == (
        f"A-1: POST /invoke: 500 (the scanner was off), expected 201; the platform would {shown}",
    )
    assert result.problems == ("1 of 2 cases failed (A-1), so the platform would fail the job",)
    assert not result.succeeded
    assert result.cases[1].failure is None
    assert len(result.startup_s) == 1


def test_the_trial_of_a_server_has_the_limits_of_the_starter_kit():
    """Health is asked 30 times, 3 s apart, and a call has 300 s, unless the task or the user allows less."""
    limits = Limits(GIB, 900.0)
    assert (limits.health_tries, limits.health_interval_s) == (30, 3.0)
    assert (limits.case_limit_s("exec"), limits.case_limit_s("invoke")) == (900.0, 300.0)
    assert Limits(GIB, 60.0).case_limit_s("invoke") == 60.0


@pytest.mark.parametrize(("tries", "ready"), [(2, False), (3, True)])
def test_health_is_asked_a_fixed_number_of_times(tmp_path: Path, tries: int, ready: bool):
    """If the third call answers 200, the server is ready with three calls, and not with two."""
    answers = iter([503, 503, 200])
    process = subprocess.Popen(["sleep", "60"])
    logs = Logs(process, tmp_path / "stdout", tmp_path / "stderr")
    server = RunningServer(process, logs, (), 0, lambda _: None, lambda: None)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RunningServer, "_call", lambda *_, **__: CallResult(next(answers), "", 0.0))
            assert (server.wait_until_ready(tries, 0.0).status == 200) is ready
    finally:
        server.process.kill()
        server.process.wait()


@pytest.mark.parametrize(
    ("behave", "first", "why"),
    [
        ("sleep", r"Invoke time limit exceeded: still running after 1 s; .* SIGTERM", "the time limit was exceeded"),
        ("die", "the server ended during the case: exit status 3; .* on stderr: the scanner was off", "the process"),
        ("missing", "the server ended during the case: exit status 0; the platform would", "the process ended"),
    ],
)
def test_an_unhealthy_process_is_ended_and_answers_no_further_case(rehearse_toy, behave, first, why):
    """No other process starts after the first case of two, so the second case fails."""
    result = rehearse_toy(behave, task="hpv", api_method="invoke", time_limit_s=1, evaluation="well")
    failures = [case.failure for case in result.cases]
    assert re.match(first, failures[0]), failures
    assert failures[1].startswith(f"503, not answered: the process has been unhealthy since case A-1 ({why}")
    assert [case.http_status for case in result.cases] == [None, 503]
    assert [case.timed_out for case in result.cases] == [behave == "sleep", False]
    assert len(result.startup_s) == 1
    assert "2 of 2 cases failed (A-1, B-2), so the platform would fail the job" in result.problems


def test_a_server_that_fills_the_disk_is_ended(rehearse_toy, tmp_path: Path):
    """With 80 MB where 50 MB are allowed its case fails at once, and the others as after any unhealthy process."""
    result = rehearse_toy("fill", task="hpv", api_method="invoke", disk_bytes=50_000_000)
    failures = [case.failure for case in result.cases]
    assert failures[0].startswith("disk limit exceeded: its files take 0.08 GB, expected at most 0.05 GB"), failures
    assert "unhealthy since case A-1 (the disk limit was exceeded)" in failures[1]
    assert result.cases[0].seconds < 30
    assert not list((tmp_path / "out").glob(".rehearsal-*"))


def test_an_image_without_the_label_is_no_server():
    """Images need the label for `invoke`; commands have no label."""
    unlabelled = SimpleNamespace(description="image", api_method="exec", is_isolated=True)
    with pytest.raises(EngineError, match="image: labelled exec"):
        choose_api_method(unlabelled, "invoke", 1)
    assert choose_api_method(ProcessRunner(("toy",)), "invoke", 1) == ("invoke", ())


def test_a_server_image_can_be_called_by_exec():
    """Since the platform reads the label, the other call is a warning."""
    server = SimpleNamespace(description="image", api_method="invoke", is_isolated=True)
    method, (warning,) = choose_api_method(server, "exec", 1)
    assert method == "exec"
    assert "label says invoke" in warning
    assert choose_api_method(server, "auto", 1) == ("invoke", ())


@pytest.fixture
def rehearse_evaluation(rehearse_toy, monkeypatch: pytest.MonkeyPatch):
    """Rehearse the toy evaluation as a server after an algorithm called by exec."""
    monkeypatch.setattr(ProcessRunner, "api_method", "invoke")
    limits = replace(EVALUATION_LIMITS, invoke_limit_s=2.0, health_tries=100, health_interval_s=0.1)
    monkeypatch.setattr(evaluation_jobs, "EVALUATION_LIMITS", limits)
    return lambda behaviour: rehearse_toy(evaluation=behaviour, api_method="exec")


def test_an_evaluation_may_be_a_server(rehearse_evaluation, tmp_path: Path):
    """Both cases have an answer, so every metric of the toy is 2 / 2."""
    result = rehearse_evaluation("well")
    assert result.succeeded, (result.failures, result.problems)
    assert set(result.ranked.values()) == {1.0}
    assert (result.api_method, result.evaluation_api_method) == ("exec", "invoke")
    assert (tmp_path / "out" / "metrics.json").is_file()


@pytest.mark.parametrize(
    ("behaviour", "problem"),
    [
        ("200", r"evaluation: POST /invoke: 200 \(\), expected 201"),
        ("die", r"evaluation: the server ended during the case: exit status 3; .*: the reference was off$"),
        ("die-at-start", r"evaluation: the server ended before it was ready: exit status 1; .*: error: no reference$"),
        ("sleep", r"evaluation: Invoke time limit exceeded: still running after 2 s"),
        ("NaN", r"metrics\.json: found nothing at aggregates\.gtvn_f1_agg\.value, expected a number"),
    ],
)
def test_an_evaluation_server_that_fails(rehearse_evaluation, tmp_path: Path, behaviour: str, problem: str):
    result = rehearse_evaluation(behaviour)
    assert not result.succeeded
    assert re.search(problem, result.problems[0]), result.problems
    assert (tmp_path / "out" / "metrics.json").exists() == (behaviour == "NaN")


def test_a_server_takes_one_case_at_a_time(rehearse_toy):
    with pytest.raises(EngineError, match="2 cases at a time"):
        rehearse_toy(api_method="invoke", parallel=2)
