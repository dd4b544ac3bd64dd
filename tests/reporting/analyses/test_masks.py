"""DSC by team, by case, and against volume and figures of the scans; cases that nearly all teams fail."""

from __future__ import annotations

from typing import Any

import pytest
from scipy.stats import pearsonr, spearmanr

from reporting.analyses.masks import (
    compute_binned_dsc,
    compute_case_medians,
    compute_p_over_cases,
    correlate_dsc,
    find_failed_cases,
    find_influences,
    summarise_cases,
    summarise_teams,
)


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
    """Of ten teams nine fail A and eight B; C has no reference, nine teams mark nothing (no DSC) and one fails.

    All teams fail D, which comes first.
    """
    a, b = [0.1] * 9 + [0.8], [0.1] * 8 + [0.5, 0.8]
    teams = {
        f"team {place}": [
            make_row(a[place]),
            make_row(b[place]),
            make_row(0.0 if place == 0 else None, 0),
            make_row(0.2),
        ]
        for place in range(10)
    }
    (failed,) = find_failed_cases(table(teams))
    best = {"dsc_median": 0.1, "dsc_best": 0.8, "best_team": "team 9"}
    assert (failed.rows[0]["case"], failed.rows[0]["failed"]) == ("D", 10)
    assert failed.rows[1:] == [{"case": "A", "label": "GTVp", "volume_ml": 10.0, "failed": 9, "teams": 10, **best}]
    assert find_failed_cases(table({"ann": [make_row(0.5)]})) == []
    (false,) = find_failed_cases(table({"ann": [make_row(0.0, 0)], "bea": [make_row(0.0, 0)]}))
    assert [(line["failed"], line["best_team"], line["dsc_best"]) for line in false.rows] == [(2, None, None)]


def make_volume_row(volume_ml: float, dsc: float | None) -> dict[str, Any]:
    return {"gtvp_dsc": dsc, "gtvp_reference_mm3": 1000 * volume_ml, "gtvp_reference_voxels": volume_ml}


ANN = [make_volume_row(number, number / 10) for number in (1, 2, 3, 4, 5, 6)]


def test_five_bins_of_volume(table) -> None:
    """Six cases of 1 to 6 ml with DSC 0.1 to 0.6: the first bin holds two, at 1.5 ml and 0.15."""
    rows = table({"ann": ANN})
    (volume,) = find_influences(rows, {})
    bins = compute_binned_dsc(rows, volume)
    assert bins.name == "gtvp-dsc-by-volume"
    assert [(line["volume_ml"], line["cases"], line["dsc_mean"]) for line in bins.rows] == [
        (1.5, 2, 0.15),
        (3.0, 1, 0.3),
        (4.0, 1, 0.4),
        (5.0, 1, 0.5),
        (6.0, 1, 0.6),
    ]


def test_cases_without_a_dsc_or_a_tumour_do_not_count(table) -> None:
    """Five of seven cases are left; four would give no bins."""
    rows = table({"ann": [*ANN[:5], make_volume_row(0, 0.0), make_volume_row(7, None)]})
    (volume,) = find_influences(rows, {})
    bins = compute_binned_dsc(rows, volume)
    assert sum(line["cases"] for line in bins.rows) == 5
    few = table({"ann": [*ANN[:4], make_volume_row(0, 0.0), make_volume_row(7, None)]})
    assert find_influences(few, {}) == []


def test_scans_give_suv_max(table) -> None:
    scans = {case: {"gtvp_suv_max": 10.0 - place} for place, case in enumerate("ABCDE")}
    rows = table({"ann": ANN})
    influences = find_influences(rows, scans)
    assert [compute_binned_dsc(rows, influence).name for influence in influences] == [
        "gtvp-dsc-by-volume",
        "gtvp-dsc-by-suv-max",
    ]
    by_suv = compute_case_medians(rows, influences[1])
    assert [(line["case"], line["suv_max"], line["dsc_median"]) for line in by_suv.rows[:2]] == [
        ("A", 10.0, 0.1),
        ("B", 9.0, 0.2),
    ]
    assert len(by_suv.rows) == 5
    (correlations,) = correlate_dsc(rows, influences)
    # SUVmax falls where the DSC rises.
    assert [line["spearman"] for line in correlations.rows if line["team"] is None] == [1.0, -1.0]


def test_correlations_over_all_masks_and_by_team(table) -> None:
    """Twelve masks are pooled as scipy ranks them; only the volume over all teams has a p."""
    bea = [
        make_volume_row(volume, dsc)
        for volume, dsc in zip((1, 2, 3, 4, 5, 6), (0.9, 0.1, 0.2, 0.8, 0.3, 0.7), strict=True)
    ]
    rows = table({"ann": ANN, "bea": bea})
    (correlations,) = correlate_dsc(rows, find_influences(rows, {}))
    pooled, ann, of_bea = correlations.rows
    volumes, values = [1, 2, 3, 4, 5, 6], [0.9, 0.1, 0.2, 0.8, 0.3, 0.7]
    dsc = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert pooled["spearman"] == pytest.approx(spearmanr(volumes * 2, dsc + values).statistic, abs=1e-4)
    assert (pooled["masks"], pooled["team"]) == (12, None)
    assert (ann["spearman"], ann["p"]) == (1.0, None)
    assert of_bea["spearman"] == pytest.approx(spearmanr(volumes, values).statistic, abs=1e-4)


def test_p_counts_cases_and_not_masks(table) -> None:
    """With the same masks from ten teams the p is the same as with one team."""
    (single_team,) = find_influences(
        table({"ann": [make_volume_row(v, d) for v, d in zip((3, 1, 2, 5, 4), (5, 1, 2, 3, 4), strict=True)]}), {}
    )
    many = single_team.dsc.repeat(10, axis=0)
    expected = pearsonr([3, 1, 2, 5, 4], [5, 1, 2, 3, 4]).pvalue
    assert compute_p_over_cases(single_team.values, single_team.dsc) == pytest.approx(expected)
    assert compute_p_over_cases(single_team.values, many) == pytest.approx(expected)
    assert compute_p_over_cases(single_team.values[:2], single_team.dsc[:, :2]) is None
    assert compute_p_over_cases(single_team.values, 0 * single_team.dsc) is None
