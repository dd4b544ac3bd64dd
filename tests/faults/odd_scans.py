"""Change the scans of one phantom: crop, turn, store or scale them in ways that users send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
from scipy.spatial.transform import Rotation

from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from rehearsal.phantoms.body import BLADDER_BOTTOM, BRAIN_TOP
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import PhantomCase, coarsen_protocol, make_case
from rehearsal.phantoms.rendering import Rendered, render
from tests.rehearsal.phantoms import rearranged

SEED, INDEX = 31, 30
# The CT has pixels larger by this factor, and slices of this thickness.
COARSENING, SLICE_MM = 8, 4.0
# Anatomical height of the shoulders.
SHOULDERS = -230.0


@cache
def make_phantom() -> PhantomCase:
    """Make a patient who is scanned from above the head to the hips."""
    case = make_case(SEED, INDEX, CENTRES, "whole_body")
    protocol = coarsen_protocol(case.protocol, COARSENING)
    low, high = case.frame.height_mm(BLADDER_BOTTOM) - 30, case.frame.height_mm(BRAIN_TOP) + 30

    def cover(grid: Geometry, slice_mm: float) -> Geometry:
        size, spacing = (*grid.size[:2], int((high - low) / slice_mm) + 1), (*grid.spacing_mm[:2], slice_mm)
        return Geometry(size, spacing, (*grid.origin_mm[:2], low))

    ct, pet = cover(protocol.ct, SLICE_MM), cover(protocol.pet, protocol.pet.spacing_mm[2])
    return replace(case, protocol=replace(protocol, ct=ct, pet=pet, planning=None, dose=None))


@cache
def render_body() -> Rendered:
    """Render the patient from above the head to the hips."""
    return render(make_phantom())


def height_mm(anatomical: float) -> float:
    """Return the patient's z of an anatomical height."""
    return make_phantom().frame.height_mm(anatomical)


def render_neck() -> Rendered:
    return crop_heights(render_body(), height_mm(SHOULDERS), np.inf)


def change_volumes(scan: Rendered, change: Callable[[Volume], Volume]) -> Rendered:
    return replace(scan, ct=change(scan.ct), pet=change(scan.pet), mask=change(scan.mask))


def crop_heights(scan: Rendered, low_mm: float, high_mm: float) -> Rendered:
    """Crop a scan to the slices whose centres lie between two heights."""
    return change_volumes(scan, lambda volume: crop_volume(volume, low_mm, high_mm))


def crop_volume(volume: Volume, low_mm: float, high_mm: float) -> Volume:
    grid = volume.geometry
    z = grid.origin_mm[2] + grid.spacing_mm[2] * np.arange(grid.size[2])
    inside = np.flatnonzero((z >= low_mm) & (z <= high_mm))
    first, count = int(inside[0]), len(inside)
    part = grid.crop((0, 0, first), (grid.size[0], grid.size[1], count))
    return Volume(volume.array[first : first + count].copy(), part)


def end_pet(anatomical: float) -> Rendered:
    """Cut the PET off above an anatomical height."""
    neck = render_neck()
    return replace(neck, pet=crop_volume(neck.pet, -np.inf, height_mm(anatomical)))


def turn_prone(*, labelled: bool) -> Rendered:
    """Turn the patient face down, with another table; the headers say prone if `labelled`, otherwise supine."""
    return rearranged.turn_prone(render_neck(), np.random.default_rng(1 if labelled else 0))


def tilt_grids(degrees: float) -> Rendered:
    """Render both images on grids that are tilted about the x axis."""
    rotation = Rotation.from_euler("x", degrees, degrees=True).as_matrix()
    return rearranged.tilt(render_neck(), rotation, with_pet=True)


def thicken_slices(slices: int) -> Rendered:
    """Average so many slices of the CT and take the upper one of the mask; the PET stays."""
    scan = render_neck()
    columns, rows, depth = scan.ct.geometry.size
    depth = depth // slices * slices
    across, along, thickness = scan.ct.geometry.spacing_mm
    x, y, z = scan.ct.geometry.origin_mm
    origin = x, y, z + (slices - 1) / 2 * thickness
    grid = Geometry((columns, rows, depth // slices), (across, along, thickness * slices), origin)
    ct = scan.ct.array[:depth].reshape(-1, slices, rows, columns).mean(1).astype(np.int16)
    mask = scan.mask.array[:depth].reshape(-1, slices, rows, columns).max(1)
    return replace(scan, ct=Volume(ct, grid), mask=Volume(mask, grid))


def store_sagittally() -> Rendered:
    """Store the axes in the order (y, z, x)."""
    return change_volumes(render_neck(), lambda volume: rearranged.reorder(volume, (1, 2, 0), (False, False, False)))


def change_pet(change: Callable[[np.ndarray], np.ndarray]) -> Rendered:
    neck = render_neck()
    return replace(neck, pet=Volume(change(neck.pet.array), neck.pet.geometry))


def change_ct(change: Callable[[np.ndarray], np.ndarray]) -> Rendered:
    neck = render_neck()
    return replace(neck, ct=Volume(change(neck.ct.array), neck.ct.geometry))


def pad_ct(hu: int) -> Rendered:
    """Pad the CT outside its circular field of view and by ten slices above and below."""
    scan = render_neck()
    columns, rows, depth = scan.ct.geometry.size
    y, x = np.ogrid[:rows, :columns]
    outside = (x - (columns - 1) / 2) ** 2 + (y - (rows - 1) / 2) ** 2 > (min(rows, columns) / 2) ** 2
    x0, y0, z0 = scan.ct.geometry.origin_mm
    origin = x0, y0, z0 - 10 * scan.ct.geometry.spacing_mm[2]
    grid = replace(scan.ct.geometry, size=(columns, rows, depth + 20), origin_mm=origin)
    ends = ((10, 10), (0, 0), (0, 0))
    ct = np.pad(np.where(outside, np.int16(hu), scan.ct.array), ends, constant_values=hu)
    return replace(scan, ct=Volume(ct, grid), mask=Volume(np.pad(scan.mask.array, ends), grid))


def split_pixels(parts: int) -> Rendered:
    """Split each pixel of a whole body's CT into `parts` x `parts`."""
    scan = render_body()
    (columns, rows, slices), (across, along, thickness) = scan.ct.geometry.size, scan.ct.geometry.spacing_mm
    x, y, z = scan.ct.geometry.origin_mm
    shift = (parts - 1) / (2 * parts)
    origin = x - across * shift, y - along * shift, z
    grid = Geometry((columns * parts, rows * parts, slices), (across / parts, along / parts, thickness), origin)

    ct = np.repeat(np.repeat(scan.ct.array, parts, axis=1), parts, axis=2)
    return replace(scan, ct=Volume(ct, grid))
