"""PET thresholding, on uptake whose masks are known by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import evaluation
from contract.errors import GroundTruthError, HecktorError
from contract.images.volumes import Volume, read_volume
from reporting.studies.thresholds import segment_uptake
from tests.evaluation.tables import read_lines
from tests.reporting.studies.runs import run_study


@pytest.fixture
def cohort(add_case, blank, grid):
    """Write case A: a tumour of 8 voxels at SUV 6 to 8, 4 of them in the reference's 6; elsewhere a bladder at SUV 10.

    In a row of x: reference at x 2 to 7; SUV 8 at 4 to 7, SUV 6 at 8 to 11, so that both touch; CT is air at x 9 to 11.
    Case B has no GTVp.
    """
    mask, suv, ct = blank(), np.zeros(grid.array_shape), np.zeros(grid.array_shape, np.int16)
    mask[3, 3, 2:8] = 1
    suv[3, 3, 4:8] = 8
    suv[3, 3, 8:12] = 6
    suv[6, 8, 0:4] = 10
    ct[3, 3, 9:12] = -151
    ct[3, 3, 8] = -150
    add_case("B", blank(), suv)
    return add_case("A", mask, suv, ct)


def study(cohort, *more):
    options = ["--cohort", cohort, "--workers", 0, "--bootstraps", 10]
    return run_study("thresholds", cohort.parent / "out", *options, *more)


def get_dsc(content):
    return {(line["method"], line["percent"]): line["dsc_mean"] for line in content["thresholds"]}


def test_dsc_at_each_threshold_by_hand(cohort):
    """SUVmax is the bladder's 10. Reference of 6 voxels.

    50%: 12 voxels, 4 right: 8/18; the component at the tumour has 8: 8/14; without air (x 9 to 11) 5: 8/11.
    70%: 8 voxels, 4 right: 8/14; the tumour's 4: 8/10; none of these is air. 90%: only the bladder.
    """
    content = study(cohort, "--percents", "50:90:20")
    expected = {
        ("automatic", 50): 8 / 18,
        ("automatic", 70): 8 / 14,
        ("automatic", 90): 0,
        ("semi_automatic", 50): 8 / 14,
        ("semi_automatic", 70): 8 / 10,
        ("semi_automatic", 90): 0,
        ("semi_automatic_without_air", 50): 8 / 11,
        ("semi_automatic_without_air", 70): 8 / 10,
        ("semi_automatic_without_air", 90): 0,
    }
    assert get_dsc(content) == pytest.approx(expected)
    assert (content["cases"], content["cases_without_target"]) == (1, ["B"])
    assert content["best"]["semi_automatic"]["percent"] == 70
    # 100% of the tumour's own SUV 8 are its 4 voxels and the bladder's; 75% is SUV 6, bound included.
    of_tumour = get_dsc(study(cohort, "--percents", "75:100:25", "--max-of", "tumour"))
    assert of_tumour["semi_automatic", 100] == pytest.approx(8 / 10)
    assert of_tumour["automatic", 100] == of_tumour["semi_automatic", 75] == pytest.approx(8 / 14)


def test_inside_a_bounding_box_the_bladder_does_not_count(cohort, grid):
    """Around the tumour's row SUVmax is 8, so that 80% are its 4 voxels. Voxels are centred at origin + step."""
    x, y, z = grid.origin_mm
    boxes = cohort.parent / "boxes.csv"
    corners = f"{x},{x + 12},{y},{y + 10},{z + 6},{z + 15}"
    boxes.write_text(f"PatientID,x1,x2,y1,y2,z1,z2\nA,{corners}\nB,{corners}\n")
    content = study(cohort, "--percents", "80:80:1", "--bounding-boxes", str(boxes), "--hd95")
    assert get_dsc(content)["automatic", 80] == pytest.approx(8 / 10)
    lines = read_lines(cohort.parent / "out" / "thresholds.csv")
    # From the reference's voxels at x 2 to 7 to the mask's at 4 to 7: 2, 1, 0, 0, 0, 0 mm, 95th percentile 1.75.
    assert float(lines[0]["hd95_median_mm"]) == pytest.approx(1.75)


def test_components_are_26_connected():
    """Voxels that touch the pointed one by a corner belong to it, others do not."""
    uptake = np.zeros((4, 4, 4), np.float32)
    uptake[0, 0, 0] = uptake[1, 1, 1] = uptake[3, 3, 3] = 5
    truth = np.zeros(uptake.shape, bool)
    truth[0, 0, 0] = True
    masks = segment_uptake(uptake, truth, np.ones(uptake.shape, bool), 5.0)
    assert np.argwhere(masks["semi_automatic"]).tolist() == [[0, 0, 0], [1, 1, 1]]
    assert masks["automatic"].sum() == 3


