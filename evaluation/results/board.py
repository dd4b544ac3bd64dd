"""The shape of a leaderboard.json: every part that a report reads has its type.

Leaderboards of older versions lack rows out of competition, taus of further metrics and intervals of differences.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from contract.editions.values import described, is_integer, is_number, is_text
from contract.errors import HecktorError
from evaluation.editions.schemes import TIE_RULES
from evaluation.results.shape import check_figures

TAU_FIGURES: Final = ("mean", "ci95_low", "ci95_high")
_FIGURES_OF_A_PAIR: Final = ("difference", "sd", "ci95_low", "ci95_high", "p")
_LONGEST_NAME: Final = 200  # a team's name is also that of its folder


def with_new_names(board: Any, where: str) -> Any:
    """The board with today's names of its parts; older ones get a notice."""
    if not isinstance(board, dict):
        return board
    if "beside" in board:
        sys.stderr.write(f"warning: {where}: beside is now called unranked_entries\n")
    board = {"unranked_entries": board.get("beside", []), **board}
    board.pop("beside", None)
    comparisons = board.get("comparisons")
    if isinstance(comparisons, dict):
        board["comparisons"] = {name: _renamed_tests(of) for name, of in comparisons.items()}
    return board


def _renamed_tests(tests: Any) -> Any:
    if not isinstance(tests, dict) or "beside" not in tests:
        return tests
    return {"other_tests": tests["beside"], **{key: value for key, value in tests.items() if key != "beside"}}


def check_board(board: Any, where: str) -> None:
    """Raise HecktorError, which begins with `where`, for anything but the content of a leaderboard.json."""
    _require(isinstance(board, dict), where, board, "a leaderboard of `hecktor rank`")
    _check_unicode(board, where)
    _require(is_text(board.get("task")), f"{where}: task", board.get("task"), "a text")
    _require(is_text(board.get("official")), f"{where}: official", board.get("official"), "the name of a ranking")
    _require(board.get("ties") in TIE_RULES, f"{where}: ties", board.get("ties"), f"one of {', '.join(TIE_RULES)}")
    metrics = _object(board, "metrics", where)
    _require(bool(metrics) and all(map(is_text, metrics.values())), f"{where}: metrics", metrics, "titles by name")
    parts = {part: _entries(board, part, where) for part in ("teams", "unranked", "unranked_entries")}
    _require(bool(parts["teams"]), f"{where}: teams", [], "at least one ranked team")
    _check_names([entry["team"] for entries in parts.values() for entry in entries], where)
    _check_teams(parts["teams"], board, where)
    for entry in parts["unranked"]:
        absent = entry.get("without")
        valid = isinstance(absent, list) and all(map(is_text, absent))
        _require(valid, f"{where}, {entry['team']}: without", absent, "a list of metrics")
    for entry in parts["unranked_entries"]:
        _check_beside(entry, board, where)
    ranked = [entry["team"] for entry in parts["teams"]]
    if board.get("stability") is not None:
        _check_stability(board, ranked, where)
    if board.get("comparisons") is not None:
        _check_comparisons(board, ranked, where)
    for name, tau in _object(board, "tau", where, default={}).items():
        _check_tau(tau, f"{where}: tau of {name}")


