"""Plots of a task: every metric with its interval, and plots of one kind of answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from contract.editions import Answer
from contract.editions.declaration import Kind
from evaluation.analyses.sources import TaskResults
from evaluation.metrics.classification import calibration_table
from evaluation.metrics.survival import kaplan_meier, log_rank_p
from evaluation.report.drawing import is_first_in_row, new_figure, plot_style, svg_text
from evaluation.rows.mask.metrics import VOLUME_BINS, equal_bins
from evaluation.statistics.bootstrap import Estimate

_DAYS_A_YEAR: Final = 365.25
_MM3_A_ML: Final = 1000.0
Row = Mapping[str, Any]
Plot = Callable[[TaskResults, Answer, Mapping[str, str]], str]


@plot_style
def metrics_plot(results: TaskResults, colours: Mapping[str, str]) -> str:
    """Each metric's value and 95% interval for each team, as SVG text."""
    metrics: Mapping[str, str] = results.board["metrics"]
    teams = list(results.teams)
    figure, panels = new_figure(len(metrics), height=0.75 + 0.32 * len(teams))
    for axes, (name, title) in zip(panels, metrics.items(), strict=True):
        for place, team in enumerate(reversed(teams)):
            estimate = team.estimates.get(name)
            if estimate is not None and estimate.value is not None:
                axes.plot(*_interval(estimate, place), color=colours[team.team], linewidth=2, solid_capstyle="butt")
                axes.plot(estimate.value, place, "o", color=colours[team.team], markersize=6)
        axes.set_title(title, loc="left", fontsize=9, fontweight="bold")
        axes.set_xlim(*_axis_range(team.estimates[name] for team in teams if name in team.estimates))
        axes.set_ylim(-0.6, len(teams) - 0.4)
        axes.set_yticks(range(len(teams)), [team.team for team in reversed(teams)])
        axes.tick_params(axis="y", length=0, labelleft=is_first_in_row(axes))
        axes.grid(axis="x", color="#e4e7eb", linewidth=0.8)
        axes.set_axisbelow(True)
    return svg_text(figure)


def _interval(estimate: Estimate, place: int) -> tuple[list[float], list[int]]:
    ends = [estimate.ci95_low, estimate.ci95_high]
    return [end for end in ends if end is not None], [place for end in ends if end is not None]


def _axis_range(estimates: Iterable[Estimate]) -> tuple[float, float]:
    """0 to 1 for fractions, so that panels compare; from 0 to the largest value for distances."""
    ends = [end for one in estimates for end in (one.value, one.ci95_low, one.ci95_high) if end is not None]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    if low >= 0 and high <= 1:
        return -0.02, 1.02
    margin = 0.04 * (high - min(low, 0.0))
    return min(low, 0.0) - margin, high + margin


@plot_style
def survival_plot(results: TaskResults, answer: Answer, colours: Mapping[str, str]) -> str:
    """Kaplan-Meier curves of the patients above and up to each team's median risk, with the log-rank p."""
    teams = {}
    for team in results.teams:
        rows = [row for row in results.rows_of(team, answer.name) if row["risk"] is not None]
        if rows:
            teams[team.team] = rows
    if not teams:
        return ""
    figure, panels = new_figure(len(teams), height=2.5)
    for axes, (name, rows) in zip(panels, teams.items(), strict=True):
        _survival_panel(axes, name, rows, answer, colours[name])
        axes.tick_params(labelleft=is_first_in_row(axes))
    panels[0].set_ylabel("free of recurrence")
    return svg_text(figure)


def _survival_panel(axes: Any, team: str, rows: Sequence[Row], answer: Answer, colour: str) -> None:
    days = np.array([row["rfs_days"] for row in rows], dtype=float)
    relapse = np.array([row["relapse"] for row in rows], dtype=np.bool_)
    risk = np.array([row["risk"] for row in rows], dtype=float) * (-1 if answer.direction == "time" else 1)
    high = risk > np.median(risk)
    for group, name, style in ((high, "higher risk", "solid"), (~high, "lower risk", "dashed")):
        curve = kaplan_meier(days[group], relapse[group])
        years = curve.times_days / _DAYS_A_YEAR
        label = f"{name}, {int(relapse[group].sum())} of {int(group.sum())} recurred"
        axes.step(years, curve.survival, where="post", color=colour, linestyle=style, linewidth=1.8, label=label)
    p = log_rank_p(days, relapse, high)
    shown = "no log-rank test" if p is None else "log-rank p < 0.001" if p < 0.001 else f"log-rank p = {p:.3f}"
    axes.set_title(f"{team}: {shown}", loc="left", fontsize=9, fontweight="bold")
    axes.set_ylim(0, 1.03)
    axes.set_xlim(left=0)
    axes.set_xlabel("years")
    axes.legend(fontsize=7.5, frameon=False, loc="lower left")


