"""Every analysis of every edition: names, columns and charts agree, and all of it is JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from evaluation.results.task import TaskResults
from reporting.analyses.analysis import Analysis
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

EDITIONS = [
    ("hecktor2020", "segmentation"),
    ("hecktor2021", "segmentation"),
    ("hecktor2021", "rfs"),
    ("hecktor2022", "segmentation"),
    ("hecktor2025", "segmentation"),
    ("hecktor2025", "rfs"),
    ("hecktor2025", "hpv"),
    ("hecktor2026", "combined"),
    ("hntsmrg2024", "mid-rt"),
]
# Surfaces, risks, and an edition of several answers.
EACH_KIND = [("hecktor2021", "segmentation"), ("hecktor2025", "rfs"), ("hecktor2026", "combined")]


def check(analyses: list[Analysis]) -> set[str]:
    names = [one.name for one in analyses]
    assert len(set(names)) == len(names)
    for one in analyses:
        json.dumps(asdict(one), allow_nan=False)
        assert one.rows, one.name
        assert one.source, one.name
        assert all(set(row) <= set(one.columns) for row in one.rows), one.name
        if one.chart:
            required, optional = CHANNELS[one.chart["kind"]]
            channels = set(one.chart) - SETTINGS
            assert required <= channels <= required | optional, one.name
            assert {one.chart[channel] for channel in channels} <= set(one.columns), one.name
    return set(names)


@pytest.mark.parametrize(("edition", "task"), EDITIONS)
def test_every_edition(challenge, edition: str, task: str) -> None:
    results = challenge(edition, task, cases=20)
    analyses = analyse_task(results)
    names = check(analyses)
    assert analyse_task(results, with_cases=False) == [one for one in analyses if not one.shows_patients]
    assert {"metrics", "rank-stability", "significance", "centres"} <= names
    prefix = "segmentation-" if edition == "hecktor2026" else ""
    if task in {"segmentation", "combined"}:
        of_masks = {"dsc-by-team", "gtvp-dsc-by-case", "primary-found", "gtvp-dsc-by-volume"}
        assert {f"{prefix}{name}" for name in of_masks} <= names
    assert ("hd95-by-team" in names) == (edition == "hecktor2021" and task != "rfs")


def test_2026_has_analyses_of_each_answer(challenge) -> None:
    names = check(analyse_task(challenge("hecktor2026")))
    assert {"t_stage-confusion", "rfs-survival"} <= names


@pytest.mark.parametrize(("edition", "task"), EACH_KIND)
def test_a_single_team_has_no_rivals(challenge, edition: str, task: str) -> None:
    names = check(analyse_task(challenge(edition, task, teams=1)))
    assert not names & {"rank-stability", "rank-correlation", "significance"}


def test_a_few_cases(challenge) -> None:
    """Five bins of three cases need 15 cases with a GTVp; points need five."""
    names = check(analyse_task(challenge("hecktor2021", "segmentation", cases=4)))
    assert "gtvp-dsc-by-case" in names
    assert not any(name.startswith("gtvp-dsc-and-volume") for name in names)
    names = check(analyse_task(challenge("hecktor2021", "segmentation", cases=14)))
    assert "gtvp-dsc-and-volume" in names
    assert "gtvp-dsc-by-volume" not in names
    check(analyse_task(challenge("hecktor2021", "segmentation", cases=1)))


def test_teams_that_answer_nothing(challenge) -> None:
    """Infinite HD95 of both teams, no primary found; no risk gives no survival."""
    lost = challenge("hecktor2021", "segmentation", teams=2, lost=(0, 1))
    by_name = {one.name: one for one in analyse_task(lost)}
    check(list(by_name.values()))
    assert "distances" not in by_name
    assert {row["infinite"] for row in by_name["hd95-by-team"].rows} == {12}
    assert {row["median"] for row in by_name["hd95-by-team"].rows} == {None}
    assert {(row["of"], row["found"]) for row in by_name["primary-found"].rows} == {("cases with a GTVp", 0)}
    assert len(by_name["failed-cases"].rows) == 24
    names = check(analyse_task(challenge("hecktor2025", "rfs", lost=(0, 1, 2))))
    assert "survival" not in names


def without_rows(results: TaskResults) -> TaskResults:
    teams = {name: metrics.model_copy(update={"results": [], "centres": {}}) for name, metrics in results.teams.items()}
    return replace(with_board(results, stability=None, comparisons=None), teams=teams, answers={})


@pytest.mark.parametrize(("edition", "task"), EACH_KIND)
def test_results_without_rows_have_the_analyses_of_aggregates(challenge, edition: str, task: str) -> None:
    names = check(analyse_task(without_rows(challenge(edition, task))))
    assert "metrics" in names
    assert names <= {"metrics", "other-metrics", "distances", "other-distances"}


def test_between_tasks(challenge) -> None:
    results = [challenge("hecktor2025", task, number=place) for place, task in enumerate(("segmentation", "rfs"), 1)]
    assert check(compare_tasks(results)) == {"correlation-between-tasks"}
    assert compare_tasks(results[:1]) == []
