"""The three sentences at the top of the report, for each outcome of the figures behind them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baseline.heads.models.kinds import Target
from baseline.report.summary import images_or_not, new_centres, worst_patients
from baseline.report.targets import target_section
from tests.baseline.prepared import HPV, RFS
from tests.baseline.report.records import PATIENTS, PERFECT, hpv_record, parsed, rfs_record

NETWORKS = "the networks behind the masks may have seen other patients of the centre"
ONE_CENTRE = {"why_not": "rfs: 1 centre, expected at least 2 to leave one out"}


def section_figures(*targets: tuple[Target, dict[str, Any]]) -> Any:
    """Targets, and their figures and records by name."""
    figures = {target.name: target_section(target, parsed(record), None, 50, 0)[1] for target, record in targets}
    return [target for target, _ in targets], figures, {target.name: parsed(record) for target, record in targets}


def interval(value: float | None, low: float | None, high: float | None) -> dict[str, float | None]:
    return {"value": value, "ci95_low": low, "ci95_high": high}


def compared(**behind: dict[str, float | None]) -> Any:
    """RFS with the difference of the heads to each comparator."""
    models = {name: {"behind": difference} for name, difference in behind.items()}
    return [RFS], {"rfs": {"models": models}}, {"rfs": parsed(rfs_record(PERFECT, PERFECT))}


def test_new_centres_with_every_target() -> None:
    """With centres left out the risks are all the same, C-index 0.5, and everyone is called positive: 0.5.

    Of 40 positives 40 are right, of 20 negatives none; Wilson's limits are 40 / 43.84 and 3.84 / 23.84. Half of each
    distance, below and above 0.5: 0.456 and 0.581.
    """
    everything = section_figures((RFS, rfs_record(PERFECT, np.zeros(PATIENTS))), (HPV, hpv_record()))
    assert new_centres(*everything) == (
        "At a new centre expect a C-index of 0.500 (95% interval 0.500 to 0.500) for recurrence-free survival and a "
        "balanced accuracy of 0.500 (95% interval 0.456 to 0.581) for HPV status (each centre predicted by "
        f"heads that were fitted without it); {NETWORKS}."
    )


def test_new_centres_without_figures() -> None:
    single = rfs_record(PERFECT, PERFECT) | {"leave_one_centre_out": ONE_CENTRE}
    why = "No estimate for recurrence-free survival at new centres: 1 centre, expected at least 2 to leave one out."
    assert new_centres(*section_figures((RFS, single))) == why
    both = new_centres(*section_figures((RFS, single), (HPV, hpv_record())))
    assert both.startswith("At a new centre expect a balanced accuracy of 0.500")
    assert both.endswith(why)
    undefined = {"rfs": {"models": {"heads": {"leave_one_centre_out": interval(None, None, None)}}}}
    assert new_centres([RFS], undefined, {"rfs": parsed(rfs_record(PERFECT, PERFECT))}) == (
        "No estimate for recurrence-free survival at new centres: the metric is undefined."
    )
    assert new_centres([], {}, {}) == f"No estimate for new centres: {NETWORKS}."


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.01, 0.09, "better than"), (-0.09, -0.01, "worse than"), (-0.01, 0.09, "not separable from")],
)
def test_images_against_clinical_variables(low: float, high: float, verdict: str) -> None:
    value = (low + high) / 2
    assert images_or_not(*compared(clinical=interval(value, low, high))) == (
        f"In nested cross-validation, heads that use images are {verdict} clinical variables alone "
        f"(C-index {value:+.3f}, 95% interval {low:+.3f} to {high:+.3f}) for recurrence-free survival."
    )


def test_images_against_both_comparators_and_undefined_differences() -> None:
    clinical, volume = interval(0.1, 0.05, 0.15), interval(0.0, -0.05, 0.05)
    found = images_or_not(*compared(clinical=clinical, tumour_volume=volume, suv_max=clinical))
    assert "better than clinical variables alone (C-index +0.100, 95% interval +0.050 to +0.150) and not" in found
    assert "not separable from tumour volume alone (C-index +0.000" in found
    assert "SUVmax" not in found
    assert "not comparable with clinical variables alone (the difference is undefined)" in images_or_not(
        *compared(clinical=interval(None, None, None))
    )
    assert images_or_not(*compared(suv_max=clinical)) == images_or_not([], {}, {}) == ""


def test_images_by_the_records_of_a_cross_validation() -> None:
    """The perfect risk has a C-index of 1 for every draw, a constant volume 0.5: no draw changes the difference."""
    record = rfs_record(PERFECT, PERFECT)
    found = images_or_not(*section_figures((RFS, record), (HPV, hpv_record())))
    assert found == (
        "In nested cross-validation, heads that use images are not comparable with tumour volume alone "
        "(too few patients differ) for recurrence-free survival."
    )
    without = {"why_not": "rfs: 1 training patients with a relapse, expected at least 3"}
    assert images_or_not(*section_figures((RFS, record | {"nested": without}))) == (
        "In nested cross-validation, heads that use images are not compared for recurrence-free survival "
        "(1 training patients with a relapse, expected at least 3)."
    )


def row(number: int, dsc: float, *, fp: int = 0, fn: int = 0, volume_ml: float = 20.0) -> dict[str, Any]:
    """A row whose GTVp of 100 voxels is matched with this DSC by a mask of as many; there is no GTVn."""
    none = dict.fromkeys(("gtvn_reference_voxels", "gtvn_predicted_voxels", "gtvn_intersection_voxels"), 0)
    return {
        "case": f"P{number:02}",
        **none,
        "gtvp_reference_voxels": 100,
        "gtvp_predicted_voxels": 100,
        "gtvp_intersection_voxels": round(100 * dsc),
        "gtvp_reference_mm3": 1000 * volume_ml,
        "gtvn_reference_mm3": 0.0,
        "gtvn_lesions_fp": fp,
        "gtvn_lesions_fn": fn,
    }


def centres(count: int, of_worst: str = "") -> dict[str, str]:
    """A and B in turn, or `of_worst` for the first six."""
    return {f"P{n:02}": of_worst if of_worst and n < 6 else "AB"[n % 2] for n in range(count)}


def test_the_worst_patients_share_missed_lesions_and_small_volumes() -> None:
    """Four of the worst six are missed and small, of the others none is missed; of 20, a quarter has at most 2 ml.

    Volumes of 1 and 2 ml (four and two patients), then 20: the quantile 0.25 lies at place 4.75, between 2 and 2.
    """
    rows = [row(n, 0.0, volume_ml=1.0) for n in range(4)]
    rows += [row(n, 0.3, volume_ml=2.0 if n == 4 else 20.0) for n in (4, 5)]
    rows += [row(n, 0.8, volume_ml=2.0 if n == 6 else 20.0) for n in range(6, 20)]
    assert worst_patients(rows[::-1], centres(20)) == (
        "P00, P01, P02, P03, P04 and P05 have the lowest DSC (mean of GTVp and GTVn, 0.000 to 0.300): "
        "4 of 6 have a missed GTVp (others: 0 of 14) and 5 of 6 have a reference volume of at most 2.0 ml, the "
        "smallest quarter of all (others: 1 of 14)."
    )


@pytest.mark.parametrize(
    ("worst", "of_worst", "shared"),
    [
        ({"fn": 1}, "", "6 of 6 have missed nodes (others: 0 of 14)"),
        ({"fp": 2}, "", "6 of 6 have a GTVp or nodes that the reference lacks (others: 0 of 14)"),
        ({}, "HMR", "6 of 6 are from HMR (others: 0 of 14)"),
        ({}, "", "they share no missed or false lesion, small volume or centre"),
    ],
)
def test_what_the_worst_patients_share(worst: dict[str, Any], of_worst: str, shared: str) -> None:
    rows = [row(n, 0.4, **worst) if n < 6 else row(n, 0.8) for n in range(20)]
    assert worst_patients(rows, centres(20, of_worst)).endswith(f"GTVn, 0.400): {shared}.")


def test_a_trait_of_all_patients_is_not_shared() -> None:
    """Every patient has missed nodes."""
    rows = [row(n, 0.4 if n < 6 else 0.8, fn=1) for n in range(20)]
    assert "missed nodes" not in worst_patients(rows, centres(20))


def test_patients_as_low_as_the_sixth_belong_to_the_lowest() -> None:
    """Eight of twenty have a DSC of 0; names do not choose six of them. All of one centre are as low as each other."""
    found = worst_patients([row(n, 0.0 if n < 8 else 0.8) for n in range(20)], centres(20))
    assert found.startswith(
        "P00, P01, P02, P03, P04, P05 and 2 more have the lowest DSC (mean of GTVp and GTVn, 0.000): "
    )
    assert "8 of 8 have a missed GTVp (others: 0 of 12)" in found
    assert worst_patients([row(n, 0.0) for n in range(8)], centres(8, "HMR")) == (
        "All 8 patients have a DSC of at most 0.000 (mean of GTVp and GTVn): none stands out."
    )


def test_few_patients() -> None:
    """Half of five are two; one patient cannot be worse than others."""
    assert worst_patients([row(n, n / 10) for n in range(5)], centres(5)).startswith("P00 and P01 have the lowest DSC")
    assert worst_patients([row(0, 0.1), row(1, 0.9)], centres(2)).startswith("P00 has the lowest DSC (mean of GTVp")
    for rows in ([], [row(0, 0.1)]):
        assert worst_patients(rows, centres(1)) == "Too few patients have a reference mask to identify the worst."
