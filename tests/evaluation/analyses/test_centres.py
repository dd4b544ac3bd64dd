"""Metrics by centre: the first team, rows out of competition and the mean of all teams."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from evaluation.analyses.metrics import MEAN, NO_P, by_centre
from evaluation.analyses.sources import TaskResults
from evaluation.results.metrics_json import TeamMetrics
from evaluation.statistics.bootstrap import Estimate
from tests.evaluation.analyses.conftest import team_of
from tests.evaluation.tasks import SEGMENTATION

DSC, HD95 = "gtvp_dsc_mean", "gtvp_hd95_median_mm"


def entrant(name: str, dsc: tuple[float, float, float], hd95: tuple[float, float, float | None]) -> TeamMetrics:
    """A team with the values of all cases, of CHUV and of CHUP."""
    centres: dict[str, Any] = {
        centre: {"cases": cases, "aggregates": {DSC: {"value": dsc[place]}, HD95: {"value": hd95[place]}}}
        for place, (centre, cases) in enumerate((("CHUV", 53), ("CHUP", 48)), 1)
    }
    whole = hd95[0] if hd95[0] is not None else math.inf
    estimates = {DSC: Estimate(dsc[0], None, None), HD95: Estimate(whole, None, None)}
    return team_of(name, estimates=estimates, centres=centres, cases={"used": 101})


@pytest.fixture
def results() -> TaskResults:
    """The first team and the ensemble of Table 4 of the HECKTOR 2021 overview, and a second team.

    The second team's DSC is such that the mean of both is the mean over all participants printed there.
    """
    pengy = entrant("pengy", (0.778, 0.766, 0.792), (3.09, 3.27, 3.00))
    other = entrant("other", (0.698, 0.662, 0.738), (3.51, 3.77, None))
    staple = entrant("STAPLE top-5", (0.779, 0.766, 0.794), (3.06, 3.06, 3.00))
    board = {
        "metrics": {DSC: "Mean DSC", HD95: "Median HD95 (mm)"},
        "teams": [{"team": "pengy"}, {"team": "other"}],
        "unranked_entries": [{"team": "STAPLE top-5"}, {"team": "observers"}],
    }
    return TaskResults(SEGMENTATION, board, [pengy, other], unranked_entries=[staple])


def test_table_4_of_the_2021_overview(results) -> None:
    """All participants: DSC 0.738, 0.714 and 0.765 on all, CHUV and CHUP."""
    dsc, *_ = by_centre(results)
    values = {(row["of"], row["centre"]): row["value"] for row in dsc.rows}
    assert values == {
        ("pengy (first)", "CHUP"): 0.792,
        ("pengy (first)", "CHUV"): 0.766,
        ("pengy (first)", "all"): 0.778,
        ("STAPLE top-5", "CHUP"): 0.794,
        ("STAPLE top-5", "CHUV"): 0.766,
        ("STAPLE top-5", "all"): 0.779,
        (MEAN, "CHUP"): 0.765,
        (MEAN, "CHUV"): 0.714,
        (MEAN, "all"): 0.738,
    }
    assert {(row["centre"], row["cases"]) for row in dsc.rows} == {("CHUP", 48), ("CHUV", 53), ("all", 101)}
    assert dsc.notes[0] == NO_P
    assert "observers" in dsc.notes[1]


def test_an_infinite_distance_does_not_enter_the_mean(results) -> None:
    distances = next(one for one in by_centre(results) if one.name == "centres-distances")
    mean = next(row for row in distances.rows if (row["of"], row["centre"]) == (MEAN, "CHUP"))
    assert (mean["value"], mean["teams"]) == (3.0, 1)


def test_every_metric_shows_every_centre(results) -> None:
    """A metric that is undefined in CHUV keeps a row for it, so that the centres stand in one order everywhere."""
    undefined = [{**team.centres["CHUV"], "aggregates": {}} for team in results.teams]
    teams = [
        replace(team, centres={**team.centres, "CHUV": of}) for team, of in zip(results.teams, undefined, strict=True)
    ]
    side_by_side, *_ = by_centre(replace(results, teams=teams, unranked_entries=[]))
    first = [(row["centre"], row["value"]) for row in side_by_side.rows if row["of"] == "pengy (first)"]
    assert first == [("CHUP", 0.792), ("CHUV", None), ("all", 0.778)]


def test_without_centres_there_is_nothing_to_show(results) -> None:
    teams = [replace(team, centres={}) for team in results.teams]
    assert by_centre(replace(results, teams=teams)) == []


def test_a_centre_of_one_case_is_left_out(results) -> None:
    teams = [
        replace(team, centres={centre: {**block, "cases": 1} for centre, block in team.centres.items()})
        for team in results.teams
    ]
    assert by_centre(replace(results, teams=teams)) == []
