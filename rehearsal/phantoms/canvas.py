"""Shapes of body parts, and the canvas on which they are painted: one coarse grid for CT and PET.

Shapes are in anatomical millimetres; the axes (x, y, z) point to the left, to the back and upwards. `bounds` returns
the lowest and the highest corner of a box that contains the shape. `distance` returns roughly the signed distance in
mm, negative inside, at coordinates that broadcast to (z, y, x). The scanners sample the canvas later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Point = tuple[float, float, float]
Bounds = tuple[Point, Point]
Knots = tuple[tuple[float, float, float, float, float], ...]


AIR_HU = -1000.0
Box = tuple[slice, slice, slice]
Corner = Point | NDArray[np.float64]
# Voxel size of the canvas in plane, which is also the width of the painted edges.
EDGE_MM = 2.0
# Width of the bumps of organ surfaces and of tissue density.
UNEVENNESS_MM = 14.0
# The neck leans and sways between these anatomical heights; above and below the body stays straight.
LEANING_MM = (-200, 170)


def to_point(values: Iterable[Any]) -> Point:
    """Convert three numbers of an array or another iterable to floats."""
    x, y, z = (float(value) for value in values)
    return x, y, z


def _superellipse(terms: Sequence[Floats], exponent: float) -> Floats:
    """Compute a level that is 0 at the centre and 1 on the surface; `terms` are distances along the axes in radii."""
    if exponent == 2.0:
        return np.asarray(np.sqrt(sum(term**2 for term in terms)))
    power = np.float32(exponent)
    return np.asarray(sum(term**power for term in terms) ** (1 / power))


@dataclass(frozen=True)
class Ellipsoid:
    """A (super-)ellipsoid; `exponent` above 2 makes it boxy."""

    centre: Point
    radii: Point
    exponent: float = 2.0

    def bounds(self) -> Bounds:
        (cx, cy, cz), (rx, ry, rz) = self.centre, self.radii
        return (cx - rx, cy - ry, cz - rz), (cx + rx, cy + ry, cz + rz)

    def distance(self, x: Floats, y: Floats, z: Floats) -> Floats:
        """Compute the distance, which is exact only for a sphere."""
        terms = [
            np.abs((value - centre) / radius)
            for value, centre, radius in zip((x, y, z), self.centre, self.radii, strict=True)
        ]
        return np.asarray((_superellipse(terms, self.exponent) - 1) * min(self.radii), dtype=np.float32)


@dataclass(frozen=True)
class Capsule:
    """A rod between two points whose radius changes linearly."""

    start: Point
    end: Point
    start_radius: float
    end_radius: float

    def bounds(self) -> Bounds:
        radius = max(self.start_radius, self.end_radius)
        return to_point(np.minimum(self.start, self.end) - radius), to_point(np.maximum(self.start, self.end) + radius)

    def distance(self, x: Floats, y: Floats, z: Floats) -> Floats:
        axis = np.subtract(self.end, self.start).astype(np.float32)
        px, py, pz = x - self.start[0], y - self.start[1], z - self.start[2]
        along = np.clip((px * axis[0] + py * axis[1] + pz * axis[2]) / float(axis @ axis), 0, 1)
        gap = np.sqrt((px - along * axis[0]) ** 2 + (py - along * axis[1]) ** 2 + (pz - along * axis[2]) ** 2)
        radius = self.start_radius + along * (self.end_radius - self.start_radius)
        return np.asarray(gap - radius, dtype=np.float32)


@dataclass(frozen=True)
class SuperellipseStack:
    """A stack of superellipses: rows of `knots` are (z, centre x, centre y, radius x, radius y), z descending.

    Its ends are flat. `shrink_mm` makes all radii smaller, so one table gives skin, fat and muscle.
    """

    knots: Knots
    exponent: float = 2.0
    shrink_mm: float = 0.0

    def bounds(self) -> Bounds:
        table = np.asarray(self.knots)
        low = (table[:, 1] - table[:, 3]).min(), (table[:, 2] - table[:, 4]).min(), table[:, 0].min()
        high = (table[:, 1] + table[:, 3]).max(), (table[:, 2] + table[:, 4]).max(), table[:, 0].max()
        return to_point(low), to_point(high)

    def distance(self, x: Floats, y: Floats, z: Floats) -> Floats:
        table = np.asarray(self.knots, dtype=np.float32)[::-1]
        rows = [np.interp(z, table[:, 0], table[:, column]).astype(np.float32) for column in range(1, 5)]
        radius_x = np.maximum(rows[2] - self.shrink_mm, 1)
        radius_y = np.maximum(rows[3] - self.shrink_mm, 1)
        across, along = np.abs((x - rows[0]) / radius_x), np.abs((y - rows[1]) / radius_y)
        side = (_superellipse((across, along), self.exponent) - 1) * np.minimum(radius_x, radius_y)
        ends = np.maximum(table[0, 0] - z, z - table[-1, 0])
        return np.asarray(np.maximum(side, ends), dtype=np.float32)


@dataclass(frozen=True)
class Arch:
    """The front half of an elliptic ring, as in jaws and the hyoid; `teeth` is the number of pieces."""

    centre: Point
    radii: tuple[float, float]
    half_width: float
    half_height: float
    teeth: int = 0

    def bounds(self) -> Bounds:
        (cx, cy, cz), (rx, ry) = self.centre, self.radii
        w, h = self.half_width, self.half_height
        return (cx - rx - w, cy - ry - w, cz - h), (cx + rx + w, cy + w, cz + h)

    def distance(self, x: Floats, y: Floats, z: Floats) -> Floats:
        across, along = (x - self.centre[0]) / self.radii[0], (y - self.centre[1]) / self.radii[1]
        ring = np.abs(np.sqrt(across**2 + along**2) - 1) * min(self.radii) - self.half_width
        behind = (y - self.centre[1]).astype(np.float32)
        flat = np.abs(z - self.centre[2]) - self.half_height
        result = np.maximum(np.maximum(ring, behind), flat)
        if self.teeth:
            angle = np.arctan2(along, across)
            result = np.maximum(result, 1.2 - np.abs(np.sin(angle * self.teeth)) * 3)
        return np.asarray(result, dtype=np.float32)


Shape = Ellipsoid | Capsule | SuperellipseStack | Arch


@dataclass(frozen=True)
class BodyPart:
    """A shape with its CT value (HU) and PET value (SUV).

    A value of None leaves the image unchanged. `rough_mm` makes the surface uneven. A part that is not `leaning` does
    not follow the lean of the neck.
    """

    shape: Shape
    hu: float | None
    suv: float | None
    rough_mm: float = 0.0
    leaning: bool = True


def add_mirror_image(part: BodyPart) -> Iterator[BodyPart]:
    """Yield a part and its mirror image on the other side of the body.

    Raises:
        TypeError: The shape is an `Arch`, which is symmetric.
    """
    yield part
    shape = part.shape
    mirror_image: Shape
    if isinstance(shape, Ellipsoid):
        mirror_image = replace(shape, centre=_flip(shape.centre))
    elif isinstance(shape, Capsule):
        mirror_image = replace(shape, start=_flip(shape.start), end=_flip(shape.end))
    elif isinstance(shape, SuperellipseStack):
        mirror_image = replace(shape, knots=tuple((z, -x, y, rx, ry) for z, x, y, rx, ry in shape.knots))
    else:
        raise TypeError(f"no mirror image of {shape!r}")
    yield replace(part, shape=mirror_image)


def _flip(place: Point) -> Point:
    return -place[0], place[1], place[2]


@dataclass(frozen=True)
class Heights:
    """One patient's heights as pairs (anatomical height, mm above the patient's origin), both ascending.

    Between two landmarks the body is stretched evenly. The brain's lower end is `BRAIN_BOTTOM` mm above the origin.
    """

    knots: tuple[tuple[float, float], ...]

    def to_mm(self, anatomical: Floats | float) -> Floats:
        """Convert anatomical heights to millimetres above the patient's origin."""
        heights, mm = zip(*self.knots, strict=True)
        return np.asarray(np.interp(anatomical, heights, mm))

    def to_anatomical(self, mm: Floats | float) -> Floats:
        """Convert millimetres above the patient's origin to anatomical heights."""
        heights, ends = zip(*self.knots, strict=True)
        return np.asarray(np.interp(mm, ends, heights))


