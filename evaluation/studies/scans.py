"""A cohort's scans beside its reference masks, and PET uptake on the masks' grid."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from contract import labels
from contract.editions import Socket, load_edition
from contract.editions.declaration import CT, PET
from contract.errors import GroundTruthError
from contract.images.geometry import Geometry
from contract.images.volumes import find_single_image, image_suffix, list_images, read_volume, to_sitk
from evaluation.execution.options import add_workers
from evaluation.execution.pool import map_cases
from evaluation.inputs.ground_truth import read_mask_folder
from evaluation.inputs.masks import read_labels
from evaluation.metrics.overlap import Box, foreground_box
from evaluation.studies.outputs import raise_dead_worker

GROUND_TRUTH: Final = "ground_truth"
_RELEASE_MARKS: Final = {"ct": "__CT", "pet": "__PT", "mask": ""}
_MM3_A_ML: Final = 1000.0


@dataclass(frozen=True)
class Scans:
    """One case's CT, PET (SUV) and reference mask."""

    case: str
    ct: Path
    pet: Path
    mask: Path


def find_scans(cohort: Path, inputs: Mapping[str, Socket]) -> list[Scans]:
    """Every case of a cohort, sorted.

    Args:
        cohort: as the platform mounts cases (`<case>/input/images/ct/...` and `.../pet/...`, with
            `ground_truth/<case>.mha`), or as the release holds them (`<case>/<case>__CT.nii.gz`,
            `<case>/<case>__PT.nii.gz` and `<case>/<case>.nii.gz`).
        inputs: sockets of the edition, which give the folders of mounted cases.

    Raises:
        GroundTruthError: no case, or a case that lacks one of the three.
    """
    if (cohort / GROUND_TRUTH).is_dir():
        references = read_mask_folder(cohort / GROUND_TRUTH).targets
        return [_mounted(case, cohort / case / "input", mask, inputs) for case, mask in references.items()]
    folders = sorted(path for path in cohort.iterdir() if path.is_dir()) if cohort.is_dir() else []
    cases = [_released(folder) for folder in folders if _of_release(folder)]
    if not cases:
        wanted = f"{GROUND_TRUTH}/<case>.mha beside <case>/input, or <case>/<case>__CT, __PT and mask"
        raise GroundTruthError(cohort.name, "no case found", wanted)
    return cases


def _mounted(case: str, folder: Path, mask: Path, inputs: Mapping[str, Socket]) -> Scans:
    ct, pet = (find_single_image(inputs[name].path_under(folder), error=GroundTruthError) for name in (CT, PET))
    return Scans(case, ct, pet, mask)


def _of_release(folder: Path) -> dict[str, Path]:
    by_stem = {path.name[: -len(image_suffix(path) or "")]: path for path in list_images(folder)}
    stems = {kind: f"{folder.name}{mark}" for kind, mark in _RELEASE_MARKS.items()}
    return {kind: by_stem[stem] for kind, stem in stems.items() if stem in by_stem}


def _released(folder: Path) -> Scans:
    paths = _of_release(folder)
    absent = sorted(set(_RELEASE_MARKS) - set(paths))
    if absent:
        raise GroundTruthError(folder.name, f"no {' and no '.join(absent)}", "CT, PET and mask")
    return Scans(folder.name, paths["ct"], paths["pet"], paths["mask"])


def part_of(grid: Geometry, region: Box) -> Geometry:
    """The sub-grid of a (z, y, x) region that is not empty."""
    z, y, x = region
    return grid.cropped((x.start, y.start, z.start), (x.stop - x.start, y.stop - y.start, z.stop - z.start))


def uptake_on(pet: Path, grid: Geometry) -> npt.NDArray[np.float32]:
    """The PET on another grid, (z, y, x), linear between its voxels and 0 beyond it.

    Raises:
        GroundTruthError: it cannot be read, or holds a value that is not finite.
    """
    volume = read_volume(pet, np.float32, error=GroundTruthError)
    if not np.isfinite(volume.array).all():
        raise GroundTruthError(pet.name, "a voxel that is not finite", "SUV")
    resampled = sitk.Resample(
        to_sitk(volume),
        grid.size,
        sitk.Transform(),
        sitk.sitkLinear,
        grid.origin_mm,
        grid.spacing_mm,
        grid.direction,
    )
    array: npt.NDArray[np.float32] = sitk.GetArrayFromImage(resampled)
    return array


@dataclass(frozen=True)
class Burden:
    """Volume in ml and SUVmax of the reference's GTVp, and of GTVp and GTVn together; 0 where there is none."""

    case: str
    gtvp_volume_ml: float
    gtvp_suv_max: float
    tumour_volume_ml: float
    tumour_suv_max: float


def measure_burden(scans: Scans) -> Burden:
    """Volumes and SUVmax of one case; the PET is resampled to the mask's grid, around the tumour only.

    Raises:
        GroundTruthError: the mask or the PET cannot be used.
    """
    mask = read_labels(scans.mask, GroundTruthError)
    region = foreground_box(mask.array)
    inside = mask.array[region]
    uptake = uptake_on(scans.pet, part_of(mask.geometry, region)) if inside.size else np.zeros(inside.shape, np.float32)
    voxel_ml = mask.geometry.voxel_volume_mm3 / _MM3_A_ML
    gtvp, tumour = inside == labels.GTVP, inside != labels.BACKGROUND
    return Burden(
        scans.case,
        int(gtvp.sum()) * voxel_ml,
        float(uptake[gtvp].max(initial=0.0)),
        int(tumour.sum()) * voxel_ml,
        float(uptake[tumour].max(initial=0.0)),
    )


def add_cohort(parser: argparse.ArgumentParser) -> None:
    """Add `--cohort` and `--workers`."""
    parser.add_argument(
        "--cohort", type=Path, required=True, help="cases with CT, PET and reference, as mounted or as released"
    )
    add_workers(parser)


def measure_burdens(options: argparse.Namespace) -> list[Burden]:
    """The burden of every case of the cohort, sorted by case."""
    scans = find_scans(options.cohort, load_edition().inputs)
    return map_cases(measure_burden, scans, options.workers, lambda one: raise_dead_worker(one.case, "measured it"))
