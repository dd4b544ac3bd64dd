"""The DSC against volume and figures of the scans."""

from __future__ import annotations

from typing import Any

import pytest
from scipy.stats import pearsonr, spearmanr

from reporting.analyses.masks import (
    NO_SCANS,
    compute_binned_dsc,
    compute_case_medians,
    compute_p_over_cases,
    correlate_dsc,
    find_influences,
)


def make_row(volume_ml: float, dsc: float | None) -> dict[str, Any]:
    return {"gtvp_dsc": dsc, "gtvp_reference_mm3": 1000 * volume_ml, "gtvp_reference_voxels": volume_ml}


ANN = [make_row(number, number / 10) for number in (1, 2, 3, 4, 5, 6)]


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


def test_bins_of_the_2021_overview(table) -> None:
    """101 cases in bins of 21, 20, 20, 20 and 20."""
    rows = table({"ann": [{**make_row(number, 0.5), "case": f"{number:03d}"} for number in range(1, 102)]})
    (volume,) = find_influences(rows, {})
    bins = compute_binned_dsc(rows, volume)
    assert [line["cases"] for line in bins.rows] == [21, 20, 20, 20, 20]


def test_cases_without_a_dsc_or_a_tumour_do_not_count(table) -> None:
    """Five of seven cases are left; four would give no bins."""
    rows = table({"ann": [*ANN[:5], make_row(0, 0.0), make_row(7, None)]})
    (volume,) = find_influences(rows, {})
    bins = compute_binned_dsc(rows, volume)
    assert sum(line["cases"] for line in bins.rows) == 5
    few = table({"ann": [*ANN[:4], make_row(0, 0.0), make_row(7, None)]})
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
    (correlations,) = correlate_dsc(rows, influences, with_scans=True)
    # SUVmax falls where the DSC rises.
    assert [line["spearman"] for line in correlations.rows if line["team"] is None] == [1.0, -1.0]
    assert NO_SCANS not in correlations.notes


def test_correlations_over_all_masks_and_by_team(table) -> None:
    """Twelve masks are pooled as scipy ranks them; only the volume over all teams has a p."""
    bea = [
        make_row(volume, dsc) for volume, dsc in zip((1, 2, 3, 4, 5, 6), (0.9, 0.1, 0.2, 0.8, 0.3, 0.7), strict=True)
    ]
    rows = table({"ann": ANN, "bea": bea})
    (correlations,) = correlate_dsc(rows, find_influences(rows, {}), with_scans=False)
    pooled, ann, of_bea = correlations.rows
    volumes, values = [1, 2, 3, 4, 5, 6], [0.9, 0.1, 0.2, 0.8, 0.3, 0.7]
    dsc = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert pooled["spearman"] == pytest.approx(spearmanr(volumes * 2, dsc + values).statistic, abs=1e-4)
    assert (pooled["masks"], pooled["team"]) == (12, None)
    assert (ann["spearman"], ann["p"]) == (1.0, None)
    assert of_bea["spearman"] == pytest.approx(spearmanr(volumes, values).statistic, abs=1e-4)
    assert correlations.notes[-1] == NO_SCANS


def test_p_counts_cases_and_not_masks(table) -> None:
    """With the same masks from ten teams the p is the same as with one team."""
    (single_team,) = find_influences(
        table({"ann": [make_row(v, d) for v, d in zip((3, 1, 2, 5, 4), (5, 1, 2, 3, 4), strict=True)]}), {}
    )
    many = single_team.dsc.repeat(10, axis=0)
    expected = pearsonr([3, 1, 2, 5, 4], [5, 1, 2, 3, 4]).pvalue
    assert compute_p_over_cases(single_team.values, single_team.dsc) == pytest.approx(expected)
    assert compute_p_over_cases(single_team.values, many) == pytest.approx(expected)
    assert compute_p_over_cases(single_team.values[:2], single_team.dsc[:, :2]) is None
    assert compute_p_over_cases(single_team.values, 0 * single_team.dsc) is None
