"""Implicit shapes in millimetres, painted with soft edges onto a canvas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Point = tuple[float, float, float]
Bounds = tuple[Point, Point]
Knots = tuple[tuple[float, float, float, float, float], ...]


class Shape(Protocol):
    """A body part in anatomical millimetres, axes (x, y, z) to the left, to the back and upwards."""

    def bounds(self) -> Bounds:
        """Lowest and highest corner (x, y, z) of a box that holds the shape."""

    def distance(self, x: Floats, y: Floats, z: Floats) -> Floats:
        """Roughly the signed distance in mm, negative inside; the coordinates broadcast to (z, y, x)."""


@dataclass(frozen=True)
class Ellipsoid:
    """A (super-)ellipsoid; ``exponent`` above 2 makes it boxy."""

    centre: Point
    radii: Point
    exponent: float = 2.0

    def bounds(self) -> Bounds:
        (cx, cy, cz), (rx, ry, rz) = self.centre, self.radii
        return (cx - rx, cy - ry, cz - rz), (cx + rx, cy + ry, cz + rz)

    def distance(self, x: Floats, y: Floats, z: Floats) -> Floats:
        """See `Shape`; exact only for a sphere."""
        terms = [
            np.abs((value - centre) / radius)
            for value, centre, radius in zip((x, y, z), self.centre, self.radii, strict=True)
        ]
        if self.exponent == 2.0:
            level = np.sqrt(terms[0] ** 2 + terms[1] ** 2 + terms[2] ** 2)
        else:
            power = np.float32(self.exponent)
            level = (terms[0] ** power + terms[1] ** power + terms[2] ** power) ** (1 / power)
        return np.asarray((level - 1) * min(self.radii), dtype=np.float32)


@dataclass(frozen=True)
class Capsule:
    """A rod between two points whose radius changes linearly."""

    start: Point
    end: Point
    start_radius: float
    end_radius: float

    def bounds(self) -> Bounds:
        radius = max(self.start_radius, self.end_radius)
        low = tuple(min(a, b) - radius for a, b in zip(self.start, self.end, strict=True))
        high = tuple(max(a, b) + radius for a, b in zip(self.start, self.end, strict=True))
        return (low[0], low[1], low[2]), (high[0], high[1], high[2])

    def distance(self, x: Floats, y: Floats, z: Floats) -> Floats:
        axis = np.subtract(self.end, self.start).astype(np.float32)
        px, py, pz = x - self.start[0], y - self.start[1], z - self.start[2]
        along = np.clip((px * axis[0] + py * axis[1] + pz * axis[2]) / float(axis @ axis), 0, 1)
        gap = np.sqrt((px - along * axis[0]) ** 2 + (py - along * axis[1]) ** 2 + (pz - along * axis[2]) ** 2)
        radius = self.start_radius + along * (self.end_radius - self.start_radius)
        return np.asarray(gap - radius, dtype=np.float32)


@dataclass(frozen=True)
class Column:
    """A stack of superellipses: rows of ``knots`` are (z, centre x, centre y, radius x, radius y), z descending.

    ``shrink_mm`` makes all radii smaller, so one table gives skin, fat and muscle.
    """

    knots: Knots
    exponent: float = 2.0
    shrink_mm: float = 0.0

    def bounds(self) -> Bounds:
        table = np.asarray(self.knots)
        low = (table[:, 1] - table[:, 3]).min(), (table[:, 2] - table[:, 4]).min(), table[:, 0].min()
        high = (table[:, 1] + table[:, 3]).max(), (table[:, 2] + table[:, 4]).max(), table[:, 0].max()
        return (float(low[0]), float(low[1]), float(low[2])), (float(high[0]), float(high[1]), float(high[2]))

    def distance(self, x: Floats, y: Floats, z: Floats) -> Floats:
        """See `Shape`; the ends are flat."""
        table = np.asarray(self.knots, dtype=np.float32)[::-1]
        rows = [np.interp(z, table[:, 0], table[:, column]).astype(np.float32) for column in range(1, 5)]
        radius_x = np.maximum(rows[2] - self.shrink_mm, 1)
        radius_y = np.maximum(rows[3] - self.shrink_mm, 1)
        across, along = np.abs((x - rows[0]) / radius_x), np.abs((y - rows[1]) / radius_y)
        if self.exponent == 2.0:
            level = np.sqrt(across**2 + along**2)
        else:
            power = np.float32(self.exponent)
            level = (across**power + along**power) ** (1 / power)
        side = (level - 1) * np.minimum(radius_x, radius_y)
        ends = np.maximum(table[0, 0] - z, z - table[-1, 0])
        return np.asarray(np.maximum(side, ends), dtype=np.float32)


@dataclass(frozen=True)
class Arch:
    """The front half of an elliptic ring, as in jaws and the hyoid; ``teeth`` is the number of pieces."""

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


@dataclass(frozen=True)
class Part:
    """A shape with its CT value (HU) and PET value (SUV).

    None leaves that image unchanged; ``rough_mm`` makes the surface uneven; a part that is not ``leaning`` ignores the
    lean of the neck.
    """

    shape: Shape
    hu: float | None
    suv: float | None
    rough_mm: float = 0.0
    leaning: bool = True


def mirrored(part: Part) -> Iterator[Part]:
    """The part and its mirror image on the other side of the body.

    Raises:
        TypeError: a shape without a mirror image, such as an `Arch`, which is symmetric by itself.
    """
    yield part
    shape = part.shape
    other: Shape
    if isinstance(shape, Ellipsoid):
        other = replace(shape, centre=_flip(shape.centre))
    elif isinstance(shape, Capsule):
        other = replace(shape, start=_flip(shape.start), end=_flip(shape.end))
    elif isinstance(shape, Column):
        other = replace(shape, knots=tuple((z, -x, y, rx, ry) for z, x, y, rx, ry in shape.knots))
    else:
        raise TypeError(f"no mirror image of {shape!r}")
    yield replace(part, shape=other)


def _flip(point: Point) -> Point:
    return -point[0], point[1], point[2]
