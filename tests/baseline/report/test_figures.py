"""The report's charts as data: every figure by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baseline.heads.cohort import Outcomes
from baseline.heads.models.targets import targets_of
from baseline.heads.record import KindRecord
from baseline.report.figures import answer_figures
from contract.editions import load_edition
from tests.baseline.prepared import HPV, RFS

YEAR = 365.25
# Four patients in one outer fold; the two with the higher scores relapse after one and three years.
DAYS = np.array([YEAR, 3 * YEAR, 2.5 * YEAR, 4 * YEAR])
OUTCOMES = Outcomes(np.array([1, 1, 0, 0]), DAYS)


def nested(**answers: Any) -> dict[str, KindRecord]:
    """The nested cross-validation of four patients in one outer fold."""
    return {"nested": KindRecord(fold_of_patient=[0] * 4, folds=[], comparators={}, **answers)}


KINDS = nested(score=[4.0, 3.0, 2.0, 1.0])


def column(rows: Any, key: str, **only: Any) -> list[Any]:
    return [row[key] for row in rows if all(row[name] == value for name, value in only.items())]


def test_survival_of_both_risk_groups() -> None:
    """Of the two at higher risk one relapses after 1 year, the other after 3: 1, 1/2, 0. Nobody else relapses.

    Log-rank: after 1 year 2 of 4 at risk are in the higher group, after 3 years 1 of 2: expected 1/2 + 1/2 = 1,
    observed 2, variance 2 x 1/4. Chi-square 1 / 0.5 = 2, p = 0.1573.
    """
    for direction in ("risk", "time"):
        curves, at_risk = answer_figures(RFS.answer.model_copy(update={"direction": direction}), OUTCOMES, KINDS)
        assert column(curves.rows, "free", group="higher risk") == [1.0, 0.5, 0.0]
        assert column(curves.rows, "years", group="higher risk") == [0.0, 1.0, 3.0]
        assert set(column(curves.rows, "free", group="lower risk")) == {1.0}
        assert {row["kind"] for row in curves.rows} == {"Nested cross-validation"}
        assert (curves.columns["kind"], curves.chart["facet"]) == ("Cross-validation", "kind")
        assert column(at_risk.rows, "p") == pytest.approx([0.1573, 0.1573], abs=1e-4)
        assert column(at_risk.rows, "patients") == [2, 2]


def test_calibration_of_two_classes() -> None:
    """Five of ten patients at p = 0.9 are positive."""
    outcomes = Outcomes(np.repeat([1, 0], 5), classes=("False", "True"))
    (analysis,) = answer_figures(HPV.answer, outcomes, nested(probability=[0.9] * 10))
    (row,) = analysis.rows
    assert (row["patients"], row["positive_share"], row["probability_mean"]) == (10, 0.5, pytest.approx(0.9))


def test_confusion_of_many_classes() -> None:
    """Three of four patients of T1 are called T1."""
    target = targets_of(load_edition("hecktor2026"))[0]
    outcomes = Outcomes(np.zeros(4, np.int64), classes=("T1", "T2", "T3", "T4"))
    (analysis,) = answer_figures(target.answer, outcomes, nested(**{"class": ["T1", "T1", "T1", "T3"]}))
    assert column(analysis.rows, "patients", actual="T1") == [3, 0, 1, 0]
    assert column(analysis.rows, "fraction", actual="T2") == [None] * 4


def test_no_figure_speaks_of_teams() -> None:
    """Every text of every figure of a risk, of two and of more classes."""
    stage = targets_of(load_edition("hecktor2026"))[0].answer
    two, four = (
        Outcomes(np.repeat([0, 1], 2), classes=names) for names in (("False", "True"), ("T1", "T2", "T3", "T4"))
    )
    figures = [
        *answer_figures(RFS.answer, OUTCOMES, KINDS),
        *answer_figures(HPV.answer, two, nested(probability=[0.1, 0.2, 0.8, 0.9])),
        *answer_figures(stage, four, nested(**{"class": ["T1", "T1", "T2", "T3"]})),
    ]
    texts = [
        text for one in figures for text in (one.title, one.caption, one.source, *one.notes, *one.columns.values())
    ]
    assert len(figures) == 4
    assert not [text for text in texts if "team" in text.lower()]
