"""Data of one case for the page: volumes as NIfTI, lesions with their matches, and the patient's values."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
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
from contract.errors import GroundTruthError, HecktorError, InputError, PredictionError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, to_sitk
from evaluation.inputs.masks import read_labels, read_prediction
from evaluation.metrics.overlap import Floats, find_foreground_box
from evaluation.metrics.rules import MaskRules
from reporting.page.html import REFERENCE_COLOUR
from reporting.viewer.cohort import CaseSources, describe_reference
from reporting.viewer.lesions import LesionVoxels, ListedLesion, find_lesions, match_masks, measure_lesions
from reporting.viewer.region import find_display_grid, resample_volume, to_index

REFERENCE: Final = "reference"
# With voxels of 1 mm these are 16 litres.
MAX_LABELLED_VOXELS: Final = 2**24
# Maximum number of lesions that are listed for each mask; a poor network predicts thousands of specks.
MAX_LESIONS: Final = 200

SUV_WINDOW: Final = (0.0, 10.0)
# Higher than SUVs of any organ, even the bladder; activity concentrations in Bq/ml are in the thousands.
_MAX_SUV: Final = 500.0
_WINDOW_PERCENTILE: Final = 99.5
# Finer steps contain only noise, which does not compress.
_MIN_PET_STEP: Final = 0.01
_MAX_PET_STEPS: Final = 32_767

AIR_HU: Final = -1024.0
_MAX_HU: Final = 3071.0

# NiiVue recognises volumes of labels by this code. SimpleITK cannot set the code and the slope of a NIfTI-1 header,
# which are at these offsets.
LABEL_INTENT: Final = 1002
_INTENT_OFFSET: Final = 68
_SLOPE_OFFSET: Final = 112
# The fastest level: noise hardly compresses, and masks compress well at any level.
_COMPRESSION_LEVEL: Final = 1

# The status of a reference lesion by team, or the status of a team's lesion.
Status = str | dict[str, str]
Json = dict[str, Any]


@dataclass(frozen=True)
class ShownPet:
    """A PET, its unit, and the values shown as the darkest and the brightest."""

    volume: Volume
    unit: str
    window: tuple[float, float]


@dataclass(frozen=True)
class NamedMask:
    """The lesions of the reference or of a team."""

    name: str
    colour: str
    voxels: LesionVoxels
    is_reference: bool = False


@dataclass(frozen=True)
class Scene:
    """A case on the grids of its files; the reference is the first mask. The notes name what cannot be read."""

    ct: Volume
    pet: ShownPet | None
    masks: Sequence[NamedMask]
    notes: Sequence[str]

    def find_lesion_box(self) -> Floats | None:
        """Return the lowest and highest CT index (x, y, z) of the labelled voxels of all masks, shape (2, 3).

        The result is None if all masks are empty.
        """
        mask_indices = [
            to_index(self.ct.geometry, mask.voxels.points_mm) for mask in self.masks if len(mask.voxels.index)
        ]
        if not mask_indices:
            return None
        lowest = np.min([index.min(axis=0) for index in mask_indices], axis=0)
        highest = np.max([index.max(axis=0) for index in mask_indices], axis=0)
        return np.stack([lowest, highest])


def build_case(sources: CaseSources) -> Json:
    """Return everything that the page shows of a case; volumes are `.nii.gz` files in base64.

    Raises:
        HecktorError: The CT or the reference cannot be read.
    """
    scene = read_scene(sources)
    grid = find_display_grid(scene.ct.geometry, scene.find_lesion_box())
    lesions, reference, notes = list_lesions(scene, sources.rules)
    return {
        "case": sources.files.case,
        "facts": reference,
        "notes": [*scene.notes, *notes],
        "clinical": sources.clinical,
        "answers": sources.answers,
        "ct": _encode_ct(scene.ct, grid),
        "pet": None if scene.pet is None else _encode_pet(scene.pet, grid),
        "masks": [_encode_mask(mask, grid) for mask in scene.masks],
        "lesions": lesions,
    }


def read_scene(sources: CaseSources) -> Scene:
    """Read a case. A PET or prediction that cannot be used is left out and noted.

    Raises:
        HecktorError: The CT or the reference cannot be read.
    """
    notes: list[str] = []
    with ThreadPoolExecutor(2) as pool:  # CT and PET are read while the masks are measured
        ct_future = pool.submit(read_volume, sources.files.ct)
        pet_future = pool.submit(read_pet, sources.files.pet, sources.suv_factor)
        masks = _read_masks(sources, notes)
        pet = _wait_for_pet(pet_future, notes)
        return Scene(ct_future.result(), pet, masks, notes)


def read_pet(path: Path, suv_factor: float | None) -> ShownPet:
    """Read a PET in SUV, or in Bq/ml if its values can only be Bq/ml.

    Args:
        path: The image.
        suv_factor: Factor from Bq/ml to SUV in the patient's record. Without a factor, the PET is shown in Bq/ml.

    Raises:
        InputError: The PET cannot be read, or contains a value that is not finite.
    """
    volume = read_volume(path, np.float32)
    highest = float(volume.array.max())
    if not np.isfinite(highest) or not np.isfinite(volume.array.min()):
        raise InputError(path.name, "a voxel that is not finite", "SUV")
    if highest <= _MAX_SUV:
        return ShownPet(volume, "SUV", SUV_WINDOW)
    if suv_factor is not None:
        return ShownPet(Volume(volume.array * np.float32(suv_factor), volume.geometry), "SUV", SUV_WINDOW)
    brightest = float(np.percentile(volume.array[::2, ::2, ::2], _WINDOW_PERCENTILE))
    return ShownPet(volume, "Bq/ml", (0.0, float(f"{brightest:.2g}")))


def _wait_for_pet(future: Future[ShownPet], notes: list[str]) -> ShownPet | None:
    try:
        return future.result()
    except HecktorError as problem:
        notes.append(f"PET: {problem.message}")
        return None


def _read_masks(sources: CaseSources, notes: list[str]) -> list[NamedMask]:
    """Read the reference and the teams' masks. A mask that cannot be used becomes a note."""
    files = sources.files
    reference = read_labels(files.reference, GroundTruthError)
    if sources.scored is not None:
        sources.scored.check_reference(reference, files.reference.name)
    grid = reference.geometry
    lesions = find_lesions(reference.array, grid, sources.rules.connectivity)
    masks = [NamedMask(REFERENCE, REFERENCE_COLOUR, lesions, is_reference=True)]
    del reference
    for team, path in files.predictions.items():
        try:
            voxels = _read_predicted_lesions(team, path, grid, sources, notes)
        except PredictionError as problem:
            notes.append(f"{team}: {problem.message}")
        else:
            masks.append(NamedMask(team, sources.colours[team], voxels))
    if sources.without_mask:
        notes.append(f"no mask of {', '.join(sources.without_mask)}")
    return masks


