"""Rank stability, comparisons and best runs, from metrics.json files as the evaluation writes them."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from contract.errors import HecktorError
from evaluation.ranking.cli import main
from tests.evaluation.conftest import Phase
from tests.evaluation.ranking.test_comparisons import write_risks
from tests.evaluation.tasks import RFS


@pytest.fixture
def teams_of(tmp_path):
    """Make the teams of a task."""

    class Teams:
        """Evaluates teams of one task over one cohort, and ranks them."""

        def __init__(self, task):
            self.task, self.files = task, {}

        def add(self, team, fill, answers, **changes):
            phase = Phase(tmp_path / team, self.task)
            fill(phase, answers)
            phase.run(**changes)
            self.files[team] = phase.output_dir / "metrics.json"

        def rank(self, *more, files=None):
            paths = [str(path) for path in (self.files if files is None else files).values()]
            names = ["--names", *self.files] if files is None else []
            out = tmp_path / "board"
            assert main(["--task", self.task.name, *paths, *names, "--output", str(out), *more]) == 0
            return json.loads((out / "leaderboard.json").read_text())

    return Teams


def test_ranks_are_counted_on_the_draws(teams_of):
    """The test ranks the same draws of 60 patients again."""
    from evaluation.metrics.survival import SurvivalCohort, c_index_metric

    teams, n, rng = teams_of(RFS), 60, np.random.default_rng(1)
    predicted = {name: (-np.arange(n) + rng.normal(0, 25, n)).round(3) for name in "abc"}
    for name, values in predicted.items():
        teams.add(name, write_risks, values, seed=5)
    board = teams.rank("--bootstraps", "300")
    weights = np.stack(
        [np.bincount(s.integers(0, n, n), minlength=n) for s in np.random.default_rng(5).spawn(300)]
    ).astype(float)
    times, events = 10 + np.arange(n), np.arange(n) % 3 != 2
    c = np.stack([c_index_metric(SurvivalCohort(times, events, r), "tie")(weights) for r in predicted.values()], axis=1)
    rank = 1 + (c[:, None, :] > c[:, :, None] + 1e-12).sum(axis=2)
    assert board["stability"]["seed"] == 5
    for index, name in enumerate(predicted):
        counts = board["stability"]["rankings"]["c_index"]["teams"][name]["times_at_rank"]
        expected = {str(r): int((rank[:, index] == r).sum()) for r in (1, 2, 3) if (rank[:, index] == r).any()}
        assert counts == expected


def test_the_best_of_several_runs_counts(teams_of, capsys):
    """Of six pairs team a orders 3, 6 and 0 correctly, team b 4 and 5, whose median is 4.5.

    Means over teams: best (6 + 5) / 12, median (3 + 4.5) / 12, worst (0 + 4) / 12.
    """
    teams = teams_of(RFS)
    orders = {"a1": [2, 3, 4, 1], "a2": [4, 3, 2, 1], "a3": [1, 2, 3, 4], "b1": [3, 4, 1, 2], "b2": [3, 4, 2, 1]}
    for name, values in orders.items():
        teams.add(name, write_all_recurring, values)
    paths = {name: str(path) for name, path in teams.files.items()}
    runs = [f"{team}={','.join(path for name, path in paths.items() if name[0] == team)}" for team in "ab"]
    board = teams.rank("--runs", runs[0], "--runs", runs[1], "--bootstraps", "0", files={})
    assert [entry["team"] for entry in board["teams"]] == ["a", "b"]
    assert board["runs"]["a"]["chosen"].startswith("2 ")
    assert [run["metrics"]["c_index"]["value"] for run in board["runs"]["a"]["order"]] == [1, 0.5, 0]
    of_b = board["runs"]["b"]["summary"]["c_index"]
    assert [of_b[part] for part in ("best", "median", "worst")] == pytest.approx([5 / 6, 4.5 / 6, 4 / 6])
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("mean of the runs of 2 teams") + 1] == (
        f"   c_index: best {11 / 12:.4f}, median {7.5 / 12:.4f}, worst {4 / 12:.4f}"
    )


def write_all_recurring(phase, values):
    """Write the risks of patients who recur on day i."""
    lines = [f"P{day},1,{day}" for day in range(1, len(values) + 1)]
    phase.add_truth_table("PatientID,Relapse,RFS\n" + "\n".join(lines) + "\n")
    for day, value in enumerate(values, start=1):
        phase.add_value(f"P{day}", str(value))


def test_the_table_equals_the_json(teams_of, tmp_path, capsys):
    """The name of a team is no formula in the table. Teams without rows are ranked on request and marked.

    Results against different references are not mixed: one follow-up was corrected between the evaluations.
    """
    teams = teams_of(RFS)
    teams.add("a", write_risks, -np.arange(9))
    teams.add("=b", write_risks, np.arange(9))
    board = teams.rank("--bootstraps", "20")
    assert [entry["team"] for entry in board["teams"]] == ["a", "=b"]
    lines = read_table(tmp_path)
    assert [(line["rank"], line["team"], line["c_index_value"]) for line in lines] == [
        ("1", "a", "1.0"),
        ("2", "'=b", "0.0"),
    ]
    assert lines[1]["rank_ci95_low"] == "2.0"
    assert lines[0]["c_index_ci95_low"] == str(board["teams"][0]["metrics"]["c_index"]["ci95_low"])

    content = json.loads(teams.files["=b"].read_text())
    teams.files["=b"].write_text(json.dumps({**content, "results": []}))
    with pytest.raises(HecktorError, match=r"\(=b\): no per-case rows"):
        teams.rank()
    capsys.readouterr()
    board = teams.rank("--without-rows")
    assert [entry.get("without_rows") for entry in board["teams"]] == [None, True]
    assert (board["stability"], board["comparisons"]) == (None, None)
    assert "no per-case rows (written with --no-rows): =b" in board["without_stability_because"]
    printed = capsys.readouterr().out
    assert "no rank stability" in printed
    assert [line.endswith("  without rows") for line in printed.splitlines()[1:3]] == [False, True]
    assert [line["without_rows"] for line in read_table(tmp_path)] == ["no", "yes"]

    content["results"][8]["rfs_days"] += 1
    teams.files["=b"].write_text(json.dumps(content))
    with pytest.raises(HecktorError, match="a and =b: P08 was measured against different references"):
        teams.rank("--bootstraps", "5")


def read_table(folder):
    with (folder / "board" / "leaderboard.csv").open() as file:
        return list(csv.DictReader(file))
