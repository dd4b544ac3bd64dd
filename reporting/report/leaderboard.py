"""Render the leaderboard of a task as a table, and describe its winner in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from evaluation.editions.profile import AnswerProfile
from evaluation.metrics.classification import RECALL_PREFIX
from evaluation.metrics.survival import AUC_YEARS
from evaluation.results.board import IncompleteTeam, Leaderboard, OutOfCompetitionEntry, RankedEntry, RankedFigures
from evaluation.results.documents import MetricFigures
from evaluation.results.task import TaskResults
from reporting.analyses.tables import get_scheme_title
from reporting.page.html import (
    Cell,
    Column,
    Row,
    make_value_cell,
    render_choice,
    render_swatch,
    render_table,
)

SIGNIFICANT: Final = 0.05
_MAX_NAMES: Final = 3
_NUMBERS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_CAPTION: Final = "Leaderboard with 95% intervals"
_TESTS_CAPTION: Final = (
    "; better than: number of teams with p < 0.05 after Holm's correction; neither better nor worse than: no "
    "significant difference in any metric, differences in both directions, or too few patients to test"
)
# Random answers order half of the pairs of patients correctly.
_CHANCE_OF_PAIRS: Final = 0.5
_PAIR_METRICS: Final = frozenset({"auc", "c_index", "uno_c", *(f"auc_{years}y" for years in AUC_YEARS)})
# Titles of the figures of ranking schemes that need rows.
_SCHEME_FIGURES: Final = {
    "mean_case_rank": "Mean rank within the cases",
    "median_case_rank": "Median rank within the cases",
    "significant_wins": "Significant wins",
}
_OUTSIDE: Final = "out of competition"
_UNCHECKED: Final = "(values not checked: no rows)"


@dataclass(frozen=True)
class SignificantWins:
    """The significant differences of a leaderboard.

    Attributes:
        by_metric: For each deciding metric the pairs of teams whose first team is significantly better.
    """

    by_metric: tuple[frozenset[tuple[str, str]], ...]

    @classmethod
    def from_results(cls, results: TaskResults) -> SignificantWins:
        """Collect the pairs from the tests of a leaderboard. There are no pairs if it has no tests."""
        tests = results.board.comparisons or {}
        pairs_by_metric = [tests[metric].pairs if metric in tests else [] for metric in results.deciding_metrics]
        return cls(
            tuple(
                frozenset(
                    (pair.team, pair.than) for pair in pairs if pair.p_holm is not None and pair.p_holm < SIGNIFICANT
                )
                for pairs in pairs_by_metric
            )
        )

    def count_beaten(self, team: str) -> list[int]:
        """Count the teams that a team beats, for each metric."""
        return [sum(winner == team for winner, _ in pairs) for pairs in self.by_metric]

    def is_better(self, team: str, rival: str) -> bool:
        """Return whether a team beats its rival in at least one metric, and the rival beats the team in no metric."""
        wins = any((team, rival) in pairs for pairs in self.by_metric)
        return wins and not any((rival, team) in pairs for pairs in self.by_metric)

    def is_better_in_all(self, team: str, rivals: Sequence[str]) -> bool:
        """Return whether a team beats all of its rivals in every metric."""
        return all((team, rival) in pairs for pairs in self.by_metric for rival in rivals)

    def are_ordered(self, team: str, rival: str) -> bool:
        """Return whether one of two teams is better than the other."""
        return self.is_better(team, rival) or self.is_better(rival, team)


def describe_winner(results: TaskResults) -> str:
    """Name the winner, its value of the first deciding metric, and the teams that it does not beat significantly."""
    board, deciding = results.board, results.deciding_metrics
    winner = board.teams[0]
    winners = [entry for entry in board.teams if entry.rank == winner.rank]
    if len(winners) > 1:
        return _describe_shared_win(results, winners)
    value = _describe_value(results, winner)
    rivals = board.order[1:]
    if not rivals:
        return f"{winner.team} is the only ranked team{f', {value}' if value else ''}."
    sentence = f"{winner.team} wins"
    if len(deciding) > 1 or _list_scheme_figures(board):
        sentence += f" by {lower_title(get_scheme_title(board.official, board))}{',' if value else ''}"
    if value:
        sentence += f" {value}"
    return f"{sentence}: {_describe_tests(results, winner.team, rivals)}."


def _describe_shared_win(results: TaskResults, winners: Sequence[RankedEntry]) -> str:
    metric = results.deciding_metrics[0]
    title = lower_title(results.board.metrics[metric])
    sentences = [f"{_join([entry.team for entry in winners])} share first place."]
    for entry in winners:
        remark = _compare_with_chance(results, metric, entry.metrics[metric])
        if remark:
            sentences.append(f"{entry.team} is {remark} in {title}.")
    return " ".join(sentences)


def _describe_value(results: TaskResults, entry: RankedEntry) -> str:
    """Describe the figure of the official scheme that ranks a team, or its value of the first deciding metric.

    The description is empty if the team has no value.
    """
    for name in _list_scheme_figures(results.board):
        figure = getattr(entry.rankings[results.board.official], name)
        if name == "significant_wins":
            return f"with {figure:g} significant win{'s' * (figure != 1)}"
        return f"with {lower_title(_SCHEME_FIGURES[name])} {figure:.4g}"
    metric = results.deciding_metrics[0]
    value, low, high = entry.metrics[metric].figures
    if value is None:
        return ""
    text = f"with {lower_title(results.board.metrics[metric])} {value:z.3f}"
    if low is not None and high is not None:
        text += f" ({low:z.3f} to {high:z.3f})"
    remark = _compare_with_chance(results, metric, entry.metrics[metric])
    return f"{text}, {remark}" if remark else text


def compute_chance_level(results: TaskResults, metric: str) -> float | None:
    """Return the expected value of a metric for random answers, or None if the metric has no such value.

    The level of a C-index or an AUC is 0.5, and the level of a balanced accuracy is 1 divided by the number of classes
    in the reference. A metric that is a weighted sum of such metrics has the weighted sum of their levels.
    """
    declared = results.profile.metrics.get(metric)
    if declared is not None and declared.terms:
        total = 0.0
        for name, weight in declared.terms.items():
            level = compute_chance_level(results, name)
            if level is None:
                return None
            total += weight * level
        return total
    for answer in results.profile.answers.values():
        name = metric.removeprefix(answer.prefix) if metric.startswith(answer.prefix) else ""
        if name in _PAIR_METRICS and name in answer.metrics:
            return _CHANCE_OF_PAIRS
        if name == "balanced_accuracy" and name in answer.metrics:
            return 1 / _count_classes(results, answer)
    return None


def _count_classes(results: TaskResults, answer: AnswerProfile) -> int:
    """Count the classes in the reference, which have a recall, or all classes if no team's file has a recall."""
    recalls = [name for name in answer.metrics if name.startswith(RECALL_PREFIX)]
    measured = [
        name for name in recalls if any(results.value(team, answer.prefix + name) is not None for team in results.teams)
    ]
    # Two classes have sensitivity and specificity instead of recalls.
    return len(measured) or len(recalls) or 2


