"""`hecktor rank`: the official ranking of teams from their metrics.json files, and its alternatives beside it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from contract.errors import HecktorError
from contract.files import atomic_path, write_json
from contract.options import whole_number
from contract.tasks import TASK_CHOICES, task_named
from evaluation.editions.profile import TIE_RULES
from evaluation.ranking.leaderboard import DEFAULT_RANKINGS, RankOptions, as_csv, leaderboard
from evaluation.ranking.runs import best_run
from evaluation.results.metrics_json import TeamMetrics, read_metrics

LEADERBOARD_JSON: Final = "leaderboard.json"
LEADERBOARD_CSV: Final = "leaderboard.csv"


def main(argv: Sequence[str] | None = None) -> int:
    """Rank, write `leaderboard.json` and `.csv` and print it; raises HecktorError for what a user can mend."""
    options = _parser().parse_args(argv)
    task = task_named(options.task)
    single = [read_metrics(path, team) for path, team in _named(options.metrics, options.names)]
    how = RankOptions(options.edition, options.bootstraps, options.seed, options.official, options.ties)
    chosen = [best_run(task, team, paths, how) for team, paths in options.runs]
    teams = [*single, *(run.metrics for run in chosen)]
    _check_names(teams)
    board = leaderboard(task, teams, how)
    board["runs"] = {run.metrics.team: run.as_json() for run in chosen}
    write_json(options.output / LEADERBOARD_JSON, board)
    with atomic_path(options.output / LEADERBOARD_CSV) as partial:
        partial.write_text(as_csv(board), encoding="utf-8")
    for run in chosen:
        sys.stdout.write(f"{run.metrics.team}: ranked by {run.chosen}, the best of {len(run.order)} runs\n")
    sys.stdout.write(f"{as_text(board)}written: {options.output / LEADERBOARD_JSON} and {LEADERBOARD_CSV}\n")
    return 0


def _named(paths: Sequence[Path], names: Sequence[str] | None) -> list[tuple[Path, str]]:
    teams = list(names) if names else [path.resolve().parent.name for path in paths]
    if len(teams) != len(paths):
        raise HecktorError("--names", f"{len(teams)} names for {len(paths)} files", "one each")
    return list(zip(paths, teams, strict=True))


def _check_names(teams: Sequence[TeamMetrics]) -> None:
    names = [team.team for team in teams]
    if not names:
        raise HecktorError("rank", "no metrics.json given", "one a team, or --runs")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise HecktorError(f"team {twice[0]!r} stands twice, expected a name for each team (--names)")


def as_text(board: Mapping[str, Any]) -> str:
    """The leaderboard as lines of a table."""
    metrics = board["metrics"]
    width = max(len(entry["team"]) for entry in [*board["teams"], *board["unranked"], {"team": "team"}])
    beside = [name for name in board["teams"][0]["rankings"] if name != board["official"]]
    titles = [*metrics.values(), *(f"by {name}" for name in beside)]
    lines = [f"{'rank':>4}  {'team':<{width}}  " + "  ".join(f"{title:>20}" for title in titles)]
    for entry in board["teams"]:
        cells = [_cell(entry["metrics"][name]) for name in metrics]
        cells += [f"{entry['rankings'][name]['rank']:>20g}" for name in beside]
        lines.append(f"{entry['rank']:>4}  {entry['team']:<{width}}  " + "  ".join(cells))
    lines += [f"   -  {entry['team']:<{width}}  no {', '.join(entry['without'])}" for entry in board["unranked"]]
    lines += _uncertain_lines(board, width)
    return "\n".join(lines) + "\n"


def _cell(figures: Mapping[str, Any]) -> str:
    value = figures["value"]
    return f"{'inf':>20}" if value is None else f"{value:>20.4f}"


def _uncertain_lines(board: Mapping[str, Any], width: int) -> list[str]:
    stable = board["stability"]
    if stable is None:
        return [f"no rank stability: {board['without_stability_because']}"]
    official = stable["rankings"][board["official"]]
    lines = [f"ranks in {stable['bootstraps']} bootstrap rankings: 95% interval, and how often first"]
    for entry in board["teams"]:
        found = official["teams"][entry["team"]]
        first = found["times_at_rank"].get("1", 0) / stable["bootstraps"]
        lines.append(f"      {entry['team']:<{width}}  {found['ci95_low']:g} to {found['ci95_high']:g}, {first:.0%}")
    tau = official["kendall_tau"]
    if tau["mean"] is not None:
        lines.append(f"Kendall's tau {tau['mean']:.3f} [{tau['ci95_low']:.3f}, {tau['ci95_high']:.3f}]")
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hecktor rank", description="Rank teams from their metrics.json files.")
    parser.add_argument("--task", required=True, choices=TASK_CHOICES, help="which task")
    parser.add_argument("metrics", type=Path, nargs="*", help="metrics.json files, one a team")
    parser.add_argument("--names", nargs="+", help="team names, in the files' order (the files' folders)")
    parser.add_argument(
        "--runs",
        type=_runs,
        action="append",
        default=[],
        metavar="TEAM=FILE,FILE",
        help="several runs of one team, of which the best by the edition's ranking counts; may be given for each team",
    )
    parser.add_argument(
        "--bootstraps",
        type=whole_number(0),
        default=DEFAULT_RANKINGS,
        help="bootstrap rankings, 0 for none (%(default)s)",
    )
    parser.add_argument(
        "--seed", type=whole_number(0), help="seed of the bootstrap rankings (the first team's evaluation's)"
    )
    parser.add_argument("--edition", help="the profile.json, where the edition is none of the package's own")
    parser.add_argument("--official", metavar="RANKING", help="another ranking of the edition in force, by its name")
    parser.add_argument("--ties", choices=TIE_RULES, help="the rank of equal teams (the edition's rule)")
    parser.add_argument("--output", type=Path, required=True, help="folder for leaderboard.json and .csv")
    return parser


def _runs(text: str) -> tuple[str, list[Path]]:
    team, sign, files = text.partition("=")
    paths = [Path(name) for name in files.split(",") if name]
    if not sign or not team.strip() or not paths:
        raise argparse.ArgumentTypeError(f"{text}: expected TEAM=FILE,FILE")
    return team.strip(), paths
