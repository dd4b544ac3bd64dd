"""Segment each training patient with the networks of the fold that held it out; measure lesions and uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from algorithm.deadline import Deadline
from algorithm.heads.measure import Features, image_features
from algorithm.masks.segmentation import Segmentation, softmax
from algorithm.network.devices import device_named
from algorithm.network.networks import Networks
from algorithm.network.package import load_package
from algorithm.network.passes import Passes, Progress
from algorithm.network.segment import normalise
from algorithm.network.windows import Pass
from algorithm.uncertainty.disagreement import Disagreement
from algorithm.uncertainty.record import MOST_LESIONS, describe, lesions_of
from baseline.cache import cache, key_of, load_cached
from baseline.release.cases import ReleaseCase
from baseline.release.data_set import CHANNELS, image_path, label_path
from baseline.work import WorkFolders
from contract import labels
from contract.images.volumes import read_header, read_volume, write_mask

# Training has no deadline; the budget must never stop a pass.
_NO_LIMIT_S = 1e9
# Increment when the same networks and images give other masks or features.
_MEASURE_VERSION = 1
# Increment when they give another uncertainty.
_UNCERTAINTY_VERSION = 1


@dataclass(frozen=True)
class OutOfFoldRun:
    """Inputs of a measurement: the package's networks, each patient's fold, and a digest of the networks.

    `package` writes or finds the package; it is called only if a patient has to be segmented.
    """

    package: Callable[[], Path]
    fold_of: Mapping[str, int]
    made_from: str
    device: str


def segment_out_of_fold(work: WorkFolders, cases: Sequence[ReleaseCase], run: OutOfFoldRun) -> dict[str, Features]:
    """Image features by patient ID, from prepared images and the networks of the fold that held the patient out.

    Features are measured as in inference, on the network's grid and without mirroring; one more pass per mirror axis
    gives the uncertainty. Cached results of the same networks and images are reused.
    """
    keys = {case.patient_id: _key(case, work, f"{run.made_from} {run.fold_of[case.patient_id]}") for case in cases}
    uncertainty_keys = {case.patient_id: _uncertainty_key(case, work, keys[case.patient_id]) for case in cases}
    cached = {name: load_cached(work.features(name), key) for name, key in keys.items()}
    rows: dict[str, Features] = {
        name: row for name, row in cached.items() if row is not None and work.mask(name).is_file()
    }
    complete = {name for name in rows if load_cached(work.uncertainty(name), uncertainty_keys[name]) is not None}
    waiting = [case for case in cases if case.patient_id not in complete]
    if waiting:
        networks, device = Networks(load_package(run.package())), device_named(run.device)
        for case in tqdm(waiting, desc="measure out-of-fold", unit="patient"):
            name = case.patient_id
            segmentation, passes = _segment(case, run.fold_of[name], networks, work, device)
            if name not in rows:
                grid = read_header(case.ct).geometry
                write_mask(work.mask(name), segmentation.mask_on(grid), grid)
                rows[name] = features_of(case, segmentation)
                cache(work.features(name), keys[name], rows[name])
            cache(work.uncertainty(name), uncertainty_keys[name], _uncertainty(case, work, segmentation, passes))
    return {case.patient_id: rows[case.patient_id] for case in cases}


def _key(case: ReleaseCase, work: WorkFolders, made_from: str) -> str:
    images = [image_path(work.raw, case, number) for number in range(len(CHANNELS))]
    return key_of((*images, case.ct, case.dose), {"version": _MEASURE_VERSION, "networks": made_from})


def _uncertainty_key(case: ReleaseCase, work: WorkFolders, mask_key: str) -> str:
    reference = None if case.mask is None else label_path(work.raw, case)
    return key_of((reference,), {"version": _UNCERTAINTY_VERSION, "mask": mask_key})


def _segment(
    case: ReleaseCase, fold: int, networks: Networks, work: WorkFolders, device: torch.device
) -> tuple[Segmentation, Disagreement]:
    """The segmentation by the fold's unmirrored passes, and the disagreement of all passes."""
    ct, pet = (read_volume(image_path(work.raw, case, number), "float32") for number in range(len(CHANNELS)))
    data = normalise((ct.array, pet.array), networks.package)
    disagreement, unmirrored = Disagreement(), []
    # The logits of a single network stay as they are: rounding of their probabilities could turn a voxel.
    of_probabilities = networks.package.averages_probabilities and len(networks.package.numbers_of(fold)) > 1

    def on_pass(step: Pass, logits: npt.NDArray[np.float32]) -> None:
        disagreement.add(step, logits)
        if not step.axes:
            unmirrored.append(softmax(logits) if of_probabilities else logits)

    passes = _passes(fold, networks)
    Passes(data, passes, networks, Deadline(_NO_LIMIT_S), device, on_pass=on_pass).run()
    total, done, name = sum(unmirrored[1:], unmirrored[0]), len(unmirrored), f"fold {fold}"
    logits = Progress(total, done, len(passes), name, str(device), of_probabilities).logits
    usable_pet = pet.array if pet.array.any() else None
    return Segmentation(logits, ct.array, usable_pet, ct.geometry, done, len(passes), name), disagreement


def _passes(fold: int, networks: Networks) -> list[Pass]:
    """One pass of each network of the fold without mirroring, then one along each mirror axis."""
    numbers = networks.package.numbers_of(fold)
    axes = [(), *((int(axis),) for axis in networks.package.manifest.get("mirror_axes", ()))]
    return [Pass(number, mirrored) for mirrored in axes for number in numbers]


def _uncertainty(
    case: ReleaseCase, work: WorkFolders, segmentation: Segmentation, passes: Disagreement
) -> dict[str, Any]:
    """The uncertainty record of inference, with the share of each lesion that lies in the reference of its label
    (`reference_overlap`, None for a patient without a reference).
    """
    record, mask = describe(segmentation, passes), segmentation.mask()
    reference = None if case.mask is None else read_volume(label_path(work.raw, case), np.uint8).array.ravel()
    places = [(label, voxels) for label in labels.FOREGROUND for voxels in lesions_of(mask, label)[:MOST_LESIONS]]
    for lesion, (label, voxels) in zip(record["lesions"], places, strict=True):
        lesion["reference_overlap"] = None if reference is None else float((reference[voxels] == label).mean())
    return record


def features_of(case: ReleaseCase, segmentation: Segmentation) -> Features:
    """Image features on the segmentation's grid, with the planned dose if the release has a usable one."""
    dose = None if case.dose is None else read_volume(case.dose, "float32")
    if dose is not None and not (np.isfinite(dose.array).all() and dose.array.min() >= 0):
        dose = None  # as in inference
    return image_features(segmentation.mask(), segmentation.ct, segmentation.pet, segmentation.grid, dose=dose)
