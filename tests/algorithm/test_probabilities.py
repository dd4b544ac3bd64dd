"""Probabilities of GTVp and GTVn as images on the CT's grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm.masks.segmentation import Segmentation, compute_percent, softmax
from algorithm.network.passes import NoPassFitsError, Passes
from contract.images.geometry import Geometry
from contract.images.volumes import read_volume
from contract.io.files import read_json

FILES = ("GTVp_probability.nii.gz", "GTVn_probability.nii.gz")


def make_segmentation(logits: np.ndarray, grid: Geometry) -> Segmentation:
    return Segmentation(logits, np.zeros(grid.array_shape, np.float32), None, grid)


def test_percent_on_the_same_grid_and_beyond_it() -> None:
    """CT voxels reach two voxels beyond the segmented grid on each side."""
    logits = np.random.default_rng(0).normal(0, 3, (3, 4, 5, 6)).astype(np.float32)
    grid, ct = Geometry((6, 5, 4), (2.0,) * 3, (4.0,) * 3), Geometry((10, 9, 8), (2.0,) * 3, (0.0,) * 3)
    percent = compute_percent(make_segmentation(logits, grid), ct)
    assert (percent.shape, percent.dtype) == ((2, 8, 9, 10), np.uint8)
    np.testing.assert_array_equal(percent[:, 2:-2, 2:-2, 2:-2], np.rint(100 * softmax(logits)[1:]))
    percent[:, 2:-2, 2:-2, 2:-2] = 0
    assert not percent.any()


@pytest.mark.parametrize("direction", [(1, 0, 0, 0, 1, 0, 0, 0, 1), (0, 1, 0, -0.8, 0, 0.6, 0.6, 0, 0.8)])
def test_the_mask_is_where_a_label_is_most_probable(direction: tuple[float, ...]) -> None:
    """Check finer, coarser and oblique CTs; rounding to percent may make two labels equal."""
    logits = np.random.default_rng(1).normal(0, 4, (3, 12, 12, 12)).astype(np.float32)
    segmentation = make_segmentation(logits, Geometry((12,) * 3, (2.0,) * 3, (-11.0,) * 3))
    for spacing_mm, size in ((1.3, 20), (3.7, 8)):
        ct = Geometry((size,) * 3, (spacing_mm,) * 3, (-10.0, 3.0, -9.0), direction)
        percent = compute_percent(segmentation, ct).astype(int)
        mask = segmentation.mask_on(ct)
        assert mask.any()
        shares = np.concatenate([100 - percent.sum(0, keepdims=True), percent])
        own = np.take_along_axis(shares, mask[None].astype(int), 0)[0]
        assert (own >= shares.max(0) - 1)[(mask > 0) | (percent.sum(0) > 0)].all()


@pytest.mark.parametrize("task", ["segmentation", "rfs"])
def test_they_agree_with_the_mask_and_change_no_answer(
    predict: Any, case_folder: Any, tmp_path: Path, task: str
) -> None:
    """Both images lie on the CT's grid, and the mask is where they are the highest."""
    case_folder.write()
    plain, output, folder = predict(task), tmp_path / "output", tmp_path / "probabilities"
    before = {name: (output / name).read_bytes() for name in plain.files}
    with_probabilities = predict(task, "--probabilities", str(folder))
    assert {name: (output / name).read_bytes() for name in with_probabilities.files} == before
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    volumes = [read_volume(folder / name) for name in FILES]
    for volume in volumes:
        assert volume.array.dtype == np.uint8
        assert volume.geometry.find_differences(case_folder.ct.geometry) == []
    gtvp, gtvn = (volume.array.astype(int) for volume in volumes)
    assert 0 < (gtvp + gtvn).max() <= 101
    if task == "segmentation":
        written = read_volume(next(output.rglob("*.mha"))).array
        expected = np.stack([100 - gtvp - gtvn, gtvp, gtvn]).argmax(0)
        assert (expected == written).mean() > 0.99


def test_without_a_pass_no_probabilities_are_written(
    predict: Any, case_folder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images of an earlier case are removed; the record has no expected DSC."""

    def nothing(self: Passes) -> None:
        raise NoPassFitsError("no time")

    case_folder.write()
    for name in FILES:
        (tmp_path / name).write_bytes(b"of an earlier case")
    monkeypatch.setattr(Passes, "make_first", nothing)
    answer = predict("hpv", "--probabilities", str(tmp_path), "--record", str(tmp_path / "record.json"))
    assert answer.status == 0
    assert not any((tmp_path / name).exists() for name in FILES)
    assert any("no probabilities are written" in line for line in answer.lines)
    assert read_json(tmp_path / "record.json")["expected_dsc"] == {}
