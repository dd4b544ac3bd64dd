"""Plots of a leaderboard: the bootstrap distribution of each team's rank, and the pairwise tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from evaluation.analyses.sources import TaskResults
from evaluation.report.drawing import is_first_in_row, new_figure, plot_style, svg_text

SIGNIFICANT: Final = 0.05
_LARGEST_BLOB_POINTS2: Final = 260.0
_BETTER: Final = "#14b8a6"
_NOT_BETTER: Final = "#eef0f3"


def rank_plots(results: TaskResults, colours: Mapping[str, str]) -> list[tuple[str, str]]:
    """(caption, SVG text) of both plots; none without bootstrap rankings or with a single team."""
    board = results.board
    if not board.get("stability") or len(board["teams"]) < 2:
        return []
    draws = board["stability"]["bootstraps"]
    return [
        (f"How often each team took each rank in {draws} bootstrap rankings", stability_plot(results, colours)),
        (
            "Row better than column: one-sided p after Holm's correction, coloured below 0.05",
            significance_plot(results),
        ),
    ]


@plot_style
def stability_plot(results: TaskResults, colours: Mapping[str, str]) -> str:
    """A blob for each team and rank, its area the fraction of bootstrap rankings, and the rank's 95% interval.

    One panel shows the official ranking; if it uses several metrics, one more panel shows each metric alone. Each
    panel states Kendall's tau. Source: challengeR, Wiesenfarth et al. 2021.
    """
    stable, metrics = results.board["stability"], results.board["metrics"]
    panels = [("Official ranking", stable["rankings"][results.board["official"]])]
    if len(metrics) > 1:
        panels += [(title, stable["metrics"][name]) for name, title in metrics.items()]
    teams = _teams(results)
    figure, axes = new_figure(len(panels), height=1.5 + 0.3 * len(teams))
    for one, (title, standing) in zip(axes, panels, strict=True):
        _blobs(one, standing["teams"], stable["bootstraps"], teams, colours)
        one.set_title(f"{title}{_tau(standing['kendall_tau'])}", loc="left", fontsize=8.5, fontweight="bold")
        one.tick_params(axis="y", labelleft=is_first_in_row(one))
    return svg_text(figure)


def _blobs(
    axes: Any, ranks: Mapping[str, Any], bootstraps: int, teams: Sequence[str], colours: Mapping[str, str]
) -> None:
    for place, team in enumerate(teams):
        shares = {float(rank): times / bootstraps for rank, times in ranks[team]["times_at_rank"].items()}
        ends = (ranks[team]["ci95_low"], ranks[team]["ci95_high"])
        axes.plot(ends, (place, place), color="#7b8794", linewidth=1, linestyle="dashed", zorder=1)
        areas = [_LARGEST_BLOB_POINTS2 * share for share in shares.values()]
        axes.scatter(list(shares), [place] * len(shares), s=areas, color=colours[team], zorder=2)
    axes.set_yticks(range(len(teams)), teams)
    axes.set_ylim(len(teams) - 0.4, -0.6)
    axes.set_xlim(0.5, len(teams) + 0.5)
    axes.set_xticks(range(1, len(teams) + 1))
    axes.set_xlabel("rank")
    axes.grid(color="#e4e7eb", linewidth=0.6)
    axes.set_axisbelow(True)


def _tau(tau: Mapping[str, Any]) -> str:
    if tau["mean"] is None:
        return ""
    return f"\ntau {tau['mean']:.3f} [{tau['ci95_low']:.3f}, {tau['ci95_high']:.3f}]"


@plot_style
def significance_plot(results: TaskResults) -> str:
    """One map for each metric; a cell shows whether the row's team is better than the column's."""
    comparisons, metrics, teams = results.board["comparisons"], results.board["metrics"], _teams(results)
    side = 1.0 + 0.42 * len(teams)
    figure, axes = new_figure(len(metrics), height=side + 0.6, panel_width=side + 0.8)
    for one, (name, title) in zip(axes, metrics.items(), strict=True):
        for pair in comparisons[name]["pairs"]:
            _cell(one, teams.index(pair["team"]), teams.index(pair["than"]), pair["p_holm"])
        one.set_xticks(range(len(teams)), teams, rotation=60, ha="right")
        one.set_yticks(range(len(teams)), teams)
        one.tick_params(length=0, labelleft=is_first_in_row(one))
        one.set(xlim=(-0.5, len(teams) - 0.5), ylim=(len(teams) - 0.5, -0.5), aspect="equal")
        one.set_title(title, loc="left", fontsize=9, fontweight="bold")
        one.spines[:].set_visible(False)
    return svg_text(figure)


def _cell(axes: Any, row: int, column: int, p: float) -> None:
    significant = p < SIGNIFICANT
    left, right, top, bottom = column - 0.46, column + 0.46, row - 0.46, row + 0.46
    colour = _BETTER if significant else _NOT_BETTER
    axes.fill([left, right, right, left], [top, top, bottom, bottom], color=colour)
    shown = "<.001" if p < 0.001 else f"{p:.3f}"[1:] if p < 0.9995 else "1"
    axes.text(column, row, shown, ha="center", va="center", fontsize=6.5, color="white" if significant else "#52606d")


def _teams(results: TaskResults) -> list[str]:
    """The ranked teams, in the official order."""
    return [str(entry["team"]) for entry in results.board["teams"]]
