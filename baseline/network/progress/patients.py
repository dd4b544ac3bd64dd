"""Segment a few validation patients with the current weights: one window around each patient's largest lesion."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from scipy import ndimage
from torch import nn
from torch._dynamo import OptimizedModule
from torch.nn.parallel import DistributedDataParallel

from algorithm.uncertainty.record import lesions_of
from baseline.network.training.organs import tumours_alone
from baseline.release.data_set import CHANNELS
from contract import labels
from contract.errors import InputError
from contract.files import read_json
from contract.images.volumes import read_volume

_AIR: Final = {"CT": -1024.0, "PET": 0.0}

Labels = npt.NDArray[np.uint8]
_Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Window:
    """A patch of a patient, and its axial plane on the page.

    `patch` is preprocessed, (channel, *axes in the plan's order). `reference` is (z, y, x); `ct_hu` and `pet_suv` are
    its plane number `plane`, (y, x), with pixels of `pixel_mm` (y, x). `volume_ml` is that of all lesions.
    """

    patient_id: str
    volume_ml: float
    patch: _Floats
    reference: Labels
    plane: int
    ct_hu: _Floats
    pet_suv: _Floats
    pixel_mm: tuple[float, float]


def fixed_windows(trainer: Any) -> tuple[Window, ...]:
    """Windows of the validation patients with the smallest, median and largest lesion volume."""
    splits = read_json(Path(trainer.preprocessed_dataset_folder_base) / "splits_final.json")
    dataset = trainer.dataset_class(trainer.preprocessed_dataset_folder, list(splits[int(trainer.fold)]["val"]))
    voxels = {patient: int((_reference(dataset, patient, trainer) > 0).sum()) for patient in dataset.identifiers}
    voxel_ml = float(np.prod(trainer.configuration_manager.spacing)) / 1000
    return tuple(_window(trainer, dataset, patient, voxels[patient] * voxel_ml) for patient in chosen(voxels))


def chosen(sizes: Mapping[str, int]) -> list[str]:
    """Distinct patients with the smallest, the (lower) median and the largest size above zero."""
    ranked = sorted((size, patient) for patient, size in sizes.items() if size > 0)
    places = sorted({0, (len(ranked) - 1) // 2, len(ranked) - 1}) if ranked else []
    return [ranked[place][1] for place in places]


def predicted(trainer: Any, windows: Sequence[Window]) -> list[Labels]:
    """The mask of each window, (z, y, x), by one pass without mirroring.

    The network is taken out of its DDP wrapper, so one process can call this alone.
    """
    network = _bare(trainer.network)
    backward = tuple(trainer.plans_manager.transpose_backward)
    gpu = trainer.device.type == "cuda"
    masks = []
    with _evaluating(network), torch.inference_mode(), torch.autocast(trainer.device.type, enabled=gpu):
        for window in windows:
            output = network(torch.from_numpy(window.patch)[None].to(trainer.device))
            logits = output[0] if isinstance(output, list | tuple) else output
            mask: Labels = tumours_alone(logits[0].argmax(0).cpu().numpy()).astype(np.uint8)
            masks.append(mask.transpose(backward))
    return masks


def dice(reference: Labels, prediction: Labels, label: int) -> float | None:
    """Dice of one label; None if neither mask has it."""
    both = int((reference == label).sum()) + int((prediction == label).sum())
    return 2 * int(((reference == label) & (prediction == label)).sum()) / both if both else None


@contextmanager
def preserved_randomness(device: torch.device) -> Iterator[None]:
    """Restore the random states of Python, NumPy and torch after the block."""
    cards = [torch.cuda.current_device() if device.index is None else device.index] if device.type == "cuda" else []
    python, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002 - nnU-Net draws from the global state
    try:
        with torch.random.fork_rng(devices=cards):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpys)  # noqa: NPY002


@contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    """Put every module into evaluation mode, and restore each one's mode after the block."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _bare(network: nn.Module) -> nn.Module:
    """The network without DDP, which needs all processes, and uncompiled, since the batch size differs."""
    bare: nn.Module = network.module if isinstance(network, DistributedDataParallel) else network
    return bare._orig_mod if isinstance(bare, OptimizedModule) else bare


def _reference(dataset: Any, patient: str, trainer: Any) -> Labels:
    """The preprocessed reference, (z, y, x); nnU-Net's -1 outside the scan becomes background."""
    _, mask, _, _ = dataset.load_case(patient)
    reference: Labels = tumours_alone(np.maximum(np.asarray(mask[0]), 0)).astype(np.uint8)
    return reference.transpose(trainer.plans_manager.transpose_backward)


def _window(trainer: Any, dataset: Any, patient: str, volume_ml: float) -> Window:
    forward, backward = trainer.plans_manager.transpose_forward, trainer.plans_manager.transpose_backward
    data, _, _, properties = dataset.load_case(patient)
    image = np.asarray(data[:], dtype=np.float32).transpose(0, *(1 + axis for axis in backward))
    reference = _reference(dataset, patient, trainer)
    size = [int(trainer.configuration_manager.patch_size[axis]) for axis in backward]
    lesion = largest_lesion(reference)
    z = int(lesion.sum((1, 2)).argmax())
    centre = (z, *(int(np.median(index)) for index in np.nonzero(lesion[z])))
    start = [
        min(max(0, middle - length // 2), max(0, whole - length))
        for middle, length, whole in zip(centre, size, reference.shape, strict=True)
    ]
    patch = cut(image, start, size).transpose(0, *(1 + axis for axis in forward))
    # nnU-Net has cropped the prepared image to its non-zero part and resampled that.
    box = [properties["bbox_used_for_cropping"][axis] for axis in backward]
    places = [
        low + (np.arange(first, first + length) + 0.5) * (high - low) / whole - 0.5
        for (low, high), first, length, whole in zip(box, (z, *start[1:]), (1, *size[1:]), reference.shape, strict=True)
    ]
    ct, pet = _planes(trainer, patient, places)
    _, height_mm, width_mm = (float(trainer.configuration_manager.spacing[axis]) for axis in backward)
    mask, patch = cut(reference[None], start, size)[0], np.ascontiguousarray(patch)
    return Window(patient, volume_ml, patch, mask, z - start[0], ct, pet, (height_mm, width_mm))


def largest_lesion(reference: Labels) -> npt.NDArray[np.bool_]:
    """The largest connected component (26 neighbours) of any label, as a mask.

    Raises:
        InputError: no lesion.
    """
    lesions = [voxels for label in labels.FOREGROUND for voxels in lesions_of(reference, label)[:1]]
    if not lesions:
        raise InputError(f"a reference without {' or '.join(labels.NAMES[label] for label in labels.FOREGROUND)}")
    largest = np.zeros(reference.shape, dtype=bool)
    largest.flat[max(lesions, key=len)] = True
    return largest


def cut(array: npt.NDArray[Any], start: Sequence[int], size: Sequence[int]) -> npt.NDArray[Any]:
    """The window of `array` (channel, z, y, x) at `start` (z, y, x), padded with zeros outside the array."""
    inside = array[(slice(None), *(slice(first, first + length) for first, length in zip(start, size, strict=True)))]
    missing = [(0, length - found) for length, found in zip(size, inside.shape[1:], strict=True)]
    return np.pad(inside, [(0, 0), *missing])


def _planes(trainer: Any, patient: str, places: Sequence[npt.NDArray[Any]]) -> list[_Floats]:
    """A plane of the prepared CT (HU) and of the PET (SUV), at the voxel positions `places` along z, y and x."""
    root = Path(trainer.preprocessed_dataset_folder_base)
    points = np.stack(np.meshgrid(*places, indexing="ij"))
    planes = []
    for channel, name in enumerate(CHANNELS):
        file = f"{patient}_{channel:04d}{trainer.dataset_json['file_ending']}"
        scan = read_volume(root.parents[1] / "raw" / root.name / "imagesTr" / file).array
        planes.append(
            ndimage.map_coordinates(scan, points, np.float32, order=1, mode="grid-constant", cval=_AIR[name])[0]
        )
    return planes
