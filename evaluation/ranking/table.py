"""The leaderboard as text and as CSV, with entries out of competition at the positions of their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from contract.io.tables import format_csv
from evaluation.ranking.paper import choose_decimals, format_figures
from evaluation.results.board import (
    BEST_MEDIAN_WORST,
    BestMedianWorst,
    KendallTau,
    Leaderboard,
    OutOfCompetitionEntry,
    RankedEntry,
    RankedFigures,
)
from evaluation.results.documents import FIGURES

OUT_OF_COMPETITION: Final = "out of competition"


def format_board(board: Leaderboard) -> str:
    """Format the table for the screen, then rank stability with Kendall's taus, and identical answers."""
    metrics = board.metrics
    team_width = max(len("team"), *map(len, board.names))
    schemes = [name for name in board.teams[0].rankings if name != board.official]
    titles = [*metrics.values(), *(f"by {name}" for name in schemes)]
    widths = [max(20, len(title)) for title in titles]
    lines = [f"{'rank':>4}  {'team':<{team_width}}  " + "  ".join(f"{title:>20}" for title in titles)]
    for entry in board.ordered_entries:
        cells = [_format_value(entry.metrics[name].figure()) for name in metrics]
        if isinstance(entry, RankedEntry):
            cells += [f"{entry.rankings[name].rank:g}" for name in schemes]
            note = ""
        else:
            cells += ["-"] * len(schemes)
            note = f"  ({_get_reason(entry)})"
        note += "  without rows" * entry.without_rows
        aligned = "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        lines.append(f"{_get_rank(entry) or '-':>4}  {entry.team:<{team_width}}  {aligned}{note}")
    lines += [f"   -  {team.team:<{team_width}}  no {', '.join(team.without)}" for team in board.incomplete]
    if board.left_out_cases:
        lines.append(f"left out: {', '.join(board.left_out_cases)}")
    return "\n".join([*lines, *_format_stability(board, team_width), *format_identical_answers(board)]) + "\n"


def _format_value(value: float | None) -> str:
    return "-" if value is None else f"{value:z.4f}"


def _get_rank(entry: RankedEntry | OutOfCompetitionEntry) -> float | None:
    return entry.rank if isinstance(entry, RankedEntry) else None


def _get_reason(entry: OutOfCompetitionEntry) -> str:
    return entry.reason or OUT_OF_COMPETITION


def format_runs(board: Leaderboard) -> list[str]:
    """Return lines about each team with several runs, and if there are several such teams the means over these teams.

    The lines name the run that counts, and the best, median and worst value of each metric.
    """
    lines = []
    for team, runs in board.runs.items():
        lines.append(f"{team}: ranked by {runs.chosen}, the best of {len(runs.order)} runs")
        lines += [f"   {name}: {_format_run_figures(figures)}" for name, figures in runs.summary.items()]
    summaries = [runs.summary for runs in board.runs.values()]
    if len(summaries) > 1:
        lines.append(f"mean of the runs of {len(summaries)} teams")
        for name in board.metrics:
            means = {part: _mean([summary[name][part] for summary in summaries]) for part in BEST_MEDIAN_WORST}
            lines.append(f"   {name}: {_format_run_figures(means)}")
    return lines


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _format_run_figures(figures: Mapping[BestMedianWorst, float | None]) -> str:
    return ", ".join(f"{part} {_format_value(value)}" for part, value in figures.items())


def format_identical_answers(board: Leaderboard) -> list[str]:
    """Return a line for each group of teams with identical answers."""
    lines = []
    for group in board.identical_answers:
        *first, last = group.teams
        count = f"{group.cases} of {group.cases} cases"
        lines.append(f"{', '.join(first)} and {last}: identical answers in {count} ({group.answer})")
    return lines


