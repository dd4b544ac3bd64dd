"""Read what the viewer shows of a case: scans, and masks with their lesions."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from contract.errors import GroundTruthError, HecktorError, InputError, PredictionError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume
from evaluation.inputs.masks import read_labels, read_prediction
from evaluation.metrics.overlap import Floats
from reporting.page.html import REFERENCE_COLOUR
from reporting.viewer.cohort import CaseSources
from reporting.viewer.lesions import LesionVoxels, lesion_voxels
from reporting.viewer.region import to_index

REFERENCE: Final = "reference"
# 16 litres of voxels of 1 mm.
_MOST_LABELLED_VOXELS: Final = 2**24

SUV_WINDOW: Final = (0.0, 10.0)
# The hottest bladder stays below; activity concentrations in Bq/ml start in the thousands.
_LARGEST_SUV: Final = 500.0
_WINDOW_PERCENTILE: Final = 99.5


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
    """A case on the grids of its files; the reference is the first mask. Notes name what is left out."""

    ct: Volume
    pet: ShownPet | None
    masks: Sequence[NamedMask]
    notes: Sequence[str]

    def lesion_box(self) -> Floats | None:
        """Lowest and highest CT index (x, y, z) of the labelled voxels of all masks, shape (2, 3); None without any."""
        voxels = [to_index(self.ct.geometry, mask.voxels.points_mm) for mask in self.masks if len(mask.voxels.index)]
        ends = np.array([(one.min(axis=0), one.max(axis=0)) for one in voxels])
        return np.stack([ends[:, 0].min(axis=0), ends[:, 1].max(axis=0)]) if voxels else None


def read_scene(sources: CaseSources) -> Scene:
    """Read a case; a PET or prediction that cannot be used is left out and noted.

    Raises HecktorError if the CT or the reference cannot be read.
    """
    notes: list[str] = []
    with ThreadPoolExecutor(2) as pool:  # CT and PET beside the masks
        reading_ct = pool.submit(read_volume, sources.files.ct)
        reading_pet = pool.submit(read_pet, sources.files.pet, sources.suv_factor)
        masks = _masks(sources, notes)
        pet = _pet(reading_pet, notes)
        return Scene(reading_ct.result(), pet, masks, notes)


def read_pet(path: Path, suv_factor: float | None) -> ShownPet:
    """Read a PET in SUV, or in Bq/ml if its values can only be that.

    `suv_factor` is the factor from Bq/ml to SUV of the patient's record; without one (None) Bq/ml are shown as such.
    Raises InputError if it cannot be read, or holds a value that is not finite.
    """
    volume = read_volume(path, np.float32)
    highest = float(volume.array.max())
    if not np.isfinite(highest) or not np.isfinite(volume.array.min()):
        raise InputError(path.name, "a voxel that is not finite", "SUV")
    if highest <= _LARGEST_SUV:
        return ShownPet(volume, "SUV", SUV_WINDOW)
    if suv_factor is not None:
        return ShownPet(Volume(volume.array * np.float32(suv_factor), volume.geometry), "SUV", SUV_WINDOW)
    high = float(np.percentile(volume.array[::2, ::2, ::2], _WINDOW_PERCENTILE))
    return ShownPet(volume, "Bq/ml", (0.0, float(f"{high:.2g}")))


def _pet(reading: Future[ShownPet], notes: list[str]) -> ShownPet | None:
    try:
        return reading.result()
    except HecktorError as problem:
        notes.append(f"PET: {problem.message}")
        return None


def _masks(sources: CaseSources, notes: list[str]) -> list[NamedMask]:
    files, connectivity = sources.files, sources.rules.connectivity
    reference = read_labels(files.reference, GroundTruthError)
    if sources.scored is not None:
        sources.scored.check_reference(reference, files.reference.name)
    grid = reference.geometry
    masks = [NamedMask(REFERENCE, REFERENCE_COLOUR, lesion_voxels(reference.array, grid, connectivity), True)]
    del reference
    for team, path in files.predictions.items():
        try:
            voxels = _predicted(team, path, grid, sources, notes)
        except PredictionError as problem:
            notes.append(f"{team}: {problem.message}")
        else:
            masks.append(NamedMask(team, sources.colours[team], voxels))
    if sources.without_mask:
        notes.append(f"no mask of {', '.join(sources.without_mask)}")
    return masks


def _predicted(team: str, path: Path, grid: Geometry, sources: CaseSources, notes: list[str]) -> LesionVoxels:
    scored = sources.scored
    predicted = read_prediction(path, grid, sources.rules.geometry if scored is None else scored.geometry)
    mask = predicted.array
    if predicted.resampled is not None:
        notes.append(str(predicted.resampled.make_finding(team)))
    if scored is not None:
        scored.check_prediction(team, mask, path.name)
    labelled = int(np.count_nonzero(mask))
    if labelled > _MOST_LABELLED_VOXELS:
        raise PredictionError(path.name, f"{labelled} labelled voxels", f"at most {_MOST_LABELLED_VOXELS}")
    return lesion_voxels(mask, grid, sources.rules.connectivity)
