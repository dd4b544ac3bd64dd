"""Features of one structure of the mask: shape, uptake in SUV, density in HU and planned dose in Gy.

A structure is cut out with a margin, so that features are computed on a small box. Shapes and statistics follow the
Image Biomarker Standardisation Initiative (IBSI, arXiv 1612.07003), whose codes the docstrings give.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.region.grids import resample
from contract import labels
from contract.images.geometry import Geometry, is_below
from contract.images.volumes import Volume
from contract.packages import MinLesionSizes

# Twenty-six neighbours: voxels that touch at a corner belong to one lesion.
TOUCHING: Final = np.ones((3, 3, 3), dtype=np.int8)
# Larger than the radius of a sphere of 1 ml, 6.2 mm, over which SUVpeak is averaged.
MARGIN_MM: Final = 7.0

Feature = float | None
_Float = npt.NDArray[np.float64]
_Image = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Structure:
    """A structure on a part of the grid.

    Attributes:
        inside: Whether each voxel (z, y, x) of the box belongs to the structure.
        box: The box (z, y, x) on the whole grid.
        spacing_mm: Voxel spacing in the order of the array (z, y, x).
        voxel_ml: Volume of a voxel.
    """

    inside: npt.NDArray[np.bool_]
    box: tuple[slice, ...]
    spacing_mm: tuple[float, float, float]
    voxel_ml: float

    def cut(self, image: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the part of an image on the whole grid that lies in the box, as a view."""
        return image[self.box]

    @property
    def volume_ml(self) -> float:
        """Return the volume: voxel count times voxel volume (IBSI YEKZ)."""
        return float(np.count_nonzero(self.inside)) * self.voxel_ml

    @property
    def extent_mm(self) -> tuple[float, float, float]:
        """Return the length along each axis of the grid (z, y, x), between the outer edges of the outermost voxels."""
        axes = ((1, 2), (0, 2), (0, 1))
        ends = (np.flatnonzero(self.inside.any(axis=others))[[0, -1]] for others in axes)
        z, y, x = ((end - start + 1) * step for (start, end), step in zip(ends, self.spacing_mm, strict=True))
        return float(z), float(y), float(x)

    @cached_property
    def centre_mm(self) -> npt.NDArray[np.float64]:
        """Return the centre of mass (z, y, x) in mm, relative to the first voxel of the whole grid."""
        start = np.array([cut.start for cut in self.box], dtype=np.float64)
        return np.asarray((np.argwhere(self.inside).mean(0) + start) * self.spacing_mm, dtype=np.float64)


def cut_structure(structure: npt.NDArray[np.bool_], grid: Geometry) -> Structure | None:
    """Return the structure that a boolean mask on the whole grid marks, with a margin; None for an empty mask."""
    boxes = ndimage.find_objects(structure.view(np.uint8))
    if not boxes:
        return None
    spacing = grid.array_spacing_mm
    margin = [int(np.ceil(MARGIN_MM / step)) for step in spacing]
    wider = tuple(
        slice(max(cut.start - more, 0), min(cut.stop + more, size))
        for cut, more, size in zip(boxes[0], margin, structure.shape, strict=True)
    )
    return Structure(structure[wider], wider, spacing, grid.voxel_volume_mm3 / 1000)


def find_components(structure: npt.NDArray[np.bool_], grid: Geometry) -> list[Structure]:
    """Return the 26-connected components of a boolean mask on the whole grid, each in its own box without a margin."""
    whole = cut_structure(structure, grid)
    if whole is None:
        return []
    parts, _ = ndimage.label(whole.inside, structure=TOUCHING)
    lesions = []
    for number, box in enumerate(ndimage.find_objects(parts), start=1):
        place = tuple(slice(a.start + b.start, a.stop + b.start) for a, b in zip(box, whole.box, strict=True))
        lesions.append(Structure(parts[box] == number, place, whole.spacing_mm, whole.voxel_ml))
    return lesions


def remove_specks(mask: npt.NDArray[np.uint8], grid: Geometry, smallest: MinLesionSizes) -> npt.NDArray[np.uint8]:
    """Return the mask (labels 0, 1, 2) without the 26-connected components that are too small to count as lesions."""
    lesions = mask.copy()
    for label in labels.FOREGROUND:
        for part in find_components(mask == label, grid):
            if is_below(part.volume_ml, smallest.get_ml(label)):
                part.cut(lesions)[part.inside] = labels.BACKGROUND
    return lesions


SHAPE: Final = ("surface_mm2", "sphericity", "diameter_mm", "elongation", "flatness")


