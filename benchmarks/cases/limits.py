"""Physical limits: the minimum work on the same bytes, done by other libraries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from zlib_ng import zlib_ng

from contract.editions import load_edition
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, find_single_image, read_volume, to_sitk

_DATA_MARK = b"ElementDataFile = LOCAL\n"


def scans(input_dir: Path) -> list[Path]:
    """Paths of a patient's CT and PET."""
    inputs = load_edition().inputs
    return [find_single_image(socket.path_under(input_dir)) for socket in (inputs["ct"], inputs["pet"])]


def read_with_simpleitk(paths: list[Path]) -> Callable[[], object]:
    """Read images without any check."""
    return lambda: [sitk.ReadImage(str(path)) for path in paths]


def inflate(paths: list[Path]) -> Callable[[], object]:
    """Decompress the pixels of compressed MHA files that are already in memory."""
    packed = [content[content.index(_DATA_MARK) + len(_DATA_MARK) :] for content in map(Path.read_bytes, paths)]
    return lambda: [zlib_ng.decompress(pixels) for pixels in packed]


def deflate(path: Path) -> Callable[[], object]:
    """Compress the voxels of an image at the level that `contract.images.volumes` uses."""
    pixels = read_volume(path).array.tobytes()
    return lambda: zlib_ng.compress(pixels, 1)


def copy_in_memory(path: Path) -> Callable[[], object]:
    """Read and write each voxel of an image in memory once."""
    source = read_volume(path).array
    target = np.empty_like(source)
    return lambda: np.copyto(target, source)


def linear_with_simpleitk(volumes: list[Volume], grid: Geometry) -> Callable[[], object]:
    """Interpolate images linearly on a grid with SimpleITK, without anti-aliasing."""
    sources = [to_sitk(volume) for volume in volumes]
    reference = to_sitk(Volume(np.zeros(grid.array_shape, np.float32), grid))
    return lambda: [
        sitk.Resample(image, reference, sitk.Transform(), sitk.sitkLinear, 0.0, sitk.sitkFloat32) for image in sources
    ]
