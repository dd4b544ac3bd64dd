"""The files of one case: scans, masks and maps on one grid as NIfTI, and case.json with the lesions."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from evaluation.page.colours import CT_WINDOW_HU
from evaluation.viewer.cohort import CaseSources
from evaluation.viewer.findings import list_lesions
from evaluation.viewer.grid import display_grid
from evaluation.viewer.nifti import nifti_bytes
from evaluation.viewer.pet import SUV_WINDOW
from evaluation.viewer.sampling import shown_ct, shown_map, shown_mask, shown_pet
from evaluation.viewer.scene import NamedMask, Scene, read_scene

CASE_JSON: Final = "case.json"
# The step of a map, and what is shown as most uncertain: two labels that are equally probable.
_BITS_A_STEP: Final = 0.01
_MAP_WINDOW_BIT: Final = (0.0, 1.0)

Json = dict[str, Any]


def build_case(sources: CaseSources) -> dict[str, bytes]:
    """The files of a case by name: `case.json` and the NIfTI files that it names.

    Raises:
        HecktorError: the CT or the reference cannot be read.
    """
    scene = read_scene(sources)
    grid = display_grid(scene.ct, scene.extent())
    with ThreadPoolExecutor(2) as pool:
        images = {name: pool.submit(encode) for name, encode in _encoders(scene, grid).items()}
        content = _content(sources, scene, grid)
        files = {name: image.result() for name, image in images.items()}
    return {CASE_JSON: json.dumps(content, allow_nan=False).encode(), **files}


def _encoders(scene: Scene, grid: Geometry) -> dict[str, Callable[[], bytes]]:
    encoders: dict[str, Callable[[], bytes]] = {"ct.nii.gz": lambda: nifti_bytes(shown_ct(scene.ct, grid), grid)}
    if scene.pet is not None:
        encoders["pet.nii.gz"] = partial(_encoded_pet, scene.pet.volume, grid)
    for number, mask in enumerate(scene.masks):
        encoders[f"mask-{number}.nii.gz"] = partial(_encoded_mask, mask, grid)
    for number, (_, volume) in enumerate(scene.maps):
        encoders[f"uncertainty-{number}.nii.gz"] = partial(_encoded_map, volume, grid)
    return encoders


def _encoded_pet(pet: Volume, grid: Geometry) -> bytes:
    array, step = shown_pet(pet, grid)
    return nifti_bytes(array, grid, step)


def _encoded_mask(mask: NamedMask, grid: Geometry) -> bytes:
    return nifti_bytes(shown_mask(mask.voxels, grid), grid)


def _encoded_map(volume: Volume, grid: Geometry) -> bytes:
    return nifti_bytes(shown_map(volume, grid), grid, _BITS_A_STEP)


def _content(sources: CaseSources, scene: Scene, grid: Geometry) -> Json:
    lesions = list_lesions(scene, sources.rules)
    pet: Json = {"file": None, "window": SUV_WINDOW, "unit": "SUV"}
    if scene.pet is not None:
        pet = {"file": "pet.nii.gz", "window": scene.pet.window, "unit": scene.pet.unit}
    return {
        "case": sources.files.case,
        "facts": lesions.facts,
        "notes": [*scene.notes, *lesions.notes],
        "spacing_mm": grid.spacing_mm,
        "ct": {"file": "ct.nii.gz", "window": CT_WINDOW_HU},
        "pet": pet,
        "masks": [
            {
                "name": mask.name,
                "colour": mask.colour,
                "file": f"mask-{number}.nii.gz",
                "is_reference": mask.is_reference,
            }
            for number, mask in enumerate(scene.masks)
        ],
        "uncertainty": [
            {"team": one.team, "title": one.title, "file": f"uncertainty-{number}.nii.gz", "window": _MAP_WINDOW_BIT}
            for number, (one, _) in enumerate(scene.maps)
        ],
        "lesions": lesions.entries,
    }
