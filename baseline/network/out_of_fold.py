"""Segment each training patient by the fold that never saw it, keep the mask on the CT's grid, measure the lesions,
and note how far the mask can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from algorithm.deadline import Deadline
from algorithm.heads.measure import Features, image_features
from algorithm.masks.segmentation import Segmentation
from algorithm.network.devices import device_named
from algorithm.network.networks import Networks
from algorithm.network.package import load_package
from algorithm.network.passes import Passes
from algorithm.network.segment import normalise
from algorithm.network.windows import Pass
from algorithm.uncertainty.disagreement import Disagreement
from algorithm.uncertainty.record import MOST_LESIONS, describe, lesions_of
from baseline.cache import keep, key_of, read_kept
from baseline.network.nnunet import Folders
from baseline.network.out_of_fold_files import OutOfFold
from baseline.release.cases import ReleaseCase
from baseline.release.data_set import CHANNELS, image_path, label_path
from contract import labels
from contract.images.volumes import read_header, read_volume, write_mask

# Training has no deadline; the budget only has to be one that never stops a pass.
_NO_LIMIT_S = 1e9
# Raised when the same networks and images give other masks or features.
_MEASURE_VERSION = 1
# Raised when they give another uncertainty.
_UNCERTAINTY_VERSION = 1


def measure_out_of_fold(
    cases: Sequence[ReleaseCase],
    fold_of: Mapping[str, int],
    package: Callable[[], Path],
    folders: Folders,
    kept: OutOfFold,
    made_from: str,
    device: str,
) -> dict[str, Features]:
    """Patient ID to image features, from the prepared images and each patient's own held-out fold, of every member.

    Features are measured on the network's grid, as in inference, from the unmirrored pass; one more pass a mirror axis
    tells how far the mask can be trusted. What is kept of a patient under the same key is not done again; `package` is
    called where anything is left to do, and `made_from` tells the networks.
    """
    keys = {case.patient_id: _key(case, folders, f"{made_from} {fold_of[case.patient_id]}") for case in cases}
    trust_keys = {case.patient_id: _trust_key(case, folders, keys[case.patient_id]) for case in cases}
    rows: dict[str, Features] = {}
    for case in cases:
        found = read_kept(kept.features(case.patient_id), keys[case.patient_id])
        if found is not None and kept.mask(case.patient_id).is_file():
            rows[case.patient_id] = found
    trusted = {name for name, key in trust_keys.items() if read_kept(kept.uncertainty(name), key) is not None}
    waiting = [case for case in cases if case.patient_id not in rows or case.patient_id not in trusted]
    if waiting:
        networks, where = Networks(load_package(package())), device_named(device)
        for case in tqdm(waiting, desc="measure out-of-fold", unit="patient"):
            name = case.patient_id
            found, told = _segmented(case, fold_of[name], networks, folders, where)
            if name not in rows:
                grid = read_header(case.ct).geometry
                write_mask(kept.mask(name), found.mask_on(grid), grid)
                rows[name] = features_of(case, found)
                keep(kept.features(name), keys[name], rows[name])
            keep(kept.uncertainty(name), trust_keys[name], _uncertainty(case, folders, found, told))
    return {case.patient_id: rows[case.patient_id] for case in cases}


def _key(case: ReleaseCase, folders: Folders, made_from: str) -> str:
    images = [image_path(folders.raw, case, number) for number in range(len(CHANNELS))]
    return key_of((*images, case.ct, case.dose), {"version": _MEASURE_VERSION, "networks": made_from})


def _trust_key(case: ReleaseCase, folders: Folders, mask_key: str) -> str:
    reference = None if case.mask is None else label_path(folders.raw, case)
    return key_of((reference,), {"version": _UNCERTAINTY_VERSION, "mask": mask_key})


def _segmented(
    case: ReleaseCase, fold: int, networks: Networks, folders: Folders, device: torch.device
) -> tuple[Segmentation, Disagreement]:
    """The segmentation by the fold's unmirrored passes, and what these say together with the mirrored ones."""
    ct, pet = (read_volume(image_path(folders.raw, case, number), "float32") for number in range(len(CHANNELS)))
    data = normalise((ct.array, pet.array), networks.package)
    told, unmirrored = Disagreement(), []

    def seen(step: Pass, logits: npt.NDArray[np.float32]) -> None:
        told.add(step, logits)
        if not step.axes:
            unmirrored.append(logits)

    passes = _passes(fold, networks)
    Passes(data, passes, networks, Deadline(_NO_LIMIT_S), device, on_pass=seen).run()
    logits = sum(unmirrored[1:], unmirrored[0]) / np.float32(len(unmirrored))
    shown_pet = pet.array if pet.array.any() else None
    return Segmentation(logits, ct.array, shown_pet, ct.geometry, len(unmirrored), len(passes), f"fold {fold}"), told


def _passes(fold: int, networks: Networks) -> list[Pass]:
    """The fold's networks, one of each member, as they are, then each once along each mirror axis."""
    numbers = networks.package.numbers_of(fold)
    axes = [(), *((int(axis),) for axis in networks.package.manifest.get("mirror_axes", ()))]
    return [Pass(number, mirrored) for mirrored in axes for number in numbers]


def _uncertainty(case: ReleaseCase, folders: Folders, found: Segmentation, told: Disagreement) -> dict[str, Any]:
    """The record that inference writes, and of each lesion the share that lies in the reference of its label
    (`reference_overlap`; None where the patient has no reference).
    """
    record, mask = describe(found, told), found.mask()
    reference = None if case.mask is None else read_volume(label_path(folders.raw, case), np.uint8).array.ravel()
    places = [(label, voxels) for label in labels.FOREGROUND for voxels in lesions_of(mask, label)[:MOST_LESIONS]]
    for lesion, (label, voxels) in zip(record["lesions"], places, strict=True):
        lesion["reference_overlap"] = None if reference is None else float((reference[voxels] == label).mean())
    return record


def features_of(case: ReleaseCase, found: Segmentation) -> Features:
    """Image features on the grid of the segmentation, with the planned dose where the release has a usable one."""
    dose = None if case.dose is None else read_volume(case.dose, "float32")
    if dose is not None and not (np.isfinite(dose.array).all() and dose.array.min() >= 0):
        dose = None  # as in inference
    return image_features(found.mask(), found.ct, found.pet, found.grid, dose=dose)
