"""The section on cases, from rows of three tasks."""

from __future__ import annotations

import json
import re

import pytest

from evaluation.report.cases import CasePicture, cases_html
from evaluation.report.patient_table import case_table
from tests.evaluation.report.challenge import cases, content, names

CASES = cases(4)


@pytest.fixture
def shown():
    return content(names(3), CASES)


def data_of(html):
    return json.loads(re.search(r'id="page-cases">(.*?)</script>', html).group(1))


def test_answers_are_by_case_and_team(shown):
    """The value of team t in case c stands at c x teams + t."""
    data = data_of(cases_html(shown.results, (), shown.colours))
    assert data["cases"] == sorted(CASES)
    rows = [{row["case"]: row for row in team.rows} for team in shown.results[0].teams]
    column = data["columns"][0]
    assert column["title"] == "GTVp DSC"
    assert column["values"] == [rows[team][case]["gtvp_dsc"] for case in sorted(CASES) for team in range(3)]


def test_the_summary_is_the_median_of_the_teams(shown):
    html = cases_html(shown.results, (), shown.colours)
    values = sorted(team.rows[0]["gtvp_dsc"] for team in shown.results[0].teams)
    first = re.search(rf'<tr data-case="{CASES[0]}".*?</tr>', html).group(0)
    assert f"{values[1]:.3f}" in first


def test_cases_without_rows_have_no_values(shown):
    """A team without rows, as written with --public, has dashes."""
    table = case_table(shown.results[:1])
    assert len(table.columns[0].values) == 4
    assert cases_html([], (), {}) == ""


def test_a_case_has_the_centre_that_the_results_name(shown):
    html = cases_html(shown.results, [CasePicture("USZ-003", "files/USZ-003.jpg")], shown.colours)
    assert 'data-centre="CHUM"' in html
    assert 'data-centre="USZ"' not in html


def test_pictures_are_loaded_when_looked_at_and_their_addresses_are_quoted(shown):
    html = cases_html(shown.results, [CasePicture("CHUM-003", 'r_files/a "b#.jpg', ("<i>",))], shown.colours)
    assert re.search(r'<img loading="lazy"[^>]* src="r_files/a%20%22b%23.jpg">', html)
    assert "&lt;i&gt;" in html
    assert html.count("<img") == 1
