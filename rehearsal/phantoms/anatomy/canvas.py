"""The canvas of body parts: one coarse grid for CT and PET, sampled later by the scanners."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rehearsal.phantoms.anatomy.body import Heights
from rehearsal.phantoms.anatomy.shapes import Floats, Part, Point, point

AIR_HU = -1000.0
Box = tuple[slice, slice, slice]
Corner = Point | NDArray[np.float64]
# Voxel size of the canvas in plane, which is also the width of the painted edges.
EDGE_MM = 2.0
# Width of the bumps of organ surfaces and of tissue density.
UNEVENNESS_MM = 14.0
# The neck leans and sways between these anatomical heights; above and below the body stays straight.
LEANING_MM = (-200, 170)


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
        return point(np.add(scaled, self.origin_mm))

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
        """Array shape (z, y, x)."""
        return len(self.z), len(self.y), len(self.x)

    @property
    def spacing_mm(self) -> Point:
        """Spacing (z, y, x)."""
        return point(values[1] - values[0] for values in (self.z, self.y, self.x))

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

    def paint(self, part: Part) -> None:
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

    def _box(self, part: Part) -> Box:
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
    low, high = point(line[0] for line in lines), point(float(line[-1]) + scale_mm for line in lines)
    coarse = make_regular_axes(low, high, (scale_mm / 2,) * 3)
    noise = ndimage.gaussian_filter(rng.standard_normal(coarse.shape, dtype=np.float32), 1.0)
    noise /= noise.std()
    return sample(noise, coarse, axes, 0.0)