def _format_stability(board: Leaderboard, team_width: int) -> list[str]:
    stable, official = board.stability, board.official_stability
    if stable is None or official is None:
        return [f"no rank stability: {board.without_stability_because}"]
    drawn = f"ranks in {stable.bootstraps} bootstrap rankings"
    lines = [f"{drawn}: 95% interval, and how often first (a tie for first counts for each tied team)"]
    for team in board.order:
        ranks = official.teams[team]
        first = ranks.times_at_rank.get("1", 0) / stable.bootstraps
        lines.append(f"      {team:<{team_width}}  {ranks.ci95_low:g} to {ranks.ci95_high:g}, {first:.0%}")
    taus = {"this ranking": official.kendall_tau}
    taus |= {
        f"only {title}": stable.metrics[name].kendall_tau
        for name, title in board.metrics.items()
        if name not in stable.rankings
    }
    # Between two teams the tau only repeats how often the first team is first.
    known = {name: tau for name, tau in taus.items() if tau.mean is not None and len(board.order) > 2}
    if known:
        lines.append("Kendall's tau between each bootstrap ranking and the ranking above, both by the same rule:")
    width = max(map(len, known), default=0)
    return [*lines, *(f"      {name:<{width}}  {_format_tau(tau)}" for name, tau in known.items())]


def _format_tau(tau: KendallTau) -> str:
    return f"{tau.mean:z.3f} [{tau.ci95_low:z.3f}, {tau.ci95_high:z.3f}]"


def format_board_csv(board: Leaderboard) -> str:
    """Format the leaderboard as CSV: one line for each team and for each entry out of competition.

    Columns are the official rank, each metric with its interval and rank, each ranking, and the rank's interval. Values
    have the decimals that their intervals justify, and `<metric>_text` is `0.960 (0.942-0.978)`. The column
    `without_rows` is written if a team has no rows, so its values could not be checked. `method_...` are the
    descriptors of the methods. With entries out of competition a last column gives their reasons; they have no rank.
    """
    entries = board.ordered_entries
    decimals = {name: choose_decimals(board, name) for name in board.metrics}
    has_unchecked = any(entry.without_rows for entry in entries)
    lines = []
    for entry in entries:
        line = _make_csv_line(board, entry, decimals)
        if has_unchecked:
            line["without_rows"] = "yes" if entry.without_rows else "no"
        line |= _prefix_descriptors(board, entry.team)
        if not isinstance(entry, RankedEntry):
            line["out_of_competition"] = _get_reason(entry)
        lines.append(line)
    lines += [{"team": team.team, **_prefix_descriptors(board, team.team)} for team in board.incomplete]
    columns = {column: None for line in lines for column in line if column != "out_of_competition"}
    return format_csv([*columns, *["out_of_competition"] * bool(board.out_of_competition)], lines, for_people=True)


def _prefix_descriptors(board: Leaderboard, team: str) -> dict[str, str]:
    """Return the descriptors of a team's method by the column of leaderboard.csv."""
    return {f"method_{column}": text for column, text in board.methods.get(team, {}).items()}


def _make_csv_line(
    board: Leaderboard, entry: RankedEntry | OutOfCompetitionEntry, decimals: Mapping[str, int | None]
) -> dict[str, Any]:
    """Make a line of the CSV file by column: the rank, the figures of each metric, and the figures of each ranking."""
    line: dict[str, Any] = {"rank": _get_rank(entry), "team": entry.team}
    for name, figures in entry.metrics.items():
        for part, value in zip(FIGURES, figures.figures, strict=True):
            line[f"{name}_{part}"] = _round(value, decimals[name])
        line[f"{name}_rank"] = figures.rank if isinstance(figures, RankedFigures) else None
        line[f"{name}_text"] = format_figures(figures, decimals[name])
    if isinstance(entry, RankedEntry):
        for name, scheme in entry.rankings.items():
            line |= {f"{name}_{part}": value for part, value in scheme.model_dump(exclude_unset=True).items()}
    official = board.official_stability
    if official is not None and entry.team in official.teams:
        ranks = official.teams[entry.team]
        line |= {"rank_ci95_low": ranks.ci95_low, "rank_ci95_high": ranks.ci95_high}
    return line


def _round(value: float | None, decimals: int | None) -> float | None:
    # The sum with zero turns -0.0 into 0.0.
    return value if value is None or decimals is None else round(value, decimals) + 0.0
