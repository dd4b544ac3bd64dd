"""The list of cases with files, teams, centres and values."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from contract.errors import GroundTruthError, HecktorError
from contract.images.volumes import write_mask
from reporting.viewer.case import build_case
from reporting.viewer.cohort import ViewerRequest, find_cohort, sort_cases, to_json_value
from tests.reporting.viewer.conftest import GRID, ToyCohort


def test_values_come_from_the_rows(ranked_cohort: Path) -> None:
    """Shifted by one voxel, 3/4 of the GTVp and 2/3 of the larger GTVn remain, and nothing of the single voxel.

    GTVp: DSC 48 / 64 = 0.75. GTVn: 12 of 18 + 1 voxels, DSC 2 x 12 / 38 = 0.6316. Volumes: 64 and 19 voxels of
    0.012 ml.
    """
    listing = find_cohort(ViewerRequest(ranked_cohort / "cohort", ranked_cohort / "results")).listing
    assert [team["name"] for team in listing["teams"]] == ["near", "none"]
    assert [case["centre"] for case in listing["cases"]] == ["CHUM", "MDA"]
    values = listing["cases"][1]["values"]
    assert values["gtvp_dsc"] == {"near": 0.75, "none": 0.0}
    assert values["gtvn_dsc"] == {"near": 0.6316, "none": 0.0}
    assert values["gtvn_lesions_fn"] == {"near": 1, "none": 2}
    assert values["gtvp_volume_ml"] == {"": 0.768}
    assert values["gtvn_volume_ml"] == {"": 0.228}
    assert values["gtvn_lesions"] == {"": 2}
    assert listing["cases"][1]["facts"] == "GTVp 0.8 ml · GTVn 0.2 ml in 2 lesions"


def test_masks_come_from_the_results_or_another_folder(ranked_cohort: Path) -> None:
    """In the results only `near` has masks; `third` has no results and is shown last."""
    write_mask(ranked_cohort / "third" / "C-2.mha", np.zeros(GRID.array_shape, np.uint8), GRID)
    cohort = find_cohort(
        ViewerRequest(ranked_cohort / "cohort", ranked_cohort / "results", {"third": ranked_cohort / "third"})
    )
    assert set(cohort.cases["C-1"].files.predictions) == {"near"}
    assert set(cohort.cases["C-2"].files.predictions) == {"near", "third"}
    assert [team["name"] for team in cohort.listing["teams"]] == ["near", "none", "third"]
    assert set(cohort.listing["cases"][0]["values"]["gtvp_dsc"]) == {"near", "none"}


def test_another_cohort_stops_the_viewer(ranked_cohort: Path, nodes: np.ndarray) -> None:
    """References have 64 voxels of GTVp. The first case is compared at the start, the others when they are shown."""
    folder = ranked_cohort / "cohort" / "ground_truth"
    changed = nodes.copy()
    changed[0, 0, 0] = 1
    message = "65 voxels of GTVp, expected the 64 that were scored; is this another cohort?"
    write_mask(folder / "C-2.mha", changed, GRID)
    cohort = find_cohort(ViewerRequest(ranked_cohort / "cohort", ranked_cohort / "results"))
    with pytest.raises(GroundTruthError, match=f"C-2.mha: {re.escape(message)}"):
        build_case(cohort.cases["C-2"])
    write_mask(folder / "C-1.mha", changed, GRID)
    with pytest.raises(GroundTruthError, match=f"C-1.mha: {re.escape(message)}"):
        find_cohort(ViewerRequest(ranked_cohort / "cohort", ranked_cohort / "results"))


def test_teams_without_masks_and_masks_of_another_run_are_notes(ranked_cohort: Path, nodes: np.ndarray) -> None:
    """In the results `none` has no masks; the GTVp of `near` had 64 voxels and now has 0."""
    write_mask(ranked_cohort / "results" / "task1" / "near" / "predictions" / "C-1.mha", nodes * (nodes == 2), GRID)
    cohort = find_cohort(ViewerRequest(ranked_cohort / "cohort", ranked_cohort / "results"))
    assert cohort.notes == ("no masks of none, whose contours are not shown (--masks TEAM=FOLDER)",)
    content = build_case(cohort.cases["C-1"])
    assert content["notes"] == [
        "near: C-1.mha: 0 voxels of GTVp, expected the 64 that were scored; is this another run?",
        "no mask of none",
    ]


def test_lesions_are_matched_by_the_edition_of_the_results(ranked_cohort: Path) -> None:
    """HECKTOR 2021 measures distances of GTVp, HECKTOR 2025 measures none."""
    request = ViewerRequest(
        ranked_cohort / "cohort", masks={"near": ranked_cohort / "results" / "task1" / "near" / "predictions"}
    )
    surfaces = {
        edition: find_cohort(replace(request, edition=edition)).cases["C-1"].rules.surfaces
        for edition in ("hecktor2021", "hecktor2025")
    }
    assert surfaces == {"hecktor2021": "gtvp", "hecktor2025": "none"}


def test_the_worst_cases_have_the_lowest_mean_of_the_first_metric(ranked_cohort: Path) -> None:
    """Mean GTVp DSC: 1 of C-1 and 0.375 of C-2."""
    cohort = find_cohort(ViewerRequest(ranked_cohort / "cohort", ranked_cohort / "results"))
    assert list(cohort.select_worst(1).cases) == ["C-2"]
    assert [case["case"] for case in cohort.select_worst(1).listing["cases"]] == ["C-2"]
    assert list(cohort.select_worst(5).cases) == ["C-1", "C-2"]


def test_an_empty_mask_and_an_infinite_distance_count() -> None:
    """In A one team marks an absent GTVp, three rightly mark nothing: mean 3/4. B: mean 0.7."""
    entries = {"A": (0.0, None, None, None), "B": (0.7, 0.7, 0.7, 0.7)}
    listing = {
        "metrics": [{"key": "gtvp_dsc"}],
        "cases": [
            {"case": case, "values": {"gtvp_dsc": dict(zip("abcd", dsc, strict=True))}} for case, dsc in entries.items()
        ],
    }
    assert sort_cases(listing) == ["B", "A"]
    rows = [{"gtvp_hd95_mm": 2.0, "gtvp_surface": "measured"}, {"gtvp_hd95_mm": None, "gtvp_surface": "one_empty"}]
    assert [to_json_value(row, "gtvp_hd95_mm") for row in rows] == [2.0, "inf"]
    assert to_json_value({"gtvp_hd95_mm": None, "gtvp_surface": "both_empty"}, "gtvp_hd95_mm") is None


def test_the_list_needs_neither_results_nor_images(toy: ToyCohort, nodes: np.ndarray) -> None:
    """Without a record the name gives the centre."""
    toy.add("C-1", nodes)
    for path in (toy.root / "cohort" / "C-1").iterdir():
        path.write_bytes(b"nothing")
    listing = toy.find().listing
    assert listing["metrics"] == []
    assert listing["cases"] == [{"case": "C-1", "centre": "C", "values": {}, "facts": ""}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cohort": Path("/nowhere")}, "nowhere: no case found"),
        ({"masks": {"A": Path("/nowhere")}}, "--masks: no folder 'nowhere' for team 'A'"),
        ({"results": Path("/nowhere")}, "nowhere: no such folder"),
    ],
)
def test_a_wrong_folder_is_an_error(toy: ToyCohort, nodes: np.ndarray, change: dict, message: str) -> None:
    toy.add("C-1", nodes)
    with pytest.raises(HecktorError, match=message):
        find_cohort(ViewerRequest(**{"cohort": toy.root / "cohort", **change}))


def test_masks_of_other_cases_are_an_error(toy: ToyCohort, nodes: np.ndarray) -> None:
    toy.add("C-1", nodes)
    toy.predict("A", "C-7", nodes)
    with pytest.raises(HecktorError, match="--masks A: no file of a case of the cohort, expected files of C-1"):
        toy.find("A")