def measure_shape(lesion: Structure | None) -> dict[str, Feature]:
    """Measure the shape of a lesion.

    The features are the surface area of the mesh (IBSI C0JK), sphericity (QCFX), largest diameter (L0JK), elongation
    (Q3CK) and flatness (N17B). All are None for an absent lesion; elongation and flatness also for a single voxel.
    """
    if lesion is None:
        return dict.fromkeys(SHAPE)
    vertices, faces = make_mesh(lesion)
    area, volume = surface_mm2(vertices, faces), mesh_volume_mm3(vertices, faces)
    major, minor, least = axis_lengths_mm(lesion)
    return {
        "surface_mm2": area,
        "sphericity": float((36 * np.pi * volume**2) ** (1 / 3) / area),
        "diameter_mm": diameter_mm(vertices),
        "elongation": minor / major if major > 0 else None,
        "flatness": least / major if major > 0 else None,
    }


def make_mesh(lesion: Structure) -> tuple[_Float, npt.NDArray[np.int64]]:
    """Return vertices (n, 3) in mm and triangles (m, 3) of the surface midway between inside and outside voxels."""
    from skimage.measure import marching_cubes

    padded = np.pad(lesion.inside, 1).astype(np.float32)
    vertices, faces, _, _ = marching_cubes(padded, 0.5, spacing=lesion.spacing_mm)  # type: ignore[no-untyped-call]
    return np.asarray(vertices, dtype=np.float64), np.asarray(faces, dtype=np.int64)


def surface_mm2(vertices: _Float, faces: npt.NDArray[np.int64]) -> float:
    """Return the sum of the triangles' areas."""
    a, b, c = (vertices[faces[:, corner]] for corner in range(3))
    return float(np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() / 2)


def mesh_volume_mm3(vertices: _Float, faces: npt.NDArray[np.int64]) -> float:
    """Return the volume that a closed mesh encloses (IBSI RNU0)."""
    a, b, c = (vertices[faces[:, corner]] for corner in range(3))
    return float(abs(np.einsum("ij,ij->i", a, np.cross(b, c)).sum()) / 6)


def diameter_mm(points: _Float) -> float:
    """Return the largest distance between any two points (n, 3), which are corners of the convex hull; 0 for one."""
    from scipy.spatial import ConvexHull, QhullError, distance  # takes 0.1 s, which a case without features saves

    with suppress(QhullError):  # points in one plane have no convex hull
        points = points[ConvexHull(points).vertices]
    return float(distance.pdist(points).max()) if len(points) > 1 else 0.0


def axis_lengths_mm(lesion: Structure) -> tuple[float, float, float]:
    """Return the lengths of the ellipsoid's major, minor and least axis (IBSI TDIC, P9VJ, 7J51).

    The ellipsoid has the covariance of the voxel centres; the lengths of a single voxel are 0.
    """
    places = np.argwhere(lesion.inside) * lesion.spacing_mm
    spread = np.cov(places.T) if len(places) > 1 else np.zeros((3, 3))
    least, minor, major = 4 * np.sqrt(np.maximum(np.linalg.eigvalsh(spread), 0))
    return float(major), float(minor), float(least)


# Voxels below this fraction of the structure's SUVmax count as cold (necrotic or cystic).
COLD_SHARE: Final = 0.4
THRESHOLDS_SUV: Final = (2.5, 4.0)
# Fraction of the SUVmax of each lesion.
THRESHOLD_FRACTION: Final = 0.41
PEAK_ML: Final = 1.0

STATISTICS: Final = ("suv_max", "suv_mean", "suv_peak", "suv_cv", "cold_share")
THRESHOLD_NAMES: Final = tuple(
    name.format(threshold) for threshold in ("2.5", "4.0", "41pct") for name in ("mtv_over_{}_ml", "tlg_over_{}")
)


def measure_uptake(structure: Structure | None, pet: _Image | None) -> dict[str, Feature]:
    """Measure SUVmax, mean, peak, coefficient of variation (IBSI 84IY, Q4LE, 0F91, 7TET) and fraction of cold voxels.

    Args:
        structure: GTVp or GTVn, None if absent.
        pet: SUV on the whole grid, or None. Every value is None without a structure or without a PET.
    """
    if structure is None or pet is None:
        return dict.fromkeys(STATISTICS)
    image = structure.cut(pet)
    suv = image[structure.inside].astype(np.float64)
    mean, highest = float(suv.mean()), float(suv.max())
    return {
        "suv_max": highest,
        "suv_mean": mean,
        "suv_peak": intensity_peak(structure, image),
        "suv_cv": float(suv.std()) / mean if mean > 0 else None,
        "cold_share": float(np.mean(suv < COLD_SHARE * highest)),
    }


