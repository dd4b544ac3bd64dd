"""Unusual scans of one phantom: cropped, turned, stored or scaled in ways that users send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.spatial.transform import Rotation

from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from rehearsal.phantoms.body import BLADDER_BOTTOM, BRAIN_BOTTOM, BRAIN_TOP, LIVER_TOP, LUNG_APEX
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import PhantomCase, coarsen_protocol, make_case
from rehearsal.phantoms.rendering import Rendered, render
from tests.rehearsal.phantoms import rearranged

SEED, INDEX = 31, 30
# Anatomical heights.
TEETH, CHIN, SHOULDERS = -22.0, -40.0, -230.0
# Bq/ml of SUV 1: 300 MBq in 75 kg.
BQ_PER_ML = 4000.0
LARGEST_INT16 = 32767


@dataclass(frozen=True)
class OddScan:
    """CT, PET and reference mask on the CT's grid."""

    ct: Volume
    pet: Volume
    mask: Volume

    @classmethod
    def of(cls, rendered: Rendered) -> OddScan:
        return cls(rendered.ct, rendered.pet, rendered.mask)

    def rendered(self) -> Rendered:
        return Rendered(self.ct, self.pet, self.mask, None, None)


@cache
def phantom(coarsening: int = 1) -> PhantomCase:
    """The patient, scanned from above the head to the hips."""
    case = make_case(SEED, INDEX, CENTRES, "whole_body")
    protocol = coarsen_protocol(case.protocol, coarsening)
    low, high = case.frame.height_mm(BLADDER_BOTTOM) - 30, case.frame.height_mm(BRAIN_TOP) + 30
    ct = _slices(protocol.ct, low, high, 4.0 if coarsening >= 4 else protocol.ct.spacing_mm[2])
    pet = _slices(protocol.pet, low, high, protocol.pet.spacing_mm[2])
    protocol = replace(protocol, ct=ct, pet=pet, planning=None, dose=None)
    return replace(case, protocol=protocol)


def _slices(grid: Geometry, low: float, high: float, thickness: float) -> Geometry:
    (columns, rows, _), (across, along, _), (x, y, _) = grid.size, grid.spacing_mm, grid.origin_mm
    return Geometry((columns, rows, int((high - low) / thickness) + 1), (across, along, thickness), (x, y, low))


@cache
def whole_body(coarsening: int = 1) -> OddScan:
    """From above the head to the hips."""
    return OddScan.of(render(phantom(coarsening)))


def height_mm(anatomical: float) -> float:
    """Patient z of an anatomical height."""
    return phantom().frame.height_mm(anatomical)


def between(scan: OddScan, low_mm: float, high_mm: float) -> OddScan:
    """The slices whose centres lie between two heights."""
    return OddScan(*(_between(volume, low_mm, high_mm) for volume in (scan.ct, scan.pet, scan.mask)))


def _between(volume: Volume, low_mm: float, high_mm: float) -> Volume:
    grid = volume.geometry
    z = grid.origin_mm[2] + grid.spacing_mm[2] * np.arange(grid.size[2])
    inside = np.flatnonzero((z >= low_mm) & (z <= high_mm))
    first, count = int(inside[0]), len(inside)
    part = grid.crop((0, 0, first), (grid.size[0], grid.size[1], count))
    return Volume(volume.array[first : first + count].copy(), part)


def prone(scan: OddScan, *, labelled: bool) -> OddScan:
    """Turned face down, with another table below; the headers say prone if `labelled`, otherwise supine."""
    turned = rearranged.prone(scan.rendered(), np.random.default_rng(1 if labelled else 0))
    return OddScan.of(turned)


def oblique(scan: OddScan, degrees: float = 20.0) -> OddScan:
    """Both images on grids tilted about the x axis."""
    return OddScan.of(rearranged.oblique(scan.rendered(), tilt(degrees), with_pet=True))


def tilt(degrees: float) -> np.ndarray:
    """Rotation about the x axis."""
    return Rotation.from_euler("x", degrees, degrees=True).as_matrix()


