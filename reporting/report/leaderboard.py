"""The leaderboard of a task as a table, and its winner in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from evaluation.editions.profile import AnswerProfile
from evaluation.metrics.classification import RECALL_PREFIX
from evaluation.metrics.survival import AUC_YEARS
from evaluation.results.board import Leaderboard, RankCounts, RankedEntry, RankedFigures
from evaluation.results.documents import MetricFigures
from evaluation.results.task import TaskResults
from reporting.analyses.tables import get_scheme_title
from reporting.page.html import Cell, Row, choice, swatch, table, value_cell

SIGNIFICANT: Final = 0.05
_INSEPARABLE: Final = "Not separable from"
_MOST_NAMES: Final = 3
_NUMBERS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_CAPTION: Final = "Leaderboard with 95% intervals"
_BETTER: Final = (
    "; better than: number of teams with p < 0.05 after Holm's correction; not separable: no such p either way, or too "
    "few patients to test"
)
# Of two patients drawn at random, answers by chance order half of the pairs rightly.
_CHANCE_OF_PAIRS: Final = 0.5
_PAIRS: Final = frozenset({"auc", "c_index", "uno_c", *(f"auc_{years}y" for years in AUC_YEARS)})
_OUTSIDE: Final = "out of competition"
_UNCHECKED: Final = "(values not checked: no rows)"


def winner_in_words(results: TaskResults) -> str:
    """The winner, its value of the first deciding metric, and the teams from which it is not separable."""
    board, deciding = results.board, results.deciding
    first, *others = board.teams
    metric, title = deciding[0], _within(board.metrics[deciding[0]])
    tied = [entry for entry in board.teams if entry.rank == first.rank]
    if len(tied) > 1:
        notes = {entry.team: _against_chance(results, metric, entry.metrics[metric]) for entry in tied}
        remarks = [f" {team} is {note} in {title}." for team, note in notes.items() if note]
        return f"{_joined(list(notes))} share first place.{''.join(remarks)}"
    value, low, high = first.metrics[metric].figures
    ends = "" if low is None or high is None else f" ({low:z.3f} to {high:z.3f})"
    shown = "" if value is None else f" with {title} {value:z.3f}{ends}"
    note = _against_chance(results, metric, first.metrics[metric])
    shown += f", {note}" if note else ""
    if not others:
        return f"{first.team} is the only ranked team{',' * bool(shown)}{shown}."
    by = f" by {_within(get_scheme_title(board.official, board))}{',' * bool(shown)}" if len(deciding) > 1 else ""
    return f"{first.team} wins{by}{shown}: {_verdict(results, first.team, [entry.team for entry in others])}."


def chance_level(results: TaskResults, metric: str) -> float | None:
    """Return the expected value of a metric if answers are given by chance; None if the metric has no such value.

    It is 0.5 for a C-index or an AUC, one in the number of classes in the reference for a balanced accuracy, and the
    weighted sum of these for a metric that is a weighted sum of them.
    """
    declared = results.profile.metrics.get(metric)
    if declared is not None and declared.terms:
        levels = {name: chance_level(results, name) for name in declared.terms}
        known = [weight * level for name, weight in declared.terms.items() if (level := levels[name]) is not None]
        return sum(known) if len(known) == len(levels) else None
    for answer in results.profile.answers.values():
        name = metric.removeprefix(answer.prefix) if metric.startswith(answer.prefix) else ""
        if name in _PAIRS and name in answer.metrics:
            return _CHANCE_OF_PAIRS
        if name == "balanced_accuracy" and name in answer.metrics:
            return 1 / _class_count(results, answer)
    return None


def _class_count(results: TaskResults, answer: AnswerProfile) -> int:
    """Return the number of classes in the reference: those with a recall; all classes if no team's file is at hand."""
    recalls = [name for name in answer.metrics if name.startswith(RECALL_PREFIX)]
    measured = [
        name for name in recalls if any(results.value(team, answer.prefix + name) is not None for team in results.teams)
    ]
    return len(measured) or len(recalls) or 2  # two classes have sensitivity and specificity instead of recalls


def _against_chance(results: TaskResults, metric: str, figures: MetricFigures) -> str:
    """Return how a value is worse than chance or not shown to be better; empty for a better value or without chance.

    Without an interval the value itself is compared.
    """
    chance = chance_level(results, metric)
    value, low, high = figures.figures
    if value is None or chance is None or (value if low is None else low) > chance:
        return ""
    is_worse = high is not None and high < chance
    return f"{'worse than chance' if is_worse else 'not shown to be better than chance'} ({chance:.3g})"


def _verdict(results: TaskResults, winner: str, others: Sequence[str]) -> str:
    if not results.board.comparisons:
        return "not tested against the other teams"
    wins = _wins(results)
    unclear = [other for other in others if not _is_separable(wins, winner, other)]
    if len(unclear) == len(others) > 2:
        return "not separable from any other team"
    if unclear:
        return f"not separable from {_few_names(unclear)}"
    in_all = all((winner, other) in of_metric for of_metric in wins for other in others)
    where = "" if len(wins) == 1 else " in every metric" if in_all else " in at least one metric"
    count = _NUMBERS[len(others)] if len(others) < len(_NUMBERS) else len(others)
    rivals = others[0] if len(others) == 1 else f"{'all' if in_all else 'each of the'} {count} other teams"
    return f"significantly better than {rivals}{where}"