def _compare_with_chance(results: TaskResults, metric: str, figures: MetricFigures) -> str:
    """Describe a value that is worse than chance or not shown to be better.

    The lower end of the interval is compared, or the value itself if it has no interval. The text is empty for a value
    that is better, and for a metric without a chance level.
    """
    chance = compute_chance_level(results, metric)
    value, low, high = figures.figures
    if value is None or chance is None or (value if low is None else low) > chance:
        return ""
    is_worse = high is not None and high < chance
    return f"{'worse than chance' if is_worse else 'not shown to be better than chance'} ({chance:.3g})"


def _describe_tests(results: TaskResults, winner: str, rivals: Sequence[str]) -> str:
    if not results.board.comparisons:
        return "not tested against the other teams"
    wins = SignificantWins.from_results(results)
    not_beaten = [rival for rival in rivals if not wins.is_better(winner, rival)]
    if len(not_beaten) == len(rivals) > 2:
        return "not significantly better than any other team"
    if not_beaten:
        return f"not significantly better than {_join_some(not_beaten)}"
    is_better_in_all = wins.is_better_in_all(winner, rivals)
    if len(rivals) == 1:
        losers = rivals[0]
    else:
        count = _NUMBERS[len(rivals)] if len(rivals) < len(_NUMBERS) else len(rivals)
        losers = f"{'all' if is_better_in_all else 'each of the'} {count} other teams"
    where = ""
    if len(wins.by_metric) > 1:
        where = " in every metric" if is_better_in_all else " in at least one metric"
    return f"significantly better than {losers}{where}"


