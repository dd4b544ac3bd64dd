"""All analyses of an edition have consistent names, columns and charts, and are written as JSON and CSV."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from evaluation.results.task import TaskResults
from reporting.analyses.analysis import Analysis, write_analyses
from reporting.analyses.pipeline import analyse_task
from reporting.analyses.tasks import compare_tasks
from tests.evaluation.builders import with_board

# Channels of each kind of chart that name a column, required ones first (reporting/page/kinds.js).
CHANNELS = {
    "intervals": ({"y", "x", "low", "high"}, {"facet"}),
    "boxes": ({"category", "low", "q1", "median", "q3", "high"}, {"mean", "outliers", "facet"}),
    "blobs": ({"y", "x", "size"}, {"low", "high", "facet"}),
    "matrix": ({"x", "y", "value"}, {"text", "facet"}),
    "lines": ({"x", "y", "series"}, {"low", "high", "facet"}),
    "points": ({"x", "y"}, {"series", "facet"}),
    "bars": ({"y", "x"}, {"series", "facet"}),
    "podium": ({"place", "y", "series", "line"}, set()),
}
SETTINGS = {"kind", "domain", "orientation", "scale", "step", "diagonal", "pick"}

# Surfaces, risks, and an edition of several answers.
EACH_KIND = [("hecktor2021", "segmentation"), ("hecktor2025", "rfs"), ("hecktor2026", "combined")]
# Masks without GTVn and without surfaces, and classes.
EDITIONS = [*EACH_KIND, ("hecktor2020", "segmentation"), ("hecktor2025", "segmentation"), ("hecktor2025", "hpv")]


def check_analyses(analyses: list[Analysis]) -> set[str]:
    names = [analysis.name for analysis in analyses]
    assert len(set(names)) == len(names)
    for analysis in analyses:
        json.dumps(asdict(analysis), allow_nan=False)
        assert analysis.rows, analysis.name
        assert analysis.source, analysis.name
        assert all(set(row) <= set(analysis.columns) for row in analysis.rows), analysis.name
        if analysis.chart:
            required, optional = CHANNELS[analysis.chart["kind"]]
            channels = set(analysis.chart) - SETTINGS
            assert required <= channels <= required | optional, analysis.name
            assert {analysis.chart[channel] for channel in channels} <= set(analysis.columns), analysis.name
    return set(names)


@pytest.mark.parametrize(("edition", "task"), EDITIONS)
def test_every_edition(challenge, edition: str, task: str) -> None:
    results = challenge(edition, task, cases=20)
    analyses = analyse_task(results)
    names = check_analyses(analyses)
    assert analyse_task(results, with_cases=False) == [analysis for analysis in analyses if not analysis.shows_patients]
    assert {"metrics", "rank-stability", "significance", "centres"} <= names
    prefix = "segmentation-" if edition == "hecktor2026" else ""
    if task in {"segmentation", "combined"}:
        of_masks = {"dsc-by-team", "gtvp-dsc-by-case", "primary-found", "gtvp-dsc-by-volume"}
        assert {f"{prefix}{name}" for name in of_masks} <= names
    assert ("hd95-by-team" in names) == (edition == "hecktor2021" and task != "rfs")
    assert ({"t_stage-confusion", "rfs-survival"} <= names) == (edition == "hecktor2026")
    single = check_analyses(analyse_task(challenge(edition, task, teams=1)))
    assert not single & {"rank-stability", "rank-correlation", "significance"}


def test_a_few_cases(challenge) -> None:
    """Five bins of three cases need 15 cases with a GTVp; points need five."""
    names = check_analyses(analyse_task(challenge("hecktor2021", "segmentation", cases=4)))
    assert "gtvp-dsc-by-case" in names
    assert not any(name.startswith("gtvp-dsc-and-volume") for name in names)
    names = check_analyses(analyse_task(challenge("hecktor2021", "segmentation", cases=14)))
    assert "gtvp-dsc-and-volume" in names
    assert "gtvp-dsc-by-volume" not in names
    check_analyses(analyse_task(challenge("hecktor2021", "segmentation", cases=1)))


def test_teams_that_answer_nothing(challenge) -> None:
    """Both teams have an infinite HD95 and no primary found; without risks there is no survival."""
    lost = challenge("hecktor2021", "segmentation", teams=2, lost=(0, 1))
    by_name = {analysis.name: analysis for analysis in analyse_task(lost)}
    check_analyses(list(by_name.values()))
    assert "distances" not in by_name
    assert {row["infinite"] for row in by_name["hd95-by-team"].rows} == {12}
    assert {row["median"] for row in by_name["hd95-by-team"].rows} == {None}
    assert {(row["of"], row["found"]) for row in by_name["primary-found"].rows} == {("cases with a GTVp", 0)}
    assert len(by_name["failed-cases"].rows) == 24
    names = check_analyses(analyse_task(challenge("hecktor2025", "rfs", lost=(0, 1, 2))))
    assert "survival" not in names


def remove_rows(results: TaskResults) -> TaskResults:
    teams = {name: metrics.model_copy(update={"results": [], "centres": {}}) for name, metrics in results.teams.items()}
    return replace(with_board(results, stability=None, comparisons=None), teams=teams, answers={})


@pytest.mark.parametrize(("edition", "task"), EACH_KIND)
def test_results_without_rows_have_the_analyses_of_aggregates(challenge, edition: str, task: str) -> None:
    names = check_analyses(analyse_task(remove_rows(challenge(edition, task))))
    assert "metrics" in names
    assert names <= {"metrics", "other-metrics", "distances", "other-distances"}


def test_between_tasks(challenge) -> None:
    results = [challenge("hecktor2025", task, number=place) for place, task in enumerate(("segmentation", "rfs"), 1)]
    assert check_analyses(compare_tasks(results)) == {"correlation-between-tasks"}
    assert compare_tasks(results[:1]) == []


def test_json_holds_all_and_csv_the_rows(tmp_path: Path) -> None:
    rows = [{"team": "ann", "value": 0.5}, {"team": "bea, b", "value": None}, {"team": "cid"}]
    analysis = Analysis("metrics", "Metrics", "About.", {"team": "Team", "value": "Value"}, rows, {"kind": "bars"})
    written = write_analyses(tmp_path, {"task1": [analysis], "challenge": [analysis]})
    assert [path.relative_to(tmp_path).as_posix() for path in written] == [
        "task1/metrics.json",
        "task1/metrics.csv",
        "challenge/metrics.json",
        "challenge/metrics.csv",
    ]
    content = json.loads(written[0].read_text())
    assert (content["title"], content["rows"], content["chart"]) == ("Metrics", rows, {"kind": "bars"})
    with written[1].open() as lines:
        assert list(csv.DictReader(lines)) == [
            {"team": "ann", "value": "0.5"},
            {"team": "bea, b", "value": ""},
            {"team": "cid", "value": ""},
        ]
