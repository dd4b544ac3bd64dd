"""`hecktor study boards`: compare two leaderboards of one task, such as validation and test."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from contract.editions import compute_content_digest
from contract.errors import HecktorError
from evaluation.options import parse_name_path
from evaluation.results.board import Leaderboard, OutOfCompetitionEntry, RankedEntry, read_board
from evaluation.results.teams import OWN_EDITION
from reporting.analyses.tasks import OFFICIAL, compute_tau
from reporting.studies.outputs import StudyResult, collect_named_inputs

Entry: TypeAlias = RankedEntry | OutOfCompetitionEntry
# Fields that state how a board ranks; the teams' values do not depend on them.
_RANKING_FIELDS: Final = ("official", "ties")


def run_boards(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Compare the ranks and values of every team that both boards list."""
    paths = collect_named_inputs(options.boards, "board", min_count=2)
    if len(paths) > 2:
        raise HecktorError("boards", f"found {len(paths)}", "two")
    boards = {name: read_board(path) for name, path in paths.items()}
    first, second = boards
    different_ranking = compare_rules(boards)
    metrics = {name: title for name, title in boards[first].metrics.items() if name in boards[second].metrics}
    entries = {name: _list_entries(board) for name, board in boards.items()}
    common = [team for team in entries[second] if team in entries[first]]
    if not common:
        raise HecktorError("boards", f"no team of {first} in {second}", "boards of the same teams")
    lines = [
        _build_line(team, {name: entry_of[team] for name, entry_of in entries.items()}, metrics) for team in common
    ]
    taus = _compute_taus(list(entries.values()), common, metrics)
    content = {
        "boards": [first, second],
        "task": boards[first].task,
        "metrics": metrics,
        "teams": lines,
        "tau": taus,
        "different_ranking": different_ranking,
        "without_values": sorted({entry.team for board in boards.values() for entry in board.incomplete}),
        **{f"only_in_{name}": sorted(set(entry_of) - set(common)) for name, entry_of in entries.items()},
    }
    return StudyResult(content, lines, _summarise_lines(lines, taus, (first, second)))


def compare_rules(boards: Mapping[str, Leaderboard]) -> list[str]:
    """Find the differences in how two boards rank, and print a warning about each of them.

    Printed boards, and boards of earlier versions, do not state every rule; only rules that both state are compared.

    Raises:
        HecktorError: The values follow different rules: another task, edition or option.
    """
    names = " and ".join(boards)
    expected = "one for both boards"
    scoring = [
        {"task": board.task, "edition": board.edition, "options": board.provenance.get("options")}
        for board in boards.values()
    ]
    different_scoring = _find_differences("", *scoring)
    if different_scoring:
        raise HecktorError(names, f"different {different_scoring[0]}", expected)
    texts = [board.provenance.get(OWN_EDITION) for board in boards.values()]
    if None not in texts and texts[0] != texts[1]:
        edition = next(iter(boards.values())).edition
        digests = " and ".join(compute_content_digest(text) for text in texts)
        raise HecktorError(names, f"edition {edition!r} with different contents (sha256 {digests})", expected)
    ranking = [{field: getattr(board, field) for field in _RANKING_FIELDS} for board in boards.values()]
    different_ranking = _find_differences("", *ranking)
    for difference in different_ranking:
        sys.stderr.write(f"warning: {names} rank by different rules: {difference}\n")
    return different_ranking


def _find_differences(name: str, first: Any, second: Any) -> list[str]:
    """Return the values that both boards state and that differ, with their names: `connectivity 26 and 6`."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        common = [key for key in first if key in second]
        return [difference for key in common for difference in _find_differences(key, first[key], second[key])]
    if first is None or second is None or first == second:
        return []
    return [f"{name} {first} and {second}"]


def _list_entries(board: Leaderboard) -> dict[str, Entry]:
    """Return the entries with values by team, ranked entries first."""
    entries: list[Entry] = [*board.teams, *board.out_of_competition]
    return {entry.team: entry for entry in entries}


def _build_line(team: str, entry_of: Mapping[str, Entry], metrics: Mapping[str, str]) -> dict[str, Any]:
    """Build the line of a team: its ranks and values on both boards, and the second minus the first.

    A difference is null if one of its two values is absent or infinite.
    """
    figures: dict[str, list[float | None]] = {
        "rank": [entry.rank if isinstance(entry, RankedEntry) else None for entry in entry_of.values()]
    }
    figures |= {metric: [entry.metrics[metric].figure() for entry in entry_of.values()] for metric in metrics}
    first_board, second_board = entry_of
    line: dict[str, Any] = {"team": team}
    for key, (first, second) in figures.items():
        line[f"{key}_{first_board}"] = first
        line[f"{key}_{second_board}"] = second
        if first is None or second is None or math.isinf(first) or math.isinf(second):
            line[f"{key}_difference"] = None
        else:
            line[f"{key}_difference"] = second - first
    return line


def _compute_taus(
    boards: Sequence[Mapping[str, Entry]], teams: Sequence[str], metrics: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Compute Kendall's tau-b, with p, between the official ranks and between the ranks of each metric.

    Only teams that both boards rank count. The ranks are as on the boards: teams on only one board do not change the
    order of the others.
    """
    ranked_entries = [
        {team: entry for team, entry in board.items() if isinstance(entry, RankedEntry)} for board in boards
    ]
    ranked = [team for team in teams if all(team in entry_of for entry_of in ranked_entries)]
    taus = []
    for metric in (None, *metrics):
        ranks = [
            np.array(
                [
                    float(entry_of[team].rank if metric is None else entry_of[team].metrics[metric].rank)
                    for team in ranked
                ]
            )
            for entry_of in ranked_entries
        ]
        tau, p = compute_tau(*ranks) if len(ranked) > 1 else (None, None)
        taus.append({"by": OFFICIAL if metric is None else metric, "teams": len(ranked), "tau": tau, "p": p})
    return taus


def _summarise_lines(
    lines: Sequence[Mapping[str, Any]], taus: Sequence[Mapping[str, Any]], boards: tuple[str, str]
) -> str:
    width = max(len(str(line["team"])) for line in lines)
    text = ""
    for line in lines:
        first_rank, second_rank = (line[f"rank_{board}"] or "-" for board in boards)
        text += f"{line['team']:<{width}}  rank {first_rank} to {second_rank}\n"
    tau_texts = [f"{tau['by']} {tau['tau']:z.3f} (p = {tau['p']:z.3f})" for tau in taus if tau["tau"] is not None]
    return f"{text}Kendall's tau of {taus[0]['teams']} teams: {', '.join(tau_texts) or 'undefined'}\n"


def add_boards_options(parser: argparse.ArgumentParser) -> None:
    """Add the two leaderboards."""
    boards = "two leaderboard.json files of `hecktor rank` with names, such as validation and test"
    parser.add_argument("boards", type=parse_name_path, nargs="+", metavar="NAME=FILE", help=boards)
