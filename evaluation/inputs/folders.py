"""Folders with a mask file for each case, as people hand them in."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contract.images.volumes import image_suffix, list_images
from contract.patient import format_names
from contract.platform import ONE_FILE_SUFFIXES, compose, is_system_name
from contract.predictions import case_of

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
    others = (path for path in sorted(folder.iterdir()) if not is_system_name(path.name) and not path.is_dir())
    others = (path for path in others if path.suffix.lower() not in _IGNORED_SUFFIXES)
    unread = tuple(path for path in others if image_suffix(path, ONE_FILE_SUFFIXES) is None)
    return MaskFolder(tuple(list_images(folder, ONE_FILE_SUFFIXES)), unread)


def match_unread_file(path: Path, cases: Collection[str]) -> str | None:
    """The case whose name, followed by a point, begins that of a file in another format; None if there is none."""
    stem = path.name
    while "." in stem:
        stem = stem.rpartition(".")[0]
        if compose(stem) in cases:
            return compose(stem)
    return None


def describe_masks_nearby(folder: Path, cases: Collection[str] | None = None) -> str:
    """The place of masks that do not lie in `folder`, such as `, but 2 in labelsTr/`; empty if nowhere near.

    Masks of `cases` are looked for in the folders below; without `cases`, any masks, and also in the folder above.
    """
    places = [
        (path, f"{path.name}/") for path in sorted(folder.iterdir()) if path.is_dir() and not is_system_name(path.name)
    ]
    places += [(folder.resolve().parent, "../")] if cases is None else []
    found = []
    for place, name in places:
        with suppress(OSError):  # a folder without permission
            names = {case_of(path.name) for path in list_masks(place).masks}
            count = len(names if cases is None else names.intersection(cases))
            found += [f"{count} in {name}"] if count else []
    return f", but {format_names(found)}" if found else ""
