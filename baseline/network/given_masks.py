"""Out-of-fold masks from elsewhere, checked and measured: from a user's folder, or averaged over trainings."""

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
from baseline.cache import Sources, compute_digest, compute_keys, load_cached, map_items, read_digests, store_cached
from baseline.network.out_of_fold import measure_mask
from baseline.preparation import read_min_lesion_sizes
from baseline.release.cases import ReleaseCase, image_path, image_paths, read_cases
from baseline.work import WorkFolders
from contract import labels
from contract.errors import HecktorError, InputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, find_image_suffix, list_images, read_header, read_volume, write_mask
from contract.patient import describe_id_difference, format_names
from contract.platform import ONE_FILE_SUFFIXES, normalise_unicode

# Increment when the same masks and images give other features.
_VERSION: Final = 1
_MAX_NAMES: Final = 5
_MIN_PROBABILITY: Final = 1e-6


def measure_masks(
    work: WorkFolders, masks: Path | Mapping[str, Path], jobs: int = 1, lesions: tuple[int, ...] | None = None
) -> dict[str, Features]:
    """Measure the lesions in out-of-fold masks on each CT's grid.

    Features are measured on the grid of the prepared images, as in inference; no network is needed. The masks are
    copied to the working directory, where the report reads them. Patients with unchanged masks and images are not
    measured again.

    Args:
        work: Prepared working directory.
        masks: Folder with `ID.nii.gz` or `ID.mha` of each patient, or files by patient ID, which may be fewer.
        jobs: Number of processes.
        lesions: Numbers of GTVp and GTVn in the masks, whose other labels then count as background; None for 1 and 2,
            and no other label.

    Returns:
        Features by patient ID, also written to `features.json`.

    Raises:
        HecktorError: A patient has no mask or several masks, or a mask is not on its CT's grid or has other labels.
    """
    cases = read_cases(work)
    paths = masks if isinstance(masks, Mapping) else _find_masks(cases, masks)
    cases = tuple(case for case in cases if case.patient_id in paths)
    contents = read_digests(work, [paths[case.patient_id] for case in cases])
    made_from = {"version": _VERSION, "features": features_version(read_min_lesion_sizes(work))}
    made_from |= {"lesions": list(lesions)} if lesions else {}
    sources: dict[str, Sources] = {
        # The mask counts by its content, so that a mask may be renamed.
        case.patient_id: (
            (*image_paths(work.raw, case), case.ct, case.dose),
            made_from | {"mask": contents[paths[case.patient_id]]},
        )
        for case in cases
    }
    keys = compute_keys(work, sources)
    for case in cases:
        _check_grid(paths[case.patient_id], case)
    rows = {case.patient_id: _load(work, case.patient_id, keys[case.patient_id]) for case in cases}
    waiting = [case for case in cases if rows[case.patient_id] is None]
    rows |= dict(
        map_items(partial(_measure, work=work, paths=paths, keys=keys, lesions=lesions), waiting, jobs, "measure masks")
    )
    return _store_features(work, {name: row for name, row in rows.items() if row is not None}, keys)


def average_masks(work: WorkFolders, trainings: Sequence[WorkFolders]) -> dict[str, Path]:
    """Make masks by the mean out-of-fold probabilities of several trainings; return files by patient ID.

    All working directories are prepared from the same patients at the same spacing.

    Raises:
        HecktorError: A training has no probabilities of a patient, or has them on another grid.
    """
    paths = {}
    for case in read_cases(work):
        path, grid = work.measured / "averaged" / f"{case.patient_id}.nii.gz", _read_grid(work, case)
        mean = np.mean([_read_foreground(training, case, grid) for training in trainings], axis=0)
        probabilities = np.concatenate([1 - mean.sum(0, keepdims=True), mean]).clip(_MIN_PROBABILITY)
        ct = read_header(case.ct).geometry
        write_mask(path, restore_labels(np.log(probabilities, dtype=np.float32), grid, ct), ct)
        paths[case.patient_id] = path
    return paths


