"""Boxes by team and by case, and the cases that nearly all teams fail."""

from __future__ import annotations

from typing import Any

from reporting.analyses.masks import find_failed_cases, summarise_cases, summarise_teams


def make_row(dsc: float | None, volume: float = 10.0, **more: Any) -> dict[str, Any]:
    return {"gtvp_dsc": dsc, "gtvp_reference_voxels": volume, "gtvp_reference_mm3": 1000 * volume, **more}


def test_boxes_by_team(table) -> None:
    """0.2, 0.4 and 0.6: quartiles 0.3, 0.4, 0.5; the second team has one value and one undefined one."""
    (boxes,) = summarise_teams(
        table(
            {
                "ann": [make_row(0.2), make_row(0.4), make_row(0.6)],
                "bea": [make_row(0.9), make_row(None), make_row(None)],
            }
        )
    )
    first, second = boxes.rows
    box = {"values": 3, "low": 0.2, "q1": 0.3, "median": 0.4, "q3": 0.5, "high": 0.6, "mean": 0.4}
    assert first == {"label": "GTVp", "team": "ann", **box, "outliers": [], "zeros": 0}
    assert (second["values"], second["median"]) == (1, 0.9)


def test_cases_from_hard_to_easy(table) -> None:
    """Medians over two teams: A 0.7, B 0.2, C 0.2 (by name), D has an empty reference and is left out."""
    teams = {
        "ann": [make_row(0.8), make_row(0.1), make_row(0.2), make_row(0.0, 0)],
        "bea": [make_row(0.6), make_row(0.3), make_row(0.2), make_row(0.0, 0)],
    }
    (boxes,) = summarise_cases(table(teams))
    assert [(line["case"], line["median"]) for line in boxes.rows] == [("B", 0.2), ("C", 0.2), ("A", 0.7)]
    assert boxes.rows[0]["volume_ml"] == 10.0


def test_an_infinite_hd95_is_counted(table) -> None:
    """Distances are infinite with one empty mask and do not count with two."""

    def make_surface_row(state: str, hd95: float | None) -> dict[str, Any]:
        return make_row(None, gtvp_surface=state, gtvp_hd95_mm=hd95)

    teams = {
        "ann": [make_surface_row("measured", 2.0), make_surface_row("one_empty", None)],
        "bea": [make_surface_row("both_empty", None), make_surface_row("no_prediction", None)],
    }
    (by_team,) = summarise_teams(table(teams))
    assert [(line["team"], line["values"], line["infinite"]) for line in by_team.rows] == [("ann", 2, 1), ("bea", 1, 1)]


def test_nearly_all_is_nine_of_ten(table) -> None:
    """Of ten teams nine fail A and eight B; C has no reference, nine teams mark nothing (no DSC) and one fails."""
    a, b = [0.1] * 9 + [0.8], [0.1] * 8 + [0.5, 0.8]
    teams = {
        f"team {place}": [make_row(a[place]), make_row(b[place]), make_row(0.0 if place == 0 else None, 0)]
        for place in range(10)
    }
    (failed,) = find_failed_cases(table(teams))
    best = {"dsc_median": 0.1, "dsc_best": 0.8, "best_team": "team 9"}
    assert failed.rows == [{"case": "A", "label": "GTVp", "volume_ml": 10.0, "failed": 9, "teams": 10, **best}]
    assert find_failed_cases(table({"ann": [make_row(0.5)]})) == []


def test_a_false_tumour_that_all_teams_mark_is_a_failure(table) -> None:
    (failed,) = find_failed_cases(table({"ann": [make_row(0.0, 0)], "bea": [make_row(0.0, 0)]}))
    assert [(line["case"], line["failed"], line["best_team"]) for line in failed.rows] == [("A", 2, None)]
    assert (failed.rows[0]["dsc_median"], failed.rows[0]["dsc_best"]) == (None, None)
