"""Results of a report, figures of the scans next to them, and masks in the folders of a rehearsal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.editions import Algorithm, load_edition
from contract.errors import HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import write_mask
from contract.io.files import write_json
from evaluation.editions.profile import load_profile
from evaluation.results.task import TaskResults
from reporting.analyses.sources import (
    add_scans,
    find_masks,
    find_results,
    load_results_profile,
)
from tests.evaluation.builders import make_board, make_metrics, make_results


def write_empty_mask(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_mask(path, np.zeros((4, 4, 4), np.uint8), Geometry((4, 4, 4), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)))
    return path


@pytest.mark.parametrize(
    ("edition", "folder"), [("hecktor2025", "predictions"), ("hecktor2026", "predictions/segmentation")]
)
def test_masks_of_one_answer_and_of_several(edition: str, folder: str, tmp_path: Path) -> None:
    """They lie next to the team's metrics.json, and with several answers in the mask's folder."""
    path = write_empty_mask(tmp_path / "task1" / "a" / folder / "CHUM-001.mha")
    task = load_edition(edition).algorithms[0]
    folders = {"a": tmp_path / "task1" / "a", "without-masks": tmp_path / "task1" / "without-masks"}
    masks = find_masks(make_results({}, task, edition, folders=folders), ["a", "without-masks"], {})
    assert masks == {"a": {"CHUM-001": path}}


@pytest.mark.parametrize(
    ("stated", "chosen"), [("hecktor2026", None), ("hecktor2021", None), ("hecktor2021", "hecktor2021")]
)
def test_the_edition_comes_from_the_results(stated: str, chosen: str | None, tmp_path: Path) -> None:
    write_json(tmp_path / "task1" / "leaderboard.json", make_whole_board(["a"]) | {"edition": stated})
    assert load_results_profile(tmp_path, chosen).edition.name == stated
    assert load_results_profile(None, chosen).edition.name == (chosen or "hecktor2025")
    write_json(tmp_path / "task1" / "leaderboard.json", make_whole_board(["a"]) | {"edition": "my_own"})
    text = files("contract.editions").joinpath("hecktor2021.json").read_text()
    write_json(tmp_path / "mine.json", json.loads(text) | {"name": "my_own"})
    assert load_results_profile(tmp_path, str(tmp_path / "mine.json")).edition.name == "my_own"


@pytest.mark.parametrize(
    ("stated", "chosen", "message"),
    [
        ("my_own", None, r"^task1/leaderboard.json: edition 'my_own', expected one of hecktor2020, .* --edition$"),
        ("hecktor2025", "hecktor2026", "--edition: found hecktor2026, expected hecktor2025, which task1/leaderb"),
        ("my_own", "hecktor2025", "--edition: found hecktor2025, expected my_own"),
    ],
)
def test_no_other_edition_takes_the_place_of_the_results(
    stated: str, chosen: str | None, message: str, tmp_path: Path
) -> None:
    """By another edition's rules lesions and rows would not agree with the scores."""
    write_json(tmp_path / "task1" / "leaderboard.json", make_whole_board(["a"]) | {"edition": stated})
    with pytest.raises(HecktorError, match=message):
        load_results_profile(tmp_path, chosen)


def test_masks_in_another_folder(tmp_path: Path) -> None:
    path = write_empty_mask(tmp_path / "mine" / "CHUM-001.mha")
    assert find_masks(None, ["a"], {"a": path.parent}) == {"a": {"CHUM-001": path}}
    with pytest.raises(HecktorError, match="no folder 'absent' for team 'a'"):
        find_masks(None, ["a"], {"a": tmp_path / "absent"})
    with pytest.raises(HecktorError, match="unknown team 'b'"):
        find_masks(None, ["a"], {"b": path.parent})


