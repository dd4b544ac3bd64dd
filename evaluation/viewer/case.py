"""The files of one case, NIfTI on one grid and case.json, and the export of a viewer as a static folder."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from zlib_ng import gzip_ng

from contract import labels
from contract.errors import OutputError, unwritable
from contract.files import whole_folder
from contract.images.geometry import Geometry
from evaluation.metrics.overlap import foreground_box
from evaluation.metrics.rules import MaskRules
from evaluation.page.html import CT_WINDOW_HU
from evaluation.viewer.cohort import CaseSources, ViewerCohort, facts
from evaluation.viewer.grid import display_grid
from evaluation.viewer.lesions import LesionVoxels, ListedLesion, lesions_of, match
from evaluation.viewer.sampling import measured_pet, shown_ct, shown_map, shown_mask, shown_pet, values_at
from evaluation.viewer.scene import SUV_WINDOW, NamedMask, Scene, read_scene

# Of each mask: a poor network predicts thousands of specks.
MOST_LESIONS: Final = 200

Status = str | dict[str, str]
Json = dict[str, Any]


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


CASE_JSON: Final = "case.json"
# The PET on its own grid, for measurements with the sphere.
_MEASURED: Final = "pet-voxels.nii.gz"
# What is shown as most uncertain: two labels that are equally probable.
_MAP_WINDOW_BIT: Final = (0.0, 1.0)
_DATATYPES: Final = {"uint8": (2, 8), "int16": (4, 16)}
_MILLIMETRES: Final = 2
_SCANNER_COORDINATES: Final = 1
_PIXELS_BEGIN: Final = 352
_LPS_TO_RAS: Final = np.diag([-1.0, -1.0, 1.0, 1.0])
# The fastest: noise hardly compresses, and masks compress well at any level.
_LEVEL: Final = 1


def build_case(sources: CaseSources) -> dict[str, bytes]:
    """The files of a case by name: `case.json` and the NIfTI files that it names.

    Raises HecktorError if the CT or the reference cannot be read.
    """
    scene = read_scene(sources)
    grid = display_grid(scene.ct, scene.lesion_box())
    with ThreadPoolExecutor(2) as pool:
        images = {"ct.nii.gz": pool.submit(_encoded, shown_ct, scene.ct, grid)}
        if scene.pet is not None:
            images["pet.nii.gz"] = pool.submit(_encoded, shown_pet, scene.pet.volume, grid)
            if (measured := measured_pet(scene.pet.volume, grid)) is not None:
                images[_MEASURED] = pool.submit(nifti_bytes, *measured)
        for number, mask in enumerate(scene.masks):
            images[f"mask-{number}.nii.gz"] = pool.submit(_encoded_mask, mask.voxels, grid)
        for number, (_, volume) in enumerate(scene.maps):
            images[f"uncertainty-{number}.nii.gz"] = pool.submit(_encoded, shown_map, volume, grid)
        content = _content(sources, scene, grid, _MEASURED if _MEASURED in images else None)
        files = {name: image.result() for name, image in images.items()}
    return {CASE_JSON: json.dumps(content, allow_nan=False).encode(), **files}


def _encoded(shown: Callable[[Any, Geometry], tuple[npt.NDArray[Any], float]], source: Any, grid: Geometry) -> bytes:
    array, step = shown(source, grid)
    return nifti_bytes(array, grid, step)


def _encoded_mask(mask: LesionVoxels, grid: Geometry) -> bytes:
    """The box around the labels on the grid; one voxel without any."""
    array = shown_mask(mask, grid)
    z, y, x = foreground_box(array) if array.any() else (slice(0, 1),) * 3
    inside = array[z, y, x]
    depth, height, width = inside.shape
    return nifti_bytes(inside, grid.cropped((x.start, y.start, z.start), (width, height, depth)))


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


def _content(sources: CaseSources, scene: Scene, grid: Geometry, measured: str | None) -> Json:
    lesions, reference, notes = list_lesions(scene, sources.rules)
    pet: Json = {"file": None, "measured": None, "window": SUV_WINDOW, "unit": "SUV"}
    if scene.pet is not None:
        pet = {"file": "pet.nii.gz", "measured": measured, "window": scene.pet.window, "unit": scene.pet.unit}
    return {
        "case": sources.files.case,
        "facts": reference,
        "notes": [*scene.notes, *notes],
        "clinical": sources.clinical,
        "answers": sources.answers,
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
        "lesions": lesions,
    }


INDEX: Final = "index.html"
CASES_JSON: Final = "cases.json"
CASE_FOLDER: Final = "case"
_PAGE_SUFFIXES: Final = (".html", ".css", ".js")


def page_files() -> dict[str, bytes]:
    """The files of the page by name: its styles and scripts, and d3 with its licence."""
    own = [entry for entry in files("evaluation.viewer").iterdir() if entry.name.endswith(_PAGE_SUFFIXES)]
    vendor = files("evaluation.page") / "vendor"
    shown = [*sorted(own, key=lambda entry: entry.name), vendor / "d3.min.js", vendor / "d3.LICENSE"]
    return {entry.name: entry.read_bytes() for entry in shown}


def listing_bytes(cohort: ViewerCohort) -> bytes:
    """The content of cases.json."""
    return json.dumps(cohort.listing, allow_nan=False).encode()


def export_viewer(folder: Path, cohort: ViewerCohort) -> None:
    """Write the viewer of all cases of a cohort, whole or not at all; an earlier viewer there is replaced."""
    if folder.exists() and not (folder / CASES_JSON).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(folder.name, "exists and holds no viewer", "a new folder, or a viewer to replace")
    try:
        with whole_folder(folder) as partial:
            for name, content in {**page_files(), CASES_JSON: listing_bytes(cohort)}.items():
                (partial / name).write_bytes(content)
            for case, sources in cohort.cases.items():
                target = partial / CASE_FOLDER / case
                target.mkdir(parents=True)
                for name, content in build_case(sources).items():
                    (target / name).write_bytes(content)
    except OSError as problem:
        raise unwritable(folder.name, problem) from None
