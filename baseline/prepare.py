"""Bring each patient onto the network's grid, by the very code that inference uses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from algorithm.grids import resample_mask
from algorithm.localise import Region, localise
from algorithm.notices import Notices
from algorithm.read import Case, clean_ct, clean_pet
from algorithm.segment import network_channels, network_grid
from baseline.release import ReleaseCase
from contract import labels
from contract.files import write_json
from contract.geometry import Geometry
from contract.images import Volume, read_volume, write_volume

DATASET_ID = 101
DATASET_NAME = f"Dataset{DATASET_ID}_HECKTOR"
CHANNELS = ("CT", "PET")


@dataclass(frozen=True)
class Prepared:
    """What `prepare` noted of one patient: the region found and the share of reference voxels inside it."""

    patient_id: str
    region_litres: float
    region_found_by: str
    reference_inside: float


def prepare(
    cases: Sequence[ReleaseCase], raw_dir: Path, spacing_mm: tuple[float, float, float], jobs: int = 1
) -> tuple[Prepared, ...]:
    """Write an nnU-Net raw data set of all `cases` into `raw_dir / DATASET_NAME`.

    Args:
        cases: patients of the release.
        raw_dir: nnU-Net's raw folder.
        spacing_mm: the network's spacing, (x, y, z).
        jobs: worker processes.

    Returns:
        One record a patient, in the order of `cases`; a patient that is already written is not written again.
    """
    target = raw_dir / DATASET_NAME
    for name in ("imagesTr", "labelsTr", "notes"):
        (target / name).mkdir(parents=True, exist_ok=True)
    work = partial(_prepare_one, target=target, spacing_mm=spacing_mm)
    done = tuple(tqdm(_map(work, cases, jobs), total=len(cases), desc="prepare", unit="patient"))
    write_json(
        target / "dataset.json",
        {
            "channel_names": {str(number): name for number, name in enumerate(CHANNELS)},
            "labels": {labels.NAMES[value]: value for value in labels.NAMES},
            "numTraining": len(cases),
            "file_ending": ".nii.gz",
            "overwrite_image_reader_writer": "SimpleITKIO",
        },
    )
    return done


def _map(work: partial[Prepared], cases: Sequence[ReleaseCase], jobs: int) -> Iterator[Prepared]:
    if jobs <= 1:
        yield from map(work, cases)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(work, cases)


def _prepare_one(case: ReleaseCase, target: Path, spacing_mm: tuple[float, float, float]) -> Prepared:
    note = target / "notes" / f"{case.patient_id}.json"
    if note.is_file():
        return Prepared(**json.loads(note.read_text()))
    images, region = read_training_case(case)
    grid = network_grid(region, spacing_mm)
    channels = network_channels(images, grid)
    reference = read_volume(case.mask, np.uint8)
    for number, channel in enumerate(channels):
        _write(target / "imagesTr" / f"{case.patient_id}_{number:04d}.nii.gz", channel, grid)
    _write(target / "labelsTr" / f"{case.patient_id}.nii.gz", resample_mask(reference, grid), grid)
    prepared = Prepared(case.patient_id, region.volume_litres, region.found_by, _share_inside(reference, region))
    write_json(note, prepared.__dict__)
    return prepared


def read_training_case(case: ReleaseCase) -> tuple[Case, Region]:
    """The patient's images as inference would see them, and the region that inference would look at."""
    notices = Notices()
    ct = clean_ct(read_volume(case.ct), case.ct.name, notices)
    pet = clean_pet(read_volume(case.pet), ct, case.pet.name, notices)
    images = Case(ct, pet, case.patient)
    return images, localise(images)


def _share_inside(reference: Volume, region: Region) -> float:
    index = np.argwhere(reference.array > 0)[:, ::-1]
    if not len(index):
        return 1.0
    matrix = reference.geometry.index_to_physical_matrix()
    points = index @ matrix[:3, :3].T + matrix[:3, 3]
    inside = np.all((points >= region.lower_mm) & (points <= region.upper_mm), axis=1)
    return float(inside.mean())


def _write(path: Path, array: npt.NDArray[Any], grid: Geometry) -> None:
    write_volume(path, Volume(array, grid))
