"""Image grids in patient space, and the conversion between (x, y, z) and (z, y, x) order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract.errors import HecktorError, InputError

_TOLERANCE: Final = 1e-3
# Relative error of a spacing in a header: single precision in NIfTI (6e-8), six digits in some text headers (5e-6).
HEADER_PRECISION: Final = 1e-5


@dataclass(frozen=True)
class Geometry:
    """A regular grid in LPS patient space.

    Attributes:
        size: voxels along (x, y, z), as in SimpleITK.
        spacing_mm: distance of voxel centres along (x, y, z).
        origin_mm: LPS position of the centre of voxel (0, 0, 0).
        direction: 3 x 3 matrix in row-major order whose columns are the unit vectors of the axes.
    """

    size: tuple[int, int, int]
    spacing_mm: tuple[float, float, float]
    origin_mm: tuple[float, float, float]
    direction: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)

    @classmethod
    def from_image(cls, image: Any) -> Geometry:
        """Geometry of a three-dimensional SimpleITK image or image reader."""
        size, spacing = image.GetSize(), image.GetSpacing()
        origin, direction = image.GetOrigin(), image.GetDirection()
        return cls(
            (int(size[0]), int(size[1]), int(size[2])),
            (float(spacing[0]), float(spacing[1]), float(spacing[2])),
            (float(origin[0]), float(origin[1]), float(origin[2])),
            tuple(float(value) for value in direction),
        )

    @property
    def array_shape(self) -> tuple[int, int, int]:
        """Shape of the voxel array, (z, y, x)."""
        return (self.size[2], self.size[1], self.size[0])

    @property
    def array_spacing_mm(self) -> tuple[float, float, float]:
        """Voxel spacing in the array's order, (z, y, x)."""
        return (self.spacing_mm[2], self.spacing_mm[1], self.spacing_mm[0])

    @property
    def voxel_count(self) -> int:
        """Number of voxels."""
        return self.size[0] * self.size[1] * self.size[2]

    @property
    def voxel_volume_mm3(self) -> float:
        """Volume of one voxel in mm3."""
        return self.spacing_mm[0] * self.spacing_mm[1] * self.spacing_mm[2]

    def index_to_physical_matrix(self) -> npt.NDArray[np.float64]:
        """4 x 4 matrix from homogeneous voxel indices (x, y, z, 1) to LPS millimetres."""
        matrix = np.eye(4)
        matrix[:3, :3] = np.asarray(self.direction).reshape(3, 3) * np.asarray(self.spacing_mm)
        matrix[:3, 3] = self.origin_mm
        return matrix

    def physical_to_index_matrix(self) -> npt.NDArray[np.float64]:
        """4 x 4 matrix from homogeneous LPS millimetres to voxel indices (x, y, z, 1)."""
        return np.asarray(np.linalg.inv(self.index_to_physical_matrix()), dtype=np.float64)

    def corners_mm(self) -> npt.NDArray[np.float64]:
        """The eight outer corners of the image, half a voxel beyond the outer centres, shape (8, 3), LPS."""
        low, high = -0.5, np.asarray(self.size) - 0.5
        index = np.array([[(low if bit == 0 else high[axis]) for axis, bit in enumerate(bits)] for bits in _BITS])
        matrix = self.index_to_physical_matrix()
        return np.asarray(index @ matrix[:3, :3].T + matrix[:3, 3], dtype=np.float64)

    def crop(self, start: tuple[int, int, int], size: tuple[int, int, int]) -> Geometry:
        """The sub-grid of `size` voxels from voxel `start`, both (x, y, z). A `start` outside the grid is allowed."""
        matrix = self.index_to_physical_matrix()
        origin = matrix[:3, :3] @ np.asarray(start, dtype=np.float64) + matrix[:3, 3]
        return Geometry(size, self.spacing_mm, (float(origin[0]), float(origin[1]), float(origin[2])), self.direction)

    def check(self, name: str, error: type[HecktorError] = InputError) -> None:
        """Reject an invalid grid; `name` is the file in messages.

        Raises:
            HecktorError: of class `error`: empty, a number that is not finite, spacing not positive, or axes not
                orthonormal within 1e-3.
        """
        numbers = (*self.spacing_mm, *self.origin_mm, *self.direction)
        if not all(math.isfinite(value) for value in numbers):
            raise error(name, "a number in the header is not finite", "finite spacing, origin and direction")
        if min(self.size) < 1:
            raise error(name, f"size {self.size}", "at least one voxel along each axis")
        if min(self.spacing_mm) <= 0:
            raise error(name, f"spacing {self.spacing_mm} mm", "positive numbers")
        axes = np.asarray(self.direction).reshape(3, 3)
        if np.abs(axes.T @ axes - np.eye(3)).max() > _TOLERANCE:
            found = f"direction {_numbers(self.direction)} is not orthonormal"
            raise error(name, found, "perpendicular unit vectors (resample it, or correct its header)")

    def find_differences(self, other: Geometry) -> list[str]:
        """Differences from `other` in words; empty if both grids are the same.

        Sizes must be equal. Tolerances: 1e-3 of the spacing for spacing and origin, 1e-3 for direction cosines.
        """
        tolerance = _TOLERANCE * np.asarray(self.spacing_mm)
        differences = []
        if self.size != other.size:
            differences.append(f"size {self.size} against {other.size}")
        for name, mine, theirs in (
            ("spacing_mm", self.spacing_mm, other.spacing_mm),
            ("origin_mm", self.origin_mm, other.origin_mm),
        ):
            if not bool(np.all(np.abs(np.asarray(mine) - np.asarray(theirs)) <= tolerance)):
                differences.append(f"{name} {_numbers(mine)} against {_numbers(theirs)}")
        gap = np.abs(np.asarray(self.direction) - np.asarray(other.direction))
        if not bool(np.all(gap <= _TOLERANCE)):
            differences.append(f"direction {_numbers(self.direction)} against {_numbers(other.direction)}")
        return differences

    def describe(self) -> str:
        """One line with all fields, for messages."""
        return (
            f"size {self.size}, spacing {_numbers(self.spacing_mm)} mm, origin {_numbers(self.origin_mm)} mm, "
            f"direction {_numbers(self.direction)}"
        )


def is_within(measured: Any, limit: float) -> Any:
    """Return whether a length or volume, or each one of an array, is at most `limit`.

    A measured value follows from the spacing in a header, and so does not depend on the file format only up to
    `HEADER_PRECISION`. A difference of this size does not count. NaN is not within any limit.
    """
    return measured <= limit * (1 + HEADER_PRECISION)


def is_below(measured: Any, limit: float) -> Any:
    """Return whether a length or volume, or each one of an array, is below `limit`, as in `is_within`.

    NaN is not below any limit.
    """
    return measured < limit * (1 - HEADER_PRECISION)


_BITS = [(x, y, z) for z in (0, 1) for y in (0, 1) for x in (0, 1)]


def _numbers(values: tuple[float, ...]) -> str:
    return "(" + ", ".join(f"{value:.6g}" for value in values) + ")"
