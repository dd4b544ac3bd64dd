"""Mask files as teams submit them: a folder with a mask for each case, or a zip file of such masks.

Teams uploaded zip files to HECKTOR 2020, 2021 and 2022.
"""

from __future__ import annotations

import io
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from contract.errors import GroundTruthError, HecktorError, PredictionError, replace_unprintable
from contract.images.volumes import find_image_suffix, list_images, read_header
from contract.patient import format_names
from contract.platform import ONE_FILE_SUFFIXES, is_added_by_system, is_system_name, normalise_unicode
from contract.predictions import parse_case

# A folder of masks may also contain tables and notes.
_IGNORED_SUFFIXES: Final = (".csv", ".tsv", ".json", ".md", ".txt")

MAX_MEMBERS: Final = 10_000
# Allowance in addition to the voxels, for headers and for masks of cases that the reference does not have.
_MAX_OTHER_BYTES: Final = 64 << 20
_MAX_VOXEL_BYTES: Final = 8
_MAX_LIST_BYTES: Final = 8 << 20
# `zipfile` raises NotImplementedError for an unknown compression and RuntimeError for an encrypted member.
_DAMAGE: Final = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError)


@dataclass(frozen=True)
class MaskFolder:
    """Files of a folder, sorted by name, without hidden files, folders, tables and notes.

    Attributes:
        masks: Files in a format that can be read.
        unsupported: Files in another format, such as `.nrrd`.
    """

    masks: tuple[Path, ...]
    unsupported: tuple[Path, ...]


def list_masks(folder: Path) -> MaskFolder:
    """List the masks directly in `folder`, and the files in unsupported formats."""
    unsupported = [
        path
        for path in sorted(folder.iterdir())
        if not is_system_name(path.name)
        and not path.is_dir()
        and path.suffix.lower() not in _IGNORED_SUFFIXES
        and find_image_suffix(path, ONE_FILE_SUFFIXES) is None
    ]
    return MaskFolder(tuple(list_images(folder, ONE_FILE_SUFFIXES)), tuple(unsupported))


def match_unsupported_file(path: Path, cases: Collection[str]) -> str | None:
    """Return the case to which a file in an unsupported format seems to belong; None if there is no such case.

    The file's name begins with the case's name and a dot.
    """
    stem = path.name
    while "." in stem:
        stem = stem.rpartition(".")[0]
        if normalise_unicode(stem) in cases:
            return normalise_unicode(stem)
    return None


def describe_masks_nearby(folder: Path, cases: Collection[str] | None = None) -> str:
    """Return where masks are instead of in `folder`, such as `, but 2 in labelsTr/`; empty if no folder has masks.

    Args:
        folder: The folder that should contain the masks. Its subfolders are searched.
        cases: Cases whose masks are counted. None counts all masks, also in the parent of `folder`.
    """
    folders = [
        (path, f"{path.name}/") for path in sorted(folder.iterdir()) if path.is_dir() and not is_system_name(path.name)
    ]
    if cases is None:
        folders.append((folder.resolve().parent, "../"))
    counts = []
    for nearby, name in folders:
        with suppress(OSError):  # A folder that this user may not read cannot help.
            names = {parse_case(path.name) for path in list_masks(nearby).masks}
            count = len(names if cases is None else names.intersection(cases))
            if count:
                counts.append(f"{count} in {name}")
    return f", but {format_names(counts)}" if counts else ""


def is_archive(predictions: Path) -> bool:
    """Return whether predictions are a zip file."""
    return predictions.suffix.lower() == ".zip" and predictions.is_file()


def compute_max_unpacked_bytes(references: Iterable[Path]) -> int:
    """Compute the maximum uncompressed size of one submission, which has one mask for each of these references."""
    voxels = 0
    for path in references:
        with suppress(HecktorError):  # The comparison names every reference that cannot be read.
            voxels += read_header(path, error=GroundTruthError).geometry.voxel_count
    return voxels * _MAX_VOXEL_BYTES + _MAX_OTHER_BYTES


@contextmanager
def unpack_masks(predictions: Path | None, max_bytes: int) -> Iterator[Path | None]:
    """Yield a temporary folder with the masks of a zip file, from any depth; yield other predictions as they are.

    Raises:
        PredictionError: The archive is damaged or encrypted, or contains no mask, too many members, more than
            `max_bytes` of masks, or two masks with the same name.
    """
    if predictions is None or not is_archive(predictions):
        yield predictions
        return
    with tempfile.TemporaryDirectory(prefix="hecktor-masks-") as folder:
        _unpack(predictions, Path(folder), max_bytes)
        yield Path(folder)


def _unpack(archive: Path, folder: Path, max_bytes: int) -> None:
    try:
        with _BoundedFile(archive) as file, zipfile.ZipFile(file) as opened:
            masks = _select_masks(archive.name, opened.infolist())
            total = sum(member.file_size for member in masks)
            if total > max_bytes:
                size = f"{total / 1e6:.0f} MB of masks"
                raise PredictionError(archive.name, size, f"at most {max_bytes / 1e6:.0f} MB, as the reference needs")
            for member in masks:
                with opened.open(member) as source, (folder / PurePosixPath(member.filename).name).open("xb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
    except _DAMAGE as problem:
        raise PredictionError(
            archive.name, f"cannot be read ({replace_unprintable(str(problem))})", "a zip file"
        ) from None
    except OSError as problem:
        raise PredictionError(
            archive.name, f"cannot be unpacked ({problem.strerror})", "space for temporary files"
        ) from None


class _BoundedFile(io.BufferedReader):
    """Zip file that refuses to read a very long list of members.

    `zipfile` reads the whole list at once, which takes ten times its size in memory; it reads members in small chunks.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self._size = path.stat().st_size

    def read(self, size: int | None = -1, /) -> bytes:
        """Read like any file; raise BadZipFile if `size` is longer than a list of members may be."""
        requested = self._size - self.tell() if size is None or size < 0 else size
        if requested > _MAX_LIST_BYTES:
            raise zipfile.BadZipFile(f"a list of members of more than {_MAX_LIST_BYTES >> 20} MiB")
        return super().read(requested)


def _select_masks(archive_name: str, members: Sequence[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    if len(members) > MAX_MEMBERS:
        raise PredictionError(archive_name, f"{len(members)} members", f"at most {MAX_MEMBERS}")
    masks: dict[str, zipfile.ZipInfo] = {}
    for member in members:
        path = PurePosixPath(member.filename)
        is_of_system = is_system_name(path.name) or any(map(is_added_by_system, path.parts))
        if member.is_dir() or is_of_system or find_image_suffix(Path(path.name), ONE_FILE_SUFFIXES) is None:
            continue
        mask = normalise_unicode(path.name)
        if mask in masks:
            names = replace_unprintable(f"{masks[mask].filename} and {member.filename}")
            raise PredictionError(archive_name, f"found {names}", "one mask per case")
        masks[mask] = member
    if not masks:
        raise PredictionError(archive_name, "no mask in it", f"masks <case>{ONE_FILE_SUFFIXES[0]} or <case>.nii.gz")
    return list(masks.values())