def _read_predicted_lesions(
    team: str, path: Path, grid: Geometry, sources: CaseSources, notes: list[str]
) -> LesionVoxels:
    """Read a team's mask, on the reference's grid; raise PredictionError if it cannot be used."""
    scored = sources.scored
    predicted = read_prediction(path, grid, sources.rules.geometry if scored is None else scored.geometry)
    mask = predicted.array
    if predicted.resampled is not None:
        notes.append(str(predicted.resampled.make_finding(team)))
    if scored is not None:
        scored.check_prediction(team, mask, path.name)
    labelled = int(np.count_nonzero(mask))
    if labelled > MAX_LABELLED_VOXELS:
        raise PredictionError(path.name, f"{labelled} labelled voxels", f"at most {MAX_LABELLED_VOXELS}")
    return find_lesions(mask, grid, sources.rules.connectivity)


def _encode_ct(ct: Volume, grid: Geometry) -> str:
    """Encode the CT's voxels of the grid in HU."""
    hu = resample_volume(ct, grid, sitk.sitkNearestNeighbor, AIR_HU)
    np.nan_to_num(hu, copy=False, nan=AIR_HU, posinf=_MAX_HU, neginf=AIR_HU)
    return encode_nifti(np.rint(np.clip(hu, AIR_HU, _MAX_HU)).astype(np.int16), grid)


def _encode_pet(pet: ShownPet, grid: Geometry) -> Json:
    """Encode the PET, linearly interpolated, in steps of 0.01 or larger, so that int16 can hold it."""
    uptake = resample_volume(pet.volume, grid, sitk.sitkLinear, 0.0)
    step = max(float(np.abs(uptake).max(initial=0.0)) / _MAX_PET_STEPS, _MIN_PET_STEP)
    volume = encode_nifti(np.rint(uptake / step).astype(np.int16), grid, step=step)
    return {"volume": volume, "window": pet.window, "unit": pet.unit}


def _encode_mask(mask: NamedMask, grid: Geometry) -> Json:
    """Encode a mask. Its volume covers only its labels and a margin of one voxel."""
    array = resample_for_display(mask.voxels, grid)
    # Without labels, a corner of the grid is encoded, because a volume needs voxels.
    box = find_foreground_box(array) if array.any() else (slice(1, 2),) * 3
    z, y, x = (
        slice(max(part.start - 1, 0), min(part.stop + 1, size)) for part, size in zip(box, array.shape, strict=True)
    )
    inside = array[z, y, x]
    depth, height, width = inside.shape
    cropped = grid.crop((x.start, y.start, z.start), (width, height, depth))
    volume = encode_nifti(inside, cropped, intent=LABEL_INTENT)
    return {"name": mask.name, "colour": mask.colour, "is_reference": mask.is_reference, "volume": volume}


