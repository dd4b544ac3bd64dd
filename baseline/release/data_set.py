"""nnU-Net's raw data set: each patient resampled to the network's grid by the code of inference."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.case.inputs import Notices
from algorithm.case.read import Case, clean_ct, clean_pet, read_mr_case
from algorithm.heads.measure import ENLARGED_MM, NODE_MM
from algorithm.heads.structure import find_components
from algorithm.network.preprocessing import make_network_channels
from algorithm.region.grids import make_upright_grid, resample_mask
from algorithm.region.localise import Region, localise
from baseline.cache import Sources, compute_keys, load_cached, map_items, store_cached
from baseline.release.cases import ReleaseCase, image_path, image_paths, label_path
from baseline.release.checks import scale_by_factor
from baseline.work import WorkFolders
from contract import labels
from contract.errors import Finding
from contract.images.volumes import Volume, read_volume, write_volume
from contract.io.files import write_json
from contract.packages import DEFAULT_MIN_LESION_SIZES, MinLesionSizes

# Increment when the same images and options give other prepared images.
_PREPARE_VERSION = 4
_FOLDERS = ("imagesTr", "imagesTs", "labelsTr", "notes")
Spacing = tuple[float, float, float]
# Predicted lesions may be smaller than lesions of the reference: a node of 10 mm can be predicted with 6 mm.
_REFERENCE_FRACTION: Final = 0.25
_SMALLEST_PERCENTILE: Final = 1


@dataclass(frozen=True)
class PreparedCase:
    """Record of one prepared patient.

    Attributes:
        patient_id: ID of the patient.
        region_litres: Volume of the region that inference would segment.
        region_found_by: Landmark of the region.
        reference_inside: Fraction of reference voxels inside the region; None without a mask.
        lesions_ml: Volumes of the reference's lesions by label.
        notices: Corrections of the images.
        seconds: Time of the preparation.
        key: Digest of the inputs.
    """

    patient_id: str
    region_litres: float
    region_found_by: str
    reference_inside: float | None
    lesions_ml: Mapping[str, Sequence[float]]
    notices: tuple[str, ...]
    seconds: float
    key: str


@dataclass(frozen=True)
class DataSet:
    """The prepared patients in the order of the cases, the number written in this run, and removed files."""

    prepared: tuple[PreparedCase, ...]
    written: int
    removed: tuple[str, ...]


def read_prepared_ct_and_pet(raw: Path, case: ReleaseCase) -> tuple[Volume, npt.NDArray[np.float32] | None]:
    """Read the prepared scan and the values of the PET; None for an empty PET, and for MR."""
    scan, *channels = (read_volume(path, "float32") for path in image_paths(raw, case))
    return scan, channels[0].array if not case.is_mr and channels[0].array.any() else None


def write_data_set(cases: Sequence[ReleaseCase], work: WorkFolders, spacing_mm: Spacing, jobs: int = 1) -> DataSet:
    """Write an nnU-Net raw data set of all `cases` into `work.raw`, on grids of `spacing_mm`, (x, y, z).

    Patients whose files and spacing are unchanged are not written again. Files of other patients are removed, because
    nnU-Net trains on all files in the folder. `jobs` is the number of worker processes.
    """
    raw = work.raw
    for name in _FOLDERS:
        (raw / name).mkdir(parents=True, exist_ok=True)
    keys = compute_keys(work, {case.patient_id: _list_sources(case, spacing_mm) for case in cases}, cases[0].release)
    records = {case.patient_id: _load_prepared(case, raw, keys[case.patient_id]) for case in cases}
    done = {patient_id: record for patient_id, record in records.items() if record is not None}
    waiting = [case for case in cases if case.patient_id not in done]
    items = [(case, keys[case.patient_id]) for case in waiting]
    for prepared in map_items(partial(_prepare_case, raw=raw, spacing_mm=spacing_mm), items, jobs, "prepare"):
        done[prepared.patient_id] = prepared
    removed = _remove_other_files(cases, raw)
    write_json(
        raw / "dataset.json",
        {
            "channel_names": {str(number): _choose_nnunet_name(name) for number, name in enumerate(cases[0].channels)},
            "labels": {labels.NAMES[value]: value for value in labels.NAMES},
            "numTraining": sum(case.mask is not None for case in cases),
            "file_ending": ".nii.gz",
            "overwrite_image_reader_writer": "SimpleITKIO",
        },
    )
    return DataSet(tuple(done[case.patient_id] for case in cases), len(waiting), removed)


def _choose_nnunet_name(channel: str) -> str:
    """Choose the channel's name, which selects nnU-Net's normalisation: none for masks, z-score for MR."""
    return "noNorm" if channel.rsplit(maxsplit=1)[-1] in labels.LESIONS else channel


def _load_prepared(case: ReleaseCase, raw: Path, key: str) -> PreparedCase | None:
    record = load_cached(_note_path(raw, case), key)
    if record is None or not all(path.is_file() for path in _list_outputs(case, raw)):
        return None
    return PreparedCase(**{**record, "notices": tuple(record["notices"])})


def _prepare_case(item: tuple[ReleaseCase, str], raw: Path, spacing_mm: Spacing) -> PreparedCase:
    start = time.perf_counter()
    case, key = item
    notices = Notices()
    images, region = read_training_case(case, notices)
    grid = make_upright_grid(images.scan.geometry, region.lower_mm, region.upper_mm, spacing_mm)
    for number, channel in enumerate(make_network_channels(images, grid)):
        write_volume(image_path(raw, case, number), Volume(channel, grid))
    inside, lesions_ml = None, {}
    if case.mask is not None:
        reference = read_volume(case.mask, np.uint8)
        inside = _compute_fraction_inside(reference, region)
        mask = resample_mask(reference, grid)
        lesions_ml = {
            name: [part.volume_ml for part in find_components(mask == label, grid)]
            for label, name in zip(labels.FOREGROUND, labels.LESIONS, strict=True)
        }
        write_volume(label_path(raw, case), Volume(mask, grid))
    seconds = round(time.perf_counter() - start, 2)
    corrections = tuple(map(str, notices.findings))
    prepared = PreparedCase(
        case.patient_id, region.volume_litres, region.found_by, inside, lesions_ml, corrections, seconds, key
    )
    # The note is written last, because it means that the images are complete.
    store_cached(_note_path(raw, case), key, asdict(prepared))
    return prepared


def read_training_case(case: ReleaseCase, notices: Notices) -> tuple[Case, Region]:
    """Read the patient's images as inference does, and find the region that inference would segment.

    A scan without a landmark of the head and neck gives a notice.
    """
    images = read_training_images(case, notices)
    region = localise(images)
    if region.is_empty or region.has_no_landmark:
        notices.note(Finding(case.ct.name, "neither a brain nor lungs", "a head or neck in view, the head up (+z)"))
    return images, region


def read_training_images(case: ReleaseCase, notices: Notices) -> Case:
    """Read the patient's images as inference does.

    A PET in Bq/ml is scaled by the patient's factor, or by the uptake of muscle and fat if the factor is not plausible,
    as in inference.
    """
    if case.pet is None:
        return read_mr_case({case.channels[0]: case.ct, **case.registered}, case.channels, notices)
    ct = clean_ct(read_volume(case.ct), case.ct.name, notices)
    scaled, finding = scale_by_factor(read_volume(case.pet), ct, case.suv_factor, case.pet.name)
    if finding is not None:
        notices.note(finding)
    return Case(ct, clean_pet(scaled, ct, case.pet.name, notices), case.patient)


def read_dose(case: ReleaseCase) -> Volume | None:
    """Read the planned dose in Gy; None if there is no dose, or if inference would ignore it."""
    dose = None if case.dose is None else read_volume(case.dose, "float32")
    return None if dose is None or not np.isfinite(dose.array).all() or dose.array.min() < 0 else dose


def _list_sources(case: ReleaseCase, spacing_mm: Spacing) -> Sources:
    factor = {} if case.suv_factor is None else {"suv_factor": case.suv_factor}
    options = {"version": _PREPARE_VERSION, "spacing_mm": list(spacing_mm)}
    return (*case.files, case.mask), options | factor


def _note_path(raw: Path, case: ReleaseCase) -> Path:
    return raw / "notes" / f"{case.patient_id}.json"


def _list_outputs(case: ReleaseCase, raw: Path) -> list[Path]:
    images = image_paths(raw, case)
    return images if case.mask is None else [*images, label_path(raw, case)]


def _remove_other_files(cases: Sequence[ReleaseCase], raw: Path) -> tuple[str, ...]:
    """Remove files of other patients and partial files of an interrupted run; return their names."""
    wanted = {path for case in cases for path in (*_list_outputs(case, raw), _note_path(raw, case))}
    removed = []
    for name in _FOLDERS:
        for path in sorted(set((raw / name).iterdir()) - wanted):
            path.unlink()
            removed.append(f"{name}/{path.name}")
    return tuple(removed)


def _compute_fraction_inside(reference: Volume, region: Region) -> float:
    index = np.argwhere(reference.array > 0)[:, ::-1]
    if not len(index):
        return 1.0
    matrix = reference.geometry.index_to_physical_matrix()
    points = index @ matrix[:3, :3].T + matrix[:3, 3]
    inside = np.all((points >= region.lower_mm) & (points <= region.upper_mm), axis=1)
    return float(inside.mean())


def find_min_lesion_sizes(prepared: Iterable[PreparedCase]) -> MinLesionSizes:
    """Compute the minimum lesion sizes from the lesions of the references on the network's grid.

    The size is a quarter of the volume that 99% of a label's lesions reach, at least a sphere of 5 mm and at most a
    sphere of 10 mm. A percentile is used because references also have single voxels. A label that no reference has
    keeps the default.
    """
    lesions_of = [case.lesions_ml for case in prepared]
    min_ml, max_ml = (np.pi / 6 * mm**3 / 1000 for mm in (NODE_MM, ENLARGED_MM))

    def find_limit(name: str, default: float) -> float:
        volumes_ml = [volume_ml for lesions in lesions_of for volume_ml in lesions.get(name, ())]
        if not volumes_ml:
            return default
        limit = _REFERENCE_FRACTION * np.percentile(volumes_ml, _SMALLEST_PERCENTILE)
        return round(float(np.clip(limit, min_ml, max_ml)), 3)

    gtvp, gtvn = labels.LESIONS
    return MinLesionSizes(
        gtvp_ml=find_limit(gtvp, DEFAULT_MIN_LESION_SIZES.gtvp_ml),
        gtvn_ml=find_limit(gtvn, DEFAULT_MIN_LESION_SIZES.gtvn_ml),
    )