def test_pet_on_another_grid_is_resampled(add_case, blank, grid):
    """One plane of the PET with SUV 4 fills the planes of the reference, which lies inside it."""
    mask = blank()
    mask[:, 2:5, 2:5] = 1
    coarse = replace(grid, size=(12, 10, 1), spacing_mm=(1.0, 2.0, 100.0), origin_mm=(-5.0, 4.0, 15.0))
    suv = np.zeros(coarse.array_shape, np.float32)
    suv[0, 2:5, 2:5] = 4
    content = study(add_case("A", mask, Volume(suv, coarse)), "--percents", "60:60:1")
    assert get_dsc(content)["automatic", 60] == 1.0


@pytest.mark.parametrize("percents", ["0:50:10", "10:5:1", "5:95:0", "5:95", "101", "a"])
def test_odd_percentages_are_refused(cohort, percents):
    with pytest.raises(SystemExit):
        study(cohort, "--percents", percents)


def test_a_case_without_uptake_or_grid_is_named(add_case, blank, grid, tmp_path):
    mask = blank()
    mask[1, 1, 1] = 1
    cohort = add_case("A", blank(), np.ones(grid.array_shape))
    with pytest.raises(GroundTruthError, match="no gtvp in any of 1"):
        study(cohort)
    add_case("A", mask, np.zeros(grid.array_shape))
    with pytest.raises(GroundTruthError, match="SUVmax 0"):
        study(cohort)
    add_case("A", mask, np.full(grid.array_shape, np.nan))
    with pytest.raises(GroundTruthError, match="not finite"):
        study(cohort)
    (tmp_path / "empty").mkdir()
    with pytest.raises(GroundTruthError, match="no case found"):
        study(tmp_path / "empty")


def read_mask(cohort, folder, case):
    return read_volume(cohort.parent / "out" / folder / f"{case}.mha", np.uint8).array


def test_masks_are_written_scored_and_ranked(cohort):
    """At 50% the semi-automatic mask of A has 8 voxels with 4 of the reference's 6, DSC 8/14; B's mask is empty."""
    study(cohort, "--percents", "50:50:1", "--masks", "semi_automatic:50", "--masks", "automatic:50")
    assert np.flatnonzero(read_mask(cohort, "semi_automatic_50", "A")[3, 3]).tolist() == list(range(4, 12))
    assert not read_mask(cohort, "semi_automatic_50", "B").any()
    assert int((read_mask(cohort, "automatic_50", "B") == 1).sum()) == 12
    files = {"ground_truth": cohort / "ground_truth", "edition": "hecktor2020", "bootstraps": 0}
    options = {"bounding_box": "whole_image"}
    scored = {
        name: evaluation.evaluate(predictions=cohort.parent / "out" / name, options=options, **files)
        for name in ("semi_automatic_50", "automatic_50")
    }
    assert scored["semi_automatic_50"].aggregates["gtvp_dsc_mean"].value == pytest.approx(8 / 14)
    # B has no GTVp: 0 for the automatic mask, which invents one, beside 8/18 in A.
    assert scored["automatic_50"].aggregates["gtvp_dsc_mean"].value == pytest.approx((8 / 18 + 0) / 2)
    assert evaluation.rank(scored, bootstraps=0).order == ("semi_automatic_50", "automatic_50")


def test_a_component_has_the_label_of_most_of_its_voxels(cohort, add_case, blank, grid):
    """Components over four voxels of GTVp and three of GTVn are GTVp; components over only GTVn are GTVn."""
    mask, suv = blank(), np.zeros(grid.array_shape)
    mask[3, 3, 2:6], mask[3, 3, 6:9], mask[6, 8, 0:3] = 1, 2, 2
    suv[3, 3, 2:9] = suv[6, 8, 0:4] = 10
    add_case("C", mask, suv)
    study(cohort, "--percents", "50:50:1", "--target", "tumour", "--masks", "semi_automatic:50")
    predicted = read_mask(cohort, "semi_automatic_50", "C")
    assert predicted[3, 3].tolist() == [0, 0, *[1] * 7, *[0] * (grid.array_shape[2] - 9)]
    assert predicted[6, 8, :5].tolist() == [2, 2, 2, 2, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--masks", "semi_automatic:42"), "--masks: found semi_automatic:42"),
        (("--masks", "automatic:40", "--target", "tumour"), "--masks: automatic masks of the tumour"),
    ],
)
def test_masks_of_other_methods_are_refused(cohort, options, message):
    with pytest.raises(HecktorError, match=message):
        study(cohort, *options)
