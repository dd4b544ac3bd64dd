"""Image grids in patient space, and the conversion between (x, y, z) and (z, y, x) order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract.errors import HecktorError, InputError

# Tolerance of direction cosines, and of spacing and origin as a fraction of the spacing.
_TOLERANCE: Final = 1e-3
# Relative error of a spacing in a header: single precision in NIfTI (6e-8), six digits in some text headers (5e-6).
HEADER_PRECISION: Final = 1e-5


@dataclass(frozen=True)
class Geometry:
    """A regular grid in LPS patient space.

    Attributes:
        size: Number of voxels along (x, y, z), as in SimpleITK.
        spacing_mm: Distance of voxel centres along (x, y, z).
        origin_mm: LPS position of the centre of voxel (0, 0, 0).
        direction: 3 x 3 matrix in row-major order whose columns are the unit vectors of the axes.
    """

    size: tuple[int, int, int]
    spacing_mm: tuple[float, float, float]
    origin_mm: tuple[float, float, float]
    direction: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)

    @classmethod
    def from_image(cls, image: Any) -> Geometry:
        """Return the geometry of a three-dimensional SimpleITK image or image reader."""
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
        """Compute the 4 x 4 matrix from homogeneous voxel indices (x, y, z, 1) to LPS millimetres."""
        matrix = np.eye(4)
        matrix[:3, :3] = np.asarray(self.direction).reshape(3, 3) * np.asarray(self.spacing_mm)
        matrix[:3, 3] = self.origin_mm
        return matrix

    def physical_to_index_matrix(self) -> npt.NDArray[np.float64]:
        """Compute the 4 x 4 matrix from homogeneous LPS millimetres to voxel indices (x, y, z, 1)."""
        return np.asarray(np.linalg.inv(self.index_to_physical_matrix()), dtype=np.float64)

    def corners_mm(self) -> npt.NDArray[np.float64]:
        """Compute the eight outer corners of the image, half a voxel beyond the outer voxel centres.

        Returns:
            LPS positions, shape (8, 3). The x index varies fastest, then y, then z.
        """
        x, y, z = self.size
        corners = [(i, j, k) for k in (-0.5, z - 0.5) for j in (-0.5, y - 0.5) for i in (-0.5, x - 0.5)]
        matrix = self.index_to_physical_matrix()
        return np.asarray(np.array(corners) @ matrix[:3, :3].T + matrix[:3, 3], dtype=np.float64)

    def crop(self, start: tuple[int, int, int], size: tuple[int, int, int]) -> Geometry:
        """Return the part of the grid with `size` voxels from voxel `start`, both (x, y, z).

        The part may reach beyond the grid.
        """
        matrix = self.index_to_physical_matrix()
        origin = matrix[:3, :3] @ np.asarray(start, dtype=np.float64) + matrix[:3, 3]
        return Geometry(size, self.spacing_mm, (float(origin[0]), float(origin[1]), float(origin[2])), self.direction)

    def check(self, name: str, error: type[HecktorError] = InputError) -> None:
        """Check that the grid is valid.

        Args:
            name: Name of the file in messages.
            error: Class of the exceptions raised.

        Raises:
            HecktorError: Of class `error`: The grid has no voxels, a number is not finite, the spacing is not positive,
                or the axes are not orthonormal within 1e-3.
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
            problem = f"direction {format_numbers(self.direction)} is not orthonormal"
            raise error(name, problem, "perpendicular unit vectors (resample it, or correct its header)")

    def find_differences(self, grid: Geometry) -> list[str]:
        """Describe the differences from another grid; the list is empty if both grids are the same.

        Sizes must be equal. Spacing and origin may differ by 1e-3 of this grid's spacing, direction cosines by 1e-3.
        """
        differences = []
        if self.size != grid.size:
            differences.append(f"size {self.size} against {grid.size}")
        tolerance_mm = _TOLERANCE * np.asarray(self.spacing_mm)
        for name, own, compared, tolerance in (
            ("spacing_mm", self.spacing_mm, grid.spacing_mm, tolerance_mm),
            ("origin_mm", self.origin_mm, grid.origin_mm, tolerance_mm),
            ("direction", self.direction, grid.direction, _TOLERANCE),
        ):
            # NaN differs from every number.
            if not np.all(np.abs(np.asarray(own) - np.asarray(compared)) <= tolerance):
                differences.append(f"{name} {format_numbers(own)} against {format_numbers(compared)}")
        return differences

    def describe(self) -> str:
        """Format all fields as one line for messages."""
        spacing_mm, origin_mm = format_numbers(self.spacing_mm), format_numbers(self.origin_mm)
        direction = format_numbers(self.direction)
        return f"size {self.size}, spacing {spacing_mm} mm, origin {origin_mm} mm, direction {direction}"


def is_within(size: Any, limit: float) -> Any:
    """Return whether a length or volume is at most `limit`, element by element for an array.

    Lengths and volumes are computed from the spacing in a header, which file formats store with a relative error of up
    to `HEADER_PRECISION`. A difference of this size does not count. NaN is not within any limit.
    """
    return size <= limit * (1 + HEADER_PRECISION)


def is_below(size: Any, limit: float) -> Any:
    """Return whether a length or volume is below `limit`, element by element for an array.

    As in `is_within`, a relative difference of `HEADER_PRECISION` does not count. NaN is not below any limit.
    """
    return size < limit * (1 - HEADER_PRECISION)


def format_numbers(values: Iterable[float]) -> str:
    """Format numbers with six significant digits in parentheses, for messages."""
    return "(" + ", ".join(f"{value:.6g}" for value in values) + ")"
