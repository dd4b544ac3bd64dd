"""The plots of the page, as SVG text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from baseline.report.coefficients import Coefficient
from baseline.report.judgement import KINDS, Flags, Floats, Judged, high_risk
from baseline.report.trust import MEASURES, Trust
from evaluation.metrics.classification import calibration_table
from evaluation.metrics.survival import kaplan_meier, log_rank_p
from evaluation.report.drawing import new_figure, one_look, svg_text
from evaluation.studies.failures.panels import draw_expected, draw_risk_coverage

COLOURS: Final = {"nested": "#0b69a3", "leave_one_centre_out": "#e07b00"}
_DAYS_A_YEAR: Final = 365.25


@one_look
def intervals_plot(judged: Sequence[Judged], metric: str) -> str:
    """Each model's metric with its 95% interval, both kinds one above the other; the dotted line is chance."""
    figure, (axes,) = new_figure(1, height=0.9 + 0.42 * len(judged), width=7.2)
    axes.axvline(0.5, color="#9aa5b1", linewidth=1, linestyle="dotted")
    for place, model in enumerate(reversed(judged)):
        for kind, shift in zip(KINDS, (0.14, -0.14), strict=True):
            found = model.estimates.get(kind)
            if found is None or found.value is None:
                continue
            colour, level = COLOURS[kind], place + shift
            if found.ci95_low is not None and found.ci95_high is not None:
                axes.plot([found.ci95_low, found.ci95_high], [level] * 2, color=colour, linewidth=2)
            axes.plot(found.value, level, "o", color=colour, markersize=6)
    for kind, title in KINDS.items():
        axes.plot([], [], "o-", color=COLOURS[kind], label=title)
    axes.set_yticks(range(len(judged)), [model.title for model in reversed(judged)])
    axes.set_ylim(-0.6, len(judged) - 0.4)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(metric)
    axes.grid(axis="x", color="#e4e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    figure.legend(fontsize=8, frameon=False, loc="outside upper right", ncols=2)
    return svg_text(figure)


@one_look
def survival_plot(days: Floats, relapse: Flags, kinds: Mapping[str, Mapping[str, Any]]) -> str:
    """Kaplan-Meier curves of the patients above and up to the median risk of their outer fold, with log-rank p."""
    figure, panels = new_figure(len(kinds), height=2.9, width=4.2 * len(kinds))
    for axes, (name, kind) in zip(panels, kinds.items(), strict=True):
        high = high_risk(kind)
        for group, label, style in ((high, "higher risk", "solid"), (~high, "lower risk", "dashed")):
            curve = kaplan_meier(days[group], relapse[group])
            told = f"{label}, {int(relapse[group].sum())} of {int(group.sum())} recurred"
            years = curve.times_days / _DAYS_A_YEAR
            axes.step(years, curve.survival, where="post", color=COLOURS[name], linestyle=style, label=told)
        p = log_rank_p(days, relapse, high)
        shown = "no log-rank test" if p is None else "log-rank p < 0.001" if p < 0.001 else f"log-rank p = {p:.3f}"
        axes.set_title(f"{KINDS[name]}: {shown}", loc="left", fontsize=9, fontweight="bold")
        axes.set(ylim=(0, 1.03), xlabel="years")
        axes.set_xlim(left=0)
        axes.legend(fontsize=7.5, frameon=False, loc="lower left")
    panels[0].set_ylabel("free of recurrence")
    return svg_text(figure)


@one_look
def calibration_plot(positive: Flags, kinds: Mapping[str, Mapping[str, Any]]) -> str:
    """Share of HPV positives by predicted probability in five equal bins, with 95% Wilson intervals and counts."""
    figure, panels = new_figure(len(kinds), height=3.4, width=3.5 * len(kinds))
    for axes, (name, kind) in zip(panels, kinds.items(), strict=True):
        axes.plot([0, 1], [0, 1], color="#9aa5b1", linewidth=1, linestyle="dotted")
        for row in calibration_table(positive, np.asarray(kind["probability"], dtype=np.float64)):
            x, share = row["probability_mean"], row["positive_share"]
            axes.plot([x, x], wilson_interval(share, row["cases"]), color=COLOURS[name], linewidth=1.6)
            axes.plot(x, share, "o", color=COLOURS[name], markersize=6, clip_on=False)
            axes.annotate(str(row["cases"]), (x, share), (6, -9), textcoords="offset points", fontsize=7.5)
        axes.set_title(KINDS[name], loc="left", fontsize=9, fontweight="bold")
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel="predicted probability of HPV positive")
    panels[0].set_ylabel("share that is positive")
    return svg_text(figure)


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """95% interval of a share of `count` patients (Wilson 1927, J Am Stat Assoc 22:209-212)."""
    z = 1.959964
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return float(middle - half), float(middle + half)


@one_look
def coefficients_plot(found: Sequence[Coefficient]) -> str:
    """Each feature's weight: a bar for the shipped head, a dot for every outer fold."""
    figure, (axes,) = new_figure(1, height=0.7 + 0.26 * len(found), width=7.2)
    axes.axvline(0, color="#9aa5b1", linewidth=1)
    for place, one in enumerate(reversed(found)):
        if one.shipped is not None:
            axes.barh(place, one.shipped, height=0.55, color="#bcdcf0")
        axes.plot(one.folds, [place] * len(one.folds), "o", color=COLOURS["nested"], markersize=3.5, alpha=0.8)
    axes.set_yticks(range(len(found)), [one.feature for one in reversed(found)])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("weight a standard deviation (bar: shipped head, dots: outer folds)")
    return svg_text(figure)


@one_look
def expected_plot(found: Mapping[str, Trust]) -> str:
    """Expected against true DSC of each patient, a panel a label; on the dotted line both agree."""
    figure, panels = new_figure(len(found), height=3.5, width=3.6 * len(found))
    for axes, (label, trust) in zip(panels, found.items(), strict=True):
        draw_expected(axes, trust.values["expected_dsc"], trust.true_dsc, COLOURS["nested"])
        axes.set_title(f"{label}, {trust.true_dsc.size} patients", loc="left", fontsize=9, fontweight="bold")
    panels[0].set_ylabel("true DSC")
    return svg_text(figure)


@one_look
def risk_coverage_plot(found: Mapping[str, Trust]) -> str:
    """Mean 1 - DSC by the share of patients kept: by each measure, by the oracle and in random order."""
    figure, panels = new_figure(len(found), height=3.4, width=4.2 * len(found))
    colours = {"expected_dsc": COLOURS["nested"], "pairwise_dsc": COLOURS["leave_one_centre_out"]}
    for axes, (label, trust) in zip(panels, found.items(), strict=True):
        measures = [(MEASURES[name], given, colours[name]) for name, given in trust.values.items()]
        draw_risk_coverage(axes, measures, trust.true_dsc)
        axes.set_title(label, loc="left", fontsize=9, fontweight="bold")
    panels[0].set_ylabel("mean of 1 - DSC")
    handles, titles = panels[0].get_legend_handles_labels()
    figure.legend(handles, titles, fontsize=8, frameon=False, loc="outside upper right", ncols=4)
    return svg_text(figure)
