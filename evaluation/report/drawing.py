"""Shared by all plots: the style, and SVG text that is reproducible."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import ContextDecorator
from typing import Any, Final

from matplotlib import style
from matplotlib.figure import Figure

INK: Final = "#1f2933"
PANELS_IN_A_ROW: Final = 5
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


def new_figure(
    panels: int, height: float, width: float | None = None, *, panel_width: float = 3.1
) -> tuple[Figure, Sequence[Any]]:
    """A figure with its axes side by side, in rows of five unless the figure's `width` is given.

    Sizes are in inches, `height` that of one row.
    """
    columns = panels if width is not None else min(panels, PANELS_IN_A_ROW)
    rows = -(-panels // columns)
    figure = Figure(figsize=(width or max(4.0, panel_width * columns), height * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for surplus in axes[panels:]:
        surplus.remove()
    return figure, axes[:panels]


def is_first_in_row(axes: Any) -> bool:
    """Whether axes of `new_figure` stand at the left end of their row."""
    return bool(axes.get_subplotspec().is_first_col())


@plot_style
def svg_text(figure: Figure, *, transparent: bool = True) -> str:
    """The figure as one `<svg>` element."""
    target = io.StringIO()
    figure.savefig(target, format="svg", transparent=transparent, metadata={"Date": None})
    text = target.getvalue()
    return text[text.index("<svg") :]
