"""Build the data of a viewer page: volumes as NIfTI, lesions with their matches, the patient's texts."""

from __future__ import annotations

import struct
from base64 import b64encode
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk
from scipy import ndimage
from zlib_ng import gzip_ng

from contract import labels
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, to_sitk
from evaluation.metrics.overlap import Floats, foreground_box
from evaluation.metrics.rules import MaskRules
from reporting.viewer.cohort import CaseSources, facts
from reporting.viewer.lesions import LesionVoxels, ListedLesion, lesions_of, match
from reporting.viewer.region import find_display_grid, resampled, to_index
from reporting.viewer.scene import NamedMask, Scene, ShownPet, read_scene

# Of each mask: a poor network predicts thousands of specks.
MOST_LESIONS: Final = 200
AIR_HU: Final = -1024.0
_MOST_HU: Final = 3071.0
# Finer steps hold noise alone, which does not compress.
_LEAST_PET_STEP: Final = 0.01
_MOST_PET_STEPS: Final = 32_767
# The code by which NiiVue knows volumes of labels, and where NIfTI-1 has what SimpleITK cannot set.
LABEL_INTENT: Final = 1002
_INTENT_AT: Final = 68
_SLOPE_AT: Final = 112
# The fastest: noise hardly compresses, and masks compress well at any level.
_LEVEL: Final = 1

Status = str | dict[str, str]
Json = dict[str, Any]


def build_case(sources: CaseSources) -> Json:
    """Everything that the page shows of a case; volumes are `.nii.gz` in base 64.

    Raises HecktorError if the CT or the reference cannot be read.
    """
    scene = read_scene(sources)
    grid = find_display_grid(scene.ct.geometry, scene.lesion_box())
    lesions, reference, notes = list_lesions(scene, sources.rules)
    return {
        "case": sources.files.case,
        "facts": reference,
        "notes": [*scene.notes, *notes],
        "clinical": sources.clinical,
        "answers": sources.answers,
        "ct": _ct(scene.ct, grid),
        "pet": None if scene.pet is None else _pet(scene.pet, grid),
        "masks": [_mask(one, grid) for one in scene.masks],
        "lesions": lesions,
    }


def _ct(ct: Volume, grid: Geometry) -> str:
    """The CT's voxels of the grid in HU."""
    hu = resampled(ct, grid, sitk.sitkNearestNeighbor, AIR_HU)
    np.nan_to_num(hu, copy=False, nan=AIR_HU, posinf=_MOST_HU, neginf=AIR_HU)
    return nifti(np.rint(np.clip(hu, AIR_HU, _MOST_HU)).astype(np.int16), grid)


def _pet(pet: ShownPet, grid: Geometry) -> Json:
    """The PET, linearly interpolated, in steps of 0.01 (larger if int16 cannot hold it)."""
    uptake = resampled(pet.volume, grid, sitk.sitkLinear, 0.0)
    step = max(float(np.abs(uptake).max(initial=0.0)) / _MOST_PET_STEPS, _LEAST_PET_STEP)
    volume = nifti(np.rint(uptake / step).astype(np.int16), grid, step=step)
    return {"volume": volume, "window": pet.window, "unit": pet.unit}


def _mask(mask: NamedMask, grid: Geometry) -> Json:
    """A mask, its labels on the grid with a margin of a voxel, beyond which nothing is labelled."""
    array = resample_for_display(mask.voxels, grid)
    labelled = foreground_box(array) if array.any() else (slice(1, 2),) * 3
    z, y, x = (slice(max(one.start - 1, 0), min(one.stop + 1, n)) for one, n in zip(labelled, array.shape, strict=True))
    inside = array[z, y, x]
    depth, height, width = inside.shape
    box = grid.cropped((x.start, y.start, z.start), (width, height, depth))
    volume = nifti(inside, box, intent=LABEL_INTENT)
    return {"name": mask.name, "colour": mask.colour, "is_reference": mask.is_reference, "volume": volume}


