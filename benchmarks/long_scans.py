"""Scans of 100, 300 and 1,000 slices with the same head and neck: how does the cost grow with the field of view?"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from contract import sockets
from contract.files import write_json
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, find_single_image, read_volume, write_volume

# Below the phantom's end its last slices come again, back and forth, as legs would.
LEGS_MM: Final = 100.0


@dataclass(frozen=True)
class LongScan:
    """Slices of CT and PET, and their thickness; both begin at the top of the head."""

    ct_slices: int
    ct_slice_mm: float
    pet_slices: int
    pet_slice_mm: float

    @property
    def name(self) -> str:
        """Names its folder."""
        return f"{self.ct_slices}_slices"


SCANS: Final = (LongScan(100, 4.0, 80, 5.0), LongScan(300, 2.5, 150, 5.0), LongScan(1000, 1.6, 350, 1600 / 350))


def make_long_scans(input_dir: Path, root: Path) -> Iterator[tuple[LongScan, Path]]:
    """The `/input` folder of each scan, made from a whole-body patient's where it is absent."""
    for scan in SCANS:
        folder = root / scan.name
        if not (folder / "complete.json").is_file():
            _make(scan, input_dir, folder)
            write_json(folder / "complete.json", {"made_from": input_dir.parent.name})
        yield scan, folder


def _make(scan: LongScan, input_dir: Path, folder: Path) -> None:
    ehr = sockets.EHR.path_under(folder)
    ehr.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(sockets.EHR.path_under(input_dir), ehr)
    for socket, slices, step_mm in (
        (sockets.CT, scan.ct_slices, scan.ct_slice_mm),
        (sockets.PET, scan.pet_slices, scan.pet_slice_mm),
    ):
        source = read_volume(find_single_image(socket.path_under(input_dir)))
        write_volume(socket.path_under(folder) / f"{scan.name}.mha", stretched(source, slices, step_mm))


def stretched(volume: Volume, slices: int, step_mm: float) -> Volume:
    """`slices` slices of `step_mm` from the top of an axial volume down, each the nearest one of the volume's.

    The volume's third axis must point up. Beyond its lower end the last `LEGS_MM` are repeated back and forth.
    """
    old = volume.geometry
    x, y, z = old.origin_mm
    top_mm = z + (old.size[2] - 1) * old.spacing_mm[2]
    depth_mm = np.arange(slices, dtype=np.float64)[::-1] * step_mm
    rows = old.size[2] - 1 - np.rint(folded(depth_mm, top_mm - z) / old.spacing_mm[2]).astype(np.intp)
    grid = Geometry(
        (old.size[0], old.size[1], slices),
        (old.spacing_mm[0], old.spacing_mm[1], step_mm),
        (x, y, top_mm - (slices - 1) * step_mm),
        old.direction,
    )
    return Volume(np.ascontiguousarray(volume.array[rows]), grid)


def folded(depth_mm: npt.NDArray[np.float64], length_mm: float) -> npt.NDArray[np.float64]:
    """Depths along a body of `length_mm` that is left at its lower end for the way back, and again forward."""
    beyond = np.maximum(depth_mm - length_mm, 0.0)
    back = np.abs((beyond + LEGS_MM) % (2 * LEGS_MM) - LEGS_MM)
    return np.where(beyond > 0, length_mm - back, depth_mm)
