"""A cohort's scans beside its reference masks, and PET uptake on the masks' grid."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.editions import load_edition
from contract.errors import GroundTruthError
from contract.images.geometry import Geometry
from contract.images.volumes import read_volume, to_sitk
from contract.options import add_edition_option
from evaluation.inputs.masks import read_labels
from evaluation.metrics.overlap import MM3_PER_ML, Box, foreground_box
from evaluation.options import add_workers_option
from reporting.analyses.scans import PatientFiles, find_scans
from reporting.studies.outputs import Row, StudyResult, measure_cases, write_table

RISKS: Final = ("gtvp_volume_ml", "gtvp_suv_max", "tumour_volume_ml", "tumour_suv_max")


def part_of(grid: Geometry, region: Box) -> Geometry:
    """The sub-grid of a (z, y, x) region that is not empty."""
    z, y, x = region
    return grid.cropped((x.start, y.start, z.start), (x.stop - x.start, y.stop - y.start, z.stop - z.start))


def uptake_on(pet: Path, grid: Geometry) -> npt.NDArray[np.float32]:
    """The PET on another grid, (z, y, x), linear between its voxels and 0 beyond it.

    Raises GroundTruthError if it cannot be read, or holds a value that is not finite.
    """
    import SimpleITK as sitk

    volume = read_volume(pet, np.float32, error=GroundTruthError)
    if not np.isfinite(volume.array).all():
        raise GroundTruthError(pet.name, "a voxel that is not finite", "SUV")
    placement = (grid.origin_mm, grid.spacing_mm, grid.direction)
    resampled = sitk.Resample(to_sitk(volume), grid.size, sitk.Transform(), sitk.sitkLinear, *placement)
    return np.asarray(sitk.GetArrayFromImage(resampled))


def tumour_of(scans: PatientFiles) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], float]:
    """The reference's labels in the box around all of them, the uptake there, and the volume of a voxel in ml.

    The PET is resampled to the mask's grid. Raises GroundTruthError if the mask or the PET cannot be used.
    """
    mask = read_labels(scans.reference, GroundTruthError)
    region = foreground_box(mask.array)
    inside = mask.array[region]
    uptake = uptake_on(scans.pet, part_of(mask.geometry, region)) if inside.size else np.zeros(inside.shape, np.float32)
    return inside, uptake, mask.geometry.voxel_volume_mm3 / MM3_PER_ML


def measure_burden(scans: PatientFiles) -> dict[str, Any]:
    """Volume in ml and SUVmax of the reference's GTVp, and of GTVp and GTVn together; 0 where there is none.

    Raises GroundTruthError if the mask or the PET cannot be used.
    """
    inside, uptake, voxel_ml = tumour_of(scans)
    figures: list[float] = []
    for part in (inside == labels.GTVP, inside != labels.BACKGROUND):
        figures += [int(part.sum()) * voxel_ml, float(uptake[part].max(initial=0.0))]
    return {"case": scans.case, **dict(zip(RISKS, figures, strict=True))}


def add_cohort(parser: argparse.ArgumentParser) -> None:
    """Add `--cohort`, `--edition` and `--workers`."""
    cohort = "folder with CT, PET and reference, in the platform's or the release's layout"
    parser.add_argument("--cohort", type=Path, required=True, help=cohort)
    add_edition_option(parser)
    add_workers_option(parser)


def scans_of(options: argparse.Namespace) -> list[PatientFiles]:
    """The cases of `--cohort`."""
    return find_scans(options.cohort, load_edition(options.edition))


def measure_cohort(work: Callable[[PatientFiles], Row], options: argparse.Namespace, doing: str) -> list[Row]:
    """Apply `work` to every case of `--cohort`, see `measure_cases`."""
    return measure_cases(work, scans_of(options), options.workers, doing)


def run(_: argparse.ArgumentParser, options: argparse.Namespace) -> StudyResult:
    """`hecktor study baselines`: write one table of risks for each measure, for `hecktor evaluate` to score."""
    lines = measure_cohort(measure_burden, options, "measured it")
    tables = [f"{name}.csv" for name in RISKS]
    for name, table in zip(RISKS, tables, strict=True):
        write_table(options.output / table, [{"PatientID": line["case"], "risk": line[name]} for line in lines])
    content = {"cases": len(lines), "risks": tables}
    return StudyResult(content, lines, f"{len(lines)} cases; ", files=tuple(tables))


add_options = add_cohort
