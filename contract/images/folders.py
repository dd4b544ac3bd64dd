"""Folders with a mask file for each case, as people hand them in."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contract.images.volumes import image_suffix
from contract.patient import listed
from contract.platform import READABLE_IMAGE_SUFFIXES
from contract.predictions import case_of

MASK_SUFFIXES: Final = (*READABLE_IMAGE_SUFFIXES, ".nii")
# Tables and notes beside the masks.
_IGNORED_SUFFIXES: Final = (".csv", ".tsv", ".json", ".md", ".txt")


@dataclass(frozen=True)
class MaskFolder:
    """The files of a folder, sorted by name: `masks` in a format that is read, and `others`, such as `.nrrd`.

    Hidden files, folders, tables and notes are in neither.
    """

    masks: tuple[Path, ...]
    others: tuple[Path, ...]


def list_masks(folder: Path) -> MaskFolder:
    """The masks directly in `folder`, and the files of formats that are not read."""
    visible = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    masks = tuple(path for path in visible if image_suffix(path, MASK_SUFFIXES) is not None)
    files = (path for path in visible if path not in masks and not path.is_dir())
    return MaskFolder(masks, tuple(path for path in files if path.suffix.lower() not in _IGNORED_SUFFIXES))


def mask_name(path: Path) -> str:
    """A mask's file name without the suffix of its format: its case."""
    return path.name[: -len(image_suffix(path, MASK_SUFFIXES) or "") or None]


def case_of_other(path: Path, cases: Collection[str]) -> str | None:
    """The case whose name, followed by a point, begins that of a file in another format; None if there is none."""
    stem = path.name
    while "." in stem:
        stem = stem.rpartition(".")[0]
        if stem in cases:
            return stem
    return None


def masks_nearby(folder: Path, cases: Collection[str] | None = None) -> str:
    """Where masks lie instead of in `folder`, such as `, but 2 in labelsTr/`; empty if nowhere near.

    Masks of `cases` are looked for in the folders below; without `cases`, any masks, and also in the folder above.
    """
    places = [(path, f"{path.name}/") for path in sorted(folder.iterdir()) if path.is_dir()]
    places += [(folder.resolve().parent, "../")] if cases is None else []
    found = []
    for place, name in places:
        with suppress(OSError):  # a folder without permission
            names = {case_of(path.name) for path in list_masks(place).masks}
            count = len(names if cases is None else names.intersection(cases))
            found += [f"{count} in {name}"] if count else []
    return f", but {listed(found)}" if found else ""
