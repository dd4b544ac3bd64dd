"""`hecktor rank`: the official ranking of teams from their metrics.json files, and its alternatives beside it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from contract.errors import HecktorError
from contract.files import write_json
from contract.tasks import TASK_CHOICES, task_named
from evaluation.leaderboard import leaderboard
from evaluation.metrics_json import read_metrics

LEADERBOARD_JSON: Final = "leaderboard.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Rank, write `leaderboard.json` and print it; raises HecktorError for what a user can mend."""
    options = _parser().parse_args(argv)
    task = task_named(options.task)
    teams = [read_metrics(path, team) for path, team in _named(options.metrics, options.names)]
    board = leaderboard(task, teams, options.edition)
    write_json(options.output / LEADERBOARD_JSON, board)
    sys.stdout.write(f"{as_text(board)}written: {options.output / LEADERBOARD_JSON}\n")
    return 0


def _named(paths: Sequence[Path], names: Sequence[str] | None) -> list[tuple[Path, str]]:
    teams = list(names) if names else [path.resolve().parent.name for path in paths]
    if len(teams) != len(paths):
        raise HecktorError(f"--names: {len(teams)} names for {len(paths)} files, expected one each")
    twice = sorted({team for team in teams if teams.count(team) > 1})
    if twice:
        raise HecktorError(f"team {twice[0]!r} stands twice, expected a name for each team (--names)")
    return list(zip(paths, teams, strict=True))


def as_text(board: Mapping[str, Any]) -> str:
    """The leaderboard as lines of a table."""
    metrics = board["metrics"]
    width = max(len(entry["team"]) for entry in [*board["teams"], *board["unranked"], {"team": "team"}])
    lines = [f"{'rank':>4}  {'team':<{width}}  " + "  ".join(f"{title:>20}" for title in metrics.values())]
    for entry in board["teams"]:
        cells = (f"{entry['metrics'][name]['value']:>20.4f}" for name in metrics)
        lines.append(f"{entry['rank']:>4}  {entry['team']:<{width}}  " + "  ".join(cells))
    lines += [f"   -  {entry['team']:<{width}}  no {', '.join(entry['without'])}" for entry in board["unranked"]]
    return "\n".join(lines) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hecktor rank", description="Rank teams from their metrics.json files.")
    parser.add_argument("--task", required=True, choices=TASK_CHOICES, help="which task")
    parser.add_argument("metrics", type=Path, nargs="+", help="metrics.json files, one a team")
    parser.add_argument("--names", nargs="+", help="team names, in the files' order (the files' folders)")
    parser.add_argument("--edition", help="the profile.json, where the edition is none of the package's own")
    parser.add_argument("--output", type=Path, required=True, help="folder for leaderboard.json")
    return parser