def _check_unicode(board: Mapping[str, Any], where: str) -> None:
    """JSON may hold half of a surrogate pair, which no page can show."""
    try:
        json.dumps(board, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise HecktorError(where, "half of a surrogate pair in a text", "Unicode") from None


def _require(fits: bool, where: str, found: Any, expected: str) -> None:
    if not fits:
        raise HecktorError(where, f"found {described(found)}", expected)


def _object(content: Mapping[str, Any], key: str, where: str, default: Any = None) -> dict[str, Any]:
    value = content.get(key, default)
    if not isinstance(value, dict):
        raise HecktorError(f"{where}: {key}", f"found {described(value)}", "an object")
    return value


def _entries(board: Mapping[str, Any], part: str, where: str) -> list[dict[str, Any]]:
    entries = board.get(part, [] if part == "unranked_entries" else None)
    valid = isinstance(entries, list) and all(isinstance(one, dict) and is_text(one.get("team")) for one in entries)
    if not valid:
        raise HecktorError(f"{where}: {part}", f"found {described(entries)}", "a list of objects with a team")
    return list(entries)


def _check_names(teams: Sequence[str], where: str) -> None:
    for team in teams:
        is_name = team.isprintable() and len(team) <= _LONGEST_NAME
        _require(is_name, f"{where}: team", team, f"a printable name of at most {_LONGEST_NAME} characters")
    twice = next((team for team in teams if teams.count(team) > 1), None)
    if twice is not None:
        raise HecktorError(where, f"two entries of {twice!r}", "one entry a team")


def _check_teams(teams: Sequence[Mapping[str, Any]], board: Mapping[str, Any], where: str) -> None:
    """The ranked teams have a value and rank of every metric, and the same rankings, the official one among them."""
    schemes: set[str] | None = None
    for entry in teams:
        place = f"{where}, {entry['team']}"
        _check_rank(entry, place)
        metrics = _object(entry, "metrics", place)
        for name in board["metrics"]:
            check_figures(metrics.get(name), f"{place}: {name}")
            _check_rank(metrics[name], f"{place}: {name}")
        rankings = _object(entry, "rankings", place)
        schemes = schemes or {board["official"], *rankings}
        if rankings.keys() != schemes:
            raise HecktorError(f"{place}: rankings", ", ".join(sorted(rankings)), f"{', '.join(sorted(schemes))}")
        for name in rankings:
            _check_rank(rankings[name], f"{place}: {name}")


def _check_rank(content: Any, where: str) -> None:
    rank: Any = content.get("rank") if isinstance(content, dict) else None
    _require(is_number(rank) and rank >= 1, f"{where}: rank", rank, "a number of at least 1")


def _check_beside(entry: Mapping[str, Any], board: Mapping[str, Any], where: str) -> None:
    where, reason = f"{where}, {entry['team']}", entry.get("reason", "")
    place: Any = entry.get("place")
    valid = is_integer(place) and 0 <= place <= len(board["teams"])
    _require(valid, f"{where}: place", place, f"a whole number from 0 to {len(board['teams'])}")
    _require(isinstance(reason, str), f"{where}: reason", reason, "a text")
    metrics = _object(entry, "metrics", where)
    for name in board["metrics"]:
        check_figures(metrics.get(name), f"{where}: {name}")


def _check_stability(board: Mapping[str, Any], ranked: Sequence[str], where: str) -> None:
    stability = _object(board, "stability", where)
    where = f"{where}: stability"
    count: Any = stability.get("bootstraps")
    if not is_integer(count) or count < 1:
        raise HecktorError(f"{where}.bootstraps", f"found {described(count)}", "a whole number above 0")
    rankings, metrics = (_object(stability, part, where) for part in ("rankings", "metrics"))
    for name in dict.fromkeys([board["official"], *rankings]):
        _check_standing(rankings.get(name), ranked, count, f"{where}, {name}")
    for name in [name for name in board["metrics"] if name not in rankings]:
        _check_standing(metrics.get(name), ranked, count, f"{where}, {name}")


def _check_standing(standing: Any, ranked: Sequence[str], bootstraps: int, where: str) -> None:
    """Ranks of every team in the bootstrap rankings, and Kendall's tau."""
    _require(isinstance(standing, dict), where, standing, "an object with teams and kendall_tau")
    _check_tau(standing.get("kendall_tau"), f"{where}: kendall_tau")
    teams = _object(standing, "teams", where)
    for team in ranked:
        ranks, place = _object(teams, team, where), f"{where}, {team}"
        for end in ("ci95_low", "ci95_high"):
            _require(is_number(ranks.get(end)), f"{place}: {end}", ranks.get(end), "a finite number")
        times = _object(ranks, "times_at_rank", place)
        valid = all(_is_rank(rank) and is_integer(one) and 0 <= one <= bootstraps for rank, one in times.items())
        _require(valid, f"{place}: times_at_rank", times, "whole numbers by rank, at most all bootstrap rankings")


def _check_tau(tau: Any, where: str) -> None:
    _check_numbers(tau, TAU_FIGURES, where)
    some = {tau[key] is None for key in TAU_FIGURES}
    _require(len(some) == 1, where, tau, "three numbers, or null for all of them")


def _is_rank(text: str) -> bool:
    try:
        return is_number(float(text))
    except ValueError:
        return False


def _check_comparisons(board: Mapping[str, Any], ranked: Sequence[str], where: str) -> None:
    comparisons = _object(board, "comparisons", where)
    for name in board["metrics"]:
        of, place = _object(comparisons, name, f"{where}: comparisons"), f"{where}: comparisons, {name}"
        _require(is_text(of.get("test")), f"{place}: test", of.get("test"), "a text")
        for pairs in (of.get("pairs"), *_object(of, "other_tests", place, default={}).values()):
            _require(isinstance(pairs, list), f"{place}: pairs", pairs, "a list")
            _check_pairs(pairs, ranked, place)


def _check_pairs(pairs: Iterable[Any], ranked: Sequence[str], where: str) -> None:
    for pair in pairs:
        teams = [pair.get(key) for key in ("team", "than")] if isinstance(pair, dict) else [None]
        _require(all(team in ranked for team in teams), f"{where}: pair", pair, "team and than, two ranked teams")
        _check_numbers(pair, ["p_holm", *(key for key in _FIGURES_OF_A_PAIR if key in pair)], where)


def _check_numbers(content: Any, keys: Iterable[str], where: str) -> None:
    """Every key is there, with a number or null."""
    keys = list(keys)
    _require(isinstance(content, dict), where, content, f"an object with {', '.join(keys)}")
    for key in keys:
        valid = key in content and (content[key] is None or is_number(content[key]))
        _require(valid, f"{where}.{key}", content.get(key), "a finite number or null")