@pytest.mark.parametrize("part", ["teams", "out_of_competition"])
def test_results_are_counted_again(valid_metrics, tmp_path: Path, part: str) -> None:
    """Rows and values of a report must agree, as in a ranking."""
    content = valid_metrics("risks")
    content["aggregates"] |= FIGURES
    folder = tmp_path / "task2"
    ranked, outside = (["sound", "a"], []) if part == "teams" else (["sound"], ["a"])
    write_json(folder / "leaderboard.json", make_whole_board(ranked, outside, task="rfs"))
    for team in ("sound", "a"):
        write_json(folder / team / "metrics.json", content)
    (results,) = find_results(tmp_path, load_profile("hecktor2025"))
    assert list(getattr(results, part))[-1] == "a"
    content["aggregates"]["c_index"]["value"] = 0.123
    write_json(folder / "a" / "metrics.json", content)
    with pytest.raises(
        HecktorError, match=r"^a/metrics\.json: states c_index 0\.123, but its rows give .*, expected figures of one"
    ):
        find_results(tmp_path, load_profile("hecktor2025"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (None, ": found [], expected an object"),
        ({"teams": []}, ".teams: found [], expected at least 1 entries"),
        ({"incomplete": [{"team": "a", "without": []}]}, ": found an object, expected each value once, not a twice"),
        ({"kappa": 1}, ".kappa: found 1, expected no such key"),
        ({"comparisons": {}}, ": found an object, expected comparisons of x"),
    ],
)
def test_an_invalid_leaderboard(tmp_path: Path, changes: dict[str, Any] | None, message: str) -> None:
    board = [] if changes is None else make_whole_board(["a"]) | changes
    (tmp_path / "task1").mkdir()
    (tmp_path / "task1" / "leaderboard.json").write_text(json.dumps(board))
    with pytest.raises(HecktorError) as error:
        find_results(tmp_path, load_profile("hecktor2025"))
    assert str(error.value) == f"task1/leaderboard.json{message}"


FIGURES = {"x": {"value": 0.5, "ci95_low": None, "ci95_high": None}}


def make_whole_board(teams: Sequence[str], unranked: Sequence[str] = (), task: str = "segmentation") -> dict[str, Any]:
    """Return a leaderboard of one metric `x`, without bootstrap rankings; all teams share the first rank."""
    ranked = [{"team": team, "rank": 1, "metrics": FIGURES} for team in teams]
    outside = [{"team": team, "metrics": FIGURES} for team in unranked]
    return make_board({"x": "X"}, ranked, task=task, out_of_competition=outside).to_dict()


def write_results(folder: Path, teams: Sequence[str], unranked: Sequence[str] = (), task: str = "segmentation") -> None:
    """Write results of the teams, and of the first row out of competition."""
    for team in (*teams, *unranked[:1]):
        write_json(folder / team / "metrics.json", make_metrics({"x": (0.5,)}).to_dict())
    write_json(folder / "leaderboard.json", make_whole_board(teams, unranked, task))


@pytest.mark.parametrize("board", ["", "task1"])
def test_results_as_rank_and_rehearse_write_them(tmp_path: Path, board: str) -> None:
    """Rows out of competition may have metrics. Both tasks of HNTS-MRG 2024 are segmentations."""
    write_results(tmp_path / board, ["a", "b"], ["out", "observers"])
    path = write_empty_mask(tmp_path / board / "a" / "predictions" / "CHUM-001.mha")
    if board:
        write_results(tmp_path / "task2", ["c"])
    results, *more = find_results(tmp_path, load_profile("hecktor2025"))
    assert (results.task.number, list(results.teams)) == (1, ["a", "b"])
    assert list(results.out_of_competition) == ["out"]
    masks = find_masks(results, ["a", "b"], {})
    assert masks == {"a": {"CHUM-001": path}}
    expected = [(2, "segmentation", ["c"])] if board else []
    assert [(task.task.number, task.task.name, list(task.teams)) for task in more] == expected
    (tmp_path / board / "a" / "metrics.json").unlink()
    message = r"leaderboard\.json: ranks 'a' without its metrics, expected a/metrics\.json next to it"
    with pytest.raises(HecktorError, match=message):
        find_results(tmp_path, load_profile("hecktor2025"))


def test_the_file_of_a_team_is_found_by_its_path(tmp_path: Path) -> None:
    """With the names of `rank --names` the path decides; a changed file is refused."""
    write_results(tmp_path, ["folder"])
    board = make_whole_board(["team"]) | {"files": {"team": "../folder/metrics.json"}}
    write_json(tmp_path / "board" / "leaderboard.json", board)
    prediction = write_empty_mask(tmp_path / "folder" / "predictions" / "CHUM-001.mha")
    (results,) = find_results(tmp_path / "board", load_profile("hecktor2025"))
    assert list(results.teams) == ["team"]
    assert find_masks(results, ["team"], {}) == {"team": {"CHUM-001": prediction}}
    metrics = json.loads((tmp_path / "folder" / "metrics.json").read_text())
    write_json(tmp_path / "folder" / "metrics.json", metrics | {"aggregates": {"x": {**FIGURES["x"], "value": 0.4}}})
    message = r"^board/leaderboard\.json: states x of team 0\.5, but folder/metrics\.json \(team\) gives 0\.4, expected figures of"
    with pytest.raises(HecktorError, match=message):
        find_results(tmp_path / "board", load_profile("hecktor2025"))


