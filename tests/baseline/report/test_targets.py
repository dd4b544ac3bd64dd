"""The section of a target: its tables, charts and figures as plain data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baseline.heads.cohort import Outcomes
from baseline.heads.models.targets import make_targets
from baseline.heads.record import KindRecord
from baseline.report.models import estimate_target
from baseline.report.targets import analyse_answer, format_target
from contract.editions import load_edition
from tests.baseline.prepared import HPV, RFS, head_record
from tests.baseline.report.records import (
    PATIENTS,
    PERFECT,
    list_charts,
    make_hpv_record,
    make_rfs_record,
    make_stage_record,
    parse_record,
)
from tests.conftest import head_json


def test_the_sections_show_every_part() -> None:
    head = head_json(("total_volume_ml", 0.5))
    tried = {"Cox, few features": 0.7, "signs, all features": 0.6}
    shipped = head_record(head, tried=tried, out_of_fold=0.7, setting={"penalty": 0.1})
    record = make_rfs_record(PERFECT, np.zeros(PATIENTS)) | {"left_out_features": ["total_volume_ml"]}
    content, plain = format_target(estimate_target(RFS, parse_record(record), 20, 0), shipped, bootstraps=20, seed=0)
    chosen = (
        "Shipped head: Cox, few features, penalty 0.1, chosen from 2 by C-index (in this selection 0.700, which is "
    )
    assert chosen in content
    assert '<td data-sort="30">30</td><td data-sort="0.9">0.900</td><td>-</td>' in content
    assert list_charts(content) == ["rfs-survival"]
    left_out = "have learnt from held-out patients (total_volume_ml); the shipped head uses total_volume_ml."
    for text in ("tumour volume alone", left_out):
        assert text in content
    assert plain["models"]["heads"]["nested"]["value"] == 1
    content, _ = format_target(
        estimate_target(HPV, parse_record(make_hpv_record()), 20, 0), None, bootstraps=20, seed=0
    )
    assert list_charts(content) == ["hpv-calibration"]


def test_the_choice_of_the_shipped_head_is_described() -> None:
    """Experts are weighted by their area under the curve; a fallback is not chosen from the candidates."""
    estimates = estimate_target(HPV, parse_record(make_hpv_record()), 20, 0)
    tried, head = {"logistic": 0.6, "forest": 0.7, "c": 0.4}, head_json(("total_volume_ml", 0.5))
    experts = [{"name": name, "setting": {}, "metric": tried[name]} for name in ("logistic", "forest")]
    shipped = head_record(head, model="weighted mean", tried=tried, experts=experts, out_of_fold=0.65)
    content, _ = format_target(estimates, shipped, bootstraps=20, seed=0)
    text = "weighted mean, weighted from 3 by area under the curve (in this selection balanced accuracy 0.650, which is"
    assert text in content
    reason = "No candidate was better than chance (3 tried)."
    shipped = head_record(head, model="clinical variables", tried=tried, setting={"penalty": 0.3}, reason=reason)
    content, _ = format_target(estimates, shipped, bootstraps=20, seed=0)
    assert f"Shipped head: clinical variables, penalty 0.3. {reason} The answer is" in content
    assert "chosen from" not in content


@pytest.mark.parametrize(
    ("kinds", "text"),
    [
        (("linear", "forest"), "They are the linear part of the shipped head, 60% of its weight."),
        (("forest",), "The shipped head has no linear part."),
        (("linear",), "Weights of different models (Cox, signs) are on different scales."),
    ],
)
def test_the_weights_of_a_head_with_a_forest_are_a_part(kinds: tuple[str, ...], text: str) -> None:
    linear = head_json(("total_volume_ml", 0.5))
    scaled = {"feature": "age_years", "transform": "identity", "fill": 60.0, "mean": 60.0, "sd": 10.0}
    trees = [{"features": [-1], "numbers": [0.1]}]
    heads = {"linear": linear, "forest": {"kind": "forest", "scale": "risk", "inputs": [scaled], "trees": trees}}
    weights = {"linear": 0.6, "forest": 0.4}
    experts = [{"name": kind, "mean": 0.0, "sd": 1.0, "weight": weights[kind], "head": heads[kind]} for kind in kinds]
    shipped = head_record({"kind": "ensemble", "experts": experts})
    record = make_rfs_record(PERFECT, np.zeros(PATIENTS))
    content, _ = format_target(estimate_target(RFS, parse_record(record), 20, 0), shipped, bootstraps=20, seed=0)
    assert text in content
    assert ("linear part" in content) == ("forest" in kinds)


def test_the_section_of_a_class_with_four_values() -> None:
    """Mean recall is 2/3 for the heads, 1/3 for the most frequent class and 1 for the rule."""
    target = make_targets(load_edition("hecktor2026"))[0]
    content, plain = format_target(
        estimate_target(target, parse_record(make_stage_record()), 20, 0), None, bootstraps=20, seed=0
    )
    values = {name: estimates["nested"]["value"] for name, estimates in plain["models"].items()}
    assert values == pytest.approx({"heads": 2 / 3, "most_frequent": 1 / 3, "rule": 1.0})
    assert "7th edition&#x27;s rule on the mask" in content
    assert list_charts(content) == ["t_stage-confusion"]
    assert "random answers reach 0.25." in content


def test_a_target_without_results_still_has_its_section() -> None:
    why = {"why_not": "rfs: 1 training patients with a relapse, expected at least 2"}
    record = make_rfs_record(PERFECT, PERFECT) | {"nested": why, "leave_one_centre_out": why}
    content, _ = format_target(estimate_target(RFS, parse_record(record), 10, 0), None, bootstraps=10, seed=0)
    assert "expected at least 2" in content
    assert "No head is shipped for this target." in content
    assert "No feature has a weight." in content
    assert list_charts(content) == []


YEAR = 365.25
# Four patients in one outer fold; the two with the higher scores relapse after one and three years.
DAYS = np.array([YEAR, 3 * YEAR, 2.5 * YEAR, 4 * YEAR])
OUTCOMES = Outcomes(np.array([1, 1, 0, 0]), DAYS)


def make_kinds(**answers: Any) -> dict[str, KindRecord]:
    """Return the nested cross-validation of four patients in one outer fold."""
    return {"nested": KindRecord(fold_of_patient=[0] * 4, folds=[], comparators={}, **answers)}


KINDS = make_kinds(score=[4.0, 3.0, 2.0, 1.0])


def select_column(rows: Any, key: str, **only: Any) -> list[Any]:
    return [row[key] for row in rows if all(row[name] == value for name, value in only.items())]


def test_survival_of_both_risk_groups() -> None:
    """Two patients at higher risk relapse after 1 and 3 years: 1, 1/2, 0. The patients at lower risk do not relapse.

    Log-rank test: the higher group holds 2 of 4 patients at risk after 1 year, and 1 of 2 after 3 years. The expected
    number is 1/2 + 1/2 = 1, the observed 2, the variance 2 x 1/4. Chi-square is 1 / 0.5 = 2, p = 0.1573.
    """
    for direction in ("risk", "time"):
        curves, at_risk = analyse_answer(RFS.answer.model_copy(update={"direction": direction}), OUTCOMES, KINDS)
        assert select_column(curves.rows, "free", group="higher risk") == [1.0, 0.5, 0.0]
        assert select_column(curves.rows, "years", group="higher risk") == [0.0, 1.0, 3.0]
        assert set(select_column(curves.rows, "free", group="lower risk")) == {1.0}
        assert {row["kind"] for row in curves.rows} == {"Nested cross-validation"}
        assert (curves.columns["kind"], curves.chart["facet"]) == ("Cross-validation", "kind")
        assert select_column(at_risk.rows, "p") == pytest.approx([0.1573, 0.1573], abs=1e-4)
        assert select_column(at_risk.rows, "patients") == [2, 2]


def test_calibration_of_two_classes() -> None:
    """Five of ten patients at p = 0.9 are positive."""
    outcomes = Outcomes(np.repeat([1, 0], 5), classes=("False", "True"))
    (analysis,) = analyse_answer(HPV.answer, outcomes, make_kinds(probability=[0.9] * 10))
    (row,) = analysis.rows
    assert (row["patients"], row["positive_share"], row["probability_mean"]) == (10, 0.5, pytest.approx(0.9))


def test_confusion_of_many_classes() -> None:
    """Three of four patients of T1 are predicted as T1."""
    target = make_targets(load_edition("hecktor2026"))[0]
    outcomes = Outcomes(np.zeros(4, np.int64), classes=("T1", "T2", "T3", "T4"))
    (analysis,) = analyse_answer(target.answer, outcomes, make_kinds(**{"class": ["T1", "T1", "T1", "T3"]}))
    assert select_column(analysis.rows, "patients", actual="T1") == [3, 0, 1, 0]
    assert select_column(analysis.rows, "fraction", actual="T2") == [None] * 4
