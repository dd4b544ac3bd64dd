"""A few kills of `kills.py`, and its own planning and table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.kills import KINDS, TRAIN, Kill, anonymise, format_table, list_commands, plan_kill, run_kills
from tests.faults.whole_files import is_whole, list_files

NAMES = sorted(list_commands())


@pytest.mark.slow
def test_kills_of_commands(tmp_path: Path) -> None:
    """Files after a kill are whole, of one run, and replaced by the repetition."""
    kills = run_kills(8, 1, tmp_path, [name for name in NAMES if name != TRAIN])
    assert [kill.problems for kill in kills] == [[]] * 8


@pytest.mark.slow
def test_kills_while_networks_train(tmp_path: Path) -> None:
    kills = run_kills(2, 1, tmp_path, [TRAIN])
    assert [kill.problems for kill in kills] == [[]] * 2


def test_a_third_of_the_kills_meets_a_training() -> None:
    kills = [plan_kill(1, number, NAMES) for number in range(300)]
    assert sum(kill.moment == "training" for kill in kills) == 100
    assert {kill.command for kill in kills} == set(NAMES)
    assert {kill.kind for kill in kills} == set(KINDS)
    assert {kill.kind for kill in kills if kill.moment == "training"} == {"SIGKILL", "SIGTERM"}
    assert kills[7] == plan_kill(1, 7, NAMES) != plan_kill(2, 7, NAMES)


def test_table() -> None:
    kills = [Kill(0, "rank", "SIGKILL", 0.1, "start", over_earlier=False, status=-9)]
    kills += [Kill(1, "rank", "memory", 0.9, "-", over_earlier=True, status=0, problems=["damaged: x"])]
    header, row, total = format_table(kills).splitlines()
    assert header.split()[:5] == ["command", "start", "middle", "end", "training"]
    assert row.split() == ["rank", "1", "0", "0", "0", "1", "0", "1", "1", "1", "0"]
    assert total.split()[1:] == row.split()[1:]


def test_names_of_jobs_do_not_count() -> None:
    job = "evaluation/input/2c5ea4c0-4067-11e9-8bad-9b1deb4d3b7d/output/risk.json"
    assert anonymise(job) == "evaluation/input/ID/output/risk.json"
    assert anonymise("logs/CHUM-001.stderr") == "logs/CHUM-001.stderr"


@pytest.mark.parametrize(
    ("name", "content", "whole"),
    [("a.json", b"{}", True), ("a.json", b"{", False), ("a.html", b"<p>", False), ("a.zip", b"PK", False)],
)
def test_whole_files(tmp_path: Path, name: str, content: bytes, whole: bool) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / ".partial-1").touch()
    assert is_whole(tmp_path / name) is whole
    assert list(list_files(tmp_path)) == [name]
