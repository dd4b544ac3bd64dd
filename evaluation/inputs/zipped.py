"""Masks in a zip file, as entrants uploaded them to HECKTOR 2020 to 2022."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from contract.errors import PredictionError, printable
from contract.images.volumes import image_suffix
from contract.platform import ONE_FILE_SUFFIXES

MAX_MEMBERS: Final = 10_000
MAX_UNPACKED_BYTES: Final = 64_000_000_000
# An unknown compression is a NotImplementedError of zipfile, an encrypted member a RuntimeError.
_DAMAGE: Final = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError)


@contextmanager
def folder_of_masks(predictions: Path | None) -> Iterator[Path | None]:
    """`predictions`, or for a zip file a temporary folder with its masks from any depth.

    Raises PredictionError: a damaged or encrypted archive, no mask in it, too many or too large members, or two masks
    of one name.
    """
    if predictions is None or predictions.suffix.lower() != ".zip" or not predictions.is_file():
        yield predictions
        return
    with tempfile.TemporaryDirectory(prefix="hecktor-masks-") as folder:
        _unpack(predictions, Path(folder))
        yield Path(folder)


def _unpack(archive: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as opened:
            left = MAX_UNPACKED_BYTES
            for member in _masks(archive.name, opened.infolist()):
                left -= member.file_size
                if left < 0:
                    found = f"more than {MAX_UNPACKED_BYTES / 1e9:g} GB of masks"
                    raise PredictionError(archive.name, found, "the masks of one cohort")
                with opened.open(member) as source, (folder / PurePosixPath(member.filename).name).open("xb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
    except _DAMAGE as problem:
        raise PredictionError(archive.name, f"cannot be read ({printable(str(problem))})", "a zip file") from None
    except OSError as problem:
        raise PredictionError(
            archive.name, f"cannot be unpacked ({problem.strerror})", "space for temporary files"
        ) from None


def _masks(name: str, members: Sequence[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    if len(members) > MAX_MEMBERS:
        raise PredictionError(name, f"{len(members)} members", f"at most {MAX_MEMBERS}")
    masks: dict[str, zipfile.ZipInfo] = {}
    for member in members:
        path = PurePosixPath(member.filename)
        if member.is_dir() or path.name.startswith(".") or image_suffix(Path(path.name), ONE_FILE_SUFFIXES) is None:
            continue
        if path.name in masks:
            shown = printable(f"{masks[path.name].filename} and {member.filename}")
            raise PredictionError(name, f"found {shown}", "one mask a case")
        masks[path.name] = member
    if not masks:
        raise PredictionError(name, "no mask in it", f"masks <case>{ONE_FILE_SUFFIXES[0]} or <case>.nii.gz")
    return list(masks.values())