@dataclass(frozen=True)
class Frame:
    """Transform from anatomical to patient (LPS) millimetres: scale, lean and sway with height, then a shift.

    Attributes:
        scale: Scale of x and y.
        heights: Heights of the patient.
        origin_mm: Shift.
        lean: Shift (x, y) per mm of height.
        sway_mm: Amplitude (x, y) of a slow wave along z.
        sway_phase: Phase of the wave.
    """

    scale: tuple[float, float]
    heights: Heights
    origin_mm: Point
    lean: tuple[float, float]
    sway_mm: tuple[float, float]
    sway_phase: float

    def shift(self, z: Floats) -> tuple[Floats, Floats]:
        """Compute the shift of the midline (x, y), in mm, at anatomical height `z`."""
        height = np.clip(z, *LEANING_MM)
        wave = np.sin(height / 70 + self.sway_phase)
        return (
            np.asarray(height * self.lean[0] + wave * self.sway_mm[0], dtype=np.float32),
            np.asarray(height * self.lean[1] + wave * self.sway_mm[1], dtype=np.float32),
        )

    def to_patient(self, place: Point) -> Point:
        """Convert an anatomical point to patient millimetres."""
        x, y = map(float, self.shift(np.asarray(place[2], dtype=np.float32)))
        scaled = (place[0] * self.scale[0] + x, place[1] * self.scale[1] + y, float(self.heights.to_mm(place[2])))
        return to_point(np.add(scaled, self.origin_mm))

    def height_mm(self, anatomical: float) -> float:
        """Convert an anatomical height to patient z."""
        return self.origin_mm[2] + float(self.heights.to_mm(anatomical))

    def anatomical_height(self, z_mm: Floats | float) -> Floats:
        """Convert patient z to an anatomical height."""
        return np.asarray(self.heights.to_anatomical(z_mm - self.origin_mm[2]), dtype=np.float32)


