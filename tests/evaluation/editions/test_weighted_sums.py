"""Ranked metrics that are weighted sums of others: their schema, and their algebra."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.documents import parse_document
from contract.editions import parse_edition
from contract.errors import HecktorError
from evaluation.editions.document import MeasuredMetric, RankedMetric, resolve_metrics
from evaluation.editions.profile import build_profile, with_options
from evaluation.metrics.classification import BINARY_METRICS, MULTICLASS_METRICS
from evaluation.metrics.overlap import WeightedSum
from tests.evaluation.builders import read_edition

KNOWN = {metric.name: MeasuredMetric("answer", metric) for metric in (*MULTICLASS_METRICS, *BINARY_METRICS)}


def make_entry(parts, weights, **more):
    return {"title": "t", "higher_is_better": True, "weighted_sum": parts, "weights": weights, **more}


def resolve(raw):
    entries = {name: parse_document(metric, RankedMetric, f"metrics.{name}") for name, metric in raw.items()}
    return resolve_metrics(entries, KNOWN, "metrics")


def expand(raw, name="total"):
    return dict(resolve(raw)[name].terms)


def test_nested_sums_are_expanded_to_measured_metrics():
    """0.6 (0.5 accuracy + 0.5 auc) + 0.4 auc = 0.3 accuracy + 0.7 auc; the order of the entries is free.

    Sums may also consist of metrics that are best when they are low.
    """
    raw = {"total": make_entry(["half", "auc"], [0.6, 0.4]), "half": make_entry(["accuracy", "auc"], [0.5, 0.5])}
    assert expand(raw) == pytest.approx({"accuracy": 0.3, "auc": 0.7})
    low = {"total": make_entry(["brier", "calibration_error"], [1, 2], higher_is_better=False)}
    assert expand(low) == {"brier": 1.0, "calibration_error": 2.0}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"total": make_entry(["dice"], [1])}, r"metrics\.total\.weighted_sum: 'dice' is not measured"),
        ({"total": make_entry([], [])}, r"metrics\.total\.weighted_sum: found \[\], expected at least 1"),
        ({"total": make_entry([{"a": 1}], [1])}, r"weighted_sum\[0\]: found "),
        ({"total": make_entry(["auc", "accuracy"], [1])}, "expected 2 weights, one for each part"),
        ({"total": make_entry(["auc"], [-1])}, r"weights\[0\]: found -1, expected a number above 0"),
        ({"total": make_entry(["b"], [1]), "b": make_entry(["total"], [1])}, "found 'total' inside itself"),
        ({"auc": make_entry(["accuracy"], [1])}, "found the name of a measured metric"),
        ({"total": make_entry(["auc", "brier"], [1, 1])}, "found auc, brier"),
        ({"total": make_entry(["brier"], [1])}, "higher_is_better: found true"),
        ({"total": make_entry(["auc"], [1], unit="mm")}, 'metrics.total.unit: found "mm"'),
    ],
)
def test_an_invalid_sum_is_refused(raw, message):
    with pytest.raises(HecktorError, match=message):
        resolve(raw)


@settings(max_examples=30)
@given(values=st.lists(st.floats(0, 1), min_size=3, max_size=3), outer=st.floats(0.01, 1), inner=st.floats(0.01, 1))
def test_a_sum_equals_its_nested_definition_and_lies_between_its_parts(values, outer, inner):
    a, b, c = values
    raw = {
        "total": make_entry(["half", "auc"], [outer, 1.01 - outer]),
        "half": make_entry(["accuracy", "auc"], [inner, 1.01 - inner]),
    }
    value = {"accuracy": a, "auc": b}
    constant = [(weight, lambda w, of=value[name]: np.full(len(w), of)) for name, weight in expand(raw).items()]
    expected = outer * (inner * a + (1.01 - inner) * b) + (1.01 - outer) * b
    assert WeightedSum(constant)(np.ones((2, 1))) == pytest.approx([expected] * 2)
    mean = WeightedSum([(0.2, lambda w: w @ np.array([a, b, c])), (0.8, lambda w: w @ np.array([c, c, c]))])
    draws = np.eye(3)
    assert mean(draws) == pytest.approx([0.2 * value_of_case + 0.8 * c for value_of_case in values])
    assert (mean(draws) <= max(values) + 1e-12).all()
    assert (mean(draws) >= min(values) - 1e-12).all()


@pytest.fixture
def content():
    return read_edition("hecktor2026")


def test_metrics_of_two_answers_need_different_names(content):
    answers = content["scoring"]["combined"]["answers"]
    answers["n_stage"]["prefix"] = "t_"
    with pytest.raises(HecktorError, match="metric 't_balanced_accuracy' of t_stage and n_stage"):
        build_profile(parse_edition(content))


def test_without_a_prefix_the_name_of_the_answer_stands_first(content):
    del content["scoring"]["combined"]["answers"]["n_stage"]["prefix"]
    content = json.loads(json.dumps(content).replace('"n_balanced_accuracy"', '"n_stage_balanced_accuracy"'))
    metrics = build_profile(parse_edition(content)).find_task(None).metrics
    assert "n_stage_balanced_accuracy" in metrics["score"].terms


def test_options_keep_the_terms_of_a_sum_measured(content):
    """Surface metrics end with `surfaces=none`; a sum of them cannot be measured any more."""
    task = content["scoring"]["combined"]
    task["answers"]["segmentation"]["rules"]["surfaces"] = "both"
    task["metrics"]["surface"] = make_entry(["gtvp_surface_dsc_mean", "gtvn_surface_dsc_mean"], [1, 1])
    profile = build_profile(parse_edition(content)).find_task(None)
    with pytest.raises(HecktorError, match="'gtvp_surface_dsc_mean' is not measured under these rules"):
        with_options(profile, {"surfaces": "none"})
