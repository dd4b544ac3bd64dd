"""The section on cases is built from the rows of three tasks."""

from __future__ import annotations

import json
import re

import pytest

from reporting.report.cases import CasePicture, build_case_table, render_cases
from tests.evaluation.builders import make_results
from tests.reporting.report.challenge import build_content, lose_nodes, name_cases, name_teams

CASES = name_cases(4)


@pytest.fixture
def page():
    return build_content(name_teams(3), CASES)


def read_data(html):
    return json.loads(re.search(r'id="page-cases">(.*?)</script>', html).group(1))


def test_answers_are_by_case_and_team(page):
    """The value of team t in case c is at index c x teams + t; the summary is the median of the teams.

    Pictures are loaded when they are looked at, and their addresses are quoted.
    """
    html = render_cases(page.results, [CasePicture("CHUM-003", 'r_files/a "b#.jpg', ("<i>",))])
    data = read_data(html)
    assert data["cases"] == sorted(CASES)
    rows = [{row["case"]: row for row in team.results} for team in page.results[0].teams.values()]
    column = data["columns"][0]
    assert column["title"] == "GTVp DSC"
    assert column["values"] == [rows[team][case]["gtvp_dsc"] for case in sorted(CASES) for team in range(3)]
    values = sorted(of_team[CASES[0]]["gtvp_dsc"] for of_team in rows)
    first = re.search(rf'<tr data-case="{CASES[0]}".*?</tr>', html).group(0)
    assert f"{values[1]:.3f}" in first
    assert re.search(r'<img loading="lazy"[^>]* src="r_files/a%20%22b%23.jpg">', html)
    assert "&lt;i&gt;" in html
    assert html.count("<img") == 1
    assert render_cases([], ()) == ""


def test_teams_that_mark_an_absent_structure_are_counted(page):
    """Of 4 teams one marks an absent GTVn and one has no usable mask: 1 of 3 is wrong, and there is no median of 0."""
    html = render_cases(lose_nodes(build_content(name_teams(4), CASES)).results, ())
    first = re.search(rf'<tr data-case="{CASES[0]}".*?</tr>', html).group(0)
    assert "<td>1 of 3 teams wrong</td>" in first
    assert html.count("teams wrong") == 1
    data, place = read_data(html), sorted(CASES).index(CASES[0])
    assert [column["absent"] for column in data["columns"][:2]] == [[], [place]]
    assert data["columns"][1]["values"][4 * place : 4 * place + 4] == [1, 0, None, 1]


def test_two_tasks_of_one_name_have_different_columns(page):
    """As in HNTS-MRG 2024 the second task has another reference: here 1 ml more for each case."""
    first = page.results[0]
    team, metrics = next(iter(first.teams.items()))
    rows = [{**row, "gtvp_reference_mm3": row["gtvp_reference_mm3"] + 1000} for row in metrics.results]
    second = make_results({team: metrics.model_copy(update={"results": rows})}, first.task.with_number(2))
    table = build_case_table([first, second])
    volumes = {title: values for title, values in table.reference.items() if "GTVp (ml)" in title}
    assert list(volumes) == ["Task 1: GTVp (ml)", "Task 2: GTVp (ml)"]
    before, after = volumes.values()
    assert [b - a for a, b in zip(before, after, strict=True)] == pytest.approx([1.0] * 4)
    titles = [column.title for column in table.columns]
    assert len(titles) == len(set(titles))
    summaries = [column.summary for column in table.columns if column.summary]
    assert summaries[0] == "Task 1: GTVp DSC, median of teams"
    assert len(summaries) == len(set(summaries)) == 4
