"""Bone around the throat, to plan tumours that invade it and tumours that spare it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rehearsal.phantoms.anatomy.body import Body
from rehearsal.phantoms.anatomy.canvas import Axes, Canvas, Frame, regular_axes
from rehearsal.phantoms.anatomy.head_and_neck import body_parts
from rehearsal.phantoms.anatomy.shapes import Floats, Point, point

BONE_HU: Final = 250
STEP_MM: Final = 2.0
# Corners of the box (x, y, z) around the patient's origin; its heights are anatomical.
_LOW: Final = (-70.0, -100.0, -80.0)
_HIGH: Final = (70.0, 70.0, 60.0)


@dataclass(frozen=True)
class Bones:
    """Voxels of bone, and of bone with a margin of one voxel, (z, y, x) on `axes`; False outside."""

    axes: Axes
    bone: NDArray[np.bool_]
    margin: NDArray[np.bool_]

    def share(self, points_mm: Floats, *, with_margin: bool = False) -> float:
        """Share of the points (n, 3), x, y, z in patient mm, that lie in bone."""
        voxels = self.margin if with_margin else self.bone
        lines = (self.axes.x, self.axes.y, self.axes.z)
        indices = [np.rint((points_mm[:, axis] - line[0]) / STEP_MM).astype(int) for axis, line in enumerate(lines)]
        inside = np.all(
            [(index >= 0) & (index < len(line)) for index, line in zip(indices, lines, strict=True)], axis=0
        )
        x, y, z = (index[inside] for index in indices)
        return float(voxels[z, y, x].sum() / len(points_mm))


def bones_of(body: Body, frame: Frame, rng: np.random.Generator) -> Bones:
    """Paint the patient's throat and return its bones; `rng` draws the unevenness of soft tissue."""
    from scipy import ndimage

    low, high = (_corner(frame, corner) for corner in (_LOW, _HIGH))
    axes = regular_axes(low, high, (STEP_MM,) * 3)
    canvas = Canvas(axes, frame, rng)
    for part in body_parts(body):
        canvas.paint(part)
    bone = canvas.hu >= BONE_HU
    return Bones(axes, bone, ndimage.binary_dilation(bone))


def _corner(frame: Frame, corner: Point) -> Point:
    x, y, _ = np.add(frame.origin_mm, corner)
    return point((x, y, frame.height_mm(corner[2])))
