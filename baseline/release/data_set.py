"""Bring each patient onto the network's grid, by the very code that inference uses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from algorithm.case.notices import Notices
from algorithm.case.read import Case, clean_ct, clean_pet
from algorithm.network.segment import network_channels, network_grid
from algorithm.region.grids import resample_mask
from algorithm.region.localise import Region, localise
from baseline.cache import each, keep, key_of, read_kept
from baseline.release.cases import ReleaseCase
from contract import labels
from contract.files import write_json
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, write_volume

DATASET_ID = 101
DATASET_NAME = f"Dataset{DATASET_ID}_HECKTOR"
CHANNELS = ("CT", "PET")
# Raised when the same images and options give other prepared ones.
_PREPARE_VERSION = 1
_FOLDERS = ("imagesTr", "imagesTs", "labelsTr")


@dataclass(frozen=True)
class Prepared:
    """What `prepare` noted of one patient.

    `region_litres` and `region_found_by` tell of the region that inference would look at, `reference_inside` the share
    of reference voxels within it (None without a mask); `notices` what was mended in the images; `key` what it was
    all made from.
    """

    patient_id: str
    region_litres: float
    region_found_by: str
    reference_inside: float | None
    notices: tuple[str, ...]
    seconds: float
    key: str


@dataclass(frozen=True)
class DataSet:
    """The prepared patients in the order of the cases, how many were written now, and files that went."""

    prepared: tuple[Prepared, ...]
    written: int
    removed: tuple[str, ...]


def image_path(raw_dir: Path, case: ReleaseCase, channel: int) -> Path:
    """A channel's prepared image: among nnU-Net's training images, or its others where there is no mask."""
    folder = "imagesTs" if case.mask is None else "imagesTr"
    return raw_dir / DATASET_NAME / folder / f"{case.patient_id}_{channel:04d}.nii.gz"


def label_path(raw_dir: Path, case: ReleaseCase) -> Path:
    """The prepared reference mask, on the network's grid; there is none where the patient has no mask."""
    return raw_dir / DATASET_NAME / "labelsTr" / f"{case.patient_id}.nii.gz"


def prepare(
    cases: Sequence[ReleaseCase], raw_dir: Path, spacing_mm: tuple[float, float, float], jobs: int = 1
) -> DataSet:
    """Write an nnU-Net raw data set of all `cases` into `raw_dir / DATASET_NAME`.

    A patient whose files and spacing are the same as when it was written is not written again. Files of patients
    that are not among `cases` are removed, since nnU-Net trains on all it finds.

    Args:
        cases: patients of the release; those without a mask go to `imagesTs`.
        raw_dir: nnU-Net's raw folder.
        spacing_mm: the network's spacing, (x, y, z).
        jobs: worker processes.
    """
    target = raw_dir / DATASET_NAME
    for name in (*_FOLDERS, "notes"):
        (target / name).mkdir(parents=True, exist_ok=True)
    done = {case.patient_id: found for case in cases if (found := _already(case, raw_dir, spacing_mm)) is not None}
    waiting = [case for case in cases if case.patient_id not in done]
    work = partial(_prepare_one, raw_dir=raw_dir, spacing_mm=spacing_mm)
    for prepared in each(work, waiting, jobs, "prepare"):
        done[prepared.patient_id] = prepared
    removed = _remove_others(cases, raw_dir)
    write_json(
        target / "dataset.json",
        {
            "channel_names": {str(number): name for number, name in enumerate(CHANNELS)},
            "labels": {labels.NAMES[value]: value for value in labels.NAMES},
            "numTraining": sum(case.mask is not None for case in cases),
            "file_ending": ".nii.gz",
            "overwrite_image_reader_writer": "SimpleITKIO",
        },
    )
    return DataSet(tuple(done[case.patient_id] for case in cases), len(waiting), removed)


def _already(case: ReleaseCase, raw_dir: Path, spacing_mm: tuple[float, float, float]) -> Prepared | None:
    record = read_kept(_note(raw_dir, case), _key(case, spacing_mm))
    if record is None or not all(path.is_file() for path in _outputs(case, raw_dir)):
        return None
    return Prepared(**{**record, "notices": tuple(record["notices"])})


def _prepare_one(case: ReleaseCase, raw_dir: Path, spacing_mm: tuple[float, float, float]) -> Prepared:
    began = time.perf_counter()
    key = _key(case, spacing_mm)
    notices = Notices()
    images, region = read_training_case(case, notices)
    grid = network_grid(region, spacing_mm)
    for number, channel in enumerate(network_channels(images, grid)):
        _write(image_path(raw_dir, case, number), channel, grid)
    inside = None
    if case.mask is not None:
        reference = read_volume(case.mask, np.uint8)
        inside = _share_inside(reference, region)
        _write(label_path(raw_dir, case), resample_mask(reference, grid), grid)
    seconds = round(time.perf_counter() - began, 2)
    prepared = Prepared(
        case.patient_id, region.volume_litres, region.found_by, inside, tuple(map(str, notices.findings)), seconds, key
    )
    # The note comes last: what it stands for is whole.
    keep(_note(raw_dir, case), key, asdict(prepared))
    return prepared


def read_training_case(case: ReleaseCase, notices: Notices) -> tuple[Case, Region]:
    """The patient's images as inference would see them, and the region that inference would look at."""
    ct = clean_ct(read_volume(case.ct), case.ct.name, notices)
    pet = clean_pet(read_volume(case.pet), ct, case.pet.name, notices)
    images = Case(ct, pet, case.patient)
    return images, localise(images)


def _key(case: ReleaseCase, spacing_mm: tuple[float, float, float]) -> str:
    return key_of((case.ct, case.pet, case.mask), {"version": _PREPARE_VERSION, "spacing_mm": list(spacing_mm)})


def _note(raw_dir: Path, case: ReleaseCase) -> Path:
    return raw_dir / DATASET_NAME / "notes" / f"{case.patient_id}.json"


def _outputs(case: ReleaseCase, raw_dir: Path) -> list[Path]:
    images = [image_path(raw_dir, case, number) for number in range(len(CHANNELS))]
    return images if case.mask is None else [*images, label_path(raw_dir, case)]


def _remove_others(cases: Sequence[ReleaseCase], raw_dir: Path) -> tuple[str, ...]:
    """Remove what is not of `cases`: patients that were left out since, and halves of an interrupted writing."""
    wanted = {path for case in cases for path in (*_outputs(case, raw_dir), _note(raw_dir, case))}
    removed = []
    for name in (*_FOLDERS, "notes"):
        for path in sorted((raw_dir / DATASET_NAME / name).iterdir()):
            if path not in wanted:
                path.unlink()
                removed.append(f"{name}/{path.name}")
    return tuple(removed)


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
