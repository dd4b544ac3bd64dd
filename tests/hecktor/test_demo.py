"""The commands that the demonstration runs, without running them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hecktor import demo

Commands = list[list[str]]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    """The subcommands with their arguments, in order."""
    calls: Commands = []

    def recorded(name: str) -> Callable[[Sequence[str]], int]:
        def main(arguments: Sequence[str]) -> int:
            calls.append([name, *arguments])
            return 0

        return main

    monkeypatch.setattr(demo, "command", recorded)
    return calls


def value(command: list[str], option: str) -> str:
    return command[command.index(option) + 1]


def test_hecktor_2025_has_three_tasks_with_two_teams_each(commands: Commands) -> None:
    assert demo.main([]) == 0
    names = [command[0] for command in commands]
    assert names == ["phantoms", *["rehearse", "rehearse", "rank"] * 3, "report"]
    assert (value(commands[0], "--patients"), value(commands[0], "--output")) == ("12", "out/demo/cohort")
    assert "--arguments=--method clinical" in commands[-3]
    assert all("--process" in command for command in commands if command[0] == "rehearse")


def test_another_edition_has_a_folder_of_its_own(commands: Commands) -> None:
    """HECKTOR 2026 has one image; both teams give all four answers."""
    assert demo.main(["--edition", "hecktor2026", "--containers"]) == 0
    assert [command[0] for command in commands] == ["phantoms", "rehearse", "rehearse", "rank", "report"]
    assert all(value(command, "--edition") == "hecktor2026" for command in commands[:3])
    assert not [command for command in commands[3:] if "--edition" in command], "the results name it"
    phantoms, baseline, threshold, *_ = commands
    assert value(phantoms, "--output") == "out/demo-hecktor2026/cohort"
    assert value(baseline, "--algorithm-image") == "hecktor-2026:latest"
    assert value(baseline, "--evaluation-image") == "hecktor-evaluation-2026:latest"
    assert "--arguments=--method threshold" in threshold


def test_given_options_replace_the_defaults(commands: Commands) -> None:
    assert demo.main(["--patients", "3", "--seed", "4", "--output", "elsewhere"]) == 0
    assert [value(commands[0], option) for option in ("--patients", "--seed", "--output")] == [
        "3", "4", "elsewhere/cohort"
    ]  # fmt: skip


def test_the_last_lines_name_the_report_and_the_viewer(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    """The viewer's command can be run as it is printed: its program and options exist."""
    assert demo.main(["--output", "out/my demo"]) == 0
    *_, report, viewer = capsys.readouterr().out.splitlines()
    assert report == f"The report:         {Path('out/my demo/report.html').resolve().as_uri()}"
    program, *words = shlex.split(viewer.removeprefix("Look into a case:   "))
    assert Path(program).name == "hecktor"
    options = ["--cohort", "out/my demo/cohort", "--results", "out/my demo"]
    assert words == ["view", *options]
