"""A damaged leaderboard.json gives a report or one line, without a stack trace."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from contract.errors import HecktorError
from evaluation.ranking.cli import main as rank
from reporting.report.cli import main as report
from tests.damage import ABSENT, list_paths, replace_at

JUNK: tuple[Any, ...] = (
    None, True, 0, 1, -1, 0.5, 5, 10**400, 1e308, "", "abc", "1", "\ud800", "a\nb", "a\x00b", "x" * 300, "../up",
    [], {}, [[]], {"a": 1}, [None], ["value"], {"value": None}, [{"team": "A"}],
)  # fmt: skip
EDITS = 40


@pytest.fixture(scope="module")
def results_of_module(valid_metrics: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rank two teams of one task, a row out of competition and the mean, with bootstrap rankings and tests."""
    folder = tmp_path_factory.mktemp("ranked") / "task1"
    for team in ("A", "B", "C"):
        path = folder / team / "metrics.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(valid_metrics("masks")))
    files = [str(folder / team / "metrics.json") for team in "AB"]
    unranked = ["--out-of-competition", f"C={folder / 'C' / 'metrics.json'}:withdrawn", "--mean"]
    rank(["--task", "1", *files, *unranked, "--bootstraps", "5", "--output", str(folder)])
    return folder.parent


@pytest.fixture
def results(results_of_module: Path, tmp_path: Path) -> Path:
    """Copy the results, so that a test may change them."""
    return shutil.copytree(results_of_module, tmp_path / "results")


def test_random_damage_is_refused_or_harmless(results: Path, tmp_path: Path) -> None:
    """Edits replace or remove one value somewhere in the file."""
    file, rng = results / "task1" / "leaderboard.json", random.Random(1)
    valid = json.loads(file.read_text())
    paths = list(list_paths(valid))
    outcomes, lines = {"page": 0, "refused": 0}, set()
    for _ in range(EDITS):
        path, junk = rng.choice(paths), rng.choice(JUNK)
        board = replace_at(valid, path, ABSENT if rng.random() < 0.2 else junk)
        file.write_text(json.dumps(board))
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                report(["--results", str(results), "--output", str(tmp_path / "report.html")])
            outcomes["page"] += 1
        except HecktorError as problem:
            outcomes["refused"] += 1
            lines.add(problem.message.count("\n"))
    assert min(outcomes.values()) > EDITS // 10
    assert lines == {0}
    file.write_text(json.dumps(valid))
    assert report(["--results", str(results), "--output", str(tmp_path / "report.html")]) == 0


@pytest.mark.parametrize("text", ["{", "null", '{"task": NaN}', '"\\ud800"'])
def test_invalid_files_are_refused(results: Path, tmp_path: Path, text: str) -> None:
    (results / "task1" / "leaderboard.json").write_text(text)
    with pytest.raises(HecktorError, match=r"leaderboard\.json"):
        report(["--results", str(results), "--output", str(tmp_path / "report.html")])
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(("output", "page"), [("out.html", "out.html"), ("a.b", "a.b/index.html")])
def test_the_output_is_a_folder_or_a_page(results: Path, tmp_path: Path, output: str, page: str) -> None:
    assert report(["--results", str(results), "--output", str(tmp_path / output)]) == 0
    assert (tmp_path / page).read_text().lower().startswith("<!doctype html>")


@pytest.mark.parametrize(
    "name",
    ["../../outside", "..", "/outside", "A\\B", "t\x1b]0;pwned\x07", "t\u202eevil", "b\udcff", " ", "x" * 201],
)
def test_the_name_of_a_team_leads_nowhere_and_is_printable(results: Path, tmp_path: Path, name: str) -> None:
    """The report and the ranking refuse the same names; messages show them without control characters."""
    (tmp_path / "outside").mkdir()
    (results / "task1" / "A" / "metrics.json").rename(tmp_path / "outside" / "metrics.json")
    file, sound = results / "task1" / "leaderboard.json", str(results / "task1" / "B" / "metrics.json")
    aside, valid = tmp_path / "outside" / "metrics.json", file.read_text()
    for part in ("teams", "out_of_competition"):
        board = json.loads(valid)
        board[part][0]["team"] = name
        file.write_text(json.dumps(board))
        with pytest.raises(HecktorError, match=rf"^task1/leaderboard\.json\.{part}\[0\]\.team: found ") as problem:
            report(["--results", str(results), "--output", str(tmp_path / "report.html")])
        assert problem.value.message.isprintable()
    words = [["--names", name], *([["--out-of-competition", f"{name}={aside}"]] if name.strip() else [])]
    for more in words:
        with pytest.raises(HecktorError, match=r"^team: found ") as problem:
            rank([sound, *more, "--output", str(tmp_path / "ranked")])
        assert problem.value.message.isprintable()
    assert not (tmp_path / "ranked").exists()
