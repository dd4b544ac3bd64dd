"""The leaderboard as text and as CSV, with entries out of competition in their places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from contract.files import csv_text
from evaluation.ranking.paper import decimals_of, with_interval
from evaluation.results.documents import FIGURES, figure_of

OUT_OF_COMPETITION: Final = "out of competition"
BEST_MEDIAN_WORST: Final = ("best", "median", "worst")


def in_places(board: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Teams in official order, with the entries out of competition in their places; these have no `rank`."""
    entries = list(board["teams"])
    # From the last place on, so that an insertion moves no later place.
    for row in reversed(board["out_of_competition"]):
        entries.insert(row["place"], row)
    return entries


def as_text(board: Mapping[str, Any]) -> str:
    """The table for the screen, then rank stability with Kendall's taus, and identical answers."""
    metrics, entries = board["metrics"], in_places(board)
    width = max(len("team"), *(len(entry["team"]) for entry in [*entries, *board["incomplete"]]))
    others = [name for name in board["teams"][0]["rankings"] if name != board["official"]]
    titles = [*metrics.values(), *(f"by {name}" for name in others)]
    widths = [max(20, len(title)) for title in titles]
    lines = [f"{'rank':>4}  {'team':<{width}}  " + "  ".join(f"{title:>20}" for title in titles)]
    for entry in entries:
        cells = [_value_text(entry["metrics"][name]) for name in metrics]
        cells += [f"{entry['rankings'][name]['rank']:g}" if "rankings" in entry else "-" for name in others]
        aligned = (f"{cell:>{space}}" for cell, space in zip(cells, widths, strict=True))
        note = f"  ({entry['reason'] or OUT_OF_COMPETITION})" if "reason" in entry else ""
        note += "  without rows" * entry.get("without_rows", False)
        lines.append(f"{entry.get('rank', '-'):>4}  {entry['team']:<{width}}  " + "  ".join(aligned) + note)
    lines += [f"   -  {entry['team']:<{width}}  no {', '.join(entry['without'])}" for entry in board["incomplete"]]
    lines += _stability_lines(board, width)
    lines += identical_lines(board)
    return "\n".join(lines) + "\n"


def lines_of_runs(board: Mapping[str, Any]) -> list[str]:
    """The run of each team that counts, the best, median and worst of each metric, and their means over teams."""
    lines, summaries = [], [runs["summary"] for runs in board["runs"].values()]
    for team, runs in board["runs"].items():
        lines.append(f"{team}: ranked by {runs['chosen']}, the best of {len(runs['order'])} runs")
        lines += [f"   {name}: {_of_runs(figures)}" for name, figures in runs["summary"].items()]
    if len(summaries) > 1:
        lines.append(f"mean of the runs of {len(summaries)} teams")
        for name in board["metrics"]:
            columns = {part: [of_team[name][part] for of_team in summaries] for part in BEST_MEDIAN_WORST}
            means = {part: None if None in of else sum(of) / len(of) for part, of in columns.items()}
            lines.append(f"   {name}: {_of_runs(means)}")
    return lines


def _of_runs(figures: Mapping[str, float | None]) -> str:
    return ", ".join(f"{part} {'-' if value is None else f'{value:.4f}'}" for part, value in figures.items())


def identical_lines(board: Mapping[str, Any]) -> list[str]:
    """A line for each group of teams with identical answers."""
    lines = []
    for one in board.get("identical_answers", ()):
        *first, last = one["teams"]
        count = f"{one['cases']} of {one['cases']} cases"
        lines.append(f"{', '.join(first)} and {last}: identical answers in {count} ({one['answer']})")
    return lines


def _value_text(figures: Mapping[str, Any]) -> str:
    value = figure_of(figures)
    return "-" if value is None else f"{value:.4f}"


def _tau_text(tau: Mapping[str, Any]) -> str:
    return f"Kendall's tau {tau['mean']:.3f} [{tau['ci95_low']:.3f}, {tau['ci95_high']:.3f}]"


def _stability_lines(board: Mapping[str, Any], width: int) -> list[str]:
    stable = board["stability"]
    if stable is None:
        return [f"no rank stability: {board['without_stability_because']}"]
    official = stable["rankings"][board["official"]]
    lines = [
        f"ranks in {stable['bootstraps']} bootstrap rankings: 95% interval, and how often first (a tie counts for each)"
    ]
    for entry in board["teams"]:
        ranks = official["teams"][entry["team"]]
        first = ranks["times_at_rank"].get("1", 0) / stable["bootstraps"]
        lines.append(f"      {entry['team']:<{width}}  {ranks['ci95_low']:g} to {ranks['ci95_high']:g}, {first:.0%}")
    taus = {"": official["kendall_tau"]}
    metrics = {name: title for name, title in board["metrics"].items() if name not in stable["rankings"]}
    taus |= {f" by {title} alone": stable["metrics"][name]["kendall_tau"] for name, title in metrics.items()}
    return [*lines, *(f"{_tau_text(tau)}{by}" for by, tau in taus.items() if tau["mean"] is not None)]


def as_csv(board: Mapping[str, Any]) -> str:
    """The leaderboard as CSV: one line for each team and each entry out of competition, in its place.

    Columns are the official rank, each metric with its interval and rank, each ranking, and the rank's interval;
    values have the decimals that their intervals justify, and `<metric>_text` is `0.960 (0.942-0.978)`;
    `without_rows` if a team has none, so that its values could not be checked; and `method_...` for each descriptor of
    the methods. With entries out of competition a last column gives their reasons; they have no rank.
    """
    unchecked = any(entry.get("without_rows") for entry in in_places(board))
    official = board["official"]
    stable = (board["stability"] or {}).get("rankings", {}).get(official, {}).get("teams", {})
    entries, lines = in_places(board), []
    decimals = {name: decimals_of(entries, name) for name in board["metrics"]}
    for entry in entries:
        line: dict[str, Any] = {"rank": entry.get("rank"), "team": entry["team"]}
        for name, figures in entry["metrics"].items():
            line |= {f"{name}_{part}": _rounded(figure_of(figures, part), decimals[name]) for part in FIGURES}
            line |= {f"{name}_rank": figures.get("rank"), f"{name}_text": with_interval(figures, decimals[name])}
        for name, figures in entry.get("rankings", {}).items():
            line |= {f"{name}_{part}": value for part, value in figures.items()}
        if entry["team"] in stable:
            line |= {f"rank_{part}": stable[entry["team"]][part] for part in ("ci95_low", "ci95_high")}
        if unchecked:
            line["without_rows"] = "yes" if entry.get("without_rows") else "no"
        line |= _methods(board, entry["team"])
        if "reason" in entry:
            line["out_of_competition"] = entry["reason"] or OUT_OF_COMPETITION
        lines.append(line)
    lines += [
        {"team": team, **board.get("methods", {}).get(team, {})}
        for team in (entry["team"] for entry in board["incomplete"])
    ]
    columns = {column: None for line in lines for column in line if column != "out_of_competition"}
    return csv_text(
        [*columns, *(["out_of_competition"] if board["out_of_competition"] else [])], lines, for_people=True
    )


def _rounded(value: float | None, decimals: int | None) -> float | None:
    return value if value is None or decimals is None else round(value, decimals)


def _methods(board: Mapping[str, Any], team: str) -> dict[str, str]:
    return {f"method_{column}": text for column, text in board.get("methods", {}).get(team, {}).items()}
