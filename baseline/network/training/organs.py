"""Organ masks from the user's disk as further labels of a training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.network.organs import MOST_ORGANS
from algorithm.region.grids import resample_mask
from baseline.release.cases import ReleaseCase
from baseline.release.data_set import CHANNELS, image_path, label_path
from contract import labels
from contract.errors import InputError
from contract.images.volumes import Volume, read_volume, write_volume

_SUFFIX: Final = ".nii.gz"
_RESERVED: Final = {*(name.casefold() for name in labels.NAMES.values()), "ignore"}
_Mask = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class OrganMasks:
    """Organs by name, in the order of their labels, and each patient's files.

    A patient has one file for each organ, or, if `values` is not empty, a single label map with these values.
    """

    names: tuple[str, ...]
    files: Mapping[str, tuple[Path, ...]]
    values: tuple[int, ...] = ()


def read_organs(folder: Path, patients: Sequence[str]) -> OrganMasks:
    """Find the organ masks of all `patients`: `ID/ORGAN.nii.gz` for each organ, or label maps `ID.nii.gz`.

    Raises:
        InputError: a patient without masks, other organs than the first patient's, too many, or a reserved name.
    """
    if not folder.is_dir():
        raise InputError(str(folder), "no such folder", "organ masks, ID/ORGAN.nii.gz or ID.nii.gz")
    maps = {patient: folder / f"{patient}{_SUFFIX}" for patient in patients}
    if any(path.is_file() for path in maps.values()):
        found = _label_maps(maps)
    else:
        found = _single_masks({patient: folder / patient for patient in patients})
    odd = [name for name in found.names if name.casefold() in _RESERVED]
    if odd or not 1 <= len(found.names) <= MOST_ORGANS:
        expected = f"1 to {MOST_ORGANS} organs with names other than {', '.join(sorted(_RESERVED))}"
        raise InputError(folder.name, f"{len(found.names)} organs{', ' if odd else ''}{', '.join(odd)}", expected)
    return found


def _label_maps(maps: Mapping[str, Path]) -> OrganMasks:
    values: set[int] = set()
    for path in maps.values():
        if not path.is_file():
            raise InputError(path.name, "not found", "a label map of every patient with a reference mask")
        values |= {int(value) for value in np.unique(read_volume(path, np.int32).array) if value > 0}
    ordered = tuple(sorted(values))
    return OrganMasks(
        tuple(f"organ {value}" for value in ordered), {name: (path,) for name, path in maps.items()}, ordered
    )


def _single_masks(folders: Mapping[str, Path]) -> OrganMasks:
    names: list[str] | None = None
    files = {}
    for patient, folder in folders.items():
        paths = sorted(folder.glob(f"*{_SUFFIX}"))
        here = [path.name.removesuffix(_SUFFIX) for path in paths]
        names = here if names is None else names
        if here != names or not here:
            odd = "".join(f", other than elsewhere: {one}" for one in sorted(set(names) ^ set(here))[:1])
            expected = "a mask of each organ for every patient with a reference mask, empty if it is out of view"
            raise InputError(folder.name, f"{len(here)} organ masks{odd}", expected)
        files[patient] = tuple(paths)
    return OrganMasks(tuple(names or ()), files)


def write_organ_labels(
    organs: OrganMasks, cases: Sequence[ReleaseCase], raw: Path, folder: Path
) -> dict[str, dict[str, Any]]:
    """Write reference and organs as one mask for each patient; returns images and mask as nnU-Net lists them.

    The prepared references stay as they are: everything but this training goes on reading them. Where organ and tumour
    overlap, the tumour counts; of two organs the first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    listed: dict[str, dict[str, Any]] = {}
    for case in cases:
        reference = read_volume(label_path(raw, case), np.uint8)
        merged = Volume(with_organs(reference, organs, case.patient_id), reference.geometry)
        target = folder / f"{case.patient_id}{_SUFFIX}"
        write_volume(target, merged)
        images = [str(image_path(raw, case, number)) for number in range(len(CHANNELS))]
        listed[case.patient_id] = {"images": images, "label": str(target)}
    return listed


def with_organs(reference: Volume, organs: OrganMasks, patient: str) -> _Mask:
    """The reference on its own grid, with organs in its background."""
    first = len(labels.NAMES)
    merged = reference.array.astype(np.uint8)
    for number, path in enumerate(organs.files[patient]):
        given = read_volume(path, np.int32)
        parts = organs.values or (None,)
        for place, value in enumerate(parts):
            inside = given.array > 0 if value is None else given.array == value
            organ = resample_mask(Volume(inside.astype(np.uint8), given.geometry), reference.geometry)
            merged[(merged == labels.BACKGROUND) & (organ > 0)] = first + (number if value is None else place)
    return merged


def load_with_tumours(load_case: Callable[[str], Any], identifier: str) -> Any:
    """A preprocessed case, in which nnU-Net's loader finds the places of tumours alone for its foreground patches."""
    data, mask, previous, properties = load_case(identifier)
    places = {key: found for key, found in properties["class_locations"].items() if key in labels.FOREGROUND}
    return data, mask, previous, {**properties, "class_locations": places}


def tumours_alone(mask: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A mask in which organs are background."""
    return np.where(mask > max(labels.FOREGROUND), labels.BACKGROUND, mask)
