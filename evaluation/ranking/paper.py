"""Tables for papers: values with the decimals that intervals justify, the leaderboard in LaTeX, values of all cases."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

from contract.errors import HecktorError
from contract.io.tables import format_csv
from evaluation.results.board import Leaderboard, RankedEntry, RankedFigures
from evaluation.results.documents import MetricFigures
from evaluation.results.metrics_json import half_width, read_metrics
from evaluation.rows.mask import flatten_row

_MAX_DECIMALS: Final = 6
_LATEX: Final = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
    | {"<": "\\textless{}", ">": "\\textgreater{}", "|": "\\textbar{}"}
)


def choose_decimals(board: Leaderboard, metric: str) -> int | None:
    """Return the number of decimals that gives the median half-width of a metric's intervals two significant digits.

    The result is None if there are no intervals.
    """
    widths = [half_width(*entry.metrics[metric].figures[1:]) for entry in board.ordered_entries]
    known = [width for width in widths if width]
    return min(_MAX_DECIMALS, max(0, 1 - math.floor(math.log10(median(known))))) if known else None


def format_figures(figures: MetricFigures, decimals: int | None, dash: str = "-") -> str:
    """Format a value and its interval, as `0.960 (0.942-0.978)`; empty without a value."""
    value, low, high = figures.figures
    if value is None:
        return ""
    if decimals is None or low is None or high is None:
        return f"{value:z.6g}"
    return f"{value:z.{decimals}f} ({low:z.{decimals}f}{dash}{high:z.{decimals}f})"


def format_board_latex(board: Leaderboard) -> str:
    """Format the leaderboard as a `tabular` of the package booktabs; the best value of each metric is bold."""
    metrics = board.metrics
    decimals = {name: choose_decimals(board, name) for name in metrics}
    lines = [["Rank", "Team", *(title.translate(_LATEX) for title in metrics.values())]]
    for entry in board.ordered_entries:
        rank = f"{entry.rank:g}" if isinstance(entry, RankedEntry) else "--"
        cells = [rank, entry.team.translate(_LATEX)]
        for name in metrics:
            figures = entry.metrics[name]
            text = format_figures(figures, decimals[name], "--") or "--"
            is_best = isinstance(figures, RankedFigures) and figures.rank == 1
            cells.append(f"\\textbf{{{text}}}" if is_best else text)
        lines.append(cells)
    head, *rows = [f"{' & '.join(cells)} \\\\" for cells in lines]
    parts = [f"\\begin{{tabular}}{{rl{'c' * len(metrics)}}}", "\\toprule", head, "\\midrule", *rows, "\\bottomrule"]
    return "\n".join([*parts, "\\end{tabular}", ""])


def format_cases(files: Mapping[str, str]) -> str:
    """Return the values of every case and team as CSV, from the rows of each team's metrics.json.

    Columns have the rows' keys; in a task with several answers the answer's name precedes them.

    Raises:
        HecktorError: There are no rows.
    """
    lines = [
        {"case": row["case"], "team": team, **dict(_list_values(row))}
        for team, path in files.items()
        for row in read_metrics(Path(path), team).results
    ]
    if not lines:
        raise HecktorError("--cases", "results without rows", "metrics.json files written without --no-rows")
    return format_csv(list(dict.fromkeys(key for line in lines for key in line)), lines, for_people=True)


def _list_values(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the names and single values of a row; `prefix` precedes the names."""
    for key, value in flatten_row(row).items():
        if isinstance(value, Mapping):
            yield from _list_values(value, f"{key}_")
        elif key != "case" and not isinstance(value, list):
            yield f"{prefix}{key}", value
