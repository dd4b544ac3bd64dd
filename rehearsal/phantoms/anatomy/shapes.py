"""Implicit shapes, painted with soft edges onto a canvas.

Shapes are in anatomical millimetres; the axes (x, y, z) point to the left, to the back and upwards. `bounds` returns
the lowest and the highest corner of a box that contains the shape. `distance` returns roughly the signed distance in
mm, negative inside, at coordinates that broadcast to (z, y, x).
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


def point(values: Iterable[Any]) -> Point:
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
        return point(np.minimum(self.start, self.end) - radius), point(np.maximum(self.start, self.end) + radius)

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
        return point(low), point(high)

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
class Part:
    """A shape with its CT value (HU) and PET value (SUV).

    A value of None leaves the image unchanged. `rough_mm` makes the surface uneven. A part that is not `leaning` does
    not follow the lean of the neck.
    """

    shape: Shape
    hu: float | None
    suv: float | None
    rough_mm: float = 0.0
    leaning: bool = True


def add_mirror_image(part: Part) -> Iterator[Part]:
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


def _flip(point: Point) -> Point:
    return -point[0], point[1], point[2]
