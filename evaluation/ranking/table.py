"""The leaderboard as text and as CSV, with entries out of competition in their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from contract.io.files import format_csv
from evaluation.ranking.paper import decimals_of, with_interval
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


def as_text(board: Leaderboard) -> str:
    """Format the table for the screen, then rank stability with Kendall's taus, and identical answers."""
    metrics = board.metrics
    width = max(len("team"), *map(len, board.names))
    others = [name for name in board.teams[0].rankings if name != board.official]
    titles = [*metrics.values(), *(f"by {name}" for name in others)]
    widths = [max(20, len(title)) for title in titles]
    lines = [f"{'rank':>4}  {'team':<{width}}  " + "  ".join(f"{title:>20}" for title in titles)]
    for entry in board.in_places:
        ranked, values = isinstance(entry, RankedEntry), [entry.metrics[name].figure() for name in metrics]
        cells = ["-" if value is None else f"{value:z.4f}" for value in values]
        cells += [f"{entry.rankings[name].rank:g}" if isinstance(entry, RankedEntry) else "-" for name in others]
        aligned = (f"{cell:>{space}}" for cell, space in zip(cells, widths, strict=True))
        note = "" if ranked else f"  ({_reason(entry)})"
        note += "  without rows" * entry.without_rows
        lines.append(f"{_rank(entry) or '-':>4}  {entry.team:<{width}}  " + "  ".join(aligned) + note)
    lines += [f"   -  {entry.team:<{width}}  no {', '.join(entry.without)}" for entry in board.incomplete]
    return "\n".join([*lines, *_stability_lines(board, width), *identical_lines(board)]) + "\n"


def _rank(entry: RankedEntry | OutOfCompetitionEntry) -> float | None:
    return entry.rank if isinstance(entry, RankedEntry) else None


def _reason(entry: RankedEntry | OutOfCompetitionEntry) -> str:
    return "" if isinstance(entry, RankedEntry) else entry.reason or OUT_OF_COMPETITION


def lines_of_runs(board: Leaderboard) -> list[str]:
    """List the run of each team that counts, the best, median and worst of each metric, and their means over teams."""
    lines, summaries = [], [runs.summary for runs in board.runs.values()]
    for team, runs in board.runs.items():
        lines.append(f"{team}: ranked by {runs.chosen}, the best of {len(runs.order)} runs")
        lines += [f"   {name}: {_of_runs(figures)}" for name, figures in runs.summary.items()]
    if len(summaries) > 1:
        lines.append(f"mean of the runs of {len(summaries)} teams")
        for name in board.metrics:
            means = {part: _mean([of_team[name][part] for of_team in summaries]) for part in BEST_MEDIAN_WORST}
            lines.append(f"   {name}: {_of_runs(means)}")
    return lines


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _of_runs(figures: Mapping[BestMedianWorst, float | None]) -> str:
    return ", ".join(f"{part} {'-' if value is None else f'{value:z.4f}'}" for part, value in figures.items())


def identical_lines(board: Leaderboard) -> list[str]:
    """Write a line for each group of teams with identical answers."""
    lines = []
    for group in board.identical_answers:
        *first, last = group.teams
        count = f"{group.cases} of {group.cases} cases"
        lines.append(f"{', '.join(first)} and {last}: identical answers in {count} ({group.answer})")
    return lines


def _tau_text(tau: KendallTau) -> str:
    return f"{tau.mean:z.3f} [{tau.ci95_low:z.3f}, {tau.ci95_high:z.3f}]"


def _stability_lines(board: Leaderboard, width: int) -> list[str]:
    stable, official = board.stability, board.official_stability
    if stable is None or official is None:
        return [f"no rank stability: {board.without_stability_because}"]
    drawn = f"ranks in {stable.bootstraps} bootstrap rankings"
    lines = [f"{drawn}: 95% interval, and how often first (a tie counts for each)"]
    for team in board.order:
        ranks = official.teams[team]
        first = ranks.times_at_rank.get("1", 0) / stable.bootstraps
        lines.append(f"      {team:<{width}}  {ranks.ci95_low:g} to {ranks.ci95_high:g}, {first:.0%}")
    metrics = {name: title for name, title in board.metrics.items() if name not in stable.rankings}
    taus = {"this ranking": official.kendall_tau}
    taus |= {f"{title} alone": stable.metrics[name].kendall_tau for name, title in metrics.items()}
    known = {name: tau for name, tau in taus.items() if tau.mean is not None}
    if known:
        lines.append(
            "Kendall's tau between each bootstrap ranking and the ranking of all patients, both by the same rule:"
        )
    longest = max(map(len, known), default=0)
    return [*lines, *(f"      {name:<{longest}}  {_tau_text(tau)}" for name, tau in known.items())]


def as_csv(board: Leaderboard) -> str:
    """Format the leaderboard as CSV: one line for each team and each entry out of competition, in its place.

    Columns are the official rank, each metric with its interval and rank, each ranking, and the rank's interval;
    values have the decimals that their intervals justify, and `<metric>_text` is `0.960 (0.942-0.978)`;
    `without_rows` if a team has none, so that its values could not be checked; and `method_...` for each descriptor of
    the methods. With entries out of competition a last column gives their reasons; they have no rank.
    """
    entries, official = board.in_places, board.official_stability
    unchecked = any(entry.without_rows for entry in entries)
    decimals, lines = {name: decimals_of(board, name) for name in board.metrics}, []
    for entry in entries:
        line: dict[str, Any] = {"rank": _rank(entry), "team": entry.team}
        for name, figures in entry.metrics.items():
            values = zip(FIGURES, figures.figures, strict=True)
            line |= {f"{name}_{part}": _rounded(value, decimals[name]) for part, value in values}
            rank = figures.rank if isinstance(figures, RankedFigures) else None
            line |= {f"{name}_rank": rank, f"{name}_text": with_interval(figures, decimals[name])}
        for name, scheme in entry.rankings.items() if isinstance(entry, RankedEntry) else ():
            line |= {f"{name}_{part}": value for part, value in scheme.model_dump(exclude_unset=True).items()}
        if official is not None and entry.team in official.teams:
            ranks = official.teams[entry.team]
            line |= {"rank_ci95_low": ranks.ci95_low, "rank_ci95_high": ranks.ci95_high}
        if unchecked:
            line["without_rows"] = "yes" if entry.without_rows else "no"
        line |= {f"method_{column}": text for column, text in board.methods.get(entry.team, {}).items()}
        if not isinstance(entry, RankedEntry):
            line["out_of_competition"] = _reason(entry)
        lines.append(line)
    lines += [{"team": one.team, **board.methods.get(one.team, {})} for one in board.incomplete]
    columns = {column: None for line in lines for column in line if column != "out_of_competition"}
    return format_csv([*columns, *["out_of_competition"] * bool(board.out_of_competition)], lines, for_people=True)


def _rounded(value: float | None, decimals: int | None) -> float | None:
    # The sum with zero turns -0.0 into 0.0.
    return value if value is None or decimals is None else round(value, decimals) + 0.0
