"""The demonstration runs as plain processes, from two patients to a leaderboard, a report and the viewer's command."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from contract.errors import ModelPackageError
from contract.io.files import read_json
from hecktor import demo
from hecktor.cli import main
from rehearsal.jobs.evaluation import select_ranked_values


@pytest.mark.slow
def test_two_patients_of_2026(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With seed 8 one patient relapses before the other's follow-up ends, and there are two T and N stages, so every metric is
    defined. The CTs are coarse.
    """
    monkeypatch.setattr(demo, "CT_COARSENING", 8)
    output = tmp_path / "my demo"
    options = ["--edition", "hecktor2026", "--patients", "2", "--seed", "8", "--jobs", "1"]
    assert demo.main([*options, "--output", str(output)]) == 0
    for team in ("baseline", "pet-threshold"):
        metrics = read_json(output / "task1" / team / "metrics.json")
        values, unranked = select_ranked_values(metrics)
        assert unranked == []
        assert values
    board = read_json(output / "task1" / "leaderboard.json")
    assert {row["team"] for row in board["teams"]} == {"baseline", "pet-threshold"}
    for team in ("baseline", "pet-threshold"):
        record = read_json(output / "task1" / team / "rehearsal.json")
        assert (record["api_method"], len(record["startup_s"]), len(record["cases"])) == ("invoke", 1, 2)
    printed = capsys.readouterr().out
    assert "On 2 synthetic patients, 1 of them HPV positive and 1 with a relapse, baseline reached score " in printed
    assert "On 2 synthetic patients, 1 of them" in (output / "report.html").read_text()
    assert "Kendall" not in printed
    *_, viewer, report = printed.splitlines()
    assert report.split()[-1] == (output / "report.html").resolve().as_uri()
    assert (output / "report.html").is_file()
    program, *words = shlex.split(viewer.removeprefix("View a case:   "))
    assert Path(program).name == "hecktor"
    assert words == ["view", "--cohort", str(output / "cohort"), "--results", str(output)]
    with pytest.raises(SystemExit):
        main([*words, "--port", "none"])  # the options before it exist
    assert "--port" in capsys.readouterr().err


def test_an_edition_without_a_shipped_package_is_refused_first(tmp_path: Path) -> None:
    with pytest.raises(ModelPackageError, match="none shipped for hntsmrg2024"):
        demo.main(["--edition", "hntsmrg2024", "--output", str(tmp_path / "demo")])
    assert not (tmp_path / "demo").exists()


def test_teams_of_each_kind_of_task() -> None:
    """All teams have arguments for their algorithms; a task without a mask has no threshold."""
    two = [demo.list_teams(task) for task in demo.load_edition("hecktor2025").algorithms]
    assert two == [("baseline", "pet-threshold"), ("baseline", "clinical-only"), ("baseline", "clinical-only")]
    assert {team for teams in two for team in teams} == set(demo.TEAMS)
