"""Localise phantoms of every kind of scan and compare each region with the reference mask."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.case.notices import Notices
from algorithm.case.read import Case, clean_ct, clean_pet
from algorithm.region.localise import Region, localise
from contract.errors import HecktorError
from contract.images.volumes import Volume, read_volume, write_volume
from contract.patient import Patient
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import make_case
from rehearsal.phantoms.protocol import coarsened
from tests.rehearsal.phantoms.variants import KINDS, vary

IMAGES: Final = ("ct", "pet", "mask")


@dataclass(frozen=True)
class RegionStudy:
    """The phantoms of a study: patient `n` is scanned as kind `n` modulo the number of kinds.

    `coarsening` divides the CT's matrix in plane. The phantoms are cached under `root`.
    """

    seed: int
    patients: int
    coarsening: int
    root: Path

    def kind(self, index: int) -> str:
        """How a patient is scanned."""
        return KINDS[index % len(KINDS)]

    def phantom(self, index: int) -> dict[str, Volume]:
        """CT, PET and mask of a patient."""
        seed_folder = f"seed-{self.seed}-coarsening-{self.coarsening}"
        folder = self.root / "phantoms" / seed_folder / f"{index:04d}"
        if folder.is_dir():
            return {name: read_volume(folder / f"{name}.mha") for name in IMAGES}
        case = make_case(self.seed, index, CENTRES)
        case = replace(case, protocol=coarsened(case.protocol, self.coarsening))
        scan = vary(case, self.kind(index), np.random.default_rng((self.seed, index)))
        images = {"ct": scan.ct, "pet": scan.pet, "mask": scan.mask}
        partial = folder.with_name(f".partial-{folder.name}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, volume in images.items():
            write_volume(partial / f"{name}.mha", volume, compress=name == "mask")
        partial.rename(folder)
        return images


@dataclass(frozen=True)
class RegionCheck:
    """The region of one patient beside its reference.

    `margin_mm` is the smallest distance from a reference voxel's outside to a face of the region, negative if the
    face cuts it. Faces where the CT itself ends do not count; None if there is no other face.
    """

    case: int
    kind: str
    contained: bool
    margin_mm: float | None
    reference_voxels: int
    region: Region


def check_region(study: RegionStudy, index: int) -> RegionCheck:
    """Localise one patient and compare the region with the reference.

    Raises:
        HecktorError: the scan shows no reference voxel.
    """
    images, notices = study.phantom(index), Notices()
    ct = clean_ct(images["ct"], "CT", notices)
    region = localise(Case(ct, clean_pet(images["pet"], ct, "PET", notices), Patient()))
    low, high, count = reference_extent_mm(images["mask"])
    if not count:
        raise HecktorError(f"case {index} ({study.kind(index)}): found no reference voxel, expected at least 1")
    above, below = low >= np.subtract(region.lower_mm, 1e-6), high <= np.add(region.upper_mm, 1e-6)
    margin_mm = smallest_margin_mm(region, ct, low, high)
    return RegionCheck(index, study.kind(index), bool(above.all() and below.all()), margin_mm, count, region)


def reference_extent_mm(mask: Volume) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], int]:
    """Lowest and highest corner (x, y, z, LPS) of the box around all foreground voxels, and their number.

    Voxels count with their whole extent. Without any the corners are infinite.
    """
    index = np.argwhere(mask.array > 0)[:, ::-1]
    matrix = mask.geometry.index_to_physical_matrix()
    if not len(index):
        return np.full(3, np.inf), np.full(3, -np.inf), 0
    points = index @ matrix[:3, :3].T + matrix[:3, 3]
    half = np.abs(matrix[:3, :3]).sum(axis=1) / 2
    return points.min(0) - half, points.max(0) + half, len(index)


def smallest_margin_mm(
    region: Region, ct: Volume, low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]
) -> float | None:
    """See `RegionCheck.margin_mm`; `low` and `high` are the corners of the reference."""
    corners = ct.geometry.corners_mm()
    below = np.where(np.isclose(region.lower_mm, corners.min(0)), np.inf, low - region.lower_mm)
    above = np.where(np.isclose(region.upper_mm, corners.max(0)), np.inf, region.upper_mm - high)
    margin = float(min(below.min(), above.min()))
    return margin if np.isfinite(margin) else None