def resample_for_display(mask: LesionVoxels, grid: Geometry) -> npt.NDArray[np.uint8]:
    """A label mask on the grid, (z, y, x), by nearest neighbour, and each labelled voxel at its nearest point.

    The latter changes nothing on the mask's own grid; on a coarser one no lesion is lost.
    """
    if not len(mask.index):
        return np.zeros(grid.array_shape, dtype=np.uint8)
    target = resampled(_dense(mask), grid, sitk.sitkNearestNeighbor, 0.0).astype(np.uint8)
    nearest = np.rint(to_index(grid, mask.points_mm)).astype(np.intp)
    x, y, z = np.clip(nearest, 0, np.asarray(grid.size) - 1).T
    target[z, y, x] = mask.labels
    return target


def _dense(mask: LesionVoxels) -> Volume:
    """The mask as an array around its foreground."""
    first = mask.index.min(axis=0)
    width, height, depth = (mask.index.max(axis=0) - first + 1).tolist()
    array = np.zeros((depth, height, width), dtype=np.uint8)
    x, y, z = (mask.index - first).T
    array[z, y, x] = mask.labels
    x0, y0, z0 = first.tolist()
    return Volume(array, mask.geometry.cropped((x0, y0, z0), (width, height, depth)))


def nifti(array: npt.NDArray[Any], geometry: Geometry, *, step: float = 1.0, intent: int = 0) -> str:
    """The file `.nii.gz` of a (z, y, x) array in base 64. `step` is the value of a stored 1."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "volume.nii"
        sitk.WriteImage(to_sitk(Volume(np.ascontiguousarray(array), geometry)), str(path))
        content = bytearray(path.read_bytes())
    struct.pack_into("<h", content, _INTENT_AT, intent)
    struct.pack_into("<f", content, _SLOPE_AT, step)
    return b64encode(gzip_ng.compress(content, _LEVEL, mtime=0)).decode()  # type: ignore[no-untyped-call]


def list_lesions(scene: Scene, rules: MaskRules) -> tuple[list[Json], str, list[str]]:
    """The lesions of every mask, the reference in one line, and notes on lesions that are left out.

    The largest lesions come first, the reference's before the teams'. A reference lesion has the status `found` or
    `missed` for each team, a team's own lesion `true` or `false`.
    """
    reference, *teams = scene.masks
    uptake = partial(values_at, scene.pet.volume) if scene.pet is not None and scene.pet.unit == "SUV" else None
    matched = {team.name: match(reference.voxels, team.voxels, rules) for team in teams}
    of_masks = [lesions_of(mask.voxels, uptake) for mask in scene.masks]
    entries: list[Json] = []
    notes = []
    for mask, lesions in zip(scene.masks, of_masks, strict=True):
        if len(lesions) > MOST_LESIONS:
            notes.append(f"{mask.name}: the largest {MOST_LESIONS} of {len(lesions)} lesions are listed")
        for place, lesion in enumerate(lesions[:MOST_LESIONS], start=1):
            status: Status = {name: "found" if lesion.number in one.dsc else "missed" for name, one in matched.items()}
            if not mask.is_reference:
                status = "true" if lesion.number in matched[mask.name].predicted else "false"
            entries.append(_entry(mask, place, lesion, status))
    gtvp, gtvn = ([one.volume_ml for one in of_masks[0] if one.label == label] for label in labels.FOREGROUND)
    return entries, facts(sum(gtvp), sum(gtvn), len(gtvn)), notes


def _entry(mask: NamedMask, place: int, lesion: ListedLesion, status: Status) -> Json:
    x, y, z = lesion.point_mm
    return {
        "id": f"{mask.name}-{place}",
        "label": labels.NAMES[lesion.label],
        "source": mask.name,
        "volume_ml": round(lesion.volume_ml, 4),
        "suv_max": None if lesion.suv_max is None else round(lesion.suv_max, 3),
        "centroid_ras_mm": [round(-x, 3), round(-y, 3), round(z, 3)],
        "status": status,
    }


def values_at(volume: Volume, points_mm: Floats) -> Floats:
    """Values of a volume at LPS points of shape (n, 3), linearly interpolated, 0 outside of it."""
    index = to_index(volume.geometry, points_mm)[:, ::-1]
    last = np.asarray(volume.array.shape) - 1
    inside = ((index >= -0.5) & (index <= last + 0.5)).all(axis=1)
    values = ndimage.map_coordinates(volume.array, index.T, np.float64, order=1, mode="nearest")
    return np.where(inside, values, 0.0)
