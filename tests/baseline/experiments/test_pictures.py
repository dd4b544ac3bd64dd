"""Pictures of a comparison show where masks differ, also far from the reference's lesions."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from baseline.experiments.answers import Experiment, experiment_of
from baseline.experiments.page import difference_mm, picture
from baseline.release.cases import read_cases
from baseline.work import WorkFolders
from contract.images.volumes import write_mask
from tests.baseline.experiments.conftest import GRID, blocks

ROW = 360  # pixels of a row of planes
# A speck in the plane z = 5 through the GTVp, and two components beyond all planes through the reference's lesions.
CUT, SMALL, LARGE = np.s_[5:6, 18, 0:6], np.s_[14, 18, 0:2], np.s_[15, 0:3, 20]


@pytest.fixture
def masks(tmp_path: Path) -> tuple[Path, Path]:
    """The reference, and the same mask with false nodes of six, two and three voxels."""
    reference, other = tmp_path / "reference.nii.gz", tmp_path / "other.nii.gz"
    false = blocks()
    for place in (CUT, SMALL, LARGE):
        false[place] = 2
    write_mask(reference, blocks(), GRID)
    write_mask(other, false, GRID)
    return reference, other


def test_the_largest_difference_beyond_the_planes(masks: tuple[Path, Path]) -> None:
    """The largest speck lies in an axial plane that is drawn anyway. The next one's middle is voxel (20, 1, 15), at
    (-24 + 20 * 2, -20 + 1 * 2, 15 * 3) mm.
    """
    point = difference_mm(masks[0], masks)
    assert point is not None
    assert point.tolist() == [16.0, -18.0, 45.0]


def test_equal_masks_and_differences_in_the_planes_need_no_further_planes(
    masks: tuple[Path, Path], tmp_path: Path
) -> None:
    """A label that differs counts as a difference; the GTVp moved by a voxel still crosses the planes through it."""
    assert difference_mm(masks[0], [masks[0], masks[0]]) is None
    moved = tmp_path / "moved.nii.gz"
    write_mask(moved, blocks(1), GRID)
    assert difference_mm(masks[0], [masks[0], moved]) is None
    relabelled = blocks()
    relabelled[relabelled == 1] = 2
    write_mask(moved, relabelled, GRID)
    assert difference_mm(masks[0], [masks[0], moved]) is None
    # Without a lesion in the reference, the false lesions themselves are shown.
    write_mask(moved, np.zeros_like(relabelled), GRID)
    assert difference_mm(moved, [moved, masks[0]]) is not None


def test_each_experiment_has_a_row_through_the_difference(work: WorkFolders, masks: tuple[Path, Path]) -> None:
    """Two rows of planes through the reference's lesions and one through the difference, for each of two experiments.
    The false node is drawn in the colour of the only experiment that has it.
    """
    case, folder = replace(read_cases(work)[0], mask=masks[0]), masks[0].parent
    experiments = []
    for name, mask in zip(("one", "two"), masks, strict=True):
        (folder / name).mkdir()
        mask.rename(folder / name / f"{case.patient_id}.nii.gz")
        experiments.append(Experiment(name, work, folder / name, has_heads=False))
    case = replace(case, mask=experiments[0].mask(case.patient_id))
    jpeg = picture(case, experiments, {"one": "#00ff00", "two": "#ff00ff"})
    pixels = np.asarray(Image.open(io.BytesIO(jpeg))).astype(int)
    assert pixels.shape[0] == 6 * ROW
    magenta = (pixels[..., 0] - pixels[..., 1] > 100) & (pixels[..., 2] - pixels[..., 1] > 100)
    assert [int(magenta[top : top + ROW].sum()) > 20 for top in (2 * ROW, 5 * ROW)] == [False, True]


def test_no_further_row_where_masks_differ_in_the_planes(work: WorkFolders) -> None:
    """`plan` has the first patient's GTVp half a lesion off."""
    case = read_cases(work)[0]
    experiments = [experiment_of(work.shared, name) for name in ("plan", "b")]
    jpeg = picture(case, experiments, {"plan": "#00ff00", "b": "#ff00ff"})
    assert Image.open(io.BytesIO(jpeg)).height == 4 * ROW