def resample_for_display(mask: LesionVoxels, grid: Geometry) -> npt.NDArray[np.uint8]:
    """Return a label mask on the grid, (z, y, x), by nearest neighbour, and each labelled voxel at its nearest point.

    The second step changes nothing on the mask's own grid; on a coarser grid it keeps every lesion visible.
    """
    if not len(mask.index):
        return np.zeros(grid.array_shape, dtype=np.uint8)
    resampled = resample_volume(_crop_to_lesions(mask), grid, sitk.sitkNearestNeighbor, 0.0).astype(np.uint8)
    nearest = np.rint(to_index(grid, mask.points_mm)).astype(np.intp)
    x, y, z = np.clip(nearest, 0, np.asarray(grid.size) - 1).T
    resampled[z, y, x] = mask.labels
    return resampled


def _crop_to_lesions(mask: LesionVoxels) -> Volume:
    """Return the mask as a volume around its foreground."""
    first = mask.index.min(axis=0)
    width, height, depth = (mask.index.max(axis=0) - first + 1).tolist()
    array = np.zeros((depth, height, width), dtype=np.uint8)
    x, y, z = (mask.index - first).T
    array[z, y, x] = mask.labels
    x0, y0, z0 = first.tolist()
    return Volume(array, mask.geometry.crop((x0, y0, z0), (width, height, depth)))


def encode_nifti(array: npt.NDArray[Any], geometry: Geometry, *, step: float = 1.0, intent: int = 0) -> str:
    """Encode a (z, y, x) array as a `.nii.gz` file in base64; `step` is the value of a stored 1."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "volume.nii"
        sitk.WriteImage(to_sitk(Volume(np.ascontiguousarray(array), geometry)), str(path))
        content = bytearray(path.read_bytes())
    struct.pack_into("<h", content, _INTENT_OFFSET, intent)
    struct.pack_into("<f", content, _SLOPE_OFFSET, step)
    compressed = gzip_ng.compress(content, _COMPRESSION_LEVEL, mtime=0)  # type: ignore[no-untyped-call]
    return b64encode(compressed).decode()


def list_lesions(scene: Scene, rules: MaskRules) -> tuple[list[Json], str, list[str]]:
    """List the lesions of every mask, the largest first, the reference's lesions before the teams' lesions.

    A reference lesion has the status `found` or `missed` for each team, a team's lesion `true` or `false`.

    Returns:
        The lesions, the reference in one line, and notes on lesions that are left out.
    """
    reference, *teams = scene.masks
    has_suv = scene.pet is not None and scene.pet.unit == "SUV"
    sample_uptake = partial(interpolate_values, scene.pet.volume) if scene.pet is not None and has_suv else None
    matches = {team.name: match_masks(reference.voxels, team.voxels, rules) for team in teams}
    lesions_of_masks = [measure_lesions(mask.voxels, sample_uptake) for mask in scene.masks]
    entries: list[Json] = []
    notes = []
    for mask, lesions in zip(scene.masks, lesions_of_masks, strict=True):
        if len(lesions) > MAX_LESIONS:
            notes.append(f"{mask.name}: the largest {MAX_LESIONS} of {len(lesions)} lesions are listed")
        for number, lesion in enumerate(lesions[:MAX_LESIONS], start=1):
            status: Status
            if mask.is_reference:
                status = {team: "found" if lesion.number in match.dsc else "missed" for team, match in matches.items()}
            else:
                status = "true" if lesion.number in matches[mask.name].predicted else "false"
            entries.append(_describe_lesion(mask, number, lesion, status))
    gtvp_ml, gtvn_ml = (
        [lesion.volume_ml for lesion in lesions_of_masks[0] if lesion.label == label] for label in labels.FOREGROUND
    )
    return entries, describe_reference(sum(gtvp_ml), sum(gtvn_ml), len(gtvn_ml)), notes


def _describe_lesion(mask: NamedMask, number: int, lesion: ListedLesion, status: Status) -> Json:
    x, y, z = lesion.point_mm
    return {
        "id": f"{mask.name}-{number}",
        "label": labels.NAMES[lesion.label],
        "source": mask.name,
        "volume_ml": round(lesion.volume_ml, 4),
        "suv_max": None if lesion.suv_max is None else round(lesion.suv_max, 3),
        "centroid_ras_mm": [round(-x, 3), round(-y, 3), round(z, 3)],
        "status": status,
    }


def interpolate_values(volume: Volume, points_mm: Floats) -> Floats:
    """Return the values of a volume at LPS points of shape (n, 3), linearly interpolated and 0 outside the volume."""
    index = to_index(volume.geometry, points_mm)[:, ::-1]
    last = np.asarray(volume.array.shape) - 1
    is_inside = ((index >= -0.5) & (index <= last + 0.5)).all(axis=1)
    values = ndimage.map_coordinates(volume.array, index.T, np.float64, order=1, mode="nearest")
    return np.where(is_inside, values, 0.0)
