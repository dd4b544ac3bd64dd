"""Plots do not depend on the matplotlib settings of the process."""

from __future__ import annotations

import matplotlib as mpl

from evaluation.report.drawing import new_figure, plot_style, svg_text

# Some of the settings that nnU-Net's progress plot leaves behind.
LEFT_BEHIND = {
    "font.size": 30.0,
    "axes.labelsize": 30.0,
    "xtick.labelsize": 27.5,
    "axes.facecolor": "#EAEAF2",
    "axes.grid": True,
    "patch.force_edgecolor": True,
    "lines.linewidth": 3.75,
}


@plot_style
def bars():
    figure, (axes,) = new_figure(1, height=0.96, width=7.2)
    axes.barh(0, 0.5)
    axes.plot([0.4, 0.6], [0, 0], "o", label="folds")
    axes.annotate("one", (0.5, 0))
    axes.set_xlabel("weight")
    axes.legend()
    return svg_text(figure)


def test_settings_of_the_process_change_no_plot():
    """Letters of 30 points leave a figure of 0.96 inches no room for its axes; this one is drawn as ever."""
    alone = bars()
    with mpl.rc_context(LEFT_BEHIND):
        assert bars() == alone
        assert {name: mpl.rcParams[name] for name in LEFT_BEHIND} == LEFT_BEHIND  # and are as they were
