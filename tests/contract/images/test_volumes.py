"""Reading and writing images with their geometry."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.errors import GroundTruthError, InputError, OutputError
from contract.images.geometry import Geometry
from contract.images.volumes import (
    Volume,
    find_single_image,
    read_header,
    read_volume,
    write_mask,
    write_volume,
)
from tests.contract.images.example_volumes import OBLIQUE, make_noise
from tests.file_limit import run_with_file_limit

# Reading


@pytest.mark.parametrize("suffix", [".mha", ".nii.gz"])
@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("dtype", [np.int16, np.float32])
def test_round_trip(tmp_path: Path, suffix: str, compress: bool, dtype: type) -> None:
    volume = Volume(make_noise(OBLIQUE).array.astype(dtype), OBLIQUE)
    write_volume(tmp_path / f"a{suffix}", volume, compress=compress)
    volume_read = read_volume(tmp_path / f"a{suffix}")
    np.testing.assert_array_equal(volume_read.array, volume.array)
    assert volume_read.array.dtype == dtype
    assert volume_read.geometry.find_differences(OBLIQUE) == []
    assert [path.name for path in tmp_path.iterdir()] == [f"a{suffix}"]


def test_an_absent_file_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^a\.mha: not found in the current folder, expected an image$"):
        read_volume(Path("a.mha"))


def test_array_order_is_z_y_x(tmp_path: Path) -> None:
    """Index (x, y, z) = (1, 2, 3) of the only bright voxel is array[3, 2, 1]."""
    image = sitk.Image(5, 6, 7, sitk.sitkInt16)
    image[1, 2, 3] = 9
    sitk.WriteImage(image, str(tmp_path / "a.mha"))
    volume = read_volume(tmp_path / "a.mha")
    assert np.argwhere(volume.array).tolist() == [[3, 2, 1]]
    assert volume.geometry.size == (5, 6, 7)


def test_read_as_another_type_and_read_header(tmp_path: Path) -> None:
    write_volume(tmp_path / "a.mha", make_noise(OBLIQUE))
    assert read_volume(tmp_path / "a.mha", np.float32).array.dtype == np.float32
    header = read_header(tmp_path / "a.mha")
    assert (header.geometry.size, header.pixel_type, header.dtype) == ((9, 8, 7), "16-bit signed integer", np.int16)


@settings(max_examples=25)
@given(
    st.tuples(*[st.integers(1, 6)] * 3),
    st.tuples(*[st.floats(0.3, 6)] * 3),
    st.tuples(*[st.floats(-900, 900)] * 3),
    st.permutations([0, 1, 2]),
    st.tuples(*[st.sampled_from([-1.0, 1.0])] * 3),
)
def test_round_trip_of_any_orientation(
    tmp_path_factory: pytest.TempPathFactory,
    size: tuple[int, int, int],
    spacing: tuple[float, float, float],
    origin: tuple[float, float, float],
    order: list[int],
    signs: tuple[float, float, float],
) -> None:
    direction = tuple(float(v) for v in (np.eye(3)[order] * signs).ravel())
    geometry = Geometry(size, spacing, origin, direction)
    path = tmp_path_factory.mktemp("orientation") / "a.mha"
    write_volume(path, make_noise(geometry))
    volume_read = read_volume(path)
    assert volume_read.geometry.find_differences(geometry) == []
    np.testing.assert_array_equal(volume_read.array, make_noise(geometry).array)


# Exactly one image


def test_find_single_image(tmp_path: Path) -> None:
    folder = tmp_path / "images" / "ct"
    with pytest.raises(InputError, match=r"^images/ct: no such folder"):
        find_single_image(folder)
    folder.mkdir(parents=True)
    with pytest.raises(InputError, match=r"^images/ct: found nothing"):
        find_single_image(folder)
    (folder / "notes.txt").write_text("x")
    (folder / ".hidden.mha").write_text("x")
    with pytest.raises(InputError, match=r"found \.hidden\.mha, notes\.txt, expected"):
        find_single_image(folder)
    (folder / "b.nii.gz").write_text("x")
    assert find_single_image(folder) == folder / "b.nii.gz"
    (folder / "a.tiff").write_text("x")
    with pytest.raises(GroundTruthError, match=r"found 2 images \(a\.tiff, b\.nii\.gz\)"):
        find_single_image(folder, error=GroundTruthError)


# Writing


@pytest.mark.parametrize("value", [3, -1, 256])
def test_other_labels_are_rejected(tmp_path: Path, value: int) -> None:
    mask = np.zeros(OBLIQUE.array_shape, dtype=np.int32)
    mask[0, 0, 0] = value
    with pytest.raises(OutputError, match=r"^output\.mha: labels other than 0, 1 and 2"):
        write_mask(tmp_path / "output.mha", mask, OBLIQUE)
    assert list(tmp_path.iterdir()) == []


def test_another_shape_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"expected \(7, 8, 9\)"):
        write_mask(tmp_path / "output.mha", np.zeros((9, 8, 7), np.uint8), OBLIQUE)
    with pytest.raises(ValueError, match="array of shape"):
        Volume(np.zeros((9, 8, 7), np.uint8), OBLIQUE)


def test_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    """Simulate the full disk by a limit on file size; ITK does not report failed writes."""
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        import numpy as np
        from contract.errors import run_main
        from contract.images.geometry import Geometry
        from contract.images.volumes import Volume, write_volume

        def main(argv):
            grid = Geometry((60, 60, 60), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
            array = np.random.default_rng(0).integers(-1000, 1000, grid.array_shape).astype(np.int16)
            write_volume(Path(argv[0]), Volume(array, grid), compress=argv[1] == "yes")
            return 0

        for name, compress in (("a.mha", "yes"), ("b.mha", "no"), ("c.nii.gz", "yes")):
            assert run_main(main, [name, compress]) == 1
        """
    )

    done = run_with_file_limit(program, tmp_path)
    assert done.returncode == 0, done.stderr
    errors = [line.partition(": cannot be written")[0] for line in done.stderr.splitlines() if "error: " in line]
    assert errors == ["error: a.mha", "error: b.mha", "error: c.nii.gz"], done.stderr
    assert list(tmp_path.iterdir()) == []
