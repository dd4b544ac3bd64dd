"""The leaderboard of a task as a table, and its winner in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from evaluation.analyses.sources import DECIDING
from evaluation.analyses.tables import scheme_title
from evaluation.page.html import Cell, Row, choice, swatch, table, value_cell
from evaluation.results.documents import FIGURES, figure_of

SIGNIFICANT: Final = 0.05
_INSEPARABLE: Final = "Not separable from"
_MOST_NAMES: Final = 3
_NUMBERS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_CAPTION: Final = "Leaderboard with 95% intervals"
_BETTER: Final = "; better than: number of teams with p < 0.05 after Holm's correction"
_OUTSIDE: Final = "out of competition"
_UNCHECKED: Final = "(values not checked: no rows)"
Board = Mapping[str, Any]


def winner_in_words(board: Board) -> str:
    """The winner, its value of the first deciding metric, and the teams from which it is not separable."""
    teams = [str(entry["team"]) for entry in board["teams"]]
    if not teams:
        return "No team is ranked."
    first = board["teams"][0]
    tied = [str(entry["team"]) for entry in board["teams"] if entry["rank"] == first["rank"]]
    if len(tied) > 1:
        return f"{_joined(tied)} share the first place."
    deciding = deciding_metrics(board)
    value, low, high = (figure_of(first["metrics"][deciding[0]], part) for part in FIGURES)
    ends = "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
    shown = "" if value is None else f" with {_within(board['metrics'][deciding[0]])} {value:.3f}{ends}"
    if len(teams) == 1:
        return f"{teams[0]} is the only ranked team{',' * bool(shown)}{shown}."
    by = f" by {_within(scheme_title(board['official'], board))}{',' * bool(shown)}" if len(deciding) > 1 else ""
    return f"{teams[0]} wins{by}{shown}: {_verdict(board, teams[0], teams[1:])}."


def _verdict(board: Board, winner: str, others: Sequence[str]) -> str:
    if not board.get("comparisons"):
        return "not tested against the other teams"
    wins = _wins(board)
    unclear = [other for other in others if not _is_separable(wins, winner, other)]
    if len(unclear) == len(others) > 2:
        return "not separable from any other team"
    if unclear:
        return f"not separable from {_few_names(unclear)}"
    in_all = all((winner, other) in of_metric for of_metric in wins for other in others)
    where = "" if len(wins) == 1 else " in every metric" if in_all else " in at least one metric"
    count = _NUMBERS[len(others)] if len(others) < len(_NUMBERS) else len(others)
    rivals = others[0] if len(others) == 1 else f"{'all' if in_all else 'each of the'} {count} other teams"
    return f"clear, significantly better than {rivals}{where}"


def _wins(board: Board) -> list[set[tuple[str, str]]]:
    """For each deciding metric the pairs of which the first team is significantly better than the second."""
    return [
        {
            (str(pair["team"]), str(pair["than"]))
            for pair in _pairs(board, metric)
            if pair.get("p_holm") is not None and pair["p_holm"] < SIGNIFICANT
        }
        for metric in deciding_metrics(board)
    ]


def _is_separable(wins: Sequence[set[tuple[str, str]]], better: str, than: str) -> bool:
    """Whether a team is significantly better in a deciding metric, and in none the other way round."""
    return any((better, than) in of for of in wins) and not any((than, better) in of for of in wins)


def _joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _few_names(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return _joined([*names[:_MOST_NAMES], f"{more} more"] if more > 0 else names)


def _within(title: str) -> str:
    """The title of a metric inside a sentence: balanced accuracy, but C-index and GTVp."""
    return title[:1].lower() + title[1:] if title[1:2].islower() else title


def deciding_metrics(board: Board) -> list[str]:
    """The metrics that decide the official ranking; of a leaderboard whose edition is unknown, all metrics."""
    if board.get(DECIDING):
        return list(board[DECIDING])
    return [board["official"]] if board["official"] in board["metrics"] else list(board["metrics"])


def _pairs(board: Board, metric: str) -> Sequence[Mapping[str, Any]]:
    pairs: Sequence[Mapping[str, Any]] = (board.get("comparisons") or {}).get(metric, {}).get("pairs", ())
    return pairs


def leaderboard(board: Board, colours: Mapping[str, str]) -> str:
    """The table: ranked teams, entries out of competition at their places, and teams that lack a value."""
    schemes = board["teams"][0]["rankings"] if board["teams"] else ()
    others = [name for name in schemes if name != board["official"]]
    beaten, metrics = _beaten(board), list(board["metrics"])
    described = board.get("methods", {})
    columns = list(dict.fromkeys(column for of_team in described.values() for column in of_team))
    stable = (board.get("stability") or {}).get("rankings", {}).get(board["official"], {}).get("teams", {})
    wins, teams = _wins(board), [str(entry["team"]) for entry in board["teams"]]
    heads = ["Rank", "Team", *board["metrics"].values(), *columns]
    several = ", by metric" if len(deciding_metrics(board)) > 1 else ""
    heads += [f"Better than (of {len(board['teams']) - 1}{several})"] if beaten else []
    heads += [_INSEPARABLE] if beaten else []
    stable = stable if len(teams) > 1 else {}
    heads += ["Rank, 95% interval"] if stable else []
    heads += [f"Rank by {_within(scheme_title(name, board))}" for name in others]
    rows = []
    for entry in board["teams"]:
        team = str(entry["team"])
        remark = _UNCHECKED if entry.get("without_rows") else ""
        cells = [Cell(f"{entry['rank']:g}", entry["rank"]), _team(team, colours, remark)]
        cells += [_metric(entry["metrics"][name]) for name in metrics]
        cells += _descriptors(described.get(team, {}), columns)
        cells += [Cell(" · ".join(map(str, beaten[team])), sum(beaten[team]))] if beaten else []
        cells += (
            [Cell(f'<span class="names">{escape(_inseparable(team, teams, wins)) or "-"}</span>')] if beaten else []
        )
        cells += [_interval(stable.get(team))] if stable else []
        cells += [Cell(f"{entry['rankings'][name]['rank']:g}", entry["rankings"][name]["rank"]) for name in others]
        rows.append(Row(cells, {"team": team}))
    for entry in reversed(board.get("out_of_competition", ())):
        descriptors = _descriptors(described.get(entry["team"], {}), columns)
        rows.insert(entry["place"], _beside(entry, metrics, descriptors, len(heads), colours))
    rows += [_incomplete(entry, len(heads), colours) for entry in board["incomplete"]]
    falling = [str(title) for name, title in board["metrics"].items() if _is_best_high(board, name)]
    falling += [head for head in heads if head.startswith("Better than")]
    caption = f"{_CAPTION}{_BETTER if beaten else ''}"
    return table(
        caption, heads, rows, header_column=1, best_last=falling, css_class="board searched" if columns else "board"
    )


def _is_best_high(board: Board, metric: str) -> bool:
    """Whether larger values of a metric have better ranks, inferred from the teams' values."""
    known = [entry["metrics"][metric] for entry in board["teams"]]
    known = sorted((one for one in known if one.get("value") is not None), key=lambda one: float(one["rank"]))
    return not known or bool(known[0]["value"] >= known[-1]["value"])


