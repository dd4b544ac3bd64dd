"""Out-of-fold masks and their features. Networks that never saw the patient make the masks, or the user provides them.

Masks may also be averaged over several trainings. Masks that were not made here are checked before they are measured.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from algorithm.case.inputs import Notices
from algorithm.case.read import Case
from algorithm.deadline import Deadline
from algorithm.heads.documents import Features
from algorithm.heads.measure import compute_features_version, measure_image_features
from algorithm.masks.segmentation import Segmentation, softmax
from algorithm.network.devices import find_device, use_inference_settings
from algorithm.network.networks import Networks
from algorithm.network.package import ModelPackage, load_package
from algorithm.network.passes import Passes
from algorithm.network.preprocessing import make_scan_channels, normalise
from algorithm.network.tiles import NetworkImage, Pass, list_passes
from algorithm.region.grids import resample_mask, restore_labels
from algorithm.region.localise import Region
from baseline.cache import Sources, compute_digest, compute_keys, load_cached, map_items, read_digests, store_cached
from baseline.release.cases import ReleaseCase, image_path, image_paths, read_cases
from baseline.release.data_set import read_dose, read_prepared_ct_and_pet, read_training_case
from baseline.work import WorkFolders, read_min_lesion_sizes
from contract import labels
from contract.code import Code
from contract.errors import HecktorError, InputError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, find_image_suffix, list_images, read_header, read_volume, write_mask
from contract.io.files import atomic_path
from contract.packages import MinLesionSizes
from contract.patient import describe_id_difference, format_names
from contract.platform import ONE_FILE_SUFFIXES, normalise_unicode

_Float = npt.NDArray[np.float32]
_Scans = Callable[[], tuple[Case, Region]]

# Increment when the same networks and images give other masks.
MEASURE_VERSION: Final = 3

# Increment when the same masks and images give other features.
_GIVEN_MASKS_VERSION: Final = 1
_MAX_NAMES: Final = 5
_MIN_PROBABILITY: Final = 1e-6


@dataclass(frozen=True)
class OutOfFoldRun:
    """Networks for out-of-fold masks.

    Attributes:
        package: Function that writes or finds the networks' package; it is called only if a patient must be segmented.
        fold_of: Fold that held each patient out; None if no network of the package has seen a patient.
        made_from: Digest of the networks.
        device: Device of the networks.
        code: Custom code of the networks; None for the code of the image.
    """

    package: Callable[[], Path]
    fold_of: Mapping[str, int] | None
    made_from: str
    device: str
    code: Code | None = None

    def fold(self, patient_id: str) -> int | None:
        """Return the fold that held a patient out; None for all networks."""
        return None if self.fold_of is None else self.fold_of[patient_id]


def segment_out_of_fold(
    work: WorkFolders, cases: Sequence[ReleaseCase], run: OutOfFoldRun, jobs: int = 1
) -> dict[str, Features]:
    """Segment each patient by the networks that never saw the patient, and measure the lesions.

    The networks of the fold that held the patient out make one pass without mirroring and one pass along each mirror
    axis. If no network has seen a patient, all networks make all passes of inference. The mask is made from the mean of
    the passes and measured on the network's grid. Masks are unfiltered: `hecktor train postprocess` reads masks and
    probabilities. Stored masks of the same networks and images are reused. If their features have another version, the
    features are measured again in `jobs` processes.

    Returns:
        Image features by patient ID.

    Raises:
        HecktorError: A pass failed.
    """
    keys = compute_keys(
        work,
        {case.patient_id: _list_sources(case, work, f"{run.made_from} {run.fold(case.patient_id)}") for case in cases},
    )
    smallest = read_min_lesion_sizes(work)
    version = compute_features_version(smallest)
    # The keys depend on networks and images only, so that a mask with features of another version is not made again.
    stored = {name: load_cached(work.features(name), key) for name, key in keys.items() if is_segmented(work, name)}
    rows: dict[str, Features] = {
        name: record["features"]
        for name, record in stored.items()
        if record is not None and record["version"] == version
    }
    waiting = [case for case in cases if stored.get(case.patient_id) is None]
    again = [case for case in cases if stored.get(case.patient_id) is not None and case.patient_id not in rows]
    for name, row in map_items(functools.partial(_measure_again, work=work), again, jobs, "measure stored masks"):
        rows[name] = row
        store_cached(work.features(name), keys[name], {"version": version, "features": row})
    if waiting:
        networks, device = Networks(load_package(run.package(), run.code)), find_device(run.device)
        for case in tqdm(waiting, desc="measure out-of-fold", unit="patient"):
            name = case.patient_id
            with use_inference_settings(device):
                segmentation = _segment(case, run.fold(name), networks, work, device)
            grid = read_header(case.ct).geometry
            write_mask(work.raw_mask(name), segmentation.mask_on(grid), grid)
            write_probabilities(work.probabilities(name), softmax(segmentation.logits), segmentation.mask())
            rows[name] = measure_segmentation(case, segmentation, smallest)
            store_cached(work.features(name), keys[name], {"version": version, "features": rows[name]})
    return {case.patient_id: rows[case.patient_id] for case in cases}


def is_segmented(work: WorkFolders, name: str) -> bool:
    """Return whether a patient has an unfiltered mask and probabilities."""
    return work.raw_mask(name).is_file() and work.probabilities(name).is_file()


def write_probabilities(path: Path, probabilities: _Float, mask: npt.NDArray[np.uint8]) -> None:
    """Write the foreground of probabilities (label, z, y, x), as uint8 with 255 for 1, and the mask."""
    foreground = np.rint(probabilities[1:] * np.float32(255)).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, gtvp=foreground[0], gtvn=foreground[1], mask=mask)


def _measure_again(case: ReleaseCase, work: WorkFolders) -> tuple[str, Features]:
    """Measure the features of the stored mask."""
    with np.load(work.probabilities(case.patient_id)) as stored:
        mask = stored["mask"]
    grid = read_header(image_path(work.raw, case, 0)).geometry
    return case.patient_id, measure_mask(case, work, Volume(mask, grid))


def _list_sources(case: ReleaseCase, work: WorkFolders, made_from: str) -> Sources:
    files = (*image_paths(work.raw, case), case.ct, case.dose)
    return files, {"version": MEASURE_VERSION, "networks": made_from}


def _segment(
    case: ReleaseCase, fold: int | None, networks: Networks, work: WorkFolders, device: torch.device
) -> Segmentation:
    """Segment a patient by the mean of the fold's passes, or without a fold by all networks as in inference."""
    ct, usable_pet = read_prepared_ct_and_pet(work.raw, case)
    images = tuple(read_volume(path, "float32").array for path in image_paths(work.raw, case))
    scans = functools.cache(lambda: read_training_case(case, Notices()))  # read only by packages that need them
    data = normalise(images, networks.package, _read_scan_channels(scans, networks.package))
    passes = list_passes(networks.package) if fold is None else _list_passes(fold, networks)
    progress = Passes(NetworkImage.from_channels(data), passes, networks, Deadline(None), device).make_all()
    if progress.done < len(passes):  # inference may answer with fewer passes, but heads need masks of all passes
        problem = f"{progress.done} of {len(passes)} passes (the reason is above)"
        raise HecktorError(case.patient_id, problem, "all passes; the same command continues with this patient")
    networks_text = "all networks" if fold is None else f"fold {fold}"
    return Segmentation(
        progress.logits, ct.array, usable_pet, ct.geometry, progress.done, progress.planned, networks_text
    )