def _read_foreground(training: WorkFolders, case: ReleaseCase, grid: Geometry) -> npt.NDArray[np.float32]:
    """Read the out-of-fold probabilities of GTVp and GTVn, (2, z, y, x)."""
    path = training.probabilities(case.patient_id)
    if not path.is_file():
        problem = f"no out-of-fold probabilities of {case.patient_id}"
        raise HecktorError(training.root.name, problem, "`hecktor train heads` with its networks before")
    if differences := _read_grid(training, case).find_differences(grid):
        problem = f"{case.patient_id} on another grid ({differences[0]})"
        raise HecktorError(training.root.name, problem, "the same release and spacing in all working directories")
    with np.load(path) as stored:
        return np.stack([stored[name] for name in ("gtvp", "gtvn")]).astype(np.float32) / np.float32(255)


def _read_grid(work: WorkFolders, case: ReleaseCase) -> Geometry:
    return read_header(image_path(work.raw, case, 0)).geometry


def list_reference_masks(work: WorkFolders) -> dict[str, Path]:
    """List the release's own masks by patient ID; raise `HecktorError` if there are no masks."""
    masks = {case.patient_id: case.mask for case in read_cases(work) if case.mask is not None}
    if not masks:
        raise HecktorError("--masks reference", "no patient with a reference mask", "a release with masks")
    return masks


def _store_features(work: WorkFolders, rows: dict[str, Features], keys: Mapping[str, str]) -> dict[str, Features]:
    """Write the features of all patients to `features.json` under a digest of all masks; return the features."""
    key = compute_digest(keys)
    if load_cached(work.features_json, key) is None:
        store_cached(work.features_json, key, rows)
    return rows


def _find_masks(cases: Sequence[ReleaseCase], folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise InputError("--masks", f"no folder {folder}", "a folder of masks")
    paths: dict[str, Path] = {}
    wanted = {case.patient_id for case in cases}
    unknown = []
    for path in list_images(folder, ONE_FILE_SUFFIXES):
        name = normalise_unicode(path.name[: -len(find_image_suffix(path, ONE_FILE_SUFFIXES) or "")])
        if name in paths:
            raise InputError("--masks", f"{paths[name].name} and {path.name}", "one mask of each patient")
        if name in wanted:
            paths[name] = path
        else:
            unknown.append(name)
    if missing := sorted(wanted - paths.keys()):
        problem = f"no mask of {format_names(missing, _MAX_NAMES)} in {folder.name}"
        expected = f"ID.nii.gz or ID.mha of all {len(wanted)} prepared patients"
        raise InputError("--masks", problem, expected + describe_id_difference(unknown, missing))
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
    row = measure_mask(case, work, mask)
    work.features(name).unlink(missing_ok=True)  # features of an earlier mask
    write_mask(work.mask(name), mask.array, mask.geometry)
    store_cached(work.features(name), keys[name], row)
    return name, row


def _read_mask(path: Path, lesions: tuple[int, ...] | None) -> Volume:
    volume = read_volume(path)
    if lesions is not None:
        mask = np.zeros(volume.array.shape, np.uint8)
        for label, number in zip(labels.FOREGROUND, lesions, strict=True):
            mask[volume.array == number] = label
        return Volume(mask, volume.geometry)
    values: list[Any] = np.unique(volume.array).tolist()
    if unknown := [value for value in values if value not in labels.NAMES]:
        text = ", ".join(f"{value:g}" for value in unknown[:_MAX_NAMES])
        expected = ", ".join(f"{value} {name}" for value, name in labels.NAMES.items())
        raise HecktorError(path.name, f"labels {text}", f"{expected}, or --labels with the numbers of GTVp and GTVn")
    return Volume(volume.array.astype(np.uint8), volume.geometry)
