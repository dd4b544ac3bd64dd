"""Plots of the report page, as SVG text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from baseline.heads.cohort import Flags, Floats
from baseline.heads.cross_validation import KINDS
from baseline.report.models import Coefficient, ModelEstimates, high_risk
from baseline.report.uncertainty import MEASURES, LabelUncertainty
from evaluation.metrics.classification import calibration_table
from evaluation.metrics.survival import kaplan_meier, log_rank_p
from evaluation.report.drawing import new_figure, plot_style, svg_text
from evaluation.studies.failures.panels import draw_expected, draw_risk_coverage

COLOURS: Final = {"nested": "#0b69a3", "leave_one_centre_out": "#e07b00"}
_DAYS_A_YEAR: Final = 365.25


@plot_style
def intervals_plot(models: Sequence[ModelEstimates], metric: str, chance: float) -> str:
    """Plot each model's metric with its 95% interval for both kinds; the dotted line is `chance`."""
    figure, (axes,) = new_figure(1, height=0.9 + 0.42 * len(models), width=7.2)
    axes.axvline(chance, color="#9aa5b1", linewidth=1, linestyle="dotted")
    for place, model in enumerate(reversed(models)):
        for kind, shift in zip(KINDS, (0.14, -0.14), strict=True):
            estimate = model.estimates.get(kind)
            if estimate is None or estimate.value is None:
                continue
            colour, level = COLOURS[kind], place + shift
            if estimate.ci95_low is not None and estimate.ci95_high is not None:
                axes.plot([estimate.ci95_low, estimate.ci95_high], [level] * 2, color=colour, linewidth=2)
            axes.plot(estimate.value, level, "o", color=colour, markersize=6)
    for kind, title in KINDS.items():
        axes.plot([], [], "o-", color=COLOURS[kind], label=title)
    axes.set_yticks(range(len(models)), [model.title for model in reversed(models)])
    axes.set_ylim(-0.6, len(models) - 0.4)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(metric)
    axes.grid(axis="x", color="#e4e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    figure.legend(fontsize=8, frameon=False, loc="outside upper right", ncols=2)
    return svg_text(figure)


@plot_style
def survival_plot(days: Floats, event: Flags, kinds: Mapping[str, Mapping[str, Any]]) -> str:
    """Plot Kaplan-Meier curves above and up to the median risk of the outer fold, with log-rank p."""
    figure, panels = new_figure(len(kinds), height=2.9, width=4.2 * len(kinds))
    for axes, (name, kind) in zip(panels, kinds.items(), strict=True):
        high = high_risk(kind)
        for group, label, style in ((high, "higher risk", "solid"), (~high, "lower risk", "dashed")):
            curve = kaplan_meier(days[group], event[group])
            title = f"{label}, {int(event[group].sum())} of {int(group.sum())} with event"
            years = curve.times_days / _DAYS_A_YEAR
            axes.step(years, curve.survival, where="post", color=COLOURS[name], linestyle=style, label=title)
        p = log_rank_p(days, event, high)
        shown = "no log-rank test" if p is None else "log-rank p < 0.001" if p < 0.001 else f"log-rank p = {p:.3f}"
        axes.set_title(f"{KINDS[name]}: {shown}", loc="left", fontsize=9, fontweight="bold")
        axes.set(ylim=(0, 1.03), xlabel="years")
        axes.set_xlim(left=0)
        axes.legend(fontsize=7.5, frameon=False, loc="lower left")
    panels[0].set_ylabel("event-free")
    return svg_text(figure)


@plot_style
def calibration_plot(positive: Flags, kinds: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """Plot the share of positives by predicted probability in five bins, with 95% Wilson intervals and counts."""
    figure, panels = new_figure(len(kinds), height=3.4, width=3.5 * len(kinds))
    for axes, (key, kind) in zip(panels, kinds.items(), strict=True):
        axes.plot([0, 1], [0, 1], color="#9aa5b1", linewidth=1, linestyle="dotted")
        for row in calibration_table(positive, np.asarray(kind["probability"], dtype=np.float64)):
            x, share = row["probability_mean"], row["positive_share"]
            axes.plot([x, x], wilson_interval(share, row["cases"]), color=COLOURS[key], linewidth=1.6)
            axes.plot(x, share, "o", color=COLOURS[key], markersize=6, clip_on=False)
            axes.annotate(str(row["cases"]), (x, share), (6, -9), textcoords="offset points", fontsize=7.5)
        axes.set_title(KINDS[key], loc="left", fontsize=9, fontweight="bold")
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel=f"predicted probability of {name}")
    panels[0].set_ylabel("share of positives")
    return svg_text(figure)


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """95% interval of a share of `count` patients (Wilson 1927, J Am Stat Assoc 22:209-212)."""
    z = 1.959964
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return float(middle - half), float(middle + half)


@plot_style
def coefficients_plot(weights: Sequence[Coefficient]) -> str:
    """Plot each feature's weight: a bar for the shipped head, a dot for every outer fold."""
    figure, (axes,) = new_figure(1, height=0.7 + 0.26 * len(weights), width=7.2)
    axes.axvline(0, color="#9aa5b1", linewidth=1)
    for place, one in enumerate(reversed(weights)):
        if one.shipped is not None:
            axes.barh(place, one.shipped, height=0.55, color="#bcdcf0")
        axes.plot(one.folds, [place] * len(one.folds), "o", color=COLOURS["nested"], markersize=3.5, alpha=0.8)
    axes.set_yticks(range(len(weights)), [one.feature for one in reversed(weights)])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("weight per standard deviation (bar: shipped head, dots: outer folds)")
    return svg_text(figure)


@plot_style
def expected_plot(by_label: Mapping[str, LabelUncertainty]) -> str:
    """Plot expected against true DSC of each patient, a panel for each label."""
    figure, panels = new_figure(len(by_label), height=3.5, width=3.6 * len(by_label))
    for axes, (label, one) in zip(panels, by_label.items(), strict=True):
        draw_expected(axes, one.values["expected_dsc"], one.true_dsc, COLOURS["nested"])
        axes.set_title(f"{label}, {one.true_dsc.size} patients", loc="left", fontsize=9, fontweight="bold")
    panels[0].set_ylabel("true DSC")
    return svg_text(figure)


@plot_style
def risk_coverage_plot(by_label: Mapping[str, LabelUncertainty]) -> str:
    """Plot the mean of 1 - DSC of the most certain patients by their share: each measure, oracle and random order."""
    figure, panels = new_figure(len(by_label), height=3.4, width=4.2 * len(by_label))
    colours = {"expected_dsc": COLOURS["nested"], "pairwise_dsc": COLOURS["leave_one_centre_out"]}
    for axes, (label, one) in zip(panels, by_label.items(), strict=True):
        measures = [(MEASURES[name], given, colours[name]) for name, given in one.values.items()]
        draw_risk_coverage(axes, measures, one.true_dsc)
        axes.set_title(label, loc="left", fontsize=9, fontweight="bold")
    panels[0].set_ylabel("mean of 1 - DSC")
    handles, titles = panels[0].get_legend_handles_labels()
    figure.legend(handles, titles, fontsize=8, frameon=False, loc="outside upper right", ncols=4)
    return svg_text(figure)
