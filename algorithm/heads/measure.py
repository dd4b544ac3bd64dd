"""Measure features of a mask, CT and PET on one grid, and of the clinical variables.

docs/heads.md lists the features with their units. `structure` defines the features of one structure. This module
defines number and position of the lesions: nodes, distances, sides of the midline, contact with bone and air.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.case.read import BODY_HU
from algorithm.heads.documents import Features
from algorithm.heads.structure import (
    THRESHOLD_NAMES,
    Feature,
    Structure,
    cut_structure,
    diameter_mm,
    dose_volume,
    find_components,
    make_mesh,
    measure_density,
    measure_glycolysis,
    measure_shape,
    measure_thresholds,
    measure_uptake,
    remove_specks,
    resample_dose,
)
from algorithm.heads.values import stage_features
from contract import labels
from contract.editions.clinical import CENTRE, ClinicalVariable
from contract.images.geometry import Geometry, is_below, is_within
from contract.images.volumes import Volume
from contract.packages import DEFAULT_MIN_LESION_SIZES, MinLesionSizes
from contract.patient import Patient

_Image = npt.NDArray[np.float32]
# Increment this number when the definition of a feature changes but its name does not.
_DEFINITIONS: Final = 3


def measure_image_features(
    mask: npt.NDArray[np.uint8],
    ct: _Image,
    pet: _Image | None,
    grid: Geometry,
    dose: Volume | None = None,
    smallest: MinLesionSizes = DEFAULT_MIN_LESION_SIZES,
) -> dict[str, float | None]:
    """Measure the features of GTVp, of GTVn and of both together.

    Args:
        mask: Labels 0, 1, 2 in (z, y, x) on `grid`.
        ct: HU on the same grid.
        pet: SUV on the same grid, or None without a usable PET.
        grid: The grid of mask, CT and PET.
        dose: The planned dose in Gy on its own grid, or None.
        smallest: Minimum sizes of lesions. Smaller components count in volume, uptake, density and dose, but not in
            number, shape, position and stage.

    Returns:
        Values by name, such as `gtvp_volume_ml`. A value is None if it cannot be measured: intensities of an absent
        lesion, features of an absent PET or dose, distances between fewer than two lesions (except `spread_mm`, which
        is 0). The volumes and the glycolysis of an absent lesion are 0.
    """
    whole = {"gtvp": cut_structure(mask == labels.GTVP, grid), "gtvn": cut_structure(mask == labels.GTVN, grid)}
    mask = remove_specks(mask, grid, smallest)
    primary, nodes = cut_structure(mask == labels.GTVP, grid), find_components(mask == labels.GTVN, grid)
    lesions = find_components(mask > 0, grid)
    gray = None if dose is None else resample_dose(dose, grid)
    features: dict[str, float | None] = {}
    for name, structure in whole.items():
        measured = _measure_structure(structure, ct, pet) | dose_volume(structure, gray)
        features |= {f"{name}_{key}": value for key, value in measured.items()}
    of_primary = measure_shape(primary) | _list_extents(primary) | measure_contacts(primary, ct)
    features |= {f"gtvp_{key}": value for key, value in of_primary.items()}
    features |= measure_nodes(primary, nodes, ct, grid)
    features |= _compute_totals(features)
    features["spread_mm"] = spread_mm(lesions)
    features |= measure_distances(primary, nodes, lesions)
    return features | stage_features(features)


@cache
def list_image_features() -> frozenset[str]:
    """Return the names of all features that `measure_image_features` measures, with or without lesions."""
    grid = Geometry((8, 8, 8), (4.0, 4.0, 4.0), (0.0, 0.0, 0.0))
    mask = np.zeros(grid.array_shape, np.uint8)
    mask[1:3, 1:3, 1:3], mask[5:7, 1:3, 1:3], mask[5:7, 5:7, 5:7] = labels.GTVP, labels.GTVN, labels.GTVN
    image = np.ones(grid.array_shape, np.float32)
    whole = measure_image_features(mask, image, image, grid, Volume(image, grid))
    return frozenset(whole) | frozenset(measure_image_features(np.zeros_like(mask), image, None, grid))


def compute_features_version(smallest: MinLesionSizes) -> str:
    """Return a digest of names, definitions and minimum sizes; stored features with another digest are outdated."""
    made_from = f"{_DEFINITIONS} {sorted(list_image_features())} {smallest}"
    return hashlib.sha256(made_from.encode()).hexdigest()


def clinical_features(patient: Patient, clinical: Sequence[ClinicalVariable]) -> dict[str, float | None]:
    """Convert the clinical variables to features: numbers by the name of the feature, None for a missing value.

    `clinical` declares the variables of the edition. The centre is not a feature.
    """
    return {
        variable.feature: variable.as_feature(patient.values.get(variable.name))
        for variable in clinical
        if variable.name != CENTRE
    }


def clinical_names(clinical: Sequence[ClinicalVariable]) -> tuple[str, ...]:
    """Return the names of the features that `clinical_features` returns."""
    return tuple(variable.feature for variable in clinical if variable.name != CENTRE)


def _measure_structure(structure: Structure | None, ct: _Image, pet: _Image | None) -> dict[str, float | None]:
    return {
        "volume_ml": 0.0 if structure is None else structure.volume_ml,
        "tlg": measure_glycolysis(structure, pet),
        **measure_uptake(structure, pet),
        **measure_thresholds(structure, pet),
        **measure_density(structure, ct),
    }


def _list_extents(structure: Structure | None) -> dict[str, float | None]:
    extents = (None, None, None) if structure is None else structure.extent_mm
    return {f"extent_{axis}_mm": mm for axis, mm in zip("zyx", extents, strict=True)}


def _compute_totals(features: Features) -> dict[str, float | None]:
    """Return the sums and maxima over GTVp and GTVn."""
    sums = {"total_volume_ml": "volume_ml", "total_lesion_glycolysis": "tlg"} | {n: n for n in THRESHOLD_NAMES}
    totals = {name: _add_known(features[f"gtvp_{part}"], features[f"gtvn_{part}"]) for name, part in sums.items()}
    for name in ("suv_max", "suv_peak"):
        known = [value for key in ("gtvp", "gtvn") if (value := features[f"{key}_{name}"]) is not None]
        totals[name] = max(known, default=None)
    return totals


def _add_known(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


# Smaller components may be noise; a node of 10 mm may be predicted with only 6 mm.
NODE_MM: Final = 5.0
# Minimum diameter of a node that is usually called enlarged.
ENLARGED_MM: Final = 10.0
# Features of the shape of the largest node.
_LARGEST_NODE_FEATURES: Final = ("diameter_mm", "sphericity", "elongation", "flatness")


def measure_nodes(
    primary: Structure | None, nodes: Sequence[Structure], ct: npt.NDArray[np.float32], grid: Geometry
) -> dict[str, Feature]:
    """Measure the features of the nodes: number, size, shape of the largest node, sides and heights.

    Args:
        primary: The primary tumour, None if absent.
        nodes: The 26-connected components of GTVn.
        ct: HU on the whole grid.
        grid: The grid, which gives the directions of the patient.
    """
    by_volume = sorted(nodes, key=lambda node: -node.volume_ml)
    largest = by_volume[0] if by_volume else None
    of_largest = measure_shape(largest)
    diameters = [float(of_largest["diameter_mm"] or 0.0)] if largest else []
    diameters += [diameter_mm(make_mesh(node)[0]) for node in by_volume[1:]]
    offsets = [offset_mm(node, ct, grid) for node in by_volume]
    # Components below 5 mm count for a side only if there are no larger ones.
    sized = [offset for offset, mm in zip(offsets, diameters, strict=True) if not is_below(mm, NODE_MM)] or offsets
    primary_mm = None if primary is None else offset_mm(primary, ct, grid)
    return {
        "gtvn_count": float(len(nodes)),
        "gtvn_count_5mm": float(sum(not is_below(mm, NODE_MM) for mm in diameters)),
        "gtvn_count_10mm": float(sum(not is_below(mm, ENLARGED_MM) for mm in diameters)),
        "gtvn_largest_ml": 0.0 if largest is None else largest.volume_ml,
        **{f"gtvn_largest_{name}": of_largest[name] for name in _LARGEST_NODE_FEATURES},
        "gtvn_largest_extent_z_mm": None if largest is None else largest.extent_mm[0],
        "gtvn_second_diameter_mm": diameters[1] if len(diameters) > 1 else None,
        "gtvn_bilateral": detect_bilateral_nodes(offsets),
        "gtvn_contralateral": detect_contralateral_nodes(primary_mm, sized),
        "gtvp_midline_mm": None if primary_mm is None else abs(primary_mm),
        **measure_heights(primary, nodes, grid),
    }


# A lesion within this distance of the midline counts for neither side.
MIDLINE_MM: Final = 5.0


def spread_mm(lesions: Sequence[Structure]) -> float:
    """Return the largest distance between the centres of any two lesions; 0 with fewer than two."""
    from scipy.spatial.distance import pdist  # takes 0.1 s, which a case without features saves

    return float(pdist([lesion.centre_mm for lesion in lesions]).max()) if len(lesions) > 1 else 0.0


def measure_distances(
    primary: Structure | None, nodes: Sequence[Structure], lesions: Sequence[Structure]
) -> dict[str, Feature]:
    """Measure the largest distances between two nodes and of a node from the primary, and the lesions' dispersion.

    All are in mm between centres; None if there are too few lesions. The dispersion is the root mean square distance of
    the lesions' centres from their common centre.
    """
    from_primary = [] if primary is None else [np.linalg.norm(node.centre_mm - primary.centre_mm) for node in nodes]
    return {
        "node_to_node_mm": spread_mm(nodes) if len(nodes) > 1 else None,
        "primary_to_node_mm": float(max(from_primary)) if from_primary else None,
        "dispersion_mm": _compute_dispersion(lesions) if len(lesions) > 1 else None,
    }


def measure_heights(primary: Structure | None, nodes: Sequence[Structure], grid: Geometry) -> dict[str, Feature]:
    """Measure how far the highest node lies above the primary, and the lowest node below it, in mm between centres.

    A value is negative if all nodes lie on the other side of the primary; None without a primary or nodes.
    """
    names = "gtvn_highest_above_gtvp_mm", "gtvn_lowest_below_gtvp_mm"
    if primary is None or not nodes:
        return dict.fromkeys(names)
    upwards = _project_array_axes(grid, axis=2)
    above = [float(upwards @ (node.centre_mm - primary.centre_mm)) for node in nodes]
    return dict(zip(names, (max(above), -min(above)), strict=True))


def offset_mm(lesion: Structure, ct: npt.NDArray[np.float32], grid: Geometry) -> Feature:
    """Return the distance of a lesion's centre from the midline, positive on the patient's left; None without a body.

    The midline is the centre of the body in the slices that the lesion occupies. If the region cuts off more of one
    side, only the columns that lie symmetrically about the mirror line of spine and airway count.
    """
    rows = np.flatnonzero(lesion.inside.any(axis=(1, 2))) + lesion.box[0].start
    slices = ct[rows[0] : rows[-1] + 1]
    body = slices > BODY_HU
    leftwards = _project_array_axes(grid, axis=0)
    axis = int(np.argmax(np.abs(leftwards)))
    if axis:
        columns = find_symmetric_columns(slices, body, lesion.spacing_mm, axis)
        outside = np.ones(body.shape[axis], dtype=np.bool_)
        outside[columns] = False
        body[(slice(None),) * axis + (outside,)] = False
    voxels = np.count_nonzero(body)
    if not voxels:
        return None
    # Sums along each axis give the same centre as the list of all voxels, in a tenth of the time.
    along = [np.count_nonzero(body, axis=axes) for axes in ((1, 2), (0, 2), (0, 1))]
    centre = np.array([np.arange(len(counts)) @ counts / voxels for counts in along]) + np.array([rows[0], 0, 0])
    return float(leftwards @ (lesion.centre_mm - centre * lesion.spacing_mm))


def detect_bilateral_nodes(nodes_mm: Sequence[Feature]) -> Feature:
    """Return 1 if nodes lie on both sides of the midline, else 0; `nodes_mm` are their offsets from `offset_mm`.

    A node within 5 mm of the midline lies on neither side. The result is None if a node without an offset could decide.
    """
    known = _list_sides(nodes_mm)
    if {1, -1} <= known:
        return 1.0
    return None if None in nodes_mm else 0.0


def detect_contralateral_nodes(primary_mm: Feature, nodes_mm: Sequence[Feature]) -> Feature:
    """Return 1 if a node lies on the side opposite to the primary, else 0, from the offsets of `offset_mm`.

    For a primary on the midline, the result of `detect_bilateral_nodes` is returned. The result is None if the primary,
    or a node that could decide, has no offset.
    """
    if primary_mm is None:
        return None
    if not (side := _find_side(primary_mm)):
        return detect_bilateral_nodes(nodes_mm)
    if -side in _list_sides(nodes_mm):
        return 1.0
    return None if None in nodes_mm else 0.0


def _list_sides(offsets_mm: Sequence[Feature]) -> set[int]:
    return {_find_side(offset) for offset in offsets_mm if offset is not None}


def _find_side(offset: float) -> int:
    """Return 1 for the patient's left, -1 for the right, 0 for neither."""
    return 0 if is_within(abs(offset), MIDLINE_MM) else int(np.sign(offset))


