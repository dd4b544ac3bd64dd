"""Simple bodies with organs at given heights: CT and PET on one grid of 4 mm.

The axes are LPS with the brain's centre at x = y = 0 and the top of the field of view at z = 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import pi, sqrt
from typing import Final

import numpy as np

from algorithm.case.read import AIR_HU, Case
from benchmarks.regions.anatomy import NECK_BACK_MM, NECK_FRONT_MM, NECK_HALF_WIDTH_MM, Interval, Person
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from contract.patient import Patient
from rehearsal.phantoms.anatomy.shapes import Arch, Capsule, Column, Ellipsoid, Part, Shape

STEP_MM: Final = 4.0
COLUMNS: Final = 128
ROWS: Final = 96
# The field's front, so that the table behind the patient is in view.
FRONT_MM: Final = -200.0
# Half axes of a whole brain, and thickness of skull and scalp.
BRAIN_MM: Final = (67.5, 80.0, 62.5)
SKULL_MM: Final = 6.0
SCALP_MM: Final = 8.0
# A brain whose upper end lies closer to the field's top is cut, and nothing above it is scanned.
CUT_MM: Final = 12.0
# Distance of the chin from the brain's lower end where the glands do not mark it.
CHIN_BELOW_BRAIN_MM: Final = 80.0
# With more space above the head both arms are raised.
ARMS_UP_MM: Final = 25.0
FAT: Final = (-95.0, 0.3)
MUSCLE: Final = (55.0, 0.7)
BONE: Final = (800.0, 0.7)
SPINE: Final = (400.0, 1.3)
BRAIN: Final = (30.0, 8.0)
GLAND: Final = (40.0, 2.5)
LUNG: Final = (-850.0, 0.4)
HEART: Final = (40.0, 4.0)
LIVER: Final = (60.0, 2.2)
BLADDER: Final = (10.0, 20.0)
TABLE: Final = (-150.0, 0.0)

_Tissue = tuple[float, float]
_Axes = tuple[float, float, float]


def body_case(person: Person) -> Case:
    """CT and PET of a simple body with a person's organs."""
    slices = round(person.field_mm / STEP_MM)
    origin = ((0.5 - COLUMNS / 2) * STEP_MM, FRONT_MM + STEP_MM / 2, (0.5 - slices) * STEP_MM)
    grid = Geometry((COLUMNS, ROWS, slices), (STEP_MM,) * 3, origin)
    lines = [
        start + STEP_MM * np.arange(count, dtype=np.float32) for start, count in zip(origin, grid.size, strict=True)
    ]
    hu = np.full(grid.array_shape, AIR_HU, dtype=np.float32)
    suv = np.zeros(grid.array_shape, dtype=np.float32)
    for part in body_parts(person):
        low, high = part.shape.bounds()
        x, y, z = (
            slice(*np.searchsorted(line, (low[axis] - STEP_MM, high[axis] + STEP_MM)))
            for axis, line in enumerate(lines)
        )
        distance = part.shape.distance(lines[0][x], lines[1][y][:, None], lines[2][z][:, None, None])
        share = np.clip(0.5 - distance / np.float32(STEP_MM), 0, 1)
        for image, value in ((hu, part.hu), (suv, part.suv)):
            image[z, y, x] += share * (np.float32(value or 0) - image[z, y, x])
    if person.brain and person.brain[0] < CUT_MM:
        hu[lines[2] > -person.brain[0]], suv[lines[2] > -person.brain[0]] = AIR_HU, 0
    return Case(Volume(np.rint(hu).astype(np.int16), grid), Volume(suv, grid), Patient())


def body_parts(person: Person) -> Iterator[Part]:
    """All parts in the order of painting; later parts cover earlier ones."""
    yield from _trunk(person)
    yield from _arms(person)
    yield from _chest_and_belly(person)
    yield from _head(person)
    if person.glands is not None:
        yield from _glands(person, person.glands)


def _part(shape: Shape, tissue: _Tissue) -> Part:
    return Part(shape, *tissue)


def _trunk(person: Person) -> Iterator[Part]:
    """Table, neck with shoulders and trunk, legs, the muscles at the back of the neck, spine."""
    (x, y), (apex, lungs_end), end = person.neck_mm, person.lungs, -person.field_mm
    yield _part(Ellipsoid((x, y + 126, end / 2), (200, 6, -end), exponent=8), TABLE)
    hips = -(person.bladder[1] + 40 if person.bladder else lungs_end + 350)
    for side in (-1, 1):
        if hips > end:
            yield _part(Capsule((x + 85 * side, y, hips), (x + 75 * side, y, end), 80, 45), FAT)
            yield _part(Capsule((x + 85 * side, y, hips), (x + 75 * side, y, end), 70, 37), MUSCLE)
    top = -person.brain[1] if person.brain else 0.0
    neck = (x, y, NECK_HALF_WIDTH_MM, NECK_FRONT_MM)
    trunk = (
        *((z, *neck) for z in (top, 60 - apex) if z >= 60 - apex),
        (20.0 - apex, x, y, 200.0, 80.0),
        (-30.0 - apex, x, y, 200.0, 95.0),
        (-80.0 - apex, x, y, 170.0, 110.0),
        (hips, x, y, 170.0, 110.0),
    )
    yield _part(Column(trunk), FAT)
    yield _part(Column(trunk, shrink_mm=8), MUSCLE)
    back = NECK_BACK_MM - 42
    yield _part(Column(((top, x, y + back, 45, 42), (-apex, x, y + back, 45, 42))), MUSCLE)
    skull_base = 8 - person.brain[2] if person.brain else 0.0
    spine = ((-apex + 40, x, y + 5, 14, 14), (-apex - 80, x, y + 60, 20, 20), (hips, x, y + 60, 22, 22))
    yield _part(Column(((skull_base, x, y + 5, 14, 14), *spine)), SPINE)