def thick_slices(scan: OddScan, slices: int) -> OddScan:
    """CT and mask with the mean, or the upper one, of so many slices each; the PET stays."""
    depth = scan.ct.geometry.size[2] // slices * slices
    columns, rows, _ = scan.ct.geometry.size
    across, along, thickness = scan.ct.geometry.spacing_mm
    x, y, z = scan.ct.geometry.origin_mm
    placement = (across, along, thickness * slices), (x, y, z + (slices - 1) / 2 * thickness)
    grid = Geometry((columns, rows, depth // slices), *placement)
    ct = scan.ct.array[:depth].reshape(-1, slices, rows, columns).mean(1).astype(np.int16)
    mask = scan.mask.array[:depth].reshape(-1, slices, rows, columns).max(1)
    return OddScan(Volume(ct, grid), scan.pet, Volume(mask, grid))


def stored_sagittally(scan: OddScan) -> OddScan:
    """Axes stored in the order (y, z, x)."""
    stored = (
        rearranged.reordered(volume, (1, 2, 0), (False, False, False)) for volume in (scan.ct, scan.pet, scan.mask)
    )
    return OddScan(*stored)


def with_pet(scan: OddScan, change: Callable[[np.ndarray], np.ndarray]) -> OddScan:
    """The PET's values changed."""
    return replace(scan, pet=Volume(change(scan.pet.array), scan.pet.geometry))


def with_ct(scan: OddScan, change: Callable[[np.ndarray], np.ndarray]) -> OddScan:
    """The CT's values changed."""
    return replace(scan, ct=Volume(change(scan.ct.array), scan.ct.geometry))


def pet_until(scan: OddScan, high_mm: float) -> OddScan:
    """A PET that ends below a height."""
    return replace(scan, pet=_between(scan.pet, -np.inf, high_mm))


def padded(scan: OddScan, hu: int) -> OddScan:
    """Padding outside the circular field of view, and ten slices of it above and below."""
    depth, rows, columns = scan.ct.array.shape
    y, x = np.ogrid[:rows, :columns]
    outside = (x - (columns - 1) / 2) ** 2 + (y - (rows - 1) / 2) ** 2 > (min(rows, columns) / 2) ** 2
    array = np.where(outside, np.int16(hu), scan.ct.array)
    ends = ((10, 10), (0, 0), (0, 0))
    x0, y0, z0 = scan.ct.geometry.origin_mm
    step = scan.ct.geometry.spacing_mm[2]
    grid = replace(scan.ct.geometry, size=(columns, rows, depth + 20), origin_mm=(x0, y0, z0 - 10 * step))
    ct = Volume(np.pad(array, ends, constant_values=hu), grid)
    return OddScan(ct, scan.pet, Volume(np.pad(scan.mask.array, ends), grid))


def odd_scans(coarsening: int) -> dict[str, Callable[[], OddScan]]:
    """Each unusual scan by its name, made when it is called.

    A coarse CT has pixels larger by `coarsening`; from a factor of 4, slices of 4 mm.
    """

    def body() -> OddScan:
        return whole_body(coarsening)

    def neck() -> OddScan:
        return between(body(), height_mm(SHOULDERS), np.inf)

    brain_mm = height_mm(BRAIN_BOTTOM)
    cropped = {
        "whole body": body,
        "head and neck": neck,
        "abdomen": lambda: between(body(), height_mm(BLADDER_BOTTOM), height_mm(LIVER_TOP)),
        "cut at the mandible": lambda: between(neck(), -np.inf, height_mm(TEETH)),
        "cut at the skull base": lambda: between(neck(), -np.inf, brain_mm),
        "20 mm of brain": lambda: between(neck(), -np.inf, brain_mm + 20),
        "PET ends at the chin": lambda: pet_until(neck(), height_mm(CHIN)),
        "PET ends at the lungs": lambda: pet_until(neck(), height_mm(LUNG_APEX)),
    }
    placed = {
        "prone, header says prone": lambda: prone(neck(), labelled=True),
        "prone, header says supine": lambda: prone(neck(), labelled=False),
        "oblique by 20 degrees": lambda: oblique(neck(), 20),
        "slices of 12 mm": lambda: thick_slices(neck(), round(12 / neck().ct.geometry.spacing_mm[2])),
        "stored sagittally": lambda: stored_sagittally(neck()),
    }
    scaled = {
        "PET in Bq/ml": lambda: with_pet(neck(), lambda suv: suv * BQ_PER_ML),
        "PET in kBq/ml": lambda: with_pet(neck(), lambda suv: suv * BQ_PER_ML / 1000),
        "PET in Bq/ml, 16 bits": lambda: with_pet(neck(), _as_int16),
        "PET zero": lambda: with_pet(neck(), np.zeros_like),
        "CT padded with -2000 HU": lambda: padded(neck(), -2000),
        "CT padded with -3024 HU": lambda: padded(neck(), -3024),
        "CT from -1000 to 1000 HU": lambda: with_ct(neck(), lambda hu: np.clip(hu, -1000, 1000)),
        "CT from -160 to 240 HU": lambda: with_ct(neck(), lambda hu: np.clip(hu, -160, 240)),
        "CT without intercept": lambda: with_ct(neck(), lambda hu: np.maximum(hu + 1024, 0).astype(np.uint16)),
    }
    return cropped | placed | scaled


def _as_int16(suv: np.ndarray) -> np.ndarray:
    return np.minimum(suv * BQ_PER_ML, LARGEST_INT16).astype(np.int16)