@dataclass(frozen=True)
class Axes:
    """Voxel centres in patient millimetres along z, y and x; equally spaced, ascending."""

    z: Floats
    y: Floats
    x: Floats

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the array shape (z, y, x)."""
        return len(self.z), len(self.y), len(self.x)

    @property
    def spacing_mm(self) -> Point:
        """Return the voxel spacing (z, y, x)."""
        return to_point(values[1] - values[0] for values in (self.z, self.y, self.x))

    def box(self, low: Corner, high: Corner) -> Box:
        """Find the slices (z, y, x) of the voxels with centres in a box; its corners are (x, y, z) in patient mm."""
        cuts = [
            slice(int(np.searchsorted(values, low[axis])), int(np.searchsorted(values, high[axis], side="right")))
            for values, axis in ((self.z, 2), (self.y, 1), (self.x, 0))
        ]
        return cuts[0], cuts[1], cuts[2]

    def coordinates(self, box: Box) -> tuple[Floats, Floats, Floats]:
        """Return the voxel centres (x, y, z) of a box in patient mm; they broadcast to (z, y, x)."""
        return self.x[box[2]][None, None, :], self.y[box[1]][None, :, None], self.z[box[0]][:, None, None]


def make_regular_axes(low: Point, high: Point, spacing: Point) -> Axes:
    """Make axes from `low` to `high` (patient mm) with `spacing`, all in (x, y, z) order."""
    lines = [np.arange(a, b + s / 2, s, dtype=np.float32) for a, b, s in zip(low, high, spacing, strict=True)]
    return Axes(lines[2], lines[1], lines[0])


def compute_lerp_indices(source: Floats, target: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Compute the index of the lower neighbour in `source` of each `target`, and the weight of the upper neighbour.

    Targets beyond the ends of `source` get the value at the end.
    """
    position = np.clip((target - source[0]) / (source[1] - source[0]), 0, len(source) - 1)
    lower = np.minimum(position.astype(np.intp), len(source) - 2)
    return lower, (position - lower).astype(np.float32)