def test_scans_of_a_study_next_to_the_results(tmp_path: Path) -> None:
    write_results(tmp_path / "task1", ["a"])
    table = tmp_path / "baselines.csv"
    table.write_text("case,gtvp_suv_max,gtvp_volume_ml\nA,9.5,\nB,,3\n")
    (results,) = find_results(tmp_path, load_profile("hecktor2025"))
    assert results.scans == {"A": {"gtvp_suv_max": 9.5}, "B": {"gtvp_volume_ml": 3.0}}
    table.write_text("patient,gtvp_suv_max\nA,9.5\n")
    with pytest.raises(HecktorError, match=r"baselines.csv: no column `case`"):
        find_results(tmp_path, load_profile("hecktor2025"))
    table.write_text("case,gtvp_suv_max\nA,high\n")
    with pytest.raises(HecktorError, match=r"baselines.csv, line 2: gtvp_suv_max 'high'"):
        find_results(tmp_path, load_profile("hecktor2025"))


def test_scans_of_another_cohort(tmp_path: Path) -> None:
    """The scored GTVp of A has 2 ml; a table may differ by rounding, and a task of another reference has no scans."""
    mask_task, risk_task = load_edition("hecktor2025").algorithms[:2]

    def make_task(task: Algorithm, mm3: float = 2000.0, **options: str) -> TaskResults:
        row = {"case": "A", "gtvp_reference_mm3": mm3}
        return make_results({"a": make_metrics(rows=[row], provenance={"options": options})}, task)

    same, changed = ({"A": {"gtvp_volume_ml": volume, "gtvp_suv_max": 9.0}} for volume in (2.0004, 3.0))
    assert [task.scans for task in add_scans([make_task(mask_task), make_task(risk_task)], same)] == [same, same]
    later = make_task(mask_task.with_number(2), 9.0)
    assert [task.scans for task in add_scans([make_task(mask_task), later], same)] == [same, {}]
    assert add_scans([make_task(mask_task, bounding_boxes_sha256="ab")], changed)[0].scans == changed
    message = r"^baselines\.csv: GTVp of A 3 ml, expected the 2 ml that were scored; is this another cohort\?$"
    with pytest.raises(HecktorError, match=message):
        add_scans([make_task(mask_task)], changed)


def test_results_that_cannot_be_shown(tmp_path: Path) -> None:
    with pytest.raises(HecktorError, match=r"found no leaderboard.json"):
        find_results(tmp_path, load_profile("hecktor2025"))
    with pytest.raises(HecktorError, match=r"^typo: no such folder"):
        find_results(tmp_path / "typo", load_profile("hecktor2025"))
    write_results(tmp_path / "task1", ["a"], task="staging")
    with pytest.raises(HecktorError, match=r"task 'staging'"):
        find_results(tmp_path, load_profile("hecktor2025"))


def test_metrics_that_decide_a_ranking():
    """By 2021 the HD95 decides within the Borda count; of HPV status specificity only breaks ties of balanced accuracy.

    A ranking that the edition does not know is decided by the metric of its name, or by all.
    """

    def list_deciding_metrics(edition: str, task: str, **board: Any) -> list[str]:
        profile = load_profile(edition).find_task(task)
        named = {"official": profile.ranking.official, **board}
        leaderboard = make_board(
            {name: metric.title for name, metric in profile.metrics.items()}, [{"team": "a"}], **named
        )
        return TaskResults(profile, {}, leaderboard=leaderboard).deciding_metrics

    assert list_deciding_metrics("hecktor2021", "segmentation") == ["gtvp_dsc_mean", "gtvp_hd95_median_mm"]
    assert list_deciding_metrics("hecktor2025", "hpv") == ["balanced_accuracy"]
    assert list_deciding_metrics("hntsmrg2024", "pre-rt") == ["dsc_agg_mean"]
    every = list(load_profile("hecktor2025").find_task("hpv").metrics)
    assert list_deciding_metrics("hecktor2025", "hpv", official="unknown") == every
    assert list_deciding_metrics("hecktor2025", "hpv", official=every[1]) == every[1:2]
