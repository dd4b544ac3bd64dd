"""Figures of the training page: curves of a fold as SVG, validation patients as JPEG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator

from baseline.network.progress.curves import Curves, Values, moving_average
from baseline.network.progress.patients import Labels, Window, dice
from contract import labels
from evaluation.report.display import CT_WINDOW_HU, REFERENCE_COLOUR
from evaluation.report.pictures import LINE_STYLES, pet_colours

PREDICTED_COLOUR: Final = "#3fb8ff"
_BLUE: Final = "#0b69a3"
_ORANGE: Final = "#c2590a"
_INK: Final = "#1f2933"
_BAR_MM: Final = 50.0
_STYLE: Final[Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa5b1",
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "svg.hashsalt": "hecktor",
    "svg.fonttype": "none",
}


def curves_svg(curves: Curves) -> str:
    """Plot loss, pseudo-Dice, learning rate and time by epoch, counted from one."""
    with _style():
        figure = Figure(figsize=(11, 3.0))  # an automatic layout would take twice the time
        figure.subplots_adjust(left=0.04, right=0.99, bottom=0.15, top=0.91, wspace=0.27)
        loss, overlap, rate, time = figure.subplots(1, 4, width_ratios=(3, 3, 2, 2))
        _line(loss, curves.training_loss, _BLUE, "training")
        _line(loss, curves.validation_loss, _ORANGE, "validation")
        for (label, values), colour in zip(curves.dice.items(), (_BLUE, _ORANGE), strict=True):
            _line(overlap, values, colour, None, linewidth=0.8, alpha=0.45)
            _line(overlap, moving_average(values), colour, label)
        overlap.set_ylim(-0.02, 1.02)
        _line(rate, curves.learning_rate, _BLUE, None)
        rate.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        rate.set_ylim(bottom=0)
        _line(time, curves.seconds, _BLUE, None)
        time.set_ylim(bottom=0)
        titles = "loss", "pseudo-Dice (bold: moving average)", "learning rate", "seconds per epoch"
        for axes, title in zip(figure.axes, titles, strict=True):
            _label_axes(axes, title, max(curves.epochs, curves.done))
        for axes in (loss, overlap):
            axes.legend(fontsize=8, frameon=False)
        target = io.StringIO()
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None})
    text = target.getvalue()
    return text[text.index("<svg") :]


def patients_jpeg(windows: Sequence[Window], masks: Sequence[Labels], epoch: int) -> bytes:
    """Draw each window's plane: CT with PET and the contours of reference and prediction, side by side.

    Seen from the feet: the patient's right is on the left. The printed Dice is that of the whole window.
    """
    target = io.BytesIO()
    with _style():
        figure = Figure(figsize=(3.8 * len(windows), 3.8), facecolor="black", dpi=100)
        figure.subplots_adjust(left=0, right=1, bottom=0, top=1, wspace=0.01)
        panels = figure.subplots(1, len(windows), squeeze=False)[0]
        for axes, window, mask in zip(panels, windows, masks, strict=True):
            _draw(axes, window, mask)
            _write(axes, window, mask, epoch)
        figure.savefig(target, format="jpg", facecolor="black", pil_kwargs={"quality": 85})
    return target.getvalue()


def _style() -> AbstractContextManager[None]:
    """matplotlib's default style with ours: nnU-Net's progress plot changes the style of the whole process."""
    context: AbstractContextManager[None] = style.context(["default", _STYLE], after_reset=True)
    return context


def _label_axes(axes: Any, title: str, epochs: int) -> None:
    axes.set_title(title, loc="left", fontsize=9, fontweight="bold")
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.set_xlim(0, epochs + 0.5)
    axes.grid(axis="y", color="#e4e7eb", linewidth=0.8)
    axes.set_axisbelow(True)


def _line(axes: Any, values: Values, colour: str, label: str | None, linewidth: float = 1.8, alpha: float = 1) -> None:
    known = [np.nan if value is None else value for value in values]
    epochs = range(1, len(known) + 1)
    marker = "o" if len(known) == 1 else None
    axes.plot(epochs, known, color=colour, label=label, linewidth=linewidth, alpha=alpha, marker=marker, markersize=4)


def _draw(axes: Any, window: Window, mask: Labels) -> None:
    low, high = CT_WINDOW_HU
    axes.imshow(window.ct_hu, cmap="gray", vmin=low, vmax=high, interpolation="bilinear")
    axes.imshow(pet_colours(window.pet_suv), interpolation="bilinear")
    for colour, whole, width in ((REFERENCE_COLOUR, window.reference, 2.6), (PREDICTED_COLOUR, mask, 1.4)):
        for label, line in LINE_STYLES.items():
            inside = whole[window.plane] == label
            if inside.any():
                axes.contour(inside, levels=[0.5], colors=[colour], linewidths=width, linestyles=line)
    axes.set_aspect(window.pixel_mm[0] / window.pixel_mm[1])
    axes.set_axis_off()


def _write(axes: Any, window: Window, mask: Labels, epoch: int) -> None:
    outline = [withStroke(linewidth=2.5, foreground="black")]
    look: dict[str, Any] = {"color": "white", "va": "center", "path_effects": outline, "transform": axes.transAxes}
    write = partial(axes.text, **look)
    overlaps = []
    for label in labels.FOREGROUND:
        overlap = dice(window.reference, mask, label)
        overlaps.append(f"{labels.NAMES[label]} {'-' if overlap is None else f'{overlap:.2f}'}")
    write(0.02, 0.96, f"{window.patient_id}, {window.volume_ml:.1f} ml", fontsize=10)
    write(0.98, 0.96, f"epoch {epoch}", fontsize=10, ha="right")
    write(0.02, 0.04, "Dice " + ", ".join(overlaps), fontsize=9)
    write(0.02, 0.5, "R", fontsize=10)
    write(0.98, 0.5, "L", fontsize=10, ha="right")
    _scale_bar(axes, window)
    write(0.98, 0.085, f"{_BAR_MM / 10:.0f} cm", fontsize=8, ha="right")


def _scale_bar(axes: Any, window: Window) -> None:
    height, width = window.ct_hu.shape
    right, y = 0.98 * width - 0.5, 0.96 * height - 0.5
    effects = [withStroke(linewidth=4, foreground="black")]
    pixels = _BAR_MM / window.pixel_mm[1]
    axes.plot([right - pixels, right], [y, y], color="white", linewidth=2, path_effects=effects)
