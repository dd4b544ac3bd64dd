"""Rendered scans rearranged: turned prone, stored in other directions, with objects beside the patient.

Functions that add objects expect the generator's axis-aligned grids.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import SimpleITK as sitk
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial.transform import Rotation

from contract.images.geometry import Geometry
from contract.images.volumes import Volume, to_sitk
from rehearsal.phantoms.anatomy.shapes import Column, Ellipsoid, Floats, Point
from rehearsal.phantoms.protocol import axes_of
from rehearsal.phantoms.scanner import Rendered

AIR_HU, SKIN_HU = -1024, -300
TABLE_HALF_MM, TABLE_WALL_MM, TABLE_WALL_HU, TABLE_FOAM_HU = (210.0, 22.0), 4.0, 120, -890
LARGEST_TILT_DEGREES = 25.0


def prone(scan: Rendered, rng: np.random.Generator) -> Rendered:
    """The patient turned by 180 degrees about z in the scanner, with a new table below.

    Half of the scans are labelled supine, so that the anatomy is turned in LPS. The headers of the others say prone, so
    that the anatomy is right in LPS and the table lies in front.
    """
    low, high = _box(scan.ct.geometry)
    middle = (low + high) / 2
    turned = replace(
        scan,
        ct=Volume(np.flip(scan.ct.array, (1, 2)).copy(), scan.ct.geometry),
        mask=Volume(np.flip(scan.mask.array, (1, 2)).copy(), scan.mask.geometry),
        pet=_half_turn(_reordered(scan.pet, (0, 1, 2), (True, True, False)), middle),
    )
    _add_table(turned.ct, rng)
    if rng.random() < 0.5:
        return turned
    return replace(
        turned,
        ct=_half_turn(turned.ct, middle),
        mask=_half_turn(turned.mask, middle),
        pet=_half_turn(turned.pet, middle),
    )


def reordered_at_random(scan: Rendered, rng: np.random.Generator) -> Rendered:
    """CT and PET, each stored in one of the 48 orders and directions of its axes; nothing moves in LPS."""

    def draw() -> tuple[tuple[int, int, int], tuple[bool, bool, bool]]:
        a, b, c = (int(n) for n in rng.permutation(3))
        p, q, r = (bool(n) for n in rng.integers(0, 2, 3))
        return (a, b, c), (p, q, r)

    ct, pet = draw(), draw()
    return replace(scan, ct=_reordered(scan.ct, *ct), mask=_reordered(scan.mask, *ct), pet=_reordered(scan.pet, *pet))


def oblique_at_random(scan: Rendered, rng: np.random.Generator) -> Rendered:
    """Both images on oblique grids, tilted by up to 25 degrees about any axis, that cover the whole scan.

    The PET is tilted like the CT in half of the scans and not at all in the others; nothing moves in LPS.
    """
    axis = rng.normal(0, 1, 3)
    angle = np.radians(rng.uniform(5, LARGEST_TILT_DEGREES)) * rng.choice([-1, 1])
    rotation = Rotation.from_rotvec(axis / np.linalg.norm(axis) * angle).as_matrix()
    return replace(
        scan,
        ct=_oblique(scan.ct, rotation, AIR_HU, sitk.sitkLinear),
        mask=_oblique(scan.mask, rotation, 0, sitk.sitkNearestNeighbor),
        pet=_oblique(scan.pet, rotation, 0, sitk.sitkLinear) if rng.random() < 0.5 else scan.pet,
    )


def with_head_holder(scan: Rendered, rng: np.random.Generator) -> Rendered:
    """A plastic cradle behind the head, and in half of the scans a thermoplastic mask on the skin; in place."""
    ct = scan.ct
    axes = axes_of(ct.geometry)
    body = ct.array > SKIN_HU
    plastic = float(rng.uniform(60, 250))
    reach = axes.z > axes.z[-1] - float(rng.uniform(120, 220))
    behind = float(rng.uniform(20, 60))
    middle = _middle_of(body[reach], axes.y, axes.x)
    across = (axes.x[None, :] - middle[0]) / rng.uniform(95, 120)
    along = (axes.y[:, None] - middle[1]) / rng.uniform(110, 130)
    ring = np.abs(np.sqrt(across**2 + along**2) - 1) < 0.05
    cradle = ring & (axes.y[:, None] > middle[1] + behind)
    part = ct.array[reach]
    part[~body[reach] & cradle] = plastic
    if rng.random() < 0.5:
        shell = ndimage.binary_dilation(body[reach], ndimage.generate_binary_structure(2, 1)[None], iterations=2)
        part[shell & ~body[reach]] = plastic
    ct.array[reach] = part
    return scan


def with_spills(scan: Rendered, rng: np.random.Generator) -> Rendered:
    """Activity outside the body: syringes, bags of urine beside the patient, a contaminated sheet; in place."""
    occupied = scan.ct.array > SKIN_HU
    for _ in range(int(rng.integers(1, 4))):
        if rng.random() < 0.5:
            radius = float(rng.uniform(6, 12))
            _put_beside(scan, occupied, (radius, radius, radius), float(rng.uniform(30, 250)), rng)
        else:
            radii = (float(rng.uniform(30, 60)), float(rng.uniform(20, 40)), float(rng.uniform(50, 90)))
            _put_beside(scan, occupied, radii, float(rng.uniform(5, 60)), rng)
    low, high = _box(scan.ct.geometry)
    sheet = (float(rng.uniform(30, 120)), 6.0, float(rng.uniform(30, 120)))
    place = rng.uniform(low, high)
    bottom = axes_of(scan.ct.geometry).y[np.flatnonzero(occupied.any(axis=(0, 2)))[-1]]
    _add_uptake(scan.pet, (float(place[0]), float(bottom) - 40, float(place[2])), sheet, float(rng.uniform(5, 40)))
    return scan


def _put_beside(
    scan: Rendered, occupied: NDArray[np.bool_], radii: Point, suv: float, rng: np.random.Generator
) -> None:
    """Water with activity, in an ellipsoid of `radii` at a random free place; nothing if none is found."""
    axes = axes_of(scan.ct.geometry)
    low, high = _box(scan.ct.geometry)
    for _ in range(300):
        x, y, z = (float(value) for value in rng.uniform(low, high))
        corner, opposite = np.subtract((x, y, z), radii), np.add((x, y, z), radii)
        box = axes.box((corner[0], corner[1], corner[2]), (opposite[0], opposite[1], opposite[2]))
        here = occupied[box]
        if here.size and not here.any():
            level = _distance(Ellipsoid((x, y, z), radii), scan.ct.geometry, box)
            scan.ct.array[box][level < 0] = 5
            _add_uptake(scan.pet, (x, y, z), radii, suv)
            return


def _add_uptake(pet: Volume, centre: Point, radii: Point, suv: float) -> None:
    """Add an ellipsoid of activity whose edge is blurred over a centimetre."""
    axes = axes_of(pet.geometry)
    corner, opposite = np.subtract(centre, np.add(radii, 10)), np.add(centre, np.add(radii, 10))
    box = axes.box((corner[0], corner[1], corner[2]), (opposite[0], opposite[1], opposite[2]))
    if pet.array[box].size:
        pet.array[box] += np.float32(suv) * np.clip(
            0.5 - _distance(Ellipsoid(centre, radii), pet.geometry, box) / np.float32(10), 0, 1
        )


def _distance(shape: Ellipsoid | Column, grid: Geometry, box: tuple[slice, slice, slice]) -> Floats:
    cut = axes_of(grid).cut(box)
    return shape.distance(cut.x[None, None, :], cut.y[None, :, None], cut.z[:, None, None])


def _add_table(ct: Volume, rng: np.random.Generator) -> None:
    """Paint a foam table in a hard shell just below the patient into air; in place."""
    axes = axes_of(ct.geometry)
    body = ct.array > SKIN_HU
    lowest = float(axes.y[np.flatnonzero(np.count_nonzero(body, axis=(0, 2)) > 20)[-1]])
    half_x, half_y = TABLE_HALF_MM
    y, x = axes.y - (lowest + float(rng.uniform(0, 12)) + half_y), axes.x - float(axes.x.mean())
    outer = (np.abs(y)[:, None] < half_y) & (np.abs(x)[None, :] < half_x)
    inner = (np.abs(y)[:, None] < half_y - TABLE_WALL_MM) & (np.abs(x)[None, :] < half_x - TABLE_WALL_MM)
    ct.array[:, outer & ~inner] = np.where(body[:, outer & ~inner], ct.array[:, outer & ~inner], TABLE_WALL_HU)
    ct.array[:, inner] = np.where(body[:, inner], ct.array[:, inner], TABLE_FOAM_HU)


def _middle_of(body: NDArray[np.bool_], y: Floats, x: Floats) -> tuple[float, float]:
    _, rows, columns = np.nonzero(body)
    return float(np.median(x[columns])), float(np.median(y[rows]))


def _box(grid: Geometry) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    corners = grid.corners_mm()
    return corners.min(0), corners.max(0)


def _half_turn(volume: Volume, middle: NDArray[np.float64]) -> Volume:
    """The volume turned by 180 degrees about the z axis through `middle`, by its header alone."""
    grid = volume.geometry
    turn = np.diag([-1.0, -1.0, 1.0])
    direction = turn @ np.asarray(grid.direction).reshape(3, 3)
    x, y, z = grid.origin_mm
    origin = (2 * float(middle[0]) - x, 2 * float(middle[1]) - y, z)
    return Volume(volume.array, Geometry(grid.size, grid.spacing_mm, origin, tuple(direction.ravel().tolist())))


def _reordered(volume: Volume, order: tuple[int, int, int], flips: tuple[bool, bool, bool]) -> Volume:
    """The same voxels stored in another order: axes (x, y, z) first flipped where `flips`, then permuted."""
    grid = volume.geometry
    first = [size - 1 if flip else 0 for size, flip in zip(grid.size, flips, strict=True)]
    origin = (grid.index_to_physical_matrix() @ [*first, 1])[:3]
    signs = np.where(flips, -1.0, 1.0)
    direction = (np.asarray(grid.direction).reshape(3, 3) * signs)[:, order]
    by_xyz = volume.array.transpose(2, 1, 0)[tuple(slice(None, None, int(sign)) for sign in signs)]
    array = np.ascontiguousarray(by_xyz.transpose(order).transpose(2, 1, 0))
    a, b, c = order
    return Volume(
        array,
        Geometry(
            (grid.size[a], grid.size[b], grid.size[c]),
            (grid.spacing_mm[a], grid.spacing_mm[b], grid.spacing_mm[c]),
            (float(origin[0]), float(origin[1]), float(origin[2])),
            tuple(direction.ravel().tolist()),
        ),
    )


def _oblique(volume: Volume, rotation: NDArray[np.float64], outside: float, interpolator: int) -> Volume:
    """The volume resampled with its spacing on a grid that covers it, with the columns of `rotation` as axes."""
    grid = volume.geometry
    spacing = np.asarray(grid.spacing_mm)
    along = grid.corners_mm() @ rotation
    low, high = along.min(0), along.max(0)
    count = np.ceil((high - low) / spacing).astype(int)
    origin = rotation @ ((low + high) / 2 - (count - 1) / 2 * spacing)
    target = Geometry(
        (int(count[0]), int(count[1]), int(count[2])),
        grid.spacing_mm,
        (float(origin[0]), float(origin[1]), float(origin[2])),
        tuple(rotation.ravel().tolist()),
    )
    image = sitk.Resample(
        to_sitk(volume),
        list(target.size),
        sitk.Transform(),
        interpolator,
        list(target.origin_mm),
        list(target.spacing_mm),
        list(target.direction),
        float(outside),
    )
    return Volume(sitk.GetArrayFromImage(image), target)
