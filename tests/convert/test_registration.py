"""Register an earlier MR and its mask to a later one: known movements are undone, and unusable files are named."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from contract.errors import HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, to_sitk, write_mask, write_volume
from convert.cli import main
from convert.registration import register

GRID = Geometry((40, 44, 24), (3.0, 3.0, 3.0), (-60.0, -66.0, -36.0))


def neck(centres: tuple[tuple[float, float, float], ...] = ((10, -8, 4), (-22, 12, -10))) -> tuple[Volume, Volume]:
    """An ellipse with two balls of 8 mm at (x, y, z), and the mask of the balls."""
    index = np.indices(GRID.array_shape)[::-1].reshape(3, -1)
    places = GRID.index_to_physical_matrix()
    x, y, z = (places[:3, :3] @ index + places[:3, 3:]).reshape(3, *GRID.array_shape)
    image = np.where((x / 45) ** 2 + (y / 52) ** 2 < 1, 120.0, 2.0) + 40 * np.sin(x / 9) * np.sin(y / 11 + z / 8)
    mask = np.zeros(GRID.array_shape, np.uint8)
    for label, centre in enumerate(centres, start=1):
        ball = sum((one - at) ** 2 for one, at in zip((x, y, z), centre, strict=True)) < 64
        image[ball], mask[ball] = 300, label
    return Volume(image.astype(np.float32), GRID), Volume(mask, GRID)


def moved(volume: Volume, kind: int) -> Volume:
    """Turned by 5 degrees about z and shifted by (6, -4, 3) mm."""
    pose = sitk.Euler3DTransform((0.0, 0.0, 0.0), 0.0, 0.0, np.deg2rad(5), (6.0, -4.0, 3.0))
    image = to_sitk(volume)
    return Volume(sitk.GetArrayFromImage(sitk.Resample(image, image, pose, kind)), GRID)


def dice(one: Volume, other: Volume) -> float:
    both = np.count_nonzero((one.array > 0) & (one.array == other.array))
    return 2 * both / (np.count_nonzero(one.array) + np.count_nonzero(other.array))


@pytest.mark.parametrize("rigid", [True, False])
def test_a_known_movement_is_undone(rigid: bool) -> None:
    image, mask = neck()
    earlier, earlier_mask = moved(image, sitk.sitkLinear), moved(mask, sitk.sitkNearestNeighbor)
    registered = register(image, earlier, earlier_mask, rigid=rigid)
    assert registered.mask is not None
    assert dice(earlier_mask, mask) < 0.6 < 0.8 < dice(registered.mask, mask)
    assert set(np.unique(registered.mask.array)) == {0, 1, 2}
    assert registered.image.geometry == GRID


def test_the_command_writes_image_and_mask(tmp_path: Path) -> None:
    image, mask = neck()
    write_volume(tmp_path / "later.nii.gz", image)
    write_mask(tmp_path / "mask.mha", mask.array, GRID)
    options = ["--later", tmp_path / "later.nii.gz", "--earlier", tmp_path / "later.nii.gz", "--rigid"]
    masks = ["--mask", tmp_path / "mask.mha", "--output-mask", tmp_path / "moved.mha"]
    assert main(["register", *map(str, [*options, *masks, "--output", tmp_path / "moved.nii.gz"])]) == 0
    assert dice(read_volume(tmp_path / "moved.mha"), mask) == 1
    assert np.abs(read_volume(tmp_path / "moved.nii.gz").array - image.array).mean() < 1
    with pytest.raises(HecktorError, match="found one of --mask and --output-mask"):
        main(["register", *map(str, [*options, *masks[:2], "--output", tmp_path / "moved.nii.gz"])])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("grid", "mask.nii.gz: not on the grid of earlier.nii.gz (spacing"),
        ("label", "mask.nii.gz: label 7"),
        ("empty", "earlier.nii.gz: all voxels are zero"),
    ],
)
def test_unusable_files_are_named(tmp_path: Path, change: str, message: str) -> None:
    image, mask = neck()
    grid = Geometry(GRID.size, (2.0, 3.0, 3.0), GRID.origin_mm) if change == "grid" else GRID
    labels = mask.array * (7 if change == "label" else 1)
    write_volume(tmp_path / "later.nii.gz", image)
    write_volume(tmp_path / "earlier.nii.gz", Volume(image.array * (change != "empty"), GRID))
    write_volume(tmp_path / "mask.nii.gz", Volume(labels, grid))
    files = [f"--{name}={tmp_path / name}.nii.gz" for name in ("later", "earlier", "mask")]
    with pytest.raises(HecktorError, match=re.escape(message)):
        main(["register", *files, f"--output={tmp_path / 'a.mha'}", f"--output-mask={tmp_path / 'b.mha'}"])


@pytest.mark.parametrize(("output", "mask"), [("a.nii", "b.mha"), ("a.mha", "b")])
def test_an_output_with_another_ending_is_refused_before_the_registration(
    tmp_path: Path, output: str, mask: str
) -> None:
    files = [f"--{name}={tmp_path / name}.nii.gz" for name in ("later", "earlier", "mask")]
    wrong = output if output == "a.nii" else mask
    with pytest.raises(HecktorError, match=rf"^{wrong}: found another ending"):
        main(["register", *files, f"--output={tmp_path / output}", f"--output-mask={tmp_path / mask}"])


def test_images_that_cannot_be_registered_are_named(tmp_path: Path) -> None:
    """Two slices of one value have no structure to align: one line with both names."""
    image, _ = neck()
    write_volume(tmp_path / "later.nii.gz", image)
    write_volume(
        tmp_path / "earlier.nii.gz",
        Volume(np.ones((2, 44, 40), np.float32), Geometry((40, 44, 2), GRID.spacing_mm, GRID.origin_mm)),
    )
    files = [f"--{name}={tmp_path / name}.nii.gz" for name in ("later", "earlier")]
    with pytest.raises(HecktorError, match=r"^earlier\.nii\.gz to later\.nii\.gz: cannot be registered \("):
        main(["register", *files, f"--output={tmp_path / 'a.mha'}"])