def _read_scan_channels(scans: _Scans, package: ModelPackage) -> tuple[_Float, ...] | None:
    """Read the whole scan, for networks that were trained on images with the scale of whole scans."""
    return make_scan_channels(scans()[0], package) if package.manifest.normalised_over == "scan" else None


def _list_passes(fold: int, networks: Networks) -> list[Pass]:
    """List one pass of each network of the fold without mirroring, then one pass along each mirror axis."""
    numbers = networks.package.numbers_of(fold)
    axes = [(), *((axis,) for axis in networks.package.manifest.mirror_axes)]
    return [Pass(number, mirrored) for mirrored in axes for number in numbers]


def measure_mask(case: ReleaseCase, work: WorkFolders, mask: Volume) -> Features:
    """Measure the image features of a mask on the grid of the prepared images."""
    ct, usable_pet = read_prepared_ct_and_pet(work.raw, case)
    on_grid = mask.array if mask.geometry == ct.geometry else resample_mask(mask, ct.geometry)
    segmentation = Segmentation.from_mask(on_grid, ct.array, usable_pet, ct.geometry)
    return measure_segmentation(case, segmentation, read_min_lesion_sizes(work))


def measure_segmentation(case: ReleaseCase, segmentation: Segmentation, smallest: MinLesionSizes) -> Features:
    """Measure image features on the segmentation's grid, with the planned dose if it is usable; empty for MR."""
    if case.is_mr:
        return {}
    images = segmentation.ct, segmentation.pet, segmentation.grid, read_dose(case)
    return measure_image_features(segmentation.mask(), *images, smallest)


