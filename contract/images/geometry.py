"""Where an image lies in the patient: the one place that turns (x, y, z) into (z, y, x)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from contract.errors import HecktorError, InputError

RELATIVE_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Geometry:
    """A regular grid in LPS patient space.

    `size`, `spacing_mm` and `origin_mm` are in (x, y, z) order, as SimpleITK gives them; `direction` is the
    3 x 3 matrix in row-major order whose columns are the axes' unit vectors. `array_shape` is (z, y, x).
    """

    size: tuple[int, int, int]
    spacing_mm: tuple[float, float, float]
    origin_mm: tuple[float, float, float]
    direction: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)

    @classmethod
    def of(cls, image: Any) -> Geometry:
        """The geometry of a three-dimensional SimpleITK image or image reader."""
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
        """The 4 x 4 matrix from a homogeneous voxel index (x, y, z, 1) to LPS millimetres."""
        matrix = np.eye(4)
        matrix[:3, :3] = np.asarray(self.direction).reshape(3, 3) * np.asarray(self.spacing_mm)
        matrix[:3, 3] = self.origin_mm
        return matrix

    def physical_to_index_matrix(self) -> npt.NDArray[np.float64]:
        """The inverse of `index_to_physical_matrix`."""
        return np.asarray(np.linalg.inv(self.index_to_physical_matrix()), dtype=np.float64)

    def corners_mm(self) -> npt.NDArray[np.float64]:
        """The eight outer corners of the voxel block (half a voxel beyond the centres), shape (8, 3), LPS."""
        low, high = -0.5, np.asarray(self.size) - 0.5
        index = np.array([[(low if bit == 0 else high[axis]) for axis, bit in enumerate(bits)] for bits in _BITS])
        matrix = self.index_to_physical_matrix()
        return np.asarray(index @ matrix[:3, :3].T + matrix[:3, 3], dtype=np.float64)

    def cropped(self, start: tuple[int, int, int], size: tuple[int, int, int]) -> Geometry:
        """The sub-grid of `size` voxels whose first voxel is `start`; both in (x, y, z)."""
        matrix = self.index_to_physical_matrix()
        origin = matrix[:3, :3] @ np.asarray(start, dtype=np.float64) + matrix[:3, 3]
        return Geometry(size, self.spacing_mm, (float(origin[0]), float(origin[1]), float(origin[2])), self.direction)

    def check(self, name: str, error: type[HecktorError] = InputError) -> None:
        """Refuse a grid that cannot hold a patient: empty, spacing not positive, axes not orthonormal.

        Raises:
            InputError: (or `error`) naming `name`, what was found and what was expected.
        """
        numbers = (*self.spacing_mm, *self.origin_mm, *self.direction)
        if not all(math.isfinite(value) for value in numbers):
            raise error(name, "the header holds a number that is not finite", "a plain geometry")
        if min(self.size) < 1:
            raise error(name, f"size {self.size}", "at least one voxel along each axis")
        if min(self.spacing_mm) <= 0:
            raise error(name, f"spacing {self.spacing_mm} mm", "positive numbers")
        axes = np.asarray(self.direction).reshape(3, 3)
        if np.abs(axes.T @ axes - np.eye(3)).max() > 1e-3:
            raise error(name, f"direction {_numbers(self.direction)} is not orthonormal")

    def differences(self, other: Geometry) -> list[str]:
        """What differs from `other`, in words; empty where both grids are the same.

        Spacing and origin may differ by 1e-3 of the spacing, direction cosines by 1e-3; size must be equal.
        """
        tolerance = RELATIVE_TOLERANCE * np.asarray(self.spacing_mm)
        found = []
        if self.size != other.size:
            found.append(f"size {self.size} against {other.size}")
        for name, mine, theirs in (
            ("spacing_mm", self.spacing_mm, other.spacing_mm),
            ("origin_mm", self.origin_mm, other.origin_mm),
        ):
            if not bool(np.all(np.abs(np.asarray(mine) - np.asarray(theirs)) <= tolerance)):
                found.append(f"{name} {_numbers(mine)} against {_numbers(theirs)}")
        gap = np.abs(np.asarray(self.direction) - np.asarray(other.direction))
        if not bool(np.all(gap <= RELATIVE_TOLERANCE)):
            found.append(f"direction {_numbers(self.direction)} against {_numbers(other.direction)}")
        return found

    def describe(self) -> str:
        """One line for messages."""
        return (
            f"size {self.size}, spacing {_numbers(self.spacing_mm)} mm, origin {_numbers(self.origin_mm)} mm, "
            f"direction {_numbers(self.direction)}"
        )


_BITS = [(x, y, z) for z in (0, 1) for y in (0, 1) for x in (0, 1)]


def _numbers(values: tuple[float, ...]) -> str:
    return "(" + ", ".join(f"{value:.6g}" for value in values) + ")"
