"""Panels about a confidence: true against expected DSC, and the risk-coverage curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from evaluation.metrics.overlap import Floats
from evaluation.report.drawing import INK
from evaluation.studies.failures.risk_coverage import risk_coverage

_PALE: Final = "#9aa5b1"


def draw_expected(axes: Any, expected: Floats, true_dsc: Floats, colour: str) -> None:
    """Each patient's true DSC against the expected DSC; the dotted line is their equality."""
    axes.plot([0, 1], [0, 1], color=_PALE, linewidth=1, linestyle="dotted")
    axes.plot(expected, true_dsc, "o", color=colour, markersize=4.5, alpha=0.6, clip_on=False)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="expected DSC")
    axes.set_aspect("equal")


def draw_risk_coverage(axes: Any, measures: Sequence[tuple[str, Floats, str]], true_dsc: Floats) -> None:
    """Mean 1 - DSC by the fraction of retained patients, in the order of each measure, of the oracle and at random.

    `measures` are title, confidence of each patient and colour; `true_dsc` is of the same patients.
    """
    risk = 1 - true_dsc
    retained, mean = np.arange(1, risk.size + 1) / risk.size, float(risk.mean())
    axes.plot([0, 1], [mean, mean], color=_PALE, linewidth=1.2, linestyle="dotted", label="random order")
    for title, confidence, colour in measures:
        axes.plot(retained, risk_coverage(confidence, risk), color=colour, linestyle="solid", label=title)
    best = risk_coverage(true_dsc, risk)
    axes.plot(retained, best, color=INK, linewidth=1.2, linestyle="dashed", label="oracle")
    axes.set(xlim=(0, 1), xlabel="fraction of retained patients, most confident first")
    axes.set_ylim(bottom=0)
