"""Scan variants for tests of the localiser: cut ends, prone position, beds, hot spots.

`vary` changes a patient's scan before rendering (extent, table, bladder) and rearranges the images or adds objects
afterwards (`rearranged.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from contract.images.geometry import Geometry
from rehearsal.phantoms.cohort import BEYOND_LESIONS_MM, PhantomCase, Range, choose_min_slice_mm
from rehearsal.phantoms.lesions import compute_lesion_extent
from rehearsal.phantoms.rendering import Rendered, render
from tests.rehearsal.phantoms import rearranged

Change = Callable[[PhantomCase, np.random.Generator], PhantomCase]
Arrange = Callable[[Rendered, np.random.Generator], Rendered]

# Anatomical heights (mm above the tonsils) between which the top and the bottom of a scan lie.
SKULL_TOP = (168.0, 200.0)
CUT_HEAD, SKULL_BASE, BELOW_BRAIN = (70.0, 150.0), (30.0, 60.0), (-10.0, 21.0)
NECK, BELOW_SHOULDERS, HIP = (-105.0, -75.0), (-230.0, -120.0), (-730.0, -690.0)
EXTENTS: dict[str, tuple[Range, Range]] = {
    "whole_body": (SKULL_TOP, HIP),
    "skull_to_hip": (SKULL_BASE, HIP),
    "head_and_neck": (SKULL_TOP, BELOW_SHOULDERS),
    "skull_cut": (CUT_HEAD, BELOW_SHOULDERS),
    "skull_cut_to_hip": (CUT_HEAD, HIP),
    "head_cut_off": (BELOW_BRAIN, BELOW_SHOULDERS),
    "shoulders_cut_off": (SKULL_TOP, NECK),
    "no_brain": (BELOW_BRAIN, HIP),
}
USUAL = ("whole_body", "skull_to_hip", "head_and_neck", "shoulders_cut_off")
# The table of a prone patient is added after turning; until then it lies outside the scan.
FAR_BELOW_MM = 1000.0


@dataclass(frozen=True)
class Variant:
    """One kind of scan: possible extents, a change before rendering, and one after."""

    extents: tuple[str, ...] = USUAL
    change: Change | None = None
    arrange: Arrange | None = None


def _heat_bladder(case: PhantomCase, rng: np.random.Generator) -> PhantomCase:
    uptake = case.body.uptake
    bladder = uptake.brain * float(rng.uniform(4, 12))
    return replace(case, body=replace(case.body, uptake=replace(uptake, bladder=bladder)))


def _move_table(case: PhantomCase, rng: np.random.Generator) -> PhantomCase:
    return replace(case, body=replace(case.body, table_y=float(rng.uniform(108, 120))))


def _remove_table(case: PhantomCase, _: np.random.Generator) -> PhantomCase:
    return replace(case, body=replace(case.body, table_y=FAR_BELOW_MM))


VARIANTS: dict[str, Variant] = {
    "whole body": Variant(("whole_body",)),
    "skull to hip": Variant(("skull_to_hip",)),
    "head and neck": Variant(("head_and_neck",)),
    "head cut off": Variant(("head_cut_off",)),
    "top of the head cut off": Variant(("skull_cut", "skull_cut_to_hip")),
    "shoulders cut off": Variant(("shoulders_cut_off",)),
    "prone": Variant((*USUAL, "head_cut_off"), _remove_table, rearranged.turn_prone),
    "bed in view": Variant(USUAL, _move_table, rearranged.add_head_holder),
    "bladder hotter than the brain": Variant(("whole_body", "skull_to_hip", "no_brain"), _heat_bladder),
    "no brain in the field": Variant(("no_brain",)),
    "flipped": Variant((*USUAL, "head_cut_off"), None, rearranged.reorder_at_random),
    "oblique": Variant((*USUAL, "head_cut_off"), None, rearranged.tilt_at_random),
    "uptake outside the body": Variant((*USUAL, "no_brain"), None, rearranged.add_spills),
}
KINDS = tuple(VARIANTS)


def vary(case: PhantomCase, kind: str, rng: np.random.Generator) -> Rendered:
    """Render CT, PET and mask of this patient in a scan of this kind; no planning CT and no dose.

    The extent of the scan is replaced; `rng` draws it and all other free parameters of the kind, one of `KINDS`. A scan
    that is cut at the top still includes part of the lowest lesion, and every scan ends at least 15 mm below it.
    """
    variant = VARIANTS[kind]
    extent = variant.extents[int(rng.integers(len(variant.extents)))]
    (top_low, top_high), (bottom_low, bottom_high) = EXTENTS[extent]
    case = _set_extent(case, float(rng.uniform(bottom_low, bottom_high)), float(rng.uniform(top_low, top_high)))
    if variant.change is not None:
        case = variant.change(case, rng)
    rendered = render(case)
    return rendered if variant.arrange is None else variant.arrange(rendered, rng)


def _set_extent(case: PhantomCase, bottom: float, top: float) -> PhantomCase:
    """Scan the patient between two anatomical heights; the PET overlaps the ends of the CT as before."""
    frame, protocol = case.frame, case.protocol
    low = min(frame.height_mm(bottom), compute_lesion_extent(case.disease, frame)[0] - BEYOND_LESIONS_MM)
    lowest = min(frame.to_patient(lesion.place)[2] for lesion in case.disease.lesions if lesion.label)
    high = max(frame.height_mm(top), lowest)
    below = protocol.pet.origin_mm[2] - protocol.ct.origin_mm[2]
    above = _top(protocol.pet) - _top(protocol.ct)
    ct = _set_slices(protocol.ct, low, high, max(protocol.ct.spacing_mm[2], choose_min_slice_mm(high - low)))
    pet = _set_slices(protocol.pet, low + below, high + above, protocol.pet.spacing_mm[2])
    return replace(case, protocol=replace(protocol, ct=ct, pet=pet, planning=None, dose=None))


def _top(grid: Geometry) -> float:
    return grid.origin_mm[2] + grid.spacing_mm[2] * (grid.size[2] - 1)


def _set_slices(grid: Geometry, low: float, high: float, thickness: float) -> Geometry:
    """Give the grid other slices: from `low` up to `high` in patient mm."""
    (columns, rows, _), (across, along, _), (x, y, _) = grid.size, grid.spacing_mm, grid.origin_mm
    return Geometry((columns, rows, int((high - low) / thickness) + 1), (across, along, thickness), (x, y, low))
