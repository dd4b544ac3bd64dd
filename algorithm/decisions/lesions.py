"""Lesions of a segmentation as candidates for the decisions: components, measured once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.case.uptake import LARGEST_PLAUSIBLE_SUV, LEAST_HIGHEST_SUV
from algorithm.heads.features.places import MIDLINE_MM, offset_mm
from algorithm.heads.features.structure import MARGIN_MM, TOUCHING, Structure
from algorithm.heads.features.uptake import intensity_peak
from algorithm.masks.segmentation import argmax, softmax
from contract import labels
from contract.images.geometry import Geometry

_Float = npt.NDArray[np.float32]
_Labels = npt.NDArray[np.uint8]
_Numbers = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Scans:
    """CT in HU and PET in SUV, or None, on one grid, (z, y, x)."""

    ct: _Float
    pet: _Float | None
    grid: Geometry

    @classmethod
    def of(cls, ct: _Float, pet: _Float | None, grid: Geometry) -> Scans:
        """Without the PET if its highest value cannot be an SUV: its unit is another one, and no gate fits."""
        plausible = pet is not None and LEAST_HIGHEST_SUV <= float(pet.max()) <= LARGEST_PLAUSIBLE_SUV
        return cls(ct, pet if plausible else None, grid)


@dataclass(frozen=True)
class Candidate:
    """A lesion that the rules keep or drop.

    Attributes:
        label: GTVp or GTVn.
        group: number of the foreground component that it is a part of; lesions that touch share it.
        merged: True for a whole group of both labels taken as one lesion of its prevailing label.
        other_share: share of the group's weaker label in its probability; 0 in a group of one label.
        volume_ml: volume.
        mean_probability: mean probability of the foreground.
        max_probability: highest probability of the foreground.
        suv_max: None without a PET.
        suv_peak: highest mean over a sphere of 1 ml; None without a PET.
        distance_mm: distance from the primary, between centres; None without one.
        offset_mm: distance from the midline, positive on the patient's left; None without a body.
        contralateral: True on the other side than the primary; False within 5 mm of the midline.
        structure: the voxels.
    """

    label: int
    group: int
    merged: bool
    other_share: float
    volume_ml: float
    mean_probability: float
    max_probability: float
    suv_max: float | None
    suv_peak: float | None
    distance_mm: float | None
    offset_mm: float | None
    contralateral: bool
    structure: Structure


@dataclass(frozen=True)
class _Part:
    label: int
    group: int
    merged: bool
    structure: Structure


def shifted(logits: _Float, thresholds: tuple[float, float]) -> _Float:
    """Logits (label, z, y, x) whose argmax is the mask at the thresholds of foreground and of GTVp; see `Decisions`.

    Thresholds of 0.5 give the same logits.
    """
    foreground, gtvp = (np.float32(np.log(value) - np.log1p(-value)) for value in thresholds)
    if foreground == 0 and gtvp == 0:
        return logits
    if gtvp == 0:
        moved = logits.copy()
        moved[0] += foreground
        return moved
    moved = np.empty_like(logits)
    np.add(logits[0], foreground, out=moved[0])
    lead = logits[1] - logits[2]
    lead -= gtvp
    # In place, since new memory takes most of the time.
    np.minimum(lead, 0, out=moved[1])
    np.minimum(np.negative(lead, out=lead), 0, out=moved[2])
    moved[1:] += np.maximum(logits[1], logits[2], out=lead)
    return moved


def candidates_of(
    logits: _Float,
    scans: Scans,
    gtvp_threshold: float = 0.5,
    most: int | None = None,
    *,
    peaks: bool = True,
    sides: bool = True,
) -> list[Candidate]:
    """All candidates of the argmax of `logits`, (label, z, y, x): each lesion, and each group of both labels as one.

    With `most`, only the largest ones, so that a mask full of noise costs no minutes. The primary, from which distances
    and sides are measured, is the GTVp with the most probability. Without `peaks` or `sides` the lesions have no
    SUVpeak or side, which take the most time.
    """
    mask = argmax(logits)
    boxes = ndimage.find_objects((mask > 0).view(np.uint8))
    if not boxes:
        return []
    box = boxes[0]
    local = mask[box]
    inside = local > 0
    groups, count = ndimage.label(inside, structure=TOUCHING)
    # Of the lesions' voxels alone: they are few.
    probabilities = softmax(logits[(slice(None), *box)][:, inside])
    of_voxel, own = groups[inside], local[inside]
    gtvp, gtvn = (
        np.bincount(of_voxel, probabilities[label], count + 1)[1:] * factor
        for label, factor in ((labels.GTVP, 1 - gtvp_threshold), (labels.GTVN, gtvp_threshold))
    )
    both = np.logical_and(*(np.bincount(of_voxel[own == one], minlength=count + 1)[1:] for one in labels.FOREGROUND))
    shares = np.where(both, np.minimum(gtvp, gtvn) / np.maximum(gtvp + gtvn, 1e-12), 0.0)
    prevailing = np.where(gtvp >= gtvn, labels.GTVP, labels.GTVN)
    parts = [*_lesions(local, groups, box, scans.grid), *_mixed(groups, both, prevailing, box, scans.grid)]
    parts = _largest(parts, len(parts) if most is None else most)
    foreground, of_gtvp = (np.zeros(mask.shape, dtype=np.float32) for _ in range(2))
    foreground[box][inside], of_gtvp[box][inside] = probabilities[1:].sum(0), probabilities[labels.GTVP]
    primary = _primary(parts, of_gtvp)
    primary_mm = offset_mm(primary, scans.ct, scans.grid) if sides and primary is not None else None
    wanted = _Wanted(primary, primary_mm, peaks, sides)
    return [_measured(part, float(shares[part.group - 1]), foreground, wanted, scans) for part in parts]


def _lesions(local: _Labels, groups: _Numbers, box: tuple[slice, ...], grid: Geometry) -> Iterator[_Part]:
    for label in labels.FOREGROUND:
        numbered, _ = ndimage.label(local == label, structure=TOUCHING)
        for number, place in enumerate(ndimage.find_objects(numbered), start=1):
            inside = numbered[place] == number
            yield _Part(label, int(groups[place][inside][0]), False, _structure(numbered, number, place, box, grid))


def _mixed(
    groups: _Numbers,
    both: npt.NDArray[np.bool_],
    prevailing: npt.NDArray[np.int64],
    box: tuple[slice, ...],
    grid: Geometry,
) -> Iterator[_Part]:
    for number, place in enumerate(ndimage.find_objects(groups), start=1):
        if both[number - 1]:
            yield _Part(int(prevailing[number - 1]), number, True, _structure(groups, number, place, box, grid))


def _largest(parts: list[_Part], most: int) -> list[_Part]:
    """The `most` largest parts, in their order."""
    if len(parts) <= most:
        return parts
    by_size = sorted(range(len(parts)), key=lambda number: -parts[number].structure.volume_ml)
    return [parts[number] for number in sorted(by_size[:most])]


def _structure(
    numbered: _Numbers, number: int, place: tuple[slice, ...], box: tuple[slice, ...], grid: Geometry
) -> Structure:
    """One numbered component of a box of the grid, with a margin that may reach beyond the box."""
    spacing = grid.array_spacing_mm
    margin = [int(np.ceil(MARGIN_MM / step)) for step in spacing]
    starts = [part.start + whole.start for part, whole in zip(place, box, strict=True)]
    stops = [part.stop + whole.start for part, whole in zip(place, box, strict=True)]
    low = [max(start - more, 0) for start, more in zip(starts, margin, strict=True)]
    high = [min(stop + more, size) for stop, more, size in zip(stops, margin, grid.array_shape, strict=True)]
    inside = np.zeros([b - a for a, b in zip(low, high, strict=True)], dtype=np.bool_)
    own = tuple(slice(start - a, stop - a) for start, stop, a in zip(starts, stops, low, strict=True))
    inside[own] = numbered[place] == number
    wider = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
    return Structure(inside, wider, spacing, grid.voxel_volume_mm3 / 1000)


def _primary(parts: list[_Part], gtvp: _Float) -> Structure | None:
    """The GTVp with the most probability, before any rule."""
    lesions = [part.structure for part in parts if part.label == labels.GTVP and not part.merged]
    if not lesions:
        return None
    return max(lesions, key=lambda lesion: float(lesion.cut(gtvp)[lesion.inside].sum(dtype=np.float64)))


@dataclass(frozen=True)
class _Wanted:
    """The primary with its offset from the midline, and the slow measures that are wanted."""

    primary: Structure | None
    primary_mm: float | None
    peaks: bool
    sides: bool


def _measured(part: _Part, share: float, foreground: _Float, wanted: _Wanted, scans: Scans) -> Candidate:
    structure, primary = part.structure, wanted.primary
    values = structure.cut(foreground)[structure.inside]
    uptake = None if scans.pet is None else structure.cut(scans.pet)
    offset = offset_mm(structure, scans.ct, scans.grid) if wanted.sides else None
    return Candidate(
        part.label,
        part.group,
        part.merged,
        share,
        structure.volume_ml,
        float(values.mean(dtype=np.float64)),
        float(values.max()),
        None if uptake is None else float(uptake[structure.inside].max()),
        None if uptake is None or not wanted.peaks else intensity_peak(structure, uptake),
        None if primary is None else float(np.linalg.norm(structure.centre_mm - primary.centre_mm)),
        offset,
        _opposite(offset, wanted.primary_mm),
        structure,
    )


def _opposite(offset: float | None, primary: float | None) -> bool:
    if offset is None or primary is None or min(abs(offset), abs(primary)) <= MIDLINE_MM:
        return False
    return (offset > 0) != (primary > 0)
