"""Segment each training patient by the fold that never saw it, and measure the lesions found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from algorithm.budget import Budget
from algorithm.devices import device_named
from algorithm.measure import Features, image_features
from algorithm.model_package import load_package
from algorithm.networks import Networks
from algorithm.passes import Passes
from algorithm.segment import normalise
from algorithm.windows import Pass
from baseline.nnunet import Folders
from baseline.prepare import CHANNELS, image_path
from baseline.release import ReleaseCase
from contract.images import read_volume

# Training has no deadline; the budget only has to be one that never stops a pass.
_NO_LIMIT_S = 1e9


def measure_out_of_fold(
    cases: Iterable[ReleaseCase], fold_of: Mapping[str, int], package: Path, folders: Folders, device: str
) -> dict[str, Features]:
    """Patient ID to image features, from the prepared images and each patient's own held-out fold."""
    networks, where = Networks(load_package(package)), device_named(device)
    return {case.patient_id: _features(case, fold_of[case.patient_id], networks, folders, where) for case in cases}


def _features(case: ReleaseCase, fold: int, networks: Networks, folders: Folders, device: torch.device) -> Features:
    ct, pet = (read_volume(image_path(folders.raw, case, number), "float32") for number in range(len(CHANNELS)))
    data = normalise((ct.array, pet.array), networks.package)
    logits = Passes(data, (Pass(fold),), networks, Budget.start(_NO_LIMIT_S), device).run().logits
    has_pet = bool(pet.array.any())
    mask = logits.argmax(0).astype("uint8")
    return image_features(mask, ct.array, pet.array if has_pet else None, ct.geometry)
