"""`hecktor rank`: the official ranking of teams from their metrics.json files, and the alternative rankings."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from contract.errors import HecktorError
from contract.files import write_json
from contract.options import add_task_option, name_paths, whole_number
from evaluation.editions.schemes import TIE_RULES
from evaluation.editions.task import with_ranking
from evaluation.execution.options import chosen_task
from evaluation.ranking.contest import best_run, profile_of, require_rows
from evaluation.ranking.leaderboard import DEFAULT_RANKINGS, leaderboard, write_table
from evaluation.results.metrics_json import read_metrics

LEADERBOARD_JSON: Final = "leaderboard.json"
LEADERBOARD_CSV: Final = "leaderboard.csv"


def main(argv: Sequence[str] | None = None) -> int:
    """Rank, write `leaderboard.json` and `.csv` and print it; raises HecktorError for errors that the user can fix."""
    parser = _parser()
    options = parser.parse_args(argv)
    single = [read_metrics(path, team) for path, team in _named(options.metrics, options.names)]
    first = single or [read_metrics(paths[0], team) for team, paths in options.runs[:1]]
    task = chosen_task(parser, profile_of(first, options.edition), options.task)
    profile = with_ranking(task, options.official, options.ties, "rank")
    runs = [best_run(profile, team, paths) for team, paths in options.runs]
    teams = [*single, *(run.metrics for run in runs)]
    _check_team_names([team.team for team in teams])
    if not options.without_rows:
        require_rows([*single, *(run for chosen in runs for run in chosen.order)])
    board = leaderboard(profile, teams, options.bootstraps, options.seed)
    board["runs"] = {run.metrics.team: run.as_json() for run in runs}
    write_json(options.output / LEADERBOARD_JSON, board)
    write_table(options.output / LEADERBOARD_CSV, board)
    for run in runs:
        sys.stdout.write(f"{run.metrics.team}: ranked by {run.chosen}, the best of {len(run.order)} runs\n")
    sys.stdout.write(f"{_as_text(board)}written: {options.output / LEADERBOARD_JSON} and {LEADERBOARD_CSV}\n")
    return 0


def _named(paths: Sequence[Path], names: Sequence[str] | None) -> list[tuple[Path, str]]:
    teams = list(names) if names else [path.resolve().parent.name for path in paths]
    if len(teams) != len(paths):
        raise HecktorError("--names", f"{len(teams)} names for {len(paths)} files", "one each")
    return list(zip(paths, teams, strict=True))


def _check_team_names(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise HecktorError(f"team {twice[0]!r} stands twice, expected a name for each team (--names)")


def _as_text(board: Mapping[str, Any]) -> str:
    metrics = board["metrics"]
    width = max(len("team"), *(len(entry["team"]) for entry in [*board["teams"], *board["unranked"]]))
    beside = [name for name in board["teams"][0]["rankings"] if name != board["official"]]
    titles = [*metrics.values(), *(f"by {name}" for name in beside)]
    widths = [max(20, len(title)) for title in titles]
    lines = [f"{'rank':>4}  {'team':<{width}}  " + "  ".join(f"{title:>20}" for title in titles)]
    for entry in board["teams"]:
        values = [entry["metrics"][name]["value"] for name in metrics]
        cells = ["inf" if value is None else f"{value:.4f}" for value in values]
        cells += [f"{entry['rankings'][name]['rank']:g}" for name in beside]
        aligned = (f"{cell:>{space}}" for cell, space in zip(cells, widths, strict=True))
        unchecked = "  without rows" * entry.get("without_rows", False)
        lines.append(f"{entry['rank']:>4}  {entry['team']:<{width}}  " + "  ".join(aligned) + unchecked)
    lines += [f"   -  {entry['team']:<{width}}  no {', '.join(entry['without'])}" for entry in board["unranked"]]
    lines += _stability_lines(board, width)
    return "\n".join(lines) + "\n"


def _stability_lines(board: Mapping[str, Any], width: int) -> list[str]:
    stable = board["stability"]
    if stable is None:
        return [f"no rank stability: {board['without_stability_because']}"]
    official = stable["rankings"][board["official"]]
    lines = [f"ranks in {stable['bootstraps']} bootstrap rankings: 95% interval, and how often first"]
    for entry in board["teams"]:
        ranks = official["teams"][entry["team"]]
        first = ranks["times_at_rank"].get("1", 0) / stable["bootstraps"]
        lines.append(f"      {entry['team']:<{width}}  {ranks['ci95_low']:g} to {ranks['ci95_high']:g}, {first:.0%}")
    tau = official["kendall_tau"]
    if tau["mean"] is not None:
        lines.append(f"Kendall's tau {tau['mean']:.3f} [{tau['ci95_low']:.3f}, {tau['ci95_high']:.3f}]")
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hecktor rank", description="Rank teams from their metrics.json files.")
    add_task_option(parser)
    parser.add_argument("metrics", type=Path, nargs="*", help="metrics.json files, one for each team")
    parser.add_argument(
        "--names", nargs="+", help="team names in the order of the files (default: the names of their folders)"
    )
    parser.add_argument(
        "--runs",
        type=name_paths,
        action="append",
        default=[],
        metavar="TEAM=FILE,FILE",
        help="several runs of one team, of which the best counts; may be repeated",
    )
    parser.add_argument(
        "--bootstraps",
        type=whole_number(0),
        default=DEFAULT_RANKINGS,
        help="number of bootstrap rankings, 0 for none (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0),
        help="seed of the bootstrap rankings (default: that of the first team's metrics.json)",
    )
    parser.add_argument(
        "--without-rows",
        action="store_true",
        help="also rank teams whose metrics.json holds no rows (`evaluate --public`), and mark them: nobody can check "
        "their values, and nothing is said about the stability of the ranks",
    )
    parser.add_argument("--edition", help="profile.json of an edition that is not in the package")
    parser.add_argument(
        "--official", metavar="RANKING", help="use another ranking scheme of the edition as the official one"
    )
    parser.add_argument("--ties", choices=TIE_RULES, help="rank of tied teams (default: the edition's rule)")
    parser.add_argument("--output", type=Path, required=True, help="folder for leaderboard.json and leaderboard.csv")
    return parser
