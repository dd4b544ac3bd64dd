"""Rows aligned by case, and the summaries of boxes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reporting.analyses.tables import collect_rows, round_figure, summarise_box
from tests.evaluation.builders import make_metrics, make_results
from tests.evaluation.tasks import MASK

INF, NAN = math.inf, math.nan


def test_a_box_by_hand() -> None:
    """Of 1, 2, 3, 4, 20: quartiles 2, 3, 4, the whiskers within 2 - 3 and 4 + 3, so 20 is beyond; mean 30 / 5."""
    box = {"values": 5, "low": 1, "q1": 2, "median": 3, "q3": 4, "high": 4, "mean": 6, "outliers": [20]}
    assert summarise_box([20, 3, NAN, 1, 2, 4]) == box
    # The upper whisker reaches 4 + 1.5 x 2 = 7.
    assert [summarise_box([1, 2, 3, 4, value])["high"] for value in (6.99, 7.01)] == [6.99, 4]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], {"values": 0, "low": None, "q1": None, "median": None, "q3": None, "high": None, "mean": None}),
        ([NAN], {"values": 0, "low": None, "q1": None, "median": None, "q3": None, "high": None, "mean": None}),
        ([0.7], {"values": 1, "low": 0.7, "q1": 0.7, "median": 0.7, "q3": 0.7, "high": 0.7, "mean": 0.7}),
        # The upper quartile lies between 2 and infinity, so it is infinite, and the whisker goes to the smallest value.
        ([1, 2, INF], {"values": 3, "low": 1, "q1": 1.5, "median": 2, "q3": None, "high": None, "mean": None}),
        ([INF, INF], {"values": 2, "low": None, "q1": None, "median": None, "q3": None, "high": None, "mean": None}),
        # Only the top value is infinite: quartiles 2, 3, 4 as above.
        ([1, 2, 3, 4, INF], {"values": 5, "low": 1, "q1": 2, "median": 3, "q3": 4, "high": 4, "mean": None}),
    ],
)
def test_boxes_of_few_and_of_infinite_values(values: list[float], expected: dict[str, float | None]) -> None:
    assert summarise_box(values) == {**expected, "outliers": []}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40).map(lambda values: [round(value, 3) for value in values]))
def test_whiskers_and_outliers_hold_all_values(values: list[float]) -> None:
    box = summarise_box(values)
    inside = [value for value in values if box["low"] <= value <= box["high"]]
    assert sorted([*inside, *box["outliers"]]) == sorted(values)
    q1, q3 = np.quantile(values, [0.25, 0.75])
    reach = 1.5 * (q3 - q1) - 1e-9
    assert not [value for value in box["outliers"] if q1 - reach < value < q3 + reach]


def test_four_significant_digits() -> None:
    assert [round_figure(value) for value in (0.123456, 1234.56, 1e-7 / 3)] == [0.1235, 1235.0, 3.333e-08]
    assert [round_figure(value) for value in (None, INF, NAN)] == [None] * 3


def test_rows_are_aligned_by_case(table) -> None:
    """Team two lacks B; only its row has the reference of A."""
    first = [{"case": "B", "gtvp_dsc": 0.5, "gtvp_reference_mm3": 7.0}]
    second = [{"case": "A", "gtvp_dsc": None, "gtvp_reference_mm3": 3.0}]
    rows = table({"one": first, "two": second})
    assert rows.cases == ("A", "B")
    np.testing.assert_array_equal(rows.get_numbers("gtvp_dsc"), [[NAN, 0.5], [NAN, NAN]])
    np.testing.assert_array_equal(rows.get_reference("gtvp_reference_mm3"), [3.0, 7.0])


@pytest.mark.parametrize(("missing", "cases"), [("worst", ("A", "B")), ("skip", ("A",))])
def test_a_case_without_prediction_counts_by_the_rule(missing: str, cases: tuple[str, ...]) -> None:
    rows = [{"gtvp_dsc": 0.5}, {"gtvp_dsc": 0.0, "error": "absent"}]
    team = make_metrics(rows=rows, provenance={"options": {"missing": missing}})
    assert collect_rows(make_results({"one": team}), MASK).cases == cases


def test_teams_without_rows_are_left_out(table) -> None:
    assert table({"public": [], "other": [{"gtvp_dsc": 1.0}]}).names == ("other",)


def test_cases_have_the_centres_of_the_files() -> None:
    rows = [{"gtvp_dsc": 0.5}, {"gtvp_dsc": 0.4}]
    named = make_metrics(rows=rows, centres={"CHUP": {"cases": 1, "names": ["B"], "aggregates": {}}})
    table = collect_rows(make_results({"one": named}), MASK)
    assert [table.make_case_cells(case) for case in table.cases] == [
        {"case": "A", "centre": None},
        {"case": "B", "centre": "CHUP"},
    ]
    table = collect_rows(make_results({"one": make_metrics(rows=rows)}), MASK)
    assert (table.make_case_cells("A"), table.case_headings) == ({"case": "A"}, {"case": "Case"})
