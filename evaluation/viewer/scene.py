"""Read everything of a case that is shown: scans, masks with their lesions, uncertainty maps."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from contract.errors import GroundTruthError, HecktorError, PredictionError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume
from evaluation.inputs.masks import read_labels, read_prediction
from evaluation.metrics.rules import MaskRules
from evaluation.page.colours import REFERENCE_COLOUR
from evaluation.viewer.cohort import CaseSources, UncertaintyMap
from evaluation.viewer.grid import Extent
from evaluation.viewer.lesions import LesionVoxels, lesion_voxels
from evaluation.viewer.pet import ShownPet, read_pet

REFERENCE: Final = "reference"
# 16 litres of voxels of 1 mm.
_MOST_LABELLED_VOXELS: Final = 2**24


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
    maps: Sequence[tuple[UncertaintyMap, Volume]]
    notes: Sequence[str]

    def extent(self) -> Extent | None:
        """The smallest box around the lesions of all masks, None without any."""
        points = [extent for mask in self.masks if (extent := mask.voxels.extent()) is not None]
        return Extent.of_points(np.vstack([(one.low, one.high) for one in points])) if points else None


def read_scene(sources: CaseSources) -> Scene:
    """Read a case; a PET, prediction or map that cannot be used is left out and noted.

    Raises:
        HecktorError: the CT or the reference cannot be read.
    """
    notes: list[str] = []
    with ThreadPoolExecutor(2) as pool:  # CT and PET beside the masks
        reading_ct = pool.submit(read_volume, sources.files.ct)
        reading_pet = pool.submit(read_pet, sources.files.pet, sources.suv_factor)
        masks = _masks(sources, notes)
        maps = _maps(sources, notes)
        pet = _pet(reading_pet, notes)
        return Scene(reading_ct.result(), pet, masks, maps, notes)


def _pet(reading: Future[ShownPet], notes: list[str]) -> ShownPet | None:
    try:
        return reading.result()
    except HecktorError as problem:
        notes.append(f"PET: {problem.message}")
        return None


def _masks(sources: CaseSources, notes: list[str]) -> list[NamedMask]:
    files, connectivity = sources.files, sources.rules.connectivity
    reference = read_labels(files.reference, GroundTruthError)
    grid = reference.geometry
    masks = [NamedMask(REFERENCE, REFERENCE_COLOUR, lesion_voxels(reference.array, grid, connectivity), True)]
    del reference
    for team, path in files.predictions.items():
        try:
            voxels = _predicted(path, grid, sources.rules)
        except PredictionError as problem:
            notes.append(f"{team}: {problem.message}")
        else:
            masks.append(NamedMask(team, sources.colours[team], voxels))
    if sources.without_mask:
        notes.append(f"no mask of {', '.join(sources.without_mask)}")
    return masks


def _predicted(path: Path, grid: Geometry, rules: MaskRules) -> LesionVoxels:
    mask = read_prediction(path, grid, rules.geometry)
    labelled = int(np.count_nonzero(mask))
    if labelled > _MOST_LABELLED_VOXELS:
        raise PredictionError(path.name, f"{labelled} labelled voxels", f"at most {_MOST_LABELLED_VOXELS}")
    return lesion_voxels(mask, grid, rules.connectivity)


def _maps(sources: CaseSources, notes: list[str]) -> list[tuple[UncertaintyMap, Volume]]:
    maps = []
    for one in sources.maps:
        try:
            maps.append((one, read_volume(one.path, np.uint8)))
        except HecktorError as problem:
            notes.append(f"{one.team}: {problem.message}")
    return maps