def measure_masks(
    work: WorkFolders, masks: Path | Mapping[str, Path], jobs: int = 1, lesions: tuple[int, ...] | None = None
) -> dict[str, Features]:
    """Measure the lesions in out-of-fold masks on each CT's grid or on the grid of the prepared images.

    Features are measured on the grid of the prepared images, as in inference; no network is needed. The masks are
    copied to the working directory, where the report reads them. Patients with unchanged masks and images are not
    measured again.

    Args:
        work: Prepared working directory.
        masks: Folder with `ID.nii.gz` or `ID.mha` of each patient, or files by patient ID, which may be fewer.
        jobs: Number of processes.
        lesions: Numbers of GTVp and GTVn in the masks, whose other labels then become background; None for masks with
            the labels 1 and 2 and no others.

    Returns:
        Features by patient ID, also written to `features.json`.

    Raises:
        HecktorError: A patient has no mask or several masks, or a mask is on another grid or has other labels.
    """
    cases = read_cases(work)
    paths = masks if isinstance(masks, Mapping) else _find_masks(cases, masks)
    cases = tuple(case for case in cases if case.patient_id in paths)
    contents = read_digests(work, [paths[case.patient_id] for case in cases])
    made_from = {"version": _GIVEN_MASKS_VERSION, "features": compute_features_version(read_min_lesion_sizes(work))}
    made_from |= {"lesions": list(lesions)} if lesions else {}
    sources: dict[str, Sources] = {
        # The key depends on the content of the mask, not on its name, so that a mask may be renamed.
        case.patient_id: (
            (*image_paths(work.raw, case), case.ct, case.dose),
            made_from | {"mask": contents[paths[case.patient_id]]},
        )
        for case in cases
    }
    keys = compute_keys(work, sources)
    for case in cases:
        _check_grid(paths[case.patient_id], case, work)
    rows = {case.patient_id: _load_features(work, case.patient_id, keys[case.patient_id]) for case in cases}
    waiting = [case for case in cases if rows[case.patient_id] is None]
    rows |= dict(
        map_items(partial(_measure, work=work, paths=paths, keys=keys, lesions=lesions), waiting, jobs, "measure masks")
    )
    return _store_features(work, {name: row for name, row in rows.items() if row is not None}, keys)


def average_masks(work: WorkFolders, trainings: Sequence[WorkFolders]) -> dict[str, Path]:
    """Make masks from the mean out-of-fold probabilities of several trainings; return files by patient ID.

    All working directories must be prepared from the same patients at the same spacing.

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
        raise HecktorError(training.root.name, problem, "`hecktor train heads` with its networks first")
    if differences := _read_grid(training, case).find_differences(grid):
        problem = f"{case.patient_id} on another grid ({differences[0]})"
        raise HecktorError(training.root.name, problem, "the same release and spacing in all working directories")
    with np.load(path) as stored:
        return np.stack([stored[name] for name in ("gtvp", "gtvn")]).astype(np.float32) / np.float32(255)


def _read_grid(work: WorkFolders, case: ReleaseCase) -> Geometry:
    return read_header(image_path(work.raw, case, 0)).geometry


def list_reference_masks(work: WorkFolders) -> dict[str, Path]:
    """List the release's reference masks by patient ID; raise `HecktorError` if there are no masks."""
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


def _check_grid(path: Path, case: ReleaseCase, work: WorkFolders) -> None:
    grid = read_header(path).geometry
    differences = grid.find_differences(read_header(case.ct).geometry)
    if differences and grid.find_differences(_read_grid(work, case)):
        expected = "the CT's grid, or the grid of the prepared images"
        raise InputError(path.name, f"not on the grid of {case.ct.name} ({differences[0]})", expected)


def _load_features(work: WorkFolders, name: str, key: str) -> Features | None:
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
    ct = read_header(case.ct).geometry
    if mask.geometry.find_differences(ct):  # a mask of a network that was trained on the prepared images
        mask = Volume(resample_mask(mask, ct), ct)
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
