"""The files of one case: scans, masks and maps on one grid as NIfTI, and case.json with the lesions."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from zlib_ng import gzip_ng

from contract.images.geometry import Geometry
from evaluation.page.colours import CT_WINDOW_HU
from evaluation.viewer.cohort import CaseSources
from evaluation.viewer.findings import list_lesions
from evaluation.viewer.grid import display_grid
from evaluation.viewer.sampling import shown_ct, shown_map, shown_mask, shown_pet
from evaluation.viewer.scene import SUV_WINDOW, Scene, read_scene

CASE_JSON: Final = "case.json"
# What is shown as most uncertain: two labels that are equally probable.
_MAP_WINDOW_BIT: Final = (0.0, 1.0)
_DATATYPES: Final = {"uint8": (2, 8), "int16": (4, 16)}
_MILLIMETRES: Final = 2
_SCANNER_COORDINATES: Final = 1
_PIXELS_BEGIN: Final = 352
_LPS_TO_RAS: Final = np.diag([-1.0, -1.0, 1.0, 1.0])
# The fastest: noise hardly compresses, and masks compress well at any level.
_LEVEL: Final = 1

Json = dict[str, Any]


def build_case(sources: CaseSources) -> dict[str, bytes]:
    """The files of a case by name: `case.json` and the NIfTI files that it names.

    Raises HecktorError if the CT or the reference cannot be read.
    """
    scene = read_scene(sources)
    grid = display_grid(scene.ct, scene.extent())
    with ThreadPoolExecutor(2) as pool:
        images = {"ct.nii.gz": pool.submit(_encoded, shown_ct, scene.ct, grid)}
        if scene.pet is not None:
            images["pet.nii.gz"] = pool.submit(_encoded, shown_pet, scene.pet.volume, grid)
        for number, mask in enumerate(scene.masks):
            images[f"mask-{number}.nii.gz"] = pool.submit(_encoded, shown_mask, mask.voxels, grid)
        for number, (_, volume) in enumerate(scene.maps):
            images[f"uncertainty-{number}.nii.gz"] = pool.submit(_encoded, shown_map, volume, grid)
        content = _content(sources, scene, grid)
        files = {name: image.result() for name, image in images.items()}
    return {CASE_JSON: json.dumps(content, allow_nan=False).encode(), **files}


def _encoded(shown: Callable[[Any, Geometry], tuple[npt.NDArray[Any], float]], source: Any, grid: Geometry) -> bytes:
    array, step = shown(source, grid)
    return nifti_bytes(array, grid, step)


def nifti_bytes(array: npt.NDArray[Any], geometry: Geometry, step: float = 1.0) -> bytes:
    """The file `.nii.gz` of a (z, y, x) array of uint8 or int16, equal for equal volumes.

    World coordinates are RAS in mm: LPS with x and y negated. `step` is the value of a stored 1.
    """
    header = bytearray(_PIXELS_BEGIN)
    affine = _LPS_TO_RAS @ geometry.index_to_physical_matrix()
    datatype, bits = _DATATYPES[array.dtype.name]
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, *geometry.size, 1, 1, 1, 1)
    struct.pack_into("<2h", header, 70, datatype, bits)
    struct.pack_into("<8f", header, 76, 1.0, *geometry.spacing_mm, 0.0, 0.0, 0.0, 0.0)
    struct.pack_into("<3f", header, 108, _PIXELS_BEGIN, step, 0.0)
    struct.pack_into("<B", header, 123, _MILLIMETRES)
    struct.pack_into("<2h", header, 252, 0, _SCANNER_COORDINATES)
    struct.pack_into("<12f", header, 280, *affine[:3].ravel())
    header[344:348] = b"n+1\0"
    pixels = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    compressed: bytes = gzip_ng.compress(bytes(header) + pixels.tobytes(), _LEVEL, mtime=0)  # type: ignore[no-untyped-call]
    return compressed


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
            {"name": one.name, "colour": one.colour, "file": f"mask-{n}.nii.gz", "is_reference": one.is_reference}
            for n, one in enumerate(scene.masks)
        ],
        "uncertainty": [
            {"team": one.team, "title": one.title, "file": f"uncertainty-{number}.nii.gz", "window": _MAP_WINDOW_BIT}
            for number, (one, _) in enumerate(scene.maps)
        ],
        "lesions": lesions.entries,
    }
