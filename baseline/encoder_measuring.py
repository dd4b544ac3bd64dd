"""Measure each training patient's deep features by every fold's network, at the lesions of the out-of-fold mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import nn
from tqdm import tqdm

from algorithm.encoder import patch_of, pooled_features
from algorithm.network.devices import device_named
from algorithm.network.networks import Networks
from algorithm.network.package import ModelPackage, load_package
from algorithm.network.segment import normalise
from algorithm.region.grids import resample_mask
from baseline.cache import keep, key_of, read_kept
from baseline.network.nnunet import Folders
from baseline.network.out_of_fold_files import OutOfFold
from baseline.release.cases import ReleaseCase
from baseline.release.data_set import CHANNELS, image_path
from contract.images.volumes import read_volume

# Raised when the same networks, images and masks give other features.
_VERSION = 1
# Of each fold its channels; None for a patient without a lesion.
Channels = list[list[float]] | None


def measure_deep(
    cases: Sequence[ReleaseCase],
    package: Callable[[], Path],
    folders: Folders,
    kept: OutOfFold,
    made_from: str,
    device: str,
) -> dict[str, Channels]:
    """Patient ID to each fold's channels, from the prepared images and the kept out-of-fold masks.

    What is kept of a patient under the same key is not done again; `package` is called where anything is left to do,
    and `made_from` tells the networks.
    """
    keys = {case.patient_id: _key(case, folders, kept, made_from) for case in cases}
    found: dict[str, Channels] = {}
    for case in cases:
        record = read_kept(kept.deep(case.patient_id), keys[case.patient_id])
        if record is not None:
            found[case.patient_id] = record["channels"]
    waiting = [case for case in cases if case.patient_id not in found]
    if waiting:
        loaded, where = load_package(package()), device_named(device)
        # One for each fold, so that weights are read once; those of the first member, which inference asks too.
        trained = range(len(loaded.fold_files) // len(loaded.numbers_of(0)))
        folds = [Networks(loaded).of(loaded.numbers_of(fold)[0], where) for fold in trained]
        for case in tqdm(waiting, desc="measure encoder", unit="patient"):
            name = case.patient_id
            found[name] = _channels(case, loaded, folds, folders, kept)
            keep(kept.deep(name), keys[name], {"channels": found[name]})
    return {case.patient_id: found[case.patient_id] for case in cases}


def _key(case: ReleaseCase, folders: Folders, kept: OutOfFold, made_from: str) -> str:
    images = [image_path(folders.raw, case, number) for number in range(len(CHANNELS))]
    return key_of((*images, kept.mask(case.patient_id)), {"version": _VERSION, "networks": made_from})


def _channels(
    case: ReleaseCase, package: ModelPackage, folds: Sequence[nn.Module], folders: Folders, kept: OutOfFold
) -> Channels:
    ct, pet = (read_volume(image_path(folders.raw, case, number), "float32") for number in range(len(CHANNELS)))
    lesion = resample_mask(read_volume(kept.mask(case.patient_id)), ct.geometry) > 0
    data, patch = normalise((ct.array, pet.array), package), patch_of(package)
    pooled = [pooled_features(data, lesion, network, patch) for network in folds]
    return (
        None if any(channels is None for channels in pooled) else [list(map(float, c)) for c in pooled if c is not None]
    )