def _compute_dispersion(lesions: Sequence[Structure]) -> float:
    places = np.asarray([lesion.centre_mm for lesion in lesions])
    away = places - places.mean(axis=0)
    return float(np.sqrt((away**2).sum(1).mean()))


def _project_array_axes(grid: Geometry, axis: int) -> npt.NDArray[np.float64]:
    """Return the components of the array axes (z, y, x) along a patient axis: left (0), posterior (1), superior (2)."""
    return np.asarray(grid.direction, dtype=np.float64).reshape(3, 3)[axis, ::-1]


BONE_HU: Final = 250.0
AIR_THRESHOLD_HU: Final = -500.0
# Bone and air within this distance of the surface are in contact with it; on coarser grids, bone and air in the next
# voxel.
REACH_MM: Final = 3.0
CONTACTS: Final = ("bone_contact", "air_contact", "bone_ml")
_Mask = npt.NDArray[np.bool_]


def measure_contacts(structure: Structure | None, ct: npt.NDArray[np.float32]) -> dict[str, Feature]:
    """Measure the fractions of the surface in contact with bone (above 250 HU) and air (below -500 HU), and the bone.

    Surface voxels belong to the structure and share a face with a voxel outside it, or with the edge of the grid. They
    are in contact with bone or air within 3 mm, centre to centre, or in a voxel that shares a face. The bone may lie
    inside the structure, since the mask of a tumour that invades bone covers the bone. `bone_ml` is the volume of bone
    inside the structure or in contact with it. All are None for an absent structure. `ct` is HU on the whole grid.
    """
    if structure is None:
        return dict.fromkeys(CONTACTS)
    inside, hu = structure.inside, structure.cut(ct)
    surface = inside & ~ndimage.binary_erosion(inside)
    bone = hu > BONE_HU
    shares = (float(np.mean(_within_reach(part, structure)[surface])) for part in (bone, hu < AIR_THRESHOLD_HU))
    bone_ml = float(np.count_nonzero(bone & _within_reach(inside, structure))) * structure.voxel_ml
    return dict(zip(CONTACTS, (*shares, bone_ml), strict=True))


