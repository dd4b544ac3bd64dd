"""Check and measure given out-of-fold masks: from a folder of the user, or averaged over trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.heads.documents import Features
from algorithm.heads.measure import features_version
from algorithm.region.grids import restore_labels
from baseline.cache import Sources, cache, contents_of, digest, keys_of, load_cached, map_items
from baseline.network.out_of_fold import features_of_mask
from baseline.preparation import smallest_lesions_of
from baseline.release.cases import ReleaseCase, image_path, image_paths, read_cases
from baseline.work import WorkFolders
from contract import labels
from contract.errors import HecktorError, InputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, find_image_suffix, list_images, read_header, read_volume, write_mask
from contract.patient import describe_id_difference, format_names
from contract.platform import ONE_FILE_SUFFIXES, compose

# Increment when the same masks and images give other features.
_VERSION: Final = 1
_MOST_NAMES: Final = 5
_LEAST_PROBABILITY: Final = 1e-6


def measure_masks(
    work: WorkFolders, masks: Path | Mapping[str, Path], jobs: int = 1, lesions: tuple[int, ...] | None = None
) -> dict[str, Features]:
    """Measure the lesions in out-of-fold masks on each CT's grid.

    Features are measured on the grid of the prepared images, as in inference; no network is needed. The masks are
    copied to the working directory, where the report reads them. Patients with unchanged masks and images are not
    measured again.

    Args:
        work: the prepared working directory.
        masks: a folder with `ID.nii.gz` or `ID.mha` of each patient, or the files of some by patient ID.
        jobs: number of processes.
        lesions: numbers of GTVp and GTVn in the masks, whose other labels then count as background; None for 1 and 2,
            and no other label.

    Returns:
        Features by patient ID, also written to `features.json`.

    Raises:
        HecktorError: a patient has no mask or several, or a mask is not on its CT's grid or has other labels.
    """
    cases = read_cases(work)
    paths = masks if isinstance(masks, Mapping) else _masks_by_patient(cases, masks)
    cases = tuple(case for case in cases if case.patient_id in paths)
    contents = contents_of(work, [paths[case.patient_id] for case in cases])
    made_from = {"version": _VERSION, "features": features_version(smallest_lesions_of(work))}
    made_from |= {"lesions": list(lesions)} if lesions else {}
    sources: dict[str, Sources] = {
        # Not by the mask's name: `.nii.gz` and `.mha` of the same voxels
        case.patient_id: (
            (*image_paths(work.raw, case), case.ct, case.dose),
            made_from | {"mask": contents[paths[case.patient_id]]},
        )
        for case in cases
    }
    keys = keys_of(work, sources)
    for case in cases:
        _check_grid(paths[case.patient_id], case)
    rows = {case.patient_id: _load(work, case.patient_id, keys[case.patient_id]) for case in cases}
    waiting = [case for case in cases if rows[case.patient_id] is None]
    rows |= dict(
        map_items(partial(_measure, work=work, paths=paths, keys=keys, lesions=lesions), waiting, jobs, "measure masks")
    )
    return _stored(work, {name: row for name, row in rows.items() if row is not None}, keys)


def average_masks(work: WorkFolders, trainings: Sequence[WorkFolders]) -> dict[str, Path]:
    """Masks by the mean of several trainings' out-of-fold probabilities; files by patient ID.

    All working directories are prepared from the same patients at the same spacing.

    Raises:
        HecktorError: a training has no probabilities of a patient, or on another grid.
    """
    paths = {}
    for case in read_cases(work):
        path, grid = work.measured / "averaged" / f"{case.patient_id}.nii.gz", _grid(work, case)
        mean = np.mean([_foreground(one, case, grid) for one in trainings], axis=0)
        whole = np.concatenate([1 - mean.sum(0, keepdims=True), mean]).clip(_LEAST_PROBABILITY)
        ct = read_header(case.ct).geometry
        write_mask(path, restore_labels(np.log(whole, dtype=np.float32), grid, ct), ct)
        paths[case.patient_id] = path
    return paths


def _foreground(training: WorkFolders, case: ReleaseCase, grid: Geometry) -> npt.NDArray[np.float32]:
    """Out-of-fold probabilities of GTVp and GTVn, (2, z, y, x)."""
    path = training.probabilities(case.patient_id)
    if not path.is_file():
        found = f"no out-of-fold probabilities of {case.patient_id}"
        raise HecktorError(training.root.name, found, "`hecktor train heads` with its networks before")
    if differences := _grid(training, case).find_differences(grid):
        found = f"{case.patient_id} on another grid ({differences[0]})"
        raise HecktorError(training.root.name, found, "the same release and spacing in all working directories")
    with np.load(path) as stored:
        return np.stack([stored[name] for name in ("gtvp", "gtvn")]).astype(np.float32) / np.float32(255)


def _grid(work: WorkFolders, case: ReleaseCase) -> Geometry:
    return read_header(image_path(work.raw, case, 0)).geometry


def reference_masks(work: WorkFolders) -> dict[str, Path]:
    """The release's own masks by patient ID. Raises HecktorError: there is none."""
    known = {case.patient_id: case.mask for case in read_cases(work) if case.mask is not None}
    if not known:
        raise HecktorError("--masks reference", "no patient with a reference mask", "a release with masks")
    return known


