from __future__ import annotations

from collections.abc import Sequence

import pytest

from contract import sockets
from contract.errors import (
    EngineError,
    GroundTruthError,
    HecktorError,
    InputError,
    MetricError,
    ModelPackageError,
    OutputError,
    PredictionError,
    TimeLimitError,
    run_main,
)
from contract.tasks import TASKS, task_named


@pytest.mark.parametrize(
    ("name", "path", "limit_s"),
    [
        ("segmentation", "images/tumor-lymph-node-segmentation", 600),
        ("rfs", "rfs.json", 900),
        ("hpv", "hpv-status.json", 600),
    ],
)
def test_tasks_as_the_challenge_states_them(name: str, path: str, limit_s: float) -> None:
    task = task_named(name)
    assert (task.output.relative_path, task.time_limit_s) == (path, limit_s)
    assert task_named(str(task.number)) is task_named(f" {name.upper()} ") is task
    assert [socket.relative_path for socket in task.inputs] == ["images/ct", "images/pet", "ehr.json"]


def test_names_slugs_and_paths_are_unique() -> None:
    assert len({alias for task in TASKS for alias in task.aliases}) == 2 * len(TASKS)
    for attribute in ("slug", "relative_path", "pk"):
        assert len({getattr(socket, attribute) for socket in sockets.ALL_SOCKETS}) == len(sockets.ALL_SOCKETS)


def test_unknown_task() -> None:
    with pytest.raises(HecktorError, match="unknown task 'staging': expected one of segmentation, 1"):
        task_named("staging")


@pytest.mark.parametrize(
    "kind",
    [
        InputError,
        ModelPackageError,
        OutputError,
        GroundTruthError,
        PredictionError,
        MetricError,
        TimeLimitError,
        EngineError,
    ],
)
def test_a_mendable_error_is_one_last_line(kind: type[HecktorError], capsys: pytest.CaptureFixture[str]) -> None:
    def main(argv: Sequence[str] | None) -> int:
        print("before")
        raise kind("ct.mha: two\n  lines,\texpected one")

    assert run_main(main, []) == 1
    captured = capsys.readouterr()
    assert captured.err == "error: ct.mha: two lines, expected one\n"
    assert captured.out == "before\n"


def test_a_bug_keeps_its_trace() -> None:
    def main(argv: Sequence[str] | None) -> int:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        run_main(main, [])


def test_the_status_is_handed_on() -> None:
    assert run_main(lambda argv: len(argv or ()), ["a", "b", "c"]) == 3