def _wins(results: TaskResults) -> list[set[tuple[str, str]]]:
    """For each deciding metric the pairs of which the first team is significantly better than the second."""
    tests = results.board.comparisons or {}
    of_metrics = [tests[metric].pairs if metric in tests else [] for metric in results.deciding]
    return [
        {(pair.team, pair.than) for pair in pairs if pair.p_holm is not None and pair.p_holm < SIGNIFICANT}
        for pairs in of_metrics
    ]


def _is_separable(wins: Sequence[set[tuple[str, str]]], better: str, than: str) -> bool:
    """True if a team is significantly better in a deciding metric, and in none the other way round."""
    return any((better, than) in of for of in wins) and not any((than, better) in of for of in wins)


def _joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _few_names(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return _joined([*names[:_MOST_NAMES], f"{more} more"] if more > 0 else names)


def _within(title: str) -> str:
    """The title of a metric inside a sentence: balanced accuracy, but C-index and GTVp."""
    return title[:1].lower() + title[1:] if title[1:2].islower() else title


def leaderboard(results: TaskResults, colours: Mapping[str, str]) -> str:
    """The table: ranked teams, entries out of competition at their places, and teams that lack a value."""
    board = results.board
    others = [name for name in board.teams[0].rankings if name != board.official]
    columns = list(dict.fromkeys(column for of_team in board.methods.values() for column in of_team))
    stable = board.official_stability.teams if board.official_stability and len(board.teams) > 1 else {}
    wins = _wins(results) if board.comparisons and len(board.teams) > 1 else []
    heads = ["Rank", "Team", *board.metrics.values(), *columns]
    several = ", by metric" if len(results.deciding) > 1 else ""
    heads += [f"Better than (of {len(board.teams) - 1}{several})", _INSEPARABLE] if wins else []
    heads += ["Rank, 95% interval"] if stable else []
    heads += [f"Rank by {_within(get_scheme_title(name, board))}" for name in others]
    rows = []
    for entry in board.in_places:
        cells = [_metric(figures) for figures in entry.metrics.values()]
        cells += [Cell(escape(board.methods.get(entry.team, {}).get(column, "")) or "-") for column in columns]
        if not isinstance(entry, RankedEntry):
            remark = f"({_OUTSIDE}{': ' if entry.reason else ''}{entry.reason})"
            cells = [Cell("-"), _team(entry.team, colours, remark), *cells]
            cells += [Cell("", span=len(heads) - len(cells))] if len(cells) < len(heads) else []
            rows.append(Row(cells, {"team": entry.team}, "outside"))
            continue
        remark = _UNCHECKED if entry.without_rows else ""
        cells = [Cell(f"{entry.rank:g}", entry.rank), _team(entry.team, colours, remark), *cells]
        cells += _tests(entry.team, board.order, wins) if wins else []
        cells += [_interval(stable[entry.team])] if stable else []
        cells += [Cell(f"{entry.rankings[name].rank:g}", entry.rankings[name].rank) for name in others]
        rows.append(Row(cells, {"team": entry.team}))
    for lacking in board.incomplete:
        reason = Cell(escape(f"not ranked: no {', '.join(lacking.without)}"), span=len(heads) - 2)
        rows.append(Row([Cell("-"), _team(lacking.team, colours, ""), reason], {"team": lacking.team}))
    falling = [title for name, title in board.metrics.items() if _is_best_high(board, name)]
    falling += [head for head in heads if head.startswith("Better than")]
    caption = f"{_CAPTION}{_BETTER if wins else ''}"
    return table(
        caption, heads, rows, header_column=1, best_last=falling, css_class="board searched" if columns else "board"
    )


def _is_best_high(board: Leaderboard, metric: str) -> bool:
    """True if larger values of a metric have better ranks, inferred from the teams' values."""
    known = sorted((entry.metrics[metric] for entry in board.teams), key=lambda figures: figures.rank)
    values = [figures.value for figures in known if figures.value is not None]
    return not values or values[0] >= values[-1]


def _team(team: str, colours: Mapping[str, str], remark: str) -> Cell:
    note = f' <span class="remark">{escape(remark)}</span>' if remark else ""
    return Cell(f"{swatch(colours.get(team, 'transparent'))}{choice('team', team)}{note}")


def _metric(figures: MetricFigures) -> Cell:
    return value_cell(*figures.figures, best=isinstance(figures, RankedFigures) and figures.rank == 1)


def _tests(team: str, teams: Sequence[str], wins: Sequence[set[tuple[str, str]]]) -> list[Cell]:
    """Number of teams that this one beats significantly, by deciding metric, and those it is not separable from."""
    beaten = [sum(better == team for better, _ in of_metric) for of_metric in wins]
    unclear = [
        other
        for other in teams
        if other != team and not (_is_separable(wins, team, other) or _is_separable(wins, other, team))
    ]
    names = f'<span class="names">{escape(_few_names(unclear)) or "-"}</span>'
    return [Cell(" · ".join(map(str, beaten)), sum(beaten)), Cell(names)]


def _interval(ranks: RankCounts) -> Cell:
    return Cell(f"{ranks.ci95_low:g} to {ranks.ci95_high:g}", ranks.ci95_low + ranks.ci95_high / 1000)
