"""The commands that a rehearsal runs, for the default edition and another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehearsal.cli import main
from rehearsal.jobs.execute import Rehearsal

FOUR_ANSWERS = str(Path(__file__).parents[1] / "editions" / "four_answers.json")


@pytest.mark.parametrize(
    ("edition", "algorithm", "evaluation"),
    [
        ([], "-m algorithm --task hpv", "-m evaluation --task hpv"),
        (
            ["--edition", FOUR_ANSWERS],
            f"-m algorithm --task everything --edition {FOUR_ANSWERS}",
            f"-m evaluation --task everything --edition {FOUR_ANSWERS.replace('.json', '_profile.json')}",
        ),
    ],
)
def test_commands_name_an_edition_other_than_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edition: list[str], algorithm: str, evaluation: str
) -> None:
    """The task may be left out where the edition has only one."""
    rehearsals: list[Rehearsal] = []

    def stop(rehearsal: Rehearsal, **_: object) -> None:
        rehearsals.append(rehearsal)
        raise KeyboardInterrupt

    monkeypatch.setattr("rehearsal.cli.rehearse", stop)
    task = [] if edition else ["--task", "3"]
    with pytest.raises(KeyboardInterrupt):
        main([*task, *edition, "--cases", str(tmp_path), "--output", "out", "--process", "--ground-truth", "truth"])
    (rehearsal,) = rehearsals
    assert rehearsal.algorithm.description.split(" ", 1)[1] == algorithm
    assert rehearsal.evaluation is not None
    assert rehearsal.evaluation.description.split(" ", 1)[1] == evaluation


def test_an_unknown_task_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--task", "4", "--cases", str(tmp_path), "--output", "out", "--process"])
    assert stop.value.code == 2
    assert "found task '4', expected one of segmentation, 1, rfs, 2, hpv, 3" in capsys.readouterr().err