def _stored(work: WorkFolders, rows: dict[str, Features], keys: Mapping[str, str]) -> dict[str, Features]:
    """The features of all patients, written to `features.json` under a digest of all masks."""
    key = digest(keys)
    if load_cached(work.features_json, key) is None:
        cache(work.features_json, key, rows)
    return rows


def _masks_by_patient(cases: Sequence[ReleaseCase], folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise InputError("--masks", f"no folder {folder}", "a folder of masks")
    paths: dict[str, Path] = {}
    wanted, others = {case.patient_id for case in cases}, []
    for path in list_images(folder, ONE_FILE_SUFFIXES):
        name = compose(path.name[: -len(find_image_suffix(path, ONE_FILE_SUFFIXES) or "")])
        if name in paths:
            raise InputError("--masks", f"{paths[name].name} and {path.name}", "one mask of each patient")
        if name in wanted:
            paths[name] = path
        else:
            others.append(name)
    if missing := sorted(wanted - paths.keys()):
        found = f"no mask of {format_names(missing, _MOST_NAMES)} in {folder.name}"
        expected = f"ID.nii.gz or ID.mha of all {len(wanted)} prepared patients"
        raise InputError("--masks", found, expected + describe_id_difference(others, missing))
    return paths


def _check_grid(path: Path, case: ReleaseCase) -> None:
    differences = read_header(path).geometry.find_differences(read_header(case.ct).geometry)
    if differences:
        raise InputError(path.name, f"not on the grid of {case.ct.name} ({differences[0]})", "the CT's grid")


def _load(work: WorkFolders, name: str, key: str) -> Features | None:
    row: Features | None = load_cached(work.features(name), key)
    return row if work.mask(name).is_file() else None


def _measure(
    case: ReleaseCase,
    work: WorkFolders,
    paths: Mapping[str, Path],
    keys: Mapping[str, str],
    lesions: tuple[int, ...] | None,
) -> tuple[str, Features]:
    name = case.patient_id
    mask = _read_mask(paths[name], lesions)
    row = features_of_mask(case, work, mask)
    work.features(name).unlink(missing_ok=True)  # of an earlier mask
    write_mask(work.mask(name), mask.array, mask.geometry)
    cache(work.features(name), keys[name], row)
    return name, row


def _read_mask(path: Path, lesions: tuple[int, ...] | None) -> Volume:
    volume = read_volume(path)
    if lesions is not None:
        mask = np.zeros(volume.array.shape, np.uint8)
        for label, number in zip(labels.FOREGROUND, lesions, strict=True):
            mask[volume.array == number] = label
        return Volume(mask, volume.geometry)
    values: list[Any] = np.unique(volume.array).tolist()
    if others := [value for value in values if value not in labels.NAMES]:
        shown = ", ".join(f"{value:g}" for value in others[:_MOST_NAMES])
        expected = ", ".join(f"{k} {v}" for k, v in labels.NAMES.items())
        raise HecktorError(path.name, f"labels {shown}", f"{expected}, or --labels with the numbers of GTVp and GTVn")
    return Volume(volume.array.astype(np.uint8), volume.geometry)
