"""Rearrange rendered scans: turn them prone, store them in other directions, put objects next to the patient.

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
from rehearsal.phantoms.canvas import Ellipsoid, Point, to_point
from rehearsal.phantoms.cohort import make_axes
from rehearsal.phantoms.rendering import Rendered

AIR_HU, SKIN_HU = -1024, -300
TABLE_HALF_MM, TABLE_WALL_MM, TABLE_WALL_HU, TABLE_FOAM_HU = (210.0, 22.0), 4.0, 120, -890
LARGEST_TILT_DEGREES = 25.0


def turn_prone(scan: Rendered, rng: np.random.Generator) -> Rendered:
    """Turn the patient by 180 degrees about z in the scanner, with a new table below.

    Half of the scans are labelled supine, so that the anatomy is turned in LPS. The other headers say prone, so that
    the anatomy is right in LPS and the table lies in front.
    """
    low, high = _box(scan.ct.geometry)
    middle = (low + high) / 2
    turned = replace(
        scan,
        ct=Volume(np.flip(scan.ct.array, (1, 2)).copy(), scan.ct.geometry),
        mask=Volume(np.flip(scan.mask.array, (1, 2)).copy(), scan.mask.geometry),
        pet=_turn_header(reorder(scan.pet, (0, 1, 2), (True, True, False)), middle),
    )
    _add_table(turned.ct, rng)
    if rng.random() < 0.5:
        return turned
    ct, mask, pet = (_turn_header(volume, middle) for volume in (turned.ct, turned.mask, turned.pet))
    return replace(turned, ct=ct, mask=mask, pet=pet)


def reorder_at_random(scan: Rendered, rng: np.random.Generator) -> Rendered:
    """Store CT and PET in one of the 48 orders and directions of their axes; nothing moves in LPS."""

    def draw() -> tuple[tuple[int, int, int], tuple[bool, bool, bool]]:
        a, b, c = (int(n) for n in rng.permutation(3))
        p, q, r = (bool(n) for n in rng.integers(0, 2, 3))
        return (a, b, c), (p, q, r)

    ct, pet = draw(), draw()
    return replace(scan, ct=reorder(scan.ct, *ct), mask=reorder(scan.mask, *ct), pet=reorder(scan.pet, *pet))


def tilt_at_random(scan: Rendered, rng: np.random.Generator) -> Rendered:
    """Resample both images on grids that are tilted by up to 25 degrees about any axis and cover the scan.

    In half of the scans the PET is tilted like the CT, in the others not at all; nothing moves in LPS.
    """
    axis = rng.normal(0, 1, 3)
    angle = np.radians(rng.uniform(5, LARGEST_TILT_DEGREES)) * rng.choice([-1, 1])
    rotation = Rotation.from_rotvec(axis / np.linalg.norm(axis) * angle).as_matrix()
    return tilt(scan, rotation, with_pet=rng.random() < 0.5)


def tilt(scan: Rendered, rotation: NDArray[np.float64], *, with_pet: bool) -> Rendered:
    """Resample the CT, and the PET if `with_pet`, on a grid with the columns of `rotation` as axes."""
    return replace(
        scan,
        ct=_tilt_volume(scan.ct, rotation, AIR_HU, sitk.sitkLinear),
        mask=_tilt_volume(scan.mask, rotation, 0, sitk.sitkNearestNeighbor),
        pet=_tilt_volume(scan.pet, rotation, 0, sitk.sitkLinear) if with_pet else scan.pet,
    )


def add_head_holder(scan: Rendered, rng: np.random.Generator) -> Rendered:
    """Add a plastic cradle behind the head, and in half of the scans a thermoplastic mask on the skin; in place."""
    ct = scan.ct
    axes = make_axes(ct.geometry)
    body = ct.array > SKIN_HU
    plastic = float(rng.uniform(60, 250))
    reach = axes.z > axes.z[-1] - float(rng.uniform(120, 220))
    behind = float(rng.uniform(20, 60))
    _, rows, columns = np.nonzero(body[reach])
    middle_x, middle_y = float(np.median(axes.x[columns])), float(np.median(axes.y[rows]))
    across = (axes.x[None, :] - middle_x) / rng.uniform(95, 120)
    along = (axes.y[:, None] - middle_y) / rng.uniform(110, 130)
    ring = np.abs(np.sqrt(across**2 + along**2) - 1) < 0.05
    cradle = ring & (axes.y[:, None] > middle_y + behind)
    part = ct.array[reach]
    part[~body[reach] & cradle] = plastic
    if rng.random() < 0.5:
        shell = ndimage.binary_dilation(body[reach], ndimage.generate_binary_structure(2, 1)[None], iterations=2)
        part[shell & ~body[reach]] = plastic
    ct.array[reach] = part
    return scan


def add_spills(scan: Rendered, rng: np.random.Generator) -> Rendered:
    """Add activity outside the body: syringes, bags of urine, a contaminated sheet; in place."""
    occupied = scan.ct.array > SKIN_HU
    for _ in range(int(rng.integers(1, 4))):
        if rng.random() < 0.5:
            radius = float(rng.uniform(6, 12))
            _add_source(scan, occupied, (radius, radius, radius), float(rng.uniform(30, 250)), rng)
        else:
            radii = (float(rng.uniform(30, 60)), float(rng.uniform(20, 40)), float(rng.uniform(50, 90)))
            _add_source(scan, occupied, radii, float(rng.uniform(5, 60)), rng)
    low, high = _box(scan.ct.geometry)
    sheet = (float(rng.uniform(30, 120)), 6.0, float(rng.uniform(30, 120)))
    place = rng.uniform(low, high)
    bottom = make_axes(scan.ct.geometry).y[np.flatnonzero(occupied.any(axis=(0, 2)))[-1]]
    _add_uptake(scan.pet, to_point((place[0], float(bottom) - 40, place[2])), sheet, float(rng.uniform(5, 40)))
    return scan


def _add_source(
    scan: Rendered, occupied: NDArray[np.bool_], radii: Point, suv: float, rng: np.random.Generator
) -> None:
    """Put water with activity into an ellipsoid of `radii` at a random free place, if there is one."""
    axes = make_axes(scan.ct.geometry)
    low, high = _box(scan.ct.geometry)
    for _ in range(300):
        place = rng.uniform(low, high)
        box = axes.box(place - radii, place + radii)
        here = occupied[box]
        if here.size and not here.any():
            level = Ellipsoid(to_point(place), radii).distance(*axes.coordinates(box))
            scan.ct.array[box][level < 0] = 5
            _add_uptake(scan.pet, to_point(place), radii, suv)
            return


def _add_uptake(pet: Volume, centre: Point, radii: Point, suv: float) -> None:
    """Add an ellipsoid of activity whose edge is blurred over a centimetre."""
    axes = make_axes(pet.geometry)
    box = axes.box(np.subtract(centre, np.add(radii, 10)), np.add(centre, np.add(radii, 10)))
    if pet.array[box].size:
        distance = Ellipsoid(centre, radii).distance(*axes.coordinates(box))
        pet.array[box] += np.float32(suv) * np.clip(0.5 - distance / np.float32(10), 0, 1)


def _add_table(ct: Volume, rng: np.random.Generator) -> None:
    """Paint a foam table in a hard shell just below the patient into air; in place."""
    axes = make_axes(ct.geometry)
    body = ct.array > SKIN_HU
    lowest = float(axes.y[np.flatnonzero(np.count_nonzero(body, axis=(0, 2)) > 20)[-1]])
    half_x, half_y = TABLE_HALF_MM
    y, x = axes.y - (lowest + float(rng.uniform(0, 12)) + half_y), axes.x - float(axes.x.mean())
    outer = (np.abs(y)[:, None] < half_y) & (np.abs(x)[None, :] < half_x)
    inner = (np.abs(y)[:, None] < half_y - TABLE_WALL_MM) & (np.abs(x)[None, :] < half_x - TABLE_WALL_MM)
    ct.array[:, outer & ~inner] = np.where(body[:, outer & ~inner], ct.array[:, outer & ~inner], TABLE_WALL_HU)
    ct.array[:, inner] = np.where(body[:, inner], ct.array[:, inner], TABLE_FOAM_HU)


def _box(grid: Geometry) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    corners = grid.corners_mm()
    return corners.min(0), corners.max(0)


def _turn_header(volume: Volume, middle: NDArray[np.float64]) -> Volume:
    """Turn the volume by 180 degrees about the z axis through `middle`, only in its header."""
    grid = volume.geometry
    turn = np.diag([-1.0, -1.0, 1.0])
    direction = turn @ np.asarray(grid.direction).reshape(3, 3)
    x, y, z = grid.origin_mm
    origin = (2 * float(middle[0]) - x, 2 * float(middle[1]) - y, z)
    return Volume(volume.array, Geometry(grid.size, grid.spacing_mm, origin, tuple(direction.ravel().tolist())))


def reorder(volume: Volume, order: tuple[int, int, int], flips: tuple[bool, bool, bool]) -> Volume:
    """Store the same voxels in another order: axes (x, y, z) first flipped where `flips`, then permuted."""
    grid = volume.geometry
    first = [size - 1 if flip else 0 for size, flip in zip(grid.size, flips, strict=True)]
    origin = (grid.index_to_physical_matrix() @ [*first, 1])[:3]
    signs = np.where(flips, -1.0, 1.0)
    direction = (np.asarray(grid.direction).reshape(3, 3) * signs)[:, order]
    by_xyz = volume.array.transpose(2, 1, 0)[tuple(slice(None, None, int(sign)) for sign in signs)]
    array = np.ascontiguousarray(by_xyz.transpose(order).transpose(2, 1, 0))
    a, b, c = order
    size, spacing = (grid.size[a], grid.size[b], grid.size[c]), [grid.spacing_mm[axis] for axis in order]
    return Volume(array, Geometry(size, to_point(spacing), to_point(origin), tuple(direction.ravel().tolist())))


def _tilt_volume(volume: Volume, rotation: NDArray[np.float64], outside: float, interpolator: int) -> Volume:
    """Resample the volume with its spacing on a grid that covers it, with the columns of `rotation` as axes."""
    grid = volume.geometry
    spacing = np.asarray(grid.spacing_mm)
    along = grid.corners_mm() @ rotation
    low, high = along.min(0), along.max(0)
    count = np.ceil((high - low) / spacing).astype(int)
    origin = rotation @ ((low + high) / 2 - (count - 1) / 2 * spacing)
    placement = origin.tolist(), spacing.tolist(), rotation.ravel().tolist()
    image = sitk.Resample(to_sitk(volume), count.tolist(), sitk.Transform(), interpolator, *placement, float(outside))
    return Volume(sitk.GetArrayFromImage(image), Geometry.from_image(image))
