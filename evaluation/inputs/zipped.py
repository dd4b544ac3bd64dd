"""Masks in a zip file, as entrants uploaded them to HECKTOR 2020 to 2022."""

from __future__ import annotations

import io
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Final

from contract.errors import GroundTruthError, HecktorError, PredictionError, printable
from contract.images.volumes import image_suffix, read_header
from contract.platform import ONE_FILE_SUFFIXES, compose, is_added_by_system, is_system_name

MAX_MEMBERS: Final = 10_000
# In addition to the voxels: headers, and masks of cases that the reference does not have.
_MAX_OTHER_BYTES: Final = 64 << 20
_MAX_VOXEL_BYTES: Final = 8
_MAX_LIST_BYTES: Final = 8 << 20
# An unknown compression is a NotImplementedError of zipfile, an encrypted member a RuntimeError.
_DAMAGE: Final = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError)


def compute_max_unpacked_bytes(references: Iterable[Path]) -> int:
    """Return the most bytes that one submission's masks of these references can take, uncompressed."""
    voxels = 0
    for path in references:
        with suppress(HecktorError):  # the comparison names every reference that cannot be read
            voxels += read_header(path, error=GroundTruthError).geometry.voxel_count
    return voxels * _MAX_VOXEL_BYTES + _MAX_OTHER_BYTES


class _BoundedFile(io.BufferedReader):
    """A zip file of which `zipfile` cannot read the whole list of members if the list is too long.

    The list is read at once and takes ten times its size in memory; members are read in small pieces.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self._size = path.stat().st_size

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as any file does; raise BadZipFile for a piece that no list of members needs."""
        wanted = self._size - self.tell() if size is None or size < 0 else size
        if wanted > _MAX_LIST_BYTES:
            raise zipfile.BadZipFile(f"a list of members of more than {_MAX_LIST_BYTES >> 20} MiB")
        return super().read(wanted)


@contextmanager
def unpack_masks(predictions: Path | None, max_bytes: int) -> Iterator[Path | None]:
    """Yield `predictions`, or for a zip file a temporary folder with its masks from any depth.

    Raises PredictionError: a damaged or encrypted archive, no mask in it, too many members, more than `max_bytes` of
    masks, or two masks of one name.
    """
    if predictions is None or not is_archive(predictions):
        yield predictions
        return
    with tempfile.TemporaryDirectory(prefix="hecktor-masks-") as folder:
        _unpack(predictions, Path(folder), max_bytes)
        yield Path(folder)


def is_archive(predictions: Path) -> bool:
    """Return whether predictions are a zip file."""
    return predictions.suffix.lower() == ".zip" and predictions.is_file()


def _unpack(archive: Path, folder: Path, max_bytes: int) -> None:
    try:
        with _BoundedFile(archive) as file, zipfile.ZipFile(file) as opened:
            masks = _masks(archive.name, opened.infolist())
            total = sum(member.file_size for member in masks)
            if total > max_bytes:
                size = f"{total / 1e6:.0f} MB of masks"
                raise PredictionError(archive.name, size, f"at most {max_bytes / 1e6:.0f} MB, as the reference needs")
            for member in masks:
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
        is_passed_over = is_system_name(path.name) or any(map(is_added_by_system, path.parts))
        if member.is_dir() or is_passed_over or image_suffix(Path(path.name), ONE_FILE_SUFFIXES) is None:
            continue
        mask = compose(path.name)
        if mask in masks:
            shown = printable(f"{masks[mask].filename} and {member.filename}")
            raise PredictionError(name, f"found {shown}", "one mask a case")
        masks[mask] = member
    if not masks:
        raise PredictionError(name, "no mask in it", f"masks <case>{ONE_FILE_SUFFIXES[0]} or <case>.nii.gz")
    return list(masks.values())