def _join(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _join_some(names: Sequence[str]) -> str:
    """Join up to three names, and count the others."""
    more = len(names) - _MAX_NAMES
    return _join([*names[:_MAX_NAMES], f"{more} more"] if more > 0 else names)


def lower_title(title: str) -> str:
    """Return the title of a metric as it is written in a sentence: "balanced accuracy", but "C-index" and "GTVp"."""
    return title[:1].lower() + title[1:] if title[1:2].islower() else title


def render_leaderboard(results: TaskResults, colours: Mapping[str, str]) -> str:
    """Render ranked teams, entries out of competition at their places, and teams without all values as a table."""
    board = results.board
    table = _BoardTable(results, colours)
    columns = table.list_columns()
    rows = []
    for entry in board.ordered_entries:
        if isinstance(entry, RankedEntry):
            rows.append(table.make_ranked_row(entry))
        else:
            rows.append(table.make_unranked_row(entry, len(columns)))
    rows += [table.make_incomplete_row(team, len(columns)) for team in board.incomplete]
    css_class = "board searched" if table.descriptors else "board"
    return render_table(table.caption, columns, rows, header_column=1, css_class=css_class)


class _BoardTable:
    """Columns and rows of a leaderboard.

    Attributes:
        descriptors: Descriptors of the teams' methods, such as the network.
        other_schemes: Ranking schemes besides the official scheme.
        scheme_figures: Figures of the official scheme that are not metrics.
        rank_intervals: The ranks of each team over the bootstrap rankings; empty without rankings.
        wins: The significant differences; None if the board has no tests.
    """

    def __init__(self, results: TaskResults, colours: Mapping[str, str]) -> None:
        board = results.board
        has_rivals = len(board.teams) > 1
        self.results = results
        self.colours = colours
        self.descriptors = list(dict.fromkeys(name for method in board.methods.values() for name in method))
        self.other_schemes = [name for name in board.teams[0].rankings if name != board.official]
        self.scheme_figures = _list_scheme_figures(board)
        self.rank_intervals = board.official_stability.teams if board.official_stability and has_rivals else {}
        self.wins = SignificantWins.from_results(results) if board.comparisons and has_rivals else None

    @property
    def caption(self) -> str:
        return _CAPTION if self.wins is None else f"{_CAPTION}{_TESTS_CAPTION}"

    def list_columns(self) -> list[Column]:
        board = self.results.board
        columns = [Column("Rank"), Column("Team")]
        columns += [Column(title, _is_best_high(board, metric)) for metric, title in board.metrics.items()]
        columns += [Column(name) for name in self.descriptors]
        if self.wins is not None:
            by_metric = ", by metric" if len(self.results.deciding_metrics) > 1 else ""
            columns.append(Column(f"Better than (of {len(board.teams) - 1}{by_metric})", highest_first=True))
            columns.append(Column("Neither better nor worse than"))
        columns += [Column(_SCHEME_FIGURES[name], name == "significant_wins") for name in self.scheme_figures]
        if self.rank_intervals:
            columns.append(Column("Rank, 95% interval"))
        schemes = [lower_title(get_scheme_title(name, board)) for name in self.other_schemes]
        return columns + [Column(f"Rank by {scheme}") for scheme in schemes]

    def make_ranked_row(self, entry: RankedEntry) -> Row:
        remark = _UNCHECKED if entry.without_rows else ""
        cells = [Cell(f"{entry.rank:g}", entry.rank), self._make_team_cell(entry.team, remark)]
        cells += self._make_value_cells(entry)
        if self.wins is not None:
            cells += self._make_test_cells(entry.team, self.wins)
        for name in self.scheme_figures:
            figure = getattr(entry.rankings[self.results.board.official], name)
            cells.append(Cell(f"{figure:.4g}", figure))
        if self.rank_intervals:
            ranks = self.rank_intervals[entry.team]
            # Rows are sorted by the lower end, and by the upper end where the lower ends are equal.
            order = ranks.ci95_low + ranks.ci95_high / 1000
            cells.append(Cell(f"{ranks.ci95_low:g} to {ranks.ci95_high:g}", order))
        for name in self.other_schemes:
            rank = entry.rankings[name].rank
            cells.append(Cell(f"{rank:g}", rank))
        return Row(cells, {"team": entry.team})

    def make_unranked_row(self, entry: OutOfCompetitionEntry, column_count: int) -> Row:
        remark = f"({_OUTSIDE}: {entry.reason})" if entry.reason else f"({_OUTSIDE})"
        cells = [Cell("-"), self._make_team_cell(entry.team, remark), *self._make_value_cells(entry)]
        if len(cells) < column_count:
            cells.append(Cell("", span=column_count - len(cells)))
        return Row(cells, {"team": entry.team}, "outside")

    def make_incomplete_row(self, incomplete: IncompleteTeam, column_count: int) -> Row:
        reason = Cell(escape(f"not ranked: no {', '.join(incomplete.without)}"), span=column_count - 2)
        return Row([Cell("-"), self._make_team_cell(incomplete.team, ""), reason], {"team": incomplete.team})

    def _make_team_cell(self, team: str, remark: str) -> Cell:
        note = f' <span class="remark">{escape(remark)}</span>' if remark else ""
        swatch = render_swatch(self.colours.get(team, "transparent"))
        return Cell(f"{swatch}{render_choice('team', team)}{note}")

    def _make_value_cells(self, entry: RankedEntry | OutOfCompetitionEntry) -> list[Cell]:
        """Make the cells of a team's metrics and of its method."""
        cells = []
        for figures in entry.metrics.values():
            is_best = isinstance(figures, RankedFigures) and figures.rank == 1
            cells.append(make_value_cell(*figures.figures, best=is_best))
        method = self.results.board.methods.get(entry.team, {})
        return cells + [Cell(escape(method.get(name, "")) or "-") for name in self.descriptors]

    def _make_test_cells(self, team: str, wins: SignificantWins) -> list[Cell]:
        """Make the cells of the teams that a team beats, by metric, and of the teams without an order to it."""
        beaten = wins.count_beaten(team)
        rivals = [rival for rival in self.results.board.order if rival != team]
        unordered = [rival for rival in rivals if not wins.are_ordered(team, rival)]
        names = f'<span class="names">{escape(_join_some(unordered)) or "-"}</span>'
        return [Cell(" · ".join(map(str, beaten)), sum(beaten)), Cell(names)]


def _list_scheme_figures(board: Leaderboard) -> list[str]:
    """List the figures of the official scheme that need rows: a rank within the cases, or a number of wins."""
    official = board.teams[0].rankings[board.official]
    return [name for name in _SCHEME_FIGURES if getattr(official, name) is not None]


def _is_best_high(board: Leaderboard, metric: str) -> bool:
    """Return whether higher values of a metric have better ranks, which the teams' values show."""
    by_rank = sorted((entry.metrics[metric] for entry in board.teams), key=lambda figures: figures.rank)
    values = [figures.value for figures in by_rank if figures.value is not None]
    return not values or values[0] >= values[-1]
