"""The output paths of a run, and the removal of what an earlier run left there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from contract import platform
from contract.editions import Algorithm
from contract.errors import OutputError
from contract.images.volumes import find_image_suffix
from contract.labels import LESIONS
from contract.platform import NAMED_IMAGE_SUFFIXES, TIFF_SUFFIXES

PROBABILITY_FILES: Final = tuple(f"{name}_probability.nii.gz" for name in LESIONS)
_MASK_SUFFIXES: Final = (".mha", ".nii.gz", ".nii")


def is_mask_file(output: Path) -> bool:
    """Return whether the output is an image, so that only the mask is written. Raises `OutputError`."""
    suffix = None if output.is_dir() else find_image_suffix(output, (*NAMED_IMAGE_SUFFIXES, *TIFF_SUFFIXES))
    if suffix is not None and suffix not in _MASK_SUFFIXES:
        raise OutputError("--output", output.name, f"a folder, or a mask's file in {', '.join(_MASK_SUFFIXES)}")
    return suffix is not None


def answer_paths(algorithm: Algorithm, output_dir: Path) -> dict[str, Path]:
    """Return the file of each answer, by its name."""
    paths = {answer.name: answer.socket.path_under(output_dir) for answer in algorithm.answers}
    if (mask := algorithm.mask_spec) is not None:
        paths[mask.name] /= platform.MASK_FILE_NAME
    return paths


def remove_answers(paths: Iterable[Path], output_dir: Path | None = None) -> None:
    """Remove the files that a task writes, which would look like this case's if it fails; files of other tasks stay.

    Of the folders below `output_dir`, those that are empty then go as well.

    Raises:
        OutputError: a file cannot be removed, such as one of another user.
    """
    for path in paths:
        _remove(path)
        if output_dir is not None and output_dir in path.parent.parents:
            with suppress(OSError):  # not empty, or absent
                path.parent.rmdir()


def _remove(path: Path) -> None:
    try:
        if os.path.lexists(path):  # a read-only disk refuses to remove even an absent file
            path.unlink()
    except OSError as problem:
        actual = f"an earlier answer that cannot be removed ({problem.strerror})"
        raise OutputError(path.name, actual, "a writable folder, or another --output") from None


def remove_earlier(option: str, path: Path) -> None:
    """Remove what an earlier case wrote, which would look like this one's if the case fails. Raises `OutputError`."""
    try:
        path.unlink(missing_ok=True)
    except OSError as problem:
        raise OutputError(option, f"{path.name} cannot be replaced ({problem.strerror})", "a file") from None


def check_outside(option: str, path: Path, roots: Iterable[Path]) -> None:
    """Raise `OutputError` if a path is one of the files, or lies in one of the folders, of the case."""
    for root in roots:
        if root.is_file() and path.resolve() == root.resolve():
            raise OutputError(option, f"{path} is a file of the case", "another file")
        if path.resolve().is_relative_to(root.resolve()):
            fault = f"{path} lies within {root}, which may hold the platform's sockets only"
            raise OutputError(option, fault, "a path outside")
