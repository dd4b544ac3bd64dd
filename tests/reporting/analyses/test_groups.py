"""Metrics by centre and by columns of tables, for the first team, unranked rows and the mean of all teams."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from contract.errors import HecktorError
from evaluation.editions.profile import load_profile
from evaluation.ranking.cli import main as rank
from evaluation.results.documents import CentreBlock, MetricsJson
from evaluation.results.task import TaskResults
from reporting.analyses.groups import MEAN, NO_P, add_groups, analyse_groups, create_grouping
from reporting.analyses.sources import find_results
from reporting.report.cli import main as report
from tests.evaluation.builders import make_board, make_metrics, make_results
from tests.evaluation.tables import score_risks, write_table

DSC, HD95 = "gtvp_dsc_mean", "gtvp_hd95_median_mm"


def make_team(dsc: tuple[float, float, float], hd95: tuple[float, float, float | None]) -> MetricsJson:
    """Build a team from its values of all cases, of CHUV and of CHUP."""
    centres: dict[str, Any] = {
        centre: {"cases": cases, "aggregates": {DSC: {"value": dsc[place]}, HD95: {"value": hd95[place]}}}
        for place, (centre, cases) in enumerate((("CHUV", 53), ("CHUP", 48)), 1)
    }
    return make_metrics({DSC: dsc[:1], HD95: hd95[:1]}, centres=centres, cases={"used": 101})


@pytest.fixture
def results() -> TaskResults:
    """Build the first team and the ensemble of Table 4 of the HECKTOR 2021 overview, and a second team.

    The second team's DSC is such that the mean of both is the mean over all participants printed there.
    """
    pengy = make_team((0.778, 0.766, 0.792), (3.09, 3.27, 3.00))
    second = make_team((0.698, 0.662, 0.738), (3.51, 3.77, None))
    staple = make_team((0.779, 0.766, 0.794), (3.06, 3.06, 3.00))
    board = make_board(
        {DSC: "Mean DSC", HD95: "Median HD95 (mm)"},
        [{"team": "pengy"}, {"team": "second"}],
        out_of_competition=[{"team": "STAPLE top-5"}, {"team": "observers"}],
    )
    teams = {"pengy": pengy, "second": second}
    return make_results(teams, leaderboard=board, out_of_competition={"STAPLE top-5": staple})


def with_other_centres(
    results: TaskResults, change: Callable[[dict[str, CentreBlock]], dict[str, CentreBlock]]
) -> TaskResults:
    """Return the results of only the ranked teams, with changed figures by centre."""
    teams = {
        name: team.model_copy(update={"centres": change(dict(team.centres))}) for name, team in results.teams.items()
    }
    return replace(results, teams=teams, out_of_competition={})


def test_table_4_of_the_2021_overview(results) -> None:
    """The overview prints mean DSCs of 0.738, 0.714 and 0.765 on all cases, CHUV and CHUP.

    In CHUP pengy has 0.792 and the second team 0.738; the ensemble's 0.794 is not ranked and not part of the range. An
    infinite distance does not enter the mean.
    """
    dsc, *_ = analyse_groups(results)
    assert [(row["of"], row["centre"], row["value"]) for row in dsc.rows] == [
        *(("pengy (first)", "CHUP", 0.792), ("second", "CHUP", 0.738), ("STAPLE top-5", "CHUP", 0.794)),
        (MEAN, "CHUP", 0.765),
        *(("pengy (first)", "CHUV", 0.766), ("second", "CHUV", 0.662), ("STAPLE top-5", "CHUV", 0.766)),
        (MEAN, "CHUV", 0.714),
        *(("pengy (first)", "all", 0.778), ("second", "all", 0.698), ("STAPLE top-5", "all", 0.779)),
        (MEAN, "all", 0.738),
    ]
    assert {(row["centre"], row["cases"]) for row in dsc.rows} == {("CHUP", 48), ("CHUV", 53), ("all", 101)}
    mean = dsc.rows[3]
    assert (mean.get("team"), mean["low"], mean["high"], mean["teams"]) == (None, 0.738, 0.792, 2)
    assert dsc.notes[0] == NO_P
    assert "observers" in dsc.notes[1]
    distances = next(analysis for analysis in analyse_groups(results) if analysis.name == "centres-distances")
    mean = next(row for row in distances.rows if (row["of"], row["centre"]) == (MEAN, "CHUP"))
    assert (mean["value"], mean["teams"]) == (3.0, 1)


def test_every_ranked_metric_shows_every_centre(results) -> None:
    """Metrics that are undefined in CHUV have a row for it, so that centres have the same order everywhere.

    Without centres, or with one case in each of them, there is nothing to show.
    """
    undefined = CentreBlock(cases=53, aggregates={})
    side_by_side, *_ = analyse_groups(with_other_centres(results, lambda of: {**of, "CHUV": undefined}))
    first = [(row["centre"], row["value"]) for row in side_by_side.rows if row["of"] == "pengy (first)"]
    assert first == [("CHUP", 0.792), ("CHUV", None), ("all", 0.778)]
    assert analyse_groups(with_other_centres(results, lambda _: {})) == []
    one_case = {"update": {"cases": 1}}
    few = with_other_centres(results, lambda of: {name: block.model_copy(**one_case) for name, block in of.items()})
    assert analyse_groups(few) == []


def test_a_team_that_skips_cases_hides_no_centre(results) -> None:
    """The second team answers one case of CHUV, the first all 53: the centre has 53 cases."""
    few = with_other_centres(results, lambda of: {**of, "CHUV": of["CHUV"].model_copy(update={"cases": 1})})
    teams = {"pengy": results.teams["pengy"], "second": few.teams["second"]}
    shown = analyse_groups(replace(few, teams=teams))[0]
    assert {(row["centre"], row["cases"]) for row in shown.rows} == {("CHUP", 48), ("CHUV", 53), ("all", 101)}


# Two groups of two patients: in the positive ones the patient who recurs has the higher risk, in the negative ones the
# lower, so that C is 1 and 0. E has no group.
CASES = {
    "A": (1, 100, 2.0, "1"),
    "B": (0, 200, 1.0, "1"),
    "C": (1, 100, 1.0, "0"),
    "D": (0, 200, 2.0, "0"),
    "E": (0, 300, 0.0, ""),
}


@pytest.fixture
def results_folder(tmp_path):
    """Write the results of two teams with the same risks, and the table of the groups."""
    follow_up = {case: (relapse, days) for case, (relapse, days, _, _) in CASES.items()}
    risks = {case: risk for case, (_, _, risk, _) in CASES.items()}
    columns = {case: f"{hpv},{number},x" for number, (case, (*_, hpv)) in enumerate(CASES.items())}
    write_table(tmp_path / "clinical.csv", "HPV Status,Age,Site", columns)
    for team in ("one", "two"):
        score_risks(tmp_path / "results" / team, follow_up, risks)
    paths = [str(tmp_path / "results" / team / "metrics.json") for team in ("one", "two")]
    assert rank([*paths, "--bootstraps", "0", "--output", str(tmp_path / "results")]) == 0
    return tmp_path


def load_results(results_folder) -> list[TaskResults]:
    return find_results(results_folder / "results", load_profile())


def test_metrics_by_a_column_of_a_table(results_folder) -> None:
    table = f"{results_folder / 'clinical.csv'}:HPV status"
    arguments = ["--results", str(results_folder / "results"), "--output", str(results_folder / "page.html")]
    assert report([*arguments, "--cases", "--groups", table]) == 0
    text = (results_folder / "page.html").read_text(encoding="utf-8")
    charts = [
        json.loads(data) for data in re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    ]
    columns = next(chart["columns"] for chart in charts if chart["name"].endswith("by-hpv-status"))
    groups, names = ([columns[key]["texts"][code] for code in columns[key]["codes"]] for key in ("group", "of"))
    values = dict(zip(zip(groups, names, strict=True), columns["value"]["values"], strict=True))
    # Of all pairs A before B, C, D, E, and C before the same: A beats B and E, ties D, C ties B, beats E and not D.
    shown = ("one (first)", "two", MEAN)
    expected = {"0": 0.0, "1": 1.0, "all": 0.6667}
    assert values == {(group, name): value for group, value in expected.items() for name in shown}
    assert "No HPV status: 1 case." in text


def test_two_columns_are_crossed(results_folder) -> None:
    """A column may also have a comma in its name."""
    lines = "".join(f"{case},{hpv},{arm}\n" for (case, (*_, hpv)), arm in zip(CASES.items(), "xyxxx", strict=True))
    for text, column, expected in (
        (f"PatientID,HPV Status,Arm\n{lines}", "HPV status, Arm", {"A": "1, x", "B": "1, y", "C": "0, x", "D": "0, x"}),
        ('PatientID,"Age, years"\nA,1\nB,2\nC,1\n', "Age, years", {"A": "1", "B": "2", "C": "1"}),
    ):
        (results_folder / "clinical.csv").write_text(text)
        (task,) = add_groups(load_results(results_folder), [(results_folder / "clinical.csv", column)])
        assert list(task.groups.values()) == [expected]


@pytest.mark.parametrize(
    ("table", "column", "message"),
    [
        ("PatientID,Site\nA,x\n", "Stage", r"clinical\.csv: columns PatientID, Site, expected a column Stage"),
        ("PatientID,Site\nA,x\nB,x\n", "Site", "1 different value of Site among the scored cases, expected 2 to 12"),
        ("PatientID,HPV\nZ-1,1\nZ-2,0\n", "HPV", "patients Z-1, Z-2"),
        # The group would replace the line of all cases.
        ("PatientID,Arm\nA,all\nB,0\n", "Arm", r"clinical\.csv: the group 'all' of Arm"),
    ],
)
def test_a_column_that_cannot_group_is_named(results_folder, table, column, message) -> None:
    (results_folder / "clinical.csv").write_text(table)
    with pytest.raises(HecktorError, match=message):
        add_groups(load_results(results_folder), [(results_folder / "clinical.csv", column)])


@pytest.mark.parametrize("columns", [("Site", "site!"), ("Centre",), ("a", "a distances")])
def test_columns_whose_figures_would_share_a_name_are_refused(results_folder, columns) -> None:
    """The names of figures are files and anchors of the page, and `centre` is the name of the results' own figure."""
    tables = []
    for number, column in enumerate(columns):
        tables.append((results_folder / f"{number}.csv", column))
        tables[-1][0].write_text(f"PatientID,{column}\nA,1\nB,1\nC,0\nD,0\n")
    with pytest.raises(HecktorError, match=f"--groups: columns {', '.join(columns)}"):
        add_groups(load_results(results_folder), tables)


def test_results_without_rows_have_no_groups(results_folder) -> None:
    results = [
        replace(task, teams={name: team.model_copy(update={"results": []}) for name, team in task.teams.items()})
        for task in load_results(results_folder)
    ]
    with pytest.raises(HecktorError, match="--groups: results without rows"):
        add_groups(results, [(results_folder / "clinical.csv", "HPV Status")])


def test_grouping_by_centres_gives_the_stored_values_by_centre(challenge) -> None:
    results = challenge("hecktor2025", "segmentation")
    grouping = create_grouping(results, "site", results.centres)
    for team, metrics in results.teams.items():
        for centre, block in metrics.centres.items():
            assert grouping.blocks[team][centre].aggregates == block.aggregates