def _arms(person: Person) -> Iterator[Part]:
    (x, y), shoulder = person.neck_mm, -person.lungs[0] - 20
    for side in (-1, 1):
        start = (x + 185 * side, y, shoulder)
        if person.brain and person.brain[0] >= ARMS_UP_MM:
            points = [start, (135.0 * side, y, -person.brain[1]), (100.0 * side, y - 20, 0.0)]
        else:
            points = [start, (x + 205 * side, y, shoulder - 60), (x + 205 * side, y, shoulder - 560)]
        for tissue, thinner in ((FAT, 0), (MUSCLE, 7)):
            for one, other in pairwise(points):
                yield _part(Capsule(one, other, 36 - thinner, 34 - thinner), tissue)


def _chest_and_belly(person: Person) -> Iterator[Part]:
    x, y = person.neck_mm
    apex, bottom = person.lungs
    # A cone at first, like real apices.
    widening = ((0.0, 0.02), (30.0, 0.7), (90.0, 1.0), (bottom - apex, 1.0))
    for side in (-1, 1):
        knots = tuple((-apex - below, x + 80 * side, y - 5, 58 * share, 78 * share) for below, share in widening)
        yield _part(Column(knots), LUNG)
    for ends, (cx, cy), (rx, ry), tissue in (
        (person.heart, (x + 20, y - 45), (55, 45), HEART),
        (person.liver, (x - 60, y - 10), (90, 80), LIVER),
        (person.bladder, (x, y - 40), (45, 35), BLADDER),
    ):
        if ends is not None:
            yield _part(_between(ends, (cx, cy), (rx, ry)), tissue)


def _between(ends: Interval, centre: tuple[float, float], radii: tuple[float, float]) -> Ellipsoid:
    """The ellipsoid between two depths below the field's top."""
    return Ellipsoid((*centre, -(ends[0] + ends[1]) / 2), (*radii, (ends[1] - ends[0]) / 2))


def _head(person: Person) -> Iterator[Part]:
    """Face and jaw above the lower end of the glands; scalp, skull and brain."""
    (x_low, x_high), (y_low, _) = person.glands_x_mm, person.glands_y_mm
    middle, half = (x_low + x_high) / 2, (x_high - x_low) / 2 + 12
    top, chin = (person.brain[1], person.brain[2] + CHIN_BELOW_BRAIN_MM) if person.brain else (0.0, 0.0)
    chin = person.glands[1] if person.glands else chin
    if chin > top:
        front, back = y_low - 20, 45.0
        around = (middle, (front + back) / 2, half, (back - front) / 2)
        for shrink_mm, tissue in ((0, FAT), (5, MUSCLE)):
            yield _part(Column(((-top, *around), (-chin, *around)), 4.0, shrink_mm), tissue)
        yield _part(Arch((middle, y_low + 30, 20 - chin), (45, 45), 4, 14), BONE)
    if person.brain:
        brain = brain_shape(person)
        for thickness, tissue in ((SKULL_MM + SCALP_MM, FAT), (SKULL_MM, BONE), (0.0, BRAIN)):
            x, y, z = brain.radii
            yield _part(Ellipsoid(brain.centre, (x + thickness, y + thickness, z + thickness)), tissue)


def brain_shape(person: Person) -> Ellipsoid:
    """The whole brain; the part of it below the visible upper end has the visible height and volume."""
    if person.brain is None:
        raise ValueError("no brain in view")
    top, _, bottom = person.brain
    a, b, c = BRAIN_MM
    height, c = bottom - top, max(c, (bottom - top) / 2)
    cap_ml = pi * a * b * height**2 * (3 * c - height) / (3 * c**2) / 1000
    scale = sqrt(person.brain_ml / cap_ml)
    return Ellipsoid((0.0, 0.0, c - bottom), (a * scale, b * scale, c))


def _glands(person: Person, ends: Interval) -> Iterator[Part]:
    """On each side a parotid gland behind and above, a submandibular gland in front and below."""
    (x_low, x_high), (y_low, y_high), (top, bottom) = person.glands_x_mm, person.glands_y_mm, ends
    width, depth, height = x_high - x_low, y_high - y_low, bottom - top
    for x, side in ((x_low, 1), (x_high, -1)):
        parotid = (x, x + side * 0.22 * width), (y_high - 0.6 * depth, y_high), (top, top + 0.65 * height)
        below = (
            (x + side * 0.05 * width, x + side * 0.3 * width),
            (y_low, y_low + 0.5 * depth),
            (bottom - 0.5 * height, bottom),
        )
        for (x1, x2), (y1, y2), (z1, z2) in (parotid, below):
            yield _part(_between((z1, z2), ((x1 + x2) / 2, (y1 + y2) / 2), (abs(x2 - x1) / 2, (y2 - y1) / 2)), GLAND)
