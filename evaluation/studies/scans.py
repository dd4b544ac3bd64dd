"""A cohort's scans beside its reference masks, and PET uptake on the masks' grid."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk

from contract import labels
from contract.editions import Edition, load_edition
from contract.errors import GroundTruthError
from contract.images.geometry import Geometry
from contract.images.volumes import image_suffix, list_images, read_volume, to_sitk
from evaluation.analyses.sources import GROUND_TRUTH, PatientFiles, find_patients
from evaluation.execution.options import add_workers
from evaluation.execution.pool import map_cases
from evaluation.inputs.masks import read_labels
from evaluation.metrics.overlap import Box, foreground_box
from evaluation.studies.outputs import raise_dead_worker

_RELEASE_MARKS: Final = {"ct": "__CT", "pet": "__PT", "mask": ""}
_MM3_A_ML: Final = 1000.0


def find_scans(cohort: Path, edition: Edition) -> list[PatientFiles]:
    """Every case of a cohort, sorted.

    The cohort has the platform's layout as `find_patients` reads it, or the release's: `<case>/<case>__CT.nii.gz`,
    `<case>/<case>__PT.nii.gz` and `<case>/<case>.nii.gz`.

    Raises:
        GroundTruthError: no case, or a case that lacks one of the three.
    """
    if (cohort / GROUND_TRUTH).is_dir():
        return find_patients(cohort, edition)
    folders = sorted(path for path in cohort.iterdir() if path.is_dir()) if cohort.is_dir() else []
    cases = [_released(folder) for folder in folders if _of_release(folder)]
    if not cases:
        wanted = f"{GROUND_TRUTH}/<case>.mha beside <case>/input, or <case>/<case>__CT, __PT and mask"
        raise GroundTruthError(cohort.name, "no case found", wanted)
    return cases


def _of_release(folder: Path) -> dict[str, Path]:
    by_stem = {path.name[: -len(image_suffix(path) or "")]: path for path in list_images(folder)}
    stems = {kind: f"{folder.name}{mark}" for kind, mark in _RELEASE_MARKS.items()}
    return {kind: by_stem[stem] for kind, stem in stems.items() if stem in by_stem}


def _released(folder: Path) -> PatientFiles:
    paths = _of_release(folder)
    absent = sorted(set(_RELEASE_MARKS) - set(paths))
    if absent:
        raise GroundTruthError(folder.name, f"no {' and no '.join(absent)}", "CT, PET and mask")
    return PatientFiles(folder.name, paths["ct"], paths["pet"], paths["mask"])


def part_of(grid: Geometry, region: Box) -> Geometry:
    """The sub-grid of a (z, y, x) region that is not empty."""
    z, y, x = region
    return grid.cropped((x.start, y.start, z.start), (x.stop - x.start, y.stop - y.start, z.stop - z.start))


def uptake_on(pet: Path, grid: Geometry) -> npt.NDArray[np.float32]:
    """The PET on another grid, (z, y, x), linear between its voxels and 0 beyond it.

    Raises GroundTruthError if it cannot be read, or holds a value that is not finite.
    """
    volume = read_volume(pet, np.float32, error=GroundTruthError)
    if not np.isfinite(volume.array).all():
        raise GroundTruthError(pet.name, "a voxel that is not finite", "SUV")
    placement = (grid.origin_mm, grid.spacing_mm, grid.direction)
    resampled = sitk.Resample(to_sitk(volume), grid.size, sitk.Transform(), sitk.sitkLinear, *placement)
    return np.asarray(sitk.GetArrayFromImage(resampled))


@dataclass(frozen=True)
class Burden:
    """Volume in ml and SUVmax of the reference's GTVp, and of GTVp and GTVn together; 0 where there is none.

    `field_of_view_mm` is the extent of the mask's grid, which is the CT's, from head to feet.
    """

    case: str
    gtvp_volume_ml: float
    gtvp_suv_max: float
    tumour_volume_ml: float
    tumour_suv_max: float
    field_of_view_mm: float


def measure_burden(scans: PatientFiles) -> Burden:
    """Volumes and SUVmax of one case; the PET is resampled to the mask's grid, around the tumour only.

    Raises GroundTruthError if the mask or the PET cannot be used.
    """
    mask = read_labels(scans.reference, GroundTruthError)
    region = foreground_box(mask.array)
    inside = mask.array[region]
    uptake = uptake_on(scans.pet, part_of(mask.geometry, region)) if inside.size else np.zeros(inside.shape, np.float32)
    voxel_ml = mask.geometry.voxel_volume_mm3 / _MM3_A_ML
    figures: list[float] = []
    for part in (inside == labels.GTVP, inside != labels.BACKGROUND):
        figures += [int(part.sum()) * voxel_ml, float(uptake[part].max(initial=0.0))]
    figures.append(mask.geometry.size[2] * mask.geometry.spacing_mm[2])
    return Burden(scans.case, *figures)


def add_cohort(parser: argparse.ArgumentParser) -> None:
    """Add `--cohort` and `--workers`."""
    parser.add_argument(
        "--cohort",
        type=Path,
        required=True,
        help="folder with CT, PET and reference, in the platform's or the release's layout",
    )
    add_workers(parser)


def measure_burdens(options: argparse.Namespace) -> list[Burden]:
    """The burden of every case of the cohort, sorted by case."""
    scans = find_scans(options.cohort, load_edition())
    return map_cases(measure_burden, scans, options.workers, lambda one: raise_dead_worker(one.case, "measured it"))
