"""Describe how a mask's grid differs from the reference's grid, the common mistakes, and the effect of resampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from contract.errors import Finding
from contract.images.geometry import Geometry

# Relative tolerance, the same as in `Geometry.find_differences`.
_TOLERANCE: Final = 1e-3
_AXES: Final = "xyz"
_COPY: Final = "copy the CT's (SimpleITK: mask.CopyInformation(ct); nibabel: the CT's affine)"
_RESAMPLE: Final = "resample it to the CT by nearest neighbour"
_ORDER: Final = "SimpleITK's arrays are (z, y, x), nibabel's (x, y, z)"


@dataclass(frozen=True)
class Resampling:
    """Grids of a mask before and after it was resampled by nearest neighbour."""

    mask: Geometry
    reference: Geometry

    @property
    def is_outside(self) -> bool:
        """Whether the mask lies outside the reference's field of view, so only background is left."""
        return not overlaps(self.mask, self.reference)

    def make_finding(self, what: str, first: str = "") -> Finding:
        """Return the warning about resampling.

        Args:
            what: The mask, or the masks.
            first: Start of the description if the warning is about several masks, such as the first mask's name.
        """
        problem = "on another grid than the reference"
        action = "resampled by nearest neighbour"
        if self.is_outside:
            problem = "no overlap with the reference's field of view"
            action = "scored as background"
        return Finding(what, f"{problem} ({first}{describe_grids(self.mask, self.reference)})", action=action)


def describe_grids(mask: Geometry, reference: Geometry) -> str:
    """Describe both grids, and the mistake that they suggest."""
    hint = guess_mistake(mask, reference)
    grids = f"its grid is {mask.describe()}; expected the CT's: {reference.describe()}"
    return f"{hint}; {grids}" if hint else grids


def guess_mistake(mask: Geometry, reference: Geometry) -> str:
    """Describe the common mistake that leads to this grid, and how to correct it; empty if no common mistake fits."""
    if _is_default(mask) and not _is_default(reference):
        reverse = f", and its axes are in reverse order ({_ORDER})" if _is_reverse(mask, reference) else ""
        return f"its header is missing (1 mm spacing, origin 0){reverse}: {_COPY}"
    if _is_reverse(mask, reference) and np.allclose(mask.spacing_mm, reference.spacing_mm, rtol=_TOLERANCE):
        return f"its array is in reverse order ({_ORDER}): transpose it"
    changes = _find_axis_changes(mask, reference)
    return f"it covers the CT's space with {changes}: {_RESAMPLE}" if changes else ""


def overlaps(mask: Geometry, reference: Geometry) -> bool:
    """Return whether two fields of view share any volume, by the mask's extent along the reference's axes."""
    matrix = reference.physical_to_index_matrix()
    corners = mask.corners_mm() @ matrix[:3, :3].T + matrix[:3, 3]
    return bool(np.all((corners.max(axis=0) > -0.5) & (corners.min(axis=0) < np.subtract(reference.size, 0.5))))


def _is_default(grid: Geometry) -> bool:
    """Return whether an array was saved without a header; nibabel's identity reverses x and y in LPS."""
    axes = np.abs(np.reshape(grid.direction, (3, 3)))
    return set(grid.spacing_mm) == {1.0} and not any(grid.origin_mm) and bool(np.array_equal(axes, np.eye(3)))


def _is_reverse(mask: Geometry, reference: Geometry) -> bool:
    return mask.size == reference.size[::-1] != reference.size


def _find_axis_changes(mask: Geometry, reference: Geometry) -> str:
    """Describe the axes that are flipped or in another order; empty if the grids have further differences."""
    relative = _get_axes(reference).T @ _get_axes(mask)
    order = [int(axis) for axis in np.abs(relative).argmax(axis=0)]
    signs = [int(np.sign(relative[axis, column])) for column, axis in enumerate(order)]
    exact = np.zeros((3, 3))
    exact[order, range(3)] = signs
    centres_mm = [grid.corners_mm().mean(axis=0) for grid in (mask, reference)]
    is_same_space = (
        sorted(order) == [0, 1, 2]
        and np.abs(relative - exact).max() <= _TOLERANCE
        and mask.size == tuple(reference.size[axis] for axis in order)
        and np.allclose(mask.spacing_mm, [reference.spacing_mm[axis] for axis in order], rtol=_TOLERANCE)
        and np.abs(np.subtract(*centres_mm)).max() <= _TOLERANCE * max(reference.spacing_mm)
    )
    return _describe_axis_changes(order, signs) if is_same_space else ""


def _describe_axis_changes(order: Sequence[int], signs: Sequence[int]) -> str:
    changes = []
    if list(order) != [0, 1, 2]:
        changes.append(f"axes in the order ({', '.join(_AXES[axis] for axis in order)})")
    flipped = [_AXES[axis] for axis, sign in zip(order, signs, strict=True) if sign < 0]
    if flipped:
        changes.append(f"{' and '.join(flipped)} flipped")
    return " and ".join(changes)


def _get_axes(grid: Geometry) -> npt.NDArray[np.float64]:
    return np.reshape(np.asarray(grid.direction, dtype=np.float64), (3, 3))
