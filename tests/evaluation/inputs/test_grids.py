"""Masks on other grids: each usual mistake in its sentence, warnings about resampled masks, and the rule of 2022."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from contract.errors import GroundTruthError, PredictionError
from contract.images.geometry import Geometry
from contract.images.volumes import write_mask
from evaluation.inputs.grids import guess_mistake, overlaps
from evaluation.inputs.masks import read_prediction
from tests.evaluation.tasks import SEGMENTATION

# The last voxel lies at (24, 35, 40).
CT = Geometry((18, 16, 12), (2.0, 2.0, 3.0), (-10.0, 5.0, 7.0))
TURNED = (-1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 1.0)
SWAPPED = (0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0)


def change_grid(**changes) -> Geometry:
    return replace(CT, **changes)


@pytest.mark.parametrize(
    ("mask", "sentence"),
    [
        (change_grid(spacing_mm=(1.0, 1.0, 1.0), origin_mm=(0.0, 0.0, 0.0)), "its header is missing"),
        (
            change_grid(spacing_mm=(1.0,) * 3, origin_mm=(0.0,) * 3, direction=TURNED),
            "its header is missing",
        ),  # nibabel
        (Geometry((12, 16, 18), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)), "its header is missing .*in reverse order"),
        (change_grid(size=(12, 16, 18)), "its array is in reverse order"),
        (change_grid(origin_mm=(24.0, 35.0, 7.0), direction=TURNED), "the CT's space with x and y flipped"),
        (
            Geometry((16, 18, 12), (2.0, 2.0, 3.0), CT.origin_mm, SWAPPED),
            r"the CT's space with axes in the order \(y, x, z\)",
        ),
        (  # the first axis is the CT's z, from its end
            Geometry((12, 18, 16), (3.0, 2.0, 2.0), (-10.0, 5.0, 40.0), (0.0, 1.0, 0.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0)),
            r"the CT's space with axes in the order \(z, x, y\) and z flipped",
        ),
        (change_grid(origin_mm=(0.0, 0.0, 0.0)), "^$"),
        # Axes flipped about another place, and an order that swaps sizes without covering the same space.
        (change_grid(direction=TURNED), "^$"),
        (change_grid(direction=SWAPPED), "^$"),
    ],
)
def test_a_mistake_is_recognised(mask, sentence):
    assert re.search(sentence, guess_mistake(mask, CT))


def test_a_ct_without_a_header_has_no_such_mistake():
    plain = Geometry((4, 4, 4), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    assert guess_mistake(replace(plain, size=(5, 4, 4)), plain) == ""


@pytest.mark.parametrize(("x_mm", "expected"), [(25.9, True), (26.1, False), (-44.9, True), (-46.1, False)])
def test_fields_of_view_share_a_volume(x_mm, expected):
    """Along x the CT reaches from -11 to 25 mm; the mask begins half a voxel, 1 mm, before its origin."""
    assert overlaps(change_grid(origin_mm=(x_mm, 5.0, 7.0)), CT) is expected


def write_one_voxel(path: Path, grid: Geometry) -> Path:
    """Write a mask with one voxel of GTVp at (x, y, z) = (5, 6, 7)."""
    mask = np.zeros(grid.array_shape, np.uint8)
    mask[7, 6, 5] = 1
    write_mask(path, mask, grid)
    return path


@pytest.mark.parametrize(("spacing_mm", "is_accepted"), [(2.0, True), (2.00001, True), (2.01, False), (1.0, False)])
def test_the_rule_of_2022(tmp_path, spacing_mm, is_accepted):
    """Their notebook refuses another spacing (1e-6 and 1e-5 of it), and resamples the others to the CT's grid."""
    grid = change_grid(spacing_mm=(spacing_mm, 2.0, 3.0), origin_mm=(-14.0, 5.0, 7.0), size=(20, 16, 12))
    path = write_one_voxel(tmp_path / "a.mha", grid)
    if not is_accepted:
        with pytest.raises(PredictionError, match="its grid is"):
            read_prediction(path, CT, "resample_equal_spacing")
        return
    prediction = read_prediction(path, CT, "resample_equal_spacing")
    assert np.argwhere(prediction.array).tolist() == [[7, 6, 3]]
    assert prediction.resampled is not None
    assert not prediction.resampled.is_outside


@pytest.fixture
def cohort(phase_of, blank, grid):
    """Write two references; the tests add the answers to A and B."""
    phase = phase_of(SEGMENTATION)
    mask = blank()
    mask[2:4, 3:6, 4:8] = 1
    for case in "AB":
        phase.add_truth_mask(case, mask)
    return phase, mask


def test_resampled_masks_are_warnings(cohort, grid):
    """The rules of 2020 and 2021 scored such masks as 0 without a warning."""
    phase, mask = cohort
    phase.add_mask("A", mask, replace(grid, origin_mm=(300.0, 4.0, 7.0)))
    phase.add_mask("B", mask, replace(grid, origin_mm=(-5.0, 4.0, 7.1)))
    report = phase.run(options={"geometry": "resample_nearest"})
    assert report["cases"]["failed"] == []
    beside, moved = (line for line in report["warnings"] if "its grid is" in line)
    assert beside.startswith("A: no overlap with the reference's field of view")
    assert moved.startswith("B: on another grid than the reference")
    assert "origin (300, 4, 7)" in beside
    assert "origin (-5, 4, 7.1)" in moved
    assert {row["case"]: row["gtvp"]["dsc"] for row in report["results"]} == {"A": 0.0, "B": 1.0}


@pytest.mark.parametrize("side", ["predictions", "references"])
def test_a_folder_whose_name_is_not_utf8_ends_the_run(cohort, tmp_path, grid, side):
    """ITK would end each process, so that perfect masks scored 0."""
    phase, _ = cohort
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/M\xfcller"))
    (phase.truth_dir if side == "references" else phase.input_dir).rename(folder)
    changed, error = ("truth_dir", GroundTruthError) if side == "references" else ("input_dir", PredictionError)
    setattr(phase, changed, folder)
    with pytest.raises(error, match="not UTF-8"):
        phase.run()


@pytest.mark.parametrize("side", ["prediction", "reference"])
def test_two_placements_fail_the_case_or_the_run(cohort, grid, side):
    """ITK takes the qform and nibabel the sform, 11.6 mm away: the mask scored 1.0."""
    nibabel = pytest.importorskip("nibabel")  # only installed in .venv
    phase, mask = cohort
    placed = np.diag([-1.0, -2.0, 3.0, 1.0])
    placed[:3, 3] = (5, -4, 7)
    image = nibabel.Nifti1Image(mask.T, placed)
    image.set_qform(placed, 1)
    placed[:3, 3] += (10, -5, 3)
    image.set_sform(placed, 2)
    both = r"\(-15, 9, 10\) mm by the sform and at \(-5, 4, 7\) mm by the qform"
    if side == "reference":
        (phase.truth_dir / "A.mha").unlink()
        nibabel.save(image, phase.truth_dir / "A.nii.gz")
        phase.add_mask("A", mask)
        with pytest.raises(GroundTruthError, match=both):
            phase.run()
        return
    nibabel.save(image, phase.add_job("A") / "A.nii.gz")
    (failed,) = phase.run()["cases"]["failed"]
    assert re.search(both, failed["why"])