def _within_reach(part: _Mask, structure: Structure) -> _Mask:
    """Return the voxels of the structure's box within reach of the voxels of `part`, including `part`."""
    if not part.any():
        return part
    near = is_within(ndimage.distance_transform_edt(~part, sampling=structure.spacing_mm), REACH_MM)
    return np.asarray(near | ndimage.binary_dilation(part))


# The CT is clipped to this range, which distinguishes fat, muscle, bone and air; metal and padding then count no more
# than bone and air.
_HU: Final = (-300.0, 300.0)
# Maximum distance of the midline from the middle of a region, which is widened by at most 45 mm to one side.
_MAX_MIDLINE_OFFSET_MM: Final = 40.0
# In a narrower image too little would be left to compare; a region of head and neck is 250 mm wide.
_MIN_WIDTH_MM: Final = 4 * _MAX_MIDLINE_OFFSET_MM
# A region whose middle lies within this distance of the mirror line is symmetric: the centre of its body is then the
# more stable midline.
EVEN_MM: Final = 2.5
# Spacing and maximum number of the slices in which the mirror line is searched.
_STEP_MM: Final = 3.0
_MAX_SLICES: Final = 12


def find_symmetric_columns(
    ct: _Image, body: npt.NDArray[np.bool_], spacing_mm: tuple[float, float, float], axis: int
) -> slice:
    """Return the columns that lie symmetrically about the midline; all of them unless the image cuts the body.

    Args:
        ct: HU of the slices, in (z, y, x).
        body: Whether each voxel of `ct` belongs to the body.
        spacing_mm: Voxel spacing along each axis of the array.
        axis: Axis of the array from one side of the patient to the other.
    """
    columns = ct.shape[axis]
    is_cut = not is_below(columns * spacing_mm[axis], _MIN_WIDTH_MM) and body.take([0, columns - 1], axis=axis).any()
    doubled = _find_mirror_line(ct, body, spacing_mm, axis) if is_cut else columns - 1
    if is_within(abs(doubled - (columns - 1)) / 2 * spacing_mm[axis], EVEN_MM):
        return slice(0, columns)
    return slice(max(0, doubled - columns + 1), min(columns, doubled + 1))


