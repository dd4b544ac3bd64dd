"""Shared by all plots: the style, and SVG text that is reproducible."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import ContextDecorator
from typing import Any, Final

from matplotlib import style
from matplotlib.figure import Figure

INK: Final = "#1f2933"
_STYLE: Final[Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa5b1",
    "text.color": INK,
    "axes.labelcolor": INK,
    "svg.hashsalt": "hecktor",
}
# Bright enough on a CT, dark enough on white; further teams reuse the colours from the start.
COLOURS: Final = ("#1ba3e8", "#e8368f", "#8b6cff", "#ff8c1a", "#14b8a6", "#8d99ae")


# Decorates drawing functions to use matplotlib's default style with ours, ignoring the process's settings: nnU-Net's
# progress plot sets seaborn's style and fonts of 25 points for the whole training process, which also draws the report.
plot_style: Final[ContextDecorator] = style.context(["default", _STYLE], after_reset=True)


def new_figure(panels: int, height: float, width: float) -> tuple[Figure, Sequence[Any]]:
    """A figure with its axes side by side; sizes are in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, panels, squeeze=False).flat)


@plot_style
def svg_text(figure: Figure) -> str:
    """The figure as one `<svg>` element."""
    target = io.StringIO()
    figure.savefig(target, format="svg", transparent=False, metadata={"Date": None})
    text = target.getvalue()
    return text[text.index("<svg") :]