def measure_thresholds(structure: Structure | None, pet: _Image | None) -> dict[str, Feature]:
    """Measure the volume in ml (`mtv`) and SUV x ml (`tlg`) of the structure's voxels above three thresholds.

    The thresholds are SUV 2.5, SUV 4.0, and 41% of the SUVmax of the 26-connected lesion that a voxel belongs to. An
    absent structure has the values 0. Without PET every value is None.
    """
    if pet is None:
        return dict.fromkeys(THRESHOLD_NAMES)
    if structure is None:
        return dict.fromkeys(THRESHOLD_NAMES, 0.0)
    image = structure.cut(pet)
    hot = [structure.inside & (image >= threshold) for threshold in THRESHOLDS_SUV]
    hot.append(_find_hot_voxels(structure.inside, image))
    sizes = ((float(np.count_nonzero(part)), float(image[part].sum(dtype=np.float64))) for part in hot)
    values = [value * structure.voxel_ml for size in sizes for value in size]
    return dict(zip(THRESHOLD_NAMES, values, strict=True))


def measure_glycolysis(structure: Structure | None, pet: _Image | None) -> Feature:
    """Return the total lesion glycolysis, mean SUV times volume in SUV x ml; 0 for no structure, None without a PET."""
    if structure is None:
        return 0.0
    if pet is None:
        return None
    return float(structure.cut(pet)[structure.inside].sum(dtype=np.float64)) * structure.voxel_ml


def intensity_peak(structure: Structure, image: npt.NDArray[np.floating]) -> float:
    """Return the highest mean over a sphere of 1 ml around any voxel of the structure (IBSI 0F91).

    The sphere contains all voxels of the box with centres within 6.2 mm, also voxels outside the structure. `image` is
    the part of the image in the structure's box.
    """
    from scipy.signal import oaconvolve  # the import takes longer than the computation

    sphere = _make_sphere(structure.spacing_mm)
    sums = oaconvolve(image.astype(np.float64), sphere, mode="same")
    counts = np.rint(oaconvolve(np.ones(image.shape), sphere, mode="same"))
    return float((sums[structure.inside] / counts[structure.inside]).max())


def _make_sphere(spacing_mm: Sequence[float]) -> npt.NDArray[np.float64]:
    radius = (PEAK_ML * 750 / np.pi) ** (1 / 3)
    axes = [np.arange(-int(radius / step), int(radius / step) + 1) * step for step in spacing_mm]
    z, y, x = np.meshgrid(*axes, indexing="ij")
    return np.asarray(z**2 + y**2 + x**2 <= radius**2, dtype=np.float64)


def _find_hot_voxels(inside: npt.NDArray[np.bool_], image: _Image) -> npt.NDArray[np.bool_]:
    parts, count = ndimage.label(inside, structure=TOUCHING)
    highest = np.zeros(count + 1)
    highest[1:] = ndimage.maximum(image, parts, np.arange(1, count + 1))
    return np.asarray(inside & (image >= THRESHOLD_FRACTION * highest[parts]))


DENSITY: Final = ("hu_mean", "hu_sd", "hu_p10", "hu_median", "hu_p90")


def measure_density(structure: Structure | None, ct: npt.NDArray[np.float32]) -> dict[str, Feature]:
    """Measure mean, standard deviation, 10th percentile, median and 90th percentile of a structure in HU.

    These are IBSI Q4LE, the root of ECT3, QG58, Y12H and 8DWT. All are None for an absent structure. `ct` is HU on the
    whole grid.
    """
    if structure is None:
        return dict.fromkeys(DENSITY)
    hu = structure.cut(ct)[structure.inside].astype(np.float64)
    low, median, high = np.percentile(hu, (10, 50, 90))
    return dict(zip(DENSITY, (float(hu.mean()), float(hu.std()), float(low), float(median), float(high)), strict=True))


LEVELS_GY: Final = (60, 66)
DOSE: Final = ("dose_mean_gy", "dose_d95_gy", *(f"dose_v{level}_share" for level in LEVELS_GY))


def resample_dose(dose: Volume, grid: Geometry) -> npt.NDArray[np.float32]:
    """Interpolate a dose in Gy linearly on `grid`, shape (z, y, x); NaN outside the dose's own grid."""
    return resample(dose, grid, float("nan"))


def dose_volume(structure: Structure | None, dose: npt.NDArray[np.float32] | None) -> dict[str, Feature]:
    """Measure mean dose and D95 (minimum dose to 95% of the volume) in Gy, and V60 and V66.

    V60 and V66 are the fractions of the volume with at least 60 and 66 Gy.

    Args:
        structure: GTVp or GTVn, None if absent.
        dose: Dose on the whole grid, from `resample_dose`, or None. Every value is None without a structure, without a
            dose, and if a part of the structure lies outside the dose's grid.
    """
    if structure is None or dose is None:
        return dict.fromkeys(DOSE)
    gray = structure.cut(dose)[structure.inside].astype(np.float64)
    if not np.isfinite(gray).all():
        return dict.fromkeys(DOSE)
    shares = (float(np.mean(gray >= level)) for level in LEVELS_GY)
    return dict(zip(DOSE, (float(gray.mean()), float(np.percentile(gray, 5)), *shares), strict=True))