def _find_mirror_line(
    ct: _Image, body: npt.NDArray[np.bool_], spacing_mm: tuple[float, float, float], axis: int
) -> int:
    """Return twice the column about which the slices are most symmetric, by the mean difference in HU in the body."""
    steps = [max(1, round(_STEP_MM / mm)) for mm in spacing_mm]
    steps[0] = max(steps[0], -(-len(ct) // _MAX_SLICES))
    steps[axis] = 1
    thinned = tuple(slice(None, None, step) for step in steps)
    hu = np.moveaxis(np.clip(ct[thinned], *_HU), axis, -1)
    inside = np.moveaxis(body[thinned], axis, -1)
    middle = ct.shape[axis] - 1
    reach = min(int(2 * _MAX_MIDLINE_OFFSET_MM / spacing_mm[axis]), middle // 2)
    # Of equally good candidates the one nearest to the middle is chosen.
    candidates = sorted(range(middle - reach, middle + reach + 1), key=lambda doubled: abs(doubled - middle))
    return min(zip(_compute_asymmetries(hu, inside, candidates), candidates, strict=True), key=lambda pair: pair[0])[1]


def _compute_asymmetries(hu: _Image, inside: npt.NDArray[np.bool_], candidates: list[int]) -> Iterator[float]:
    columns = hu.shape[-1]
    for doubled in candidates:
        half = slice(max(0, doubled - columns + 1), doubled // 2 + 1)
        ours, theirs = hu[..., half], hu[..., doubled - np.arange(half.start, half.stop)]
        either = inside[..., half] | inside[..., doubled - np.arange(half.start, half.stop)]
        yield float(np.abs(ours - theirs)[either].mean()) if either.any() else np.inf
