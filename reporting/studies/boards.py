"""`hecktor study boards`: two leaderboards of one task side by side, such as those of validation and test."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from contract.editions import content_digest
from contract.errors import HecktorError
from evaluation.options import parse_name_path
from evaluation.results.board import Leaderboard, OutOfCompetitionEntry, RankedEntry, read_board
from evaluation.results.teams import OWN_EDITION
from reporting.analyses.tasks import OFFICIAL, tau_and_p
from reporting.studies.outputs import StudyResult, by_name

Entry: TypeAlias = RankedEntry | OutOfCompetitionEntry
# How a board ranks; the values of the teams do not depend on it.
_RANKING: Final = ("official", "ties")


def run(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """Compare the ranks and values of every team that both boards list."""
    paths = by_name(options.boards, "board", at_least=2)
    if len(paths) > 2:
        raise HecktorError("boards", f"found {len(paths)}", "two")
    (first, first_board), (second, second_board) = ((name, read_board(path)) for name, path in paths.items())
    different_ranking = _compare_rules(first, first_board, second, second_board)
    metrics = {name: title for name, title in first_board.metrics.items() if name in second_board.metrics}
    entries = [_entries(board) for board in (first_board, second_board)]
    common = [team for team in entries[1] if team in entries[0]]
    if not common:
        raise HecktorError("boards", f"no team of {first} in {second}", "boards of the same teams")
    lines = [_line(team, (first, second), [of[team] for of in entries], metrics) for team in common]
    taus = _taus(entries, common, metrics)
    content = {
        "boards": [first, second],
        "task": first_board.task,
        "metrics": metrics,
        "teams": lines,
        "tau": taus,
        "different_ranking": different_ranking,
        "without_values": sorted({one.team for board in (first_board, second_board) for one in board.incomplete}),
        **{f"only_in_{name}": sorted(set(of) - set(common)) for name, of in zip(paths, entries, strict=True)},
    }
    return StudyResult(content, lines, _summary(lines, taus, first, second))


def _compare_rules(first: str, first_board: Leaderboard, second: str, second_board: Leaderboard) -> list[str]:
    """Compare the rules of two boards, and return the differences in how they rank, each with a warning.

    Raises HecktorError if their values follow different rules: another task, edition or option. Printed boards, and
    those of earlier versions, do not state every rule.
    """
    scored = [
        {"task": board.task, "edition": board.edition, "options": board.provenance.get("options")}
        for board in (first_board, second_board)
    ]
    for difference in _differences("", *scored):
        raise HecktorError(f"{first} and {second}", f"different {difference}", "one for both boards")
    texts = [board.provenance.get(OWN_EDITION) for board in (first_board, second_board)]
    if None not in texts and texts[0] != texts[1]:
        digests = " and ".join(map(content_digest, texts))
        found = f"edition {first_board.edition!r} with different contents (sha256 {digests})"
        raise HecktorError(f"{first} and {second}", found, "one for both boards")
    ranking = [{key: getattr(board, key) for key in _RANKING} for board in (first_board, second_board)]
    different = list(_differences("", *ranking))
    for difference in different:
        sys.stderr.write(f"warning: {first} and {second} rank by different rules: {difference}\n")
    return different


def _differences(name: str, one: Any, other: Any) -> Iterator[str]:
    """The values that both state differently, by name: `connectivity 26 and 6`."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in (key for key in one if key in other):
            yield from _differences(key, one[key], other[key])
    elif one != other and None not in (one, other):
        yield f"{name} {one} and {other}"


def _entries(board: Leaderboard) -> dict[str, Entry]:
    """The entries with values by team, the ranked ones first."""
    entries: list[Entry] = [*board.teams, *board.out_of_competition]
    return {entry.team: entry for entry in entries}


def _line(team: str, names: tuple[str, str], entries: Sequence[Entry], metrics: Mapping[str, str]) -> dict[str, Any]:
    """Ranks and values of a team on both boards, and second minus first; null if either is absent."""
    parts: dict[str, list[float | None]] = {
        "rank": [entry.rank if isinstance(entry, RankedEntry) else None for entry in entries]
    }
    parts |= {name: [entry.metrics[name].figure() for entry in entries] for name in metrics}
    line: dict[str, Any] = {"team": team}
    for part, (one, other) in parts.items():
        difference = None if one is None or other is None or math.isinf(one) or math.isinf(other) else other - one
        line |= {f"{part}_{names[0]}": one, f"{part}_{names[1]}": other, f"{part}_difference": difference}
    return line


def _taus(
    entries: Sequence[Mapping[str, Entry]], teams: Sequence[str], metrics: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Kendall's tau-b with p of the teams that both boards rank, by the official rank and by each metric alone.

    The ranks are those of the boards; teams on only one board do not change the order of the others.
    """
    boards = [{team: one for team, one in of.items() if isinstance(one, RankedEntry)} for of in entries]
    ranked = [team for team in teams if all(team in of for of in boards)]
    taus = []
    for name in (None, *metrics):
        ranks = [
            np.array([float((of[team] if name is None else of[team].metrics[name]).rank) for team in ranked])
            for of in boards
        ]
        tau, p = tau_and_p(*ranks) if len(ranked) > 1 else (None, None)
        taus.append({"by": OFFICIAL if name is None else name, "teams": len(ranked), "tau": tau, "p": p})
    return taus


def _summary(lines: Sequence[Mapping[str, Any]], taus: Sequence[Mapping[str, Any]], first: str, second: str) -> str:
    width = max(len(str(line["team"])) for line in lines)
    ranks = [[line[f"rank_{name}"] or "-" for name in (first, second)] for line in lines]
    text = "".join(
        f"{line['team']:<{width}}  rank {one} to {other}\n" for line, (one, other) in zip(lines, ranks, strict=True)
    )
    shown = [f"{one['by']} {one['tau']:z.3f} (p = {one['p']:z.3f})" for one in taus if one["tau"] is not None]
    return f"{text}Kendall's tau of {taus[0]['teams']} teams: {', '.join(shown) or 'undefined'}\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the two leaderboards."""
    boards = "two leaderboard.json files of `hecktor rank` with names, such as validation and test"
    parser.add_argument("boards", type=parse_name_path, nargs="+", metavar="NAME=FILE", help=boards)