def _team(team: str, colours: Mapping[str, str], remark: str) -> Cell:
    note = f' <span class="remark">{escape(remark)}</span>' if remark else ""
    return Cell(f"{swatch(colours.get(team, 'transparent'))}{choice('team', team)}{note}")


def _metric(figures: Mapping[str, Any]) -> Cell:
    return value_cell(*(figure_of(figures, part) for part in FIGURES), best=figures.get("rank") == 1)


def _beaten(board: Board) -> dict[str, list[int]]:
    """How many teams each one is significantly better than, by deciding metric; empty without comparisons."""
    if not board.get("comparisons") or len(board["teams"]) < 2:
        return {}
    beaten: dict[str, list[int]] = {str(entry["team"]): [] for entry in board["teams"]}
    for of_metric in _wins(board):
        better = [team for team, _ in of_metric]
        for team, counts in beaten.items():
            counts.append(better.count(team))
    return beaten


def _inseparable(team: str, teams: Sequence[str], wins: Sequence[set[tuple[str, str]]]) -> str:
    def separable(other: str) -> bool:
        return _is_separable(wins, team, other) or _is_separable(wins, other, team)

    return _few_names([other for other in teams if other != team and not separable(other)])


def _interval(ranks: Mapping[str, Any] | None) -> Cell:
    if ranks is None:
        return Cell("-")
    return Cell(f"{ranks['ci95_low']:g} to {ranks['ci95_high']:g}", ranks["ci95_low"] + ranks["ci95_high"] / 1000)


def _descriptors(of_team: Mapping[str, str], columns: Sequence[str]) -> list[Cell]:
    return [Cell(escape(of_team.get(column, "")) or "-") for column in columns]


def _beside(
    entry: Mapping[str, Any],
    metrics: Sequence[str],
    descriptors: Sequence[Cell],
    width: int,
    colours: Mapping[str, str],
) -> Row:
    remark = f"{_OUTSIDE}{': ' if entry.get('reason') else ''}{entry.get('reason') or ''}"
    team = str(entry["team"])
    cells = [Cell("-"), _team(team, colours, f"({remark})")]
    cells += [_metric({**entry["metrics"][name], "rank": None}) for name in metrics if name in entry["metrics"]]
    cells += descriptors
    cells += [Cell("", span=width - len(cells))] if len(cells) < width else []
    return Row(cells, {"team": team}, "outside")


def _incomplete(entry: Mapping[str, Any], width: int, colours: Mapping[str, str]) -> Row:
    team = str(entry["team"])
    reason = Cell(escape(f"not ranked: no {', '.join(entry['without'])}"), span=width - 2)
    return Row([Cell("-"), _team(team, colours, ""), reason], {"team": team})