@plot_style
def sensitivity_plot(results: TaskResults, answer: Answer, colours: Mapping[str, str]) -> str:
    """Sensitivity against 1 - specificity of each team with both intervals; the diagonal is chance."""
    prefix = results.prefixes.get(answer.name, "")
    figure, axes = _unit_square("1 - specificity", "sensitivity")
    for team in results.teams:
        up, right = (team.estimates.get(f"{prefix}{name}") for name in ("sensitivity", "specificity"))
        if up is None or right is None or up.value is None or right.value is None:
            continue
        colour = colours[team.team]
        if up.ci95_low is not None and up.ci95_high is not None:
            axes.plot([1 - right.value] * 2, [up.ci95_low, up.ci95_high], color=colour, linewidth=1.4)
        if right.ci95_low is not None and right.ci95_high is not None:
            axes.plot([1 - right.ci95_low, 1 - right.ci95_high], [up.value] * 2, color=colour, linewidth=1.4)
        axes.plot(1 - right.value, up.value, "o", color=colour, label=team.team, markersize=7, clip_on=False)
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    return svg_text(figure)


def _unit_square(xlabel: str, ylabel: str) -> tuple[Figure, Any]:
    """A figure whose axes run from 0 to 1, with their diagonal."""
    figure, (axes,) = new_figure(1, height=3.4, width=3.6)
    axes.plot([0, 1], [0, 1], color="#cbd2d9", linewidth=1, linestyle="dotted")
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel=xlabel, ylabel=ylabel, aspect="equal")
    return figure, axes


@plot_style
def calibration_plot(results: TaskResults, answer: Answer, colours: Mapping[str, str]) -> str:
    """The fraction of positives against the predicted probability in five bins; the diagonal is perfect."""
    figure, axes = _unit_square("mean predicted probability", "fraction of positives")
    for team in results.teams:
        rows = [row for row in results.rows_of(team, answer.name) if row["predicted_probability"] is not None]
        if rows:
            positive = np.array([row[answer.row_key] == answer.classes[1] for row in rows], dtype=np.bool_)
            table = calibration_table(positive, np.array([row["predicted_probability"] for row in rows], dtype=float))
            means, shares = ([one[key] for one in table] for key in ("probability_mean", "positive_share"))
            axes.plot(means, shares, "o-", color=colours[team.team], label=team.team, markersize=5, clip_on=False)
    if len(axes.lines) == 1:
        return ""
    axes.legend(fontsize=8, frameon=False, loc="upper left")
    return svg_text(figure)


@plot_style
def volume_plot(results: TaskResults, answer: Answer, colours: Mapping[str, str]) -> str:
    """Each team's mean DSC of the GTVp in five bins of rising volume, against the bin's median volume."""
    figure, (axes,) = new_figure(1, height=3.0, width=5.0)
    for team in results.teams:
        rows = results.rows_of(team, answer.name)
        rows = [row for row in rows if row["gtvp_dsc"] is not None and row["gtvp_reference_mm3"] > 0]
        if len(rows) >= VOLUME_BINS:
            volume_ml = np.array([row["gtvp_reference_mm3"] for row in rows]) / _MM3_A_ML
            dsc = np.array([row["gtvp_dsc"] for row in rows])
            bins = equal_bins(volume_ml, VOLUME_BINS)
            middles, means = [np.median(volume_ml[part]) for part in bins], [dsc[part].mean() for part in bins]
            axes.plot(middles, means, "o-", color=colours[team.team], label=team.team, markersize=5)
    if not axes.lines:
        return ""
    axes.set(ylim=(-0.02, 1.02), xlabel="median GTVp volume of the bin (ml)", ylabel="mean DSC of the GTVp")
    axes.grid(color="#e4e7eb", linewidth=0.8)
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    return svg_text(figure)


# The plots of each kind of answer, besides the plot of all metrics; those of classes are for two classes.
_PLOTS_OF_KIND: Final[dict[Kind, Sequence[tuple[str, Plot]]]] = {
    "mask": (("DSC of the primary tumour in five bins of rising volume", volume_plot),),
    "risk": (("{title}: survival by predicted risk (split at each team's median)", survival_plot),),
    "class": (
        ("{title}: sensitivity and specificity with 95% intervals", sensitivity_plot),
        ("{title}: calibration of the predicted probability of the positive class, in five bins", calibration_plot),
    ),
}


def special_plots(results: TaskResults, colours: Mapping[str, str]) -> list[tuple[str, str]]:
    """(caption, SVG text) of the plots for the kinds of this task's answers, if they have data to show."""
    drawn = [
        (caption.format(title=answer.socket.title), plot(results, answer, colours))
        for answer in results.task.answers
        if answer.kind != "class" or answer.is_binary
        for caption, plot in _PLOTS_OF_KIND[answer.kind]
    ]
    return [(caption, svg) for caption, svg in drawn if svg]
