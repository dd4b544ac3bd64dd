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
    def from_rendered(cls, rendered: Rendered) -> OddScan:
        return cls(rendered.ct, rendered.pet, rendered.mask)

    def as_rendered(self) -> Rendered:
        return Rendered(self.ct, self.pet, self.mask, None, None)


@cache
def make_phantom(coarsening: int = 1) -> PhantomCase:
    """Make a patient who is scanned from above the head to the hips."""
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
def render_whole_body(coarsening: int = 1) -> OddScan:
    """Render the patient from above the head to the hips."""
    return OddScan.from_rendered(render(make_phantom(coarsening)))


def height_mm(anatomical: float) -> float:
    """Return the patient's z of an anatomical height."""
    return make_phantom().frame.height_mm(anatomical)


def crop_heights(scan: OddScan, low_mm: float, high_mm: float) -> OddScan:
    """Crop a scan to the slices whose centres lie between two heights."""
    return OddScan(*(_crop_heights(volume, low_mm, high_mm) for volume in (scan.ct, scan.pet, scan.mask)))


def _crop_heights(volume: Volume, low_mm: float, high_mm: float) -> Volume:
    grid = volume.geometry
    z = grid.origin_mm[2] + grid.spacing_mm[2] * np.arange(grid.size[2])
    inside = np.flatnonzero((z >= low_mm) & (z <= high_mm))
    first, count = int(inside[0]), len(inside)
    part = grid.crop((0, 0, first), (grid.size[0], grid.size[1], count))
    return Volume(volume.array[first : first + count].copy(), part)


def turn_prone(scan: OddScan, *, labelled: bool) -> OddScan:
    """Turn the patient face down, with another table; the headers say prone if `labelled`, otherwise supine."""
    turned = rearranged.turn_prone(scan.as_rendered(), np.random.default_rng(1 if labelled else 0))
    return OddScan.from_rendered(turned)


def tilt_grids(scan: OddScan, degrees: float = 20.0) -> OddScan:
    """Render both images on grids that are tilted about the x axis."""
    return OddScan.from_rendered(rearranged.tilt(scan.as_rendered(), make_rotation(degrees), with_pet=True))


def make_rotation(degrees: float) -> np.ndarray:
    """Return a rotation about the x axis."""
    return Rotation.from_euler("x", degrees, degrees=True).as_matrix()


def thicken_slices(scan: OddScan, slices: int) -> OddScan:
    """Average so many slices of the CT and take the upper one of the mask; the PET stays."""
    depth = scan.ct.geometry.size[2] // slices * slices
    columns, rows, _ = scan.ct.geometry.size
    across, along, thickness = scan.ct.geometry.spacing_mm
    x, y, z = scan.ct.geometry.origin_mm
    placement = (across, along, thickness * slices), (x, y, z + (slices - 1) / 2 * thickness)
    grid = Geometry((columns, rows, depth // slices), *placement)
    ct = scan.ct.array[:depth].reshape(-1, slices, rows, columns).mean(1).astype(np.int16)
    mask = scan.mask.array[:depth].reshape(-1, slices, rows, columns).max(1)
    return OddScan(Volume(ct, grid), scan.pet, Volume(mask, grid))


def store_sagittally(scan: OddScan) -> OddScan:
    """Store the axes in the order (y, z, x)."""
    stored = (rearranged.reorder(volume, (1, 2, 0), (False, False, False)) for volume in (scan.ct, scan.pet, scan.mask))
    return OddScan(*stored)


def change_pet(scan: OddScan, change: Callable[[np.ndarray], np.ndarray]) -> OddScan:
    """Change the PET's values."""
    return replace(scan, pet=Volume(change(scan.pet.array), scan.pet.geometry))


def change_ct(scan: OddScan, change: Callable[[np.ndarray], np.ndarray]) -> OddScan:
    """Change the CT's values."""
    return replace(scan, ct=Volume(change(scan.ct.array), scan.ct.geometry))


def end_pet(scan: OddScan, high_mm: float) -> OddScan:
    """Cut the PET off above a height."""
    return replace(scan, pet=_crop_heights(scan.pet, -np.inf, high_mm))


def pad_ct(scan: OddScan, hu: int) -> OddScan:
    """Pad the CT outside its circular field of view and by ten slices above and below."""
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


def list_odd_scans(coarsening: int) -> dict[str, Callable[[], OddScan]]:
    """List functions that make unusual scans, by name.

    A coarse CT has pixels larger by `coarsening`; from a factor of 4, slices of 4 mm.
    """

    def body() -> OddScan:
        return render_whole_body(coarsening)

    def neck() -> OddScan:
        return crop_heights(body(), height_mm(SHOULDERS), np.inf)

    brain_mm = height_mm(BRAIN_BOTTOM)
    cropped = {
        "whole body": body,
        "head and neck": neck,
        "abdomen": lambda: crop_heights(body(), height_mm(BLADDER_BOTTOM), height_mm(LIVER_TOP)),
        "cut at the mandible": lambda: crop_heights(neck(), -np.inf, height_mm(TEETH)),
        "cut at the skull base": lambda: crop_heights(neck(), -np.inf, brain_mm),
        "20 mm of brain": lambda: crop_heights(neck(), -np.inf, brain_mm + 20),
        "PET ends at the chin": lambda: end_pet(neck(), height_mm(CHIN)),
        "PET ends at the lungs": lambda: end_pet(neck(), height_mm(LUNG_APEX)),
    }
    placed = {
        "prone, header says prone": lambda: turn_prone(neck(), labelled=True),
        "prone, header says supine": lambda: turn_prone(neck(), labelled=False),
        "oblique by 20 degrees": lambda: tilt_grids(neck(), 20),
        "slices of 12 mm": lambda: thicken_slices(neck(), round(12 / neck().ct.geometry.spacing_mm[2])),
        "stored sagittally": lambda: store_sagittally(neck()),
    }
    scaled = {
        "PET in Bq/ml": lambda: change_pet(neck(), lambda suv: suv * BQ_PER_ML),
        "PET in kBq/ml": lambda: change_pet(neck(), lambda suv: suv * BQ_PER_ML / 1000),
        "PET in Bq/ml, 16 bits": lambda: change_pet(neck(), _as_int16),
        "PET zero": lambda: change_pet(neck(), np.zeros_like),
        "CT padded with -2000 HU": lambda: pad_ct(neck(), -2000),
        "CT padded with -3024 HU": lambda: pad_ct(neck(), -3024),
        "CT from -1000 to 1000 HU": lambda: change_ct(neck(), lambda hu: np.clip(hu, -1000, 1000)),
        "CT from -160 to 240 HU": lambda: change_ct(neck(), lambda hu: np.clip(hu, -160, 240)),
        "CT without intercept": lambda: change_ct(neck(), lambda hu: np.maximum(hu + 1024, 0).astype(np.uint16)),
    }
    return cropped | placed | scaled


def _as_int16(suv: np.ndarray) -> np.ndarray:
    return np.minimum(suv * BQ_PER_ML, LARGEST_INT16).astype(np.int16)