def sample(array: Floats, source: Axes, target: Axes, outside: float) -> Floats:
    """Sample `array` (z, y, x) on `source` linearly at `target`; the value outside of `source` is `outside`."""
    result = np.full(target.shape, outside, dtype=np.float32)
    inside = [
        np.flatnonzero((t >= s[0] - (s[1] - s[0]) / 2) & (t <= s[-1] + (s[1] - s[0]) / 2))
        for s, t in zip((source.z, source.y, source.x), (target.z, target.y, target.x), strict=True)
    ]
    if any(len(indices) == 0 for indices in inside):
        return result
    zs, ys, xs = (slice(int(i[0]), int(i[-1]) + 1) for i in inside)
    (zi, zw), (yi, yw), (xi, xw) = (
        compute_lerp_indices(s, t)
        for s, t in ((source.z, target.z[zs]), (source.y, target.y[ys]), (source.x, target.x[xs]))
    )
    for row, (lower, weight) in enumerate(zip(zi, zw, strict=True)):
        plane = array[lower] * (1 - weight) + array[lower + 1] * weight
        plane = plane[yi] * (1 - yw[:, None]) + plane[yi + 1] * yw[:, None]
        result[zs.start + row, ys, xs] = plane[:, xi] * (1 - xw) + plane[:, xi + 1] * xw
    return result


class Canvas:
    """CT (HU) and PET (SUV) of one body on a coarse grid, painted part by part; later parts cover earlier parts."""

    def __init__(self, axes: Axes, frame: Frame, rng: np.random.Generator) -> None:
        self.axes = axes
        self.frame = frame
        self.hu: Floats = np.full(axes.shape, AIR_HU, dtype=np.float32)
        self.suv: Floats = np.zeros(axes.shape, dtype=np.float32)
        self._height = frame.anatomical_height(axes.z)
        self._shift_x, self._shift_y = frame.shift(self._height)
        self.unevenness = draw_smooth_noise(axes, UNEVENNESS_MM, rng)

    def paint(self, part: BodyPart) -> None:
        """Paint one part with an edge one voxel wide."""
        box = self._box(part)
        if any(cut.stop <= cut.start for cut in box):
            return
        x, y, z = self._anatomical(box, part.leaning)
        distance = part.shape.distance(x, y, z)
        if part.rough_mm:
            distance = distance + self.unevenness[box] * np.float32(part.rough_mm)
        alpha = np.clip(0.5 - distance / np.float32(EDGE_MM), 0, 1)
        for image, value in ((self.hu, part.hu), (self.suv, part.suv)):
            if value is not None:
                view = image[box]
                view += alpha * (np.float32(value) - view)

    def _box(self, part: BodyPart) -> Box:
        low, high = part.shape.bounds()
        margin = EDGE_MM + 2.5 * part.rough_mm
        frame = self.frame
        rows = (self._height >= low[2] - margin) & (self._height <= high[2] + margin)
        if not rows.any():
            return slice(0, 0), slice(0, 0), slice(0, 0)
        shifts = [shift[rows] * part.leaning for shift in (self._shift_x, self._shift_y)]
        lowest, highest = ([float(end(shift)) for shift in shifts] for end in (np.min, np.max))
        low_x, low_y = (np.array(low[:2]) - margin) * frame.scale + lowest + frame.origin_mm[:2]
        high_x, high_y = (np.array(high[:2]) + margin) * frame.scale + highest + frame.origin_mm[:2]
        return self.axes.box(
            (low_x, low_y, frame.height_mm(low[2] - margin)), (high_x, high_y, frame.height_mm(high[2] + margin))
        )

    def _anatomical(self, box: Box, leaning: bool) -> tuple[Floats, Floats, Floats]:
        frame, (x, y, _) = self.frame, self.axes.coordinates(box)
        shift_x, shift_y = (shift[box[0]][:, None, None] * leaning for shift in (self._shift_x, self._shift_y))
        x, y = x - frame.origin_mm[0] - shift_x, y - frame.origin_mm[1] - shift_y
        return x / np.float32(frame.scale[0]), y / np.float32(frame.scale[1]), self._height[box[0]][:, None, None]


def draw_smooth_noise(axes: Axes, scale_mm: float, rng: np.random.Generator) -> Floats:
    """Draw noise (z, y, x) of roughly unit variance that changes over `scale_mm`."""
    from scipy import ndimage

    lines = (axes.x, axes.y, axes.z)
    low, high = to_point(line[0] for line in lines), to_point(float(line[-1]) + scale_mm for line in lines)
    coarse = make_regular_axes(low, high, (scale_mm / 2,) * 3)
    noise = ndimage.gaussian_filter(rng.standard_normal(coarse.shape, dtype=np.float32), 1.0)
    noise /= noise.std()
    return sample(noise, coarse, axes, 0.0)
