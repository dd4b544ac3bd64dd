"""Ranked values of metrics.json."""

from __future__ import annotations

import pytest

from rehearsal.jobs.evaluation import find_value, select_ranked_values


def test_dotted_paths():
    metrics = {"a": {"b": {"value": 1.5}}, "l": [1, 2]}
    assert find_value(metrics, "a.b.value") == 1.5
    assert find_value(metrics, "a.c.value") is None
    assert find_value(metrics, "l.0") is None


@pytest.mark.parametrize("bad", [None, "0.7", True, [0.5], float("nan"), float("inf")])
def test_one_bad_ranked_metric_leaves_a_result_unranked(bad):
    """Metrics that the evaluation does not rank may be undefined."""
    aggregates = {name: {"value": 0.5} for name in ("balanced_accuracy", "specificity")} | {"sensitivity": None}
    metrics = {"aggregates": aggregates, "provenance": {"ranked_metrics": ["balanced_accuracy", "specificity"]}}
    paths = ("aggregates.balanced_accuracy.value", "aggregates.specificity.value")
    assert select_ranked_values(metrics) == (dict.fromkeys(paths, 0.5), [])
    aggregates["specificity"]["value"] = bad
    values, problems = select_ranked_values(metrics)
    assert values == {paths[0]: 0.5}
    assert len(problems) == 1


def test_without_a_list_of_ranked_metrics_all_numbers_count():
    aggregates = {"a": {"value": 1}, "b": {"value": 0.5}, "undefined": {"value": None}}
    assert select_ranked_values({"aggregates": aggregates}) == (
        {"aggregates.a.value": 1.0, "aggregates.b.value": 0.5}, []
    )  # fmt: skip
    for empty, text in (({}, "nothing"), ({"aggregates": {}}, "a dict"), ([], "nothing")):
        values, (problem,) = select_ranked_values(empty)
        assert values == {}
        assert problem.startswith(f"metrics.json: found {text} at aggregates, expected a number")
