"""The list of cases: files, teams, centres and values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from contract.errors import HecktorError
from contract.images.volumes import write_mask
from evaluation.viewer.cohort import ViewerRequest, find_cohort
from tests.evaluation.viewer.conftest import GRID, ToyCohort


def test_values_come_from_the_rows(ranked: Path) -> None:
    """A shift by one voxel leaves 3/4 of the GTVp, and of the larger GTVn 2/3, and nothing of the voxel.

    GTVp: DSC 48 / 64 = 0.75. GTVn: 12 of 18 + 1 voxels, DSC 2 x 12 / 38 = 0.6316. Volumes: 64 and 19 voxels of
    0.012 ml.
    """
    listing = find_cohort(ViewerRequest(ranked / "cohort", ranked / "results")).listing
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


def test_each_listed_metric_has_a_value_in_each_case(ranked: Path) -> None:
    listing = find_cohort(ViewerRequest(ranked / "cohort", ranked / "results")).listing
    keys = [metric["key"] for metric in listing["metrics"]]
    assert keys[:2] == ["gtvp_dsc", "gtvn_dsc"]
    assert all(set(case["values"]) == set(keys) for case in listing["cases"])
    assert {metric["key"]: metric["higher_is_better"] for metric in listing["metrics"]}["gtvn_volume_ml"] is None


def test_masks_come_from_the_results_or_a_given_folder(ranked: Path) -> None:
    """`near` has masks in the results, `none` has none; `third` has no results and is shown after the others."""
    write_mask(ranked / "third" / "C-2.mha", np.zeros(GRID.array_shape, np.uint8), GRID)
    cohort = find_cohort(ViewerRequest(ranked / "cohort", ranked / "results", {"third": ranked / "third"}))
    assert set(cohort.cases["C-1"].files.predictions) == {"near"}
    assert set(cohort.cases["C-2"].files.predictions) == {"near", "third"}
    assert [team["name"] for team in cohort.listing["teams"]] == ["near", "none", "third"]
    assert set(cohort.listing["cases"][0]["values"]["gtvp_dsc"]) == {"near", "none"}


def test_the_worst_cases_have_the_lowest_mean_of_the_first_metric(ranked: Path) -> None:
    """Mean GTVp DSC: 1 of C-1 and 0.375 of C-2."""
    cohort = find_cohort(ViewerRequest(ranked / "cohort", ranked / "results"))
    assert list(cohort.worst(1).cases) == ["C-2"]
    assert [case["case"] for case in cohort.worst(1).listing["cases"]] == ["C-2"]
    assert list(cohort.worst(5).cases) == ["C-1", "C-2"]


def test_the_list_needs_neither_results_nor_images(toy: ToyCohort, nodes: np.ndarray) -> None:
    toy.add("C-1", nodes)
    for path in (toy.root / "cohort" / "C-1").iterdir():
        path.write_bytes(b"nothing")
    listing = toy.find().listing
    assert listing["metrics"] == []
    assert listing["cases"] == [{"case": "C-1", "centre": None, "values": {}, "facts": ""}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cohort": Path("/nowhere")}, "nowhere: no case found"),
        ({"masks": {"A": Path("/nowhere")}}, "--masks: no folder 'nowhere' for team 'A'"),
        ({"uncertainty": {"A": Path("/nowhere")}}, "--uncertainty A: no file of a case of the cohort"),
        ({"results": Path("/nowhere")}, "nowhere: found no task1/leaderboard.json"),
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
