"""Pack model packages in the platform's form, and read untrusted tar files safely.

`tarfile` parses the headers, but it reads headers of any size and accepts unsafe members, so both are checked here. Its
extraction filters are not used: the filter "data" can be bypassed by long paths (CVE-2025-4517) and does not exist in
Python 3.11.2.
"""

from __future__ import annotations

import gzip
import lzma
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, cast

from contract.errors import HecktorError, ModelPackageError
from contract.io.files import find_files
from contract.platform import is_added_by_system

SUFFIX: Final = ".tar.gz"
MAX_MEMBERS: Final = 10_000
MAX_UNPACKED_BYTES: Final = 16_000_000_000
MAX_NAME_BYTES: Final = 1024
MAX_DEPTH: Final = 32
_CHUNK_BYTES: Final = 1 << 20
# Limits on one extended header (a long name or a PAX header) and on all extended headers of an archive together:
# tarfile's running time grows with the square of the size of a header.
_MAX_EXTENSION_BYTES: Final = 1536
_MAX_EXTENSIONS_BYTES: Final = 1 << 18
_EXTENSION_TYPES: Final = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class _DamageError(Exception):
    """The archive breaks the format or a limit; the text names the problem."""


# Exceptions that reading a damaged archive can raise.
_DAMAGE: Final = (
    OSError,
    EOFError,
    ValueError,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    MemoryError,
    RecursionError,
    _DamageError,
)


class _Stream:
    """The uncompressed content of an archive as a file that can only be read forwards, and only up to a limit.

    Attributes:
        last: The bytes that the last call of `read` returned.
    """

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file = file
        self._limit = limit
        self._position = 0
        self._extension_bytes = 0
        self.last = b""

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        if size < 0 or self._position + size > self._limit:
            raise _DamageError(f"more than {self._limit} bytes unpacked")
        self.last = self._file.read(size)
        self._position += len(self.last)
        return self.last

    def seek(self, position: int) -> int:
        if position < self._position:
            raise _DamageError("sizes that point backwards")
        while self._position < position and self.read(min(_CHUNK_BYTES, position - self._position)):
            pass
        return self._position

    def count_extension(self, size: int) -> None:
        if not 0 <= size <= _MAX_EXTENSION_BYTES:
            raise _DamageError(f"a header of {size} bytes")
        self._extension_bytes += tarfile.BLOCKSIZE + size
        if self._extension_bytes > _MAX_EXTENSIONS_BYTES:
            raise _DamageError(f"headers of more than {_MAX_EXTENSIONS_BYTES} bytes together")

    def finish(self) -> None:
        """Check that zeros end the archive, and read to the end of the file, because its checksum is there."""
        if len(self.last) < tarfile.BLOCKSIZE:
            raise _DamageError("it ends early")
        if any(self.last):
            raise _DamageError("a header with a wrong checksum, or not a tar archive")
        padding = self._file.read(_CHUNK_BYTES)
        if len(padding) == _CHUNK_BYTES or any(padding):
            raise _DamageError("content after its end")


class _Header(tarfile.TarInfo):
    """A header that checks the size of extensions before they are read, and refuses sparse files."""

    def _proc_member(self, archive: Any) -> tarfile.TarInfo:  # tarfile's entry point for subclasses
        archive.pax_headers.clear()  # No writer stores names in the headers of the whole archive.
        if self.type in _EXTENSION_TYPES:
            archive.fileobj.count_extension(self.size)
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise _DamageError("a sparse file")
        return cast(tarfile.TarInfo, super()._proc_member(archive))  # type: ignore[misc]

    def _proc_gnusparse_10(self, *_: Any) -> None:
        raise _DamageError("a sparse file")


def pack(folder: Path, archive: Path, extra_files: Mapping[str, Path] | None = None) -> None:
    """Pack the content of a folder as `tar -C folder .` does. Identical files give an identical archive.

    Owners and times are left out, and no file stays executable.

    Args:
        folder: The folder.
        archive: The `.tar.gz` to write.
        extra_files: Paths of files outside the folder, by their names in the archive.
    """
    with (
        archive.open("wb") as raw,
        # Weights barely compress, so the fastest level is enough.
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=1) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        find_files(folder)  # Raises if a folder cannot be read; `rglob` would leave it out.
        for path in [folder, *sorted(folder.rglob("*"))]:
            if any(map(is_added_by_system, path.relative_to(folder).parts)):
                continue
            name = "." if path == folder else f"./{path.relative_to(folder).as_posix()}"
            tar.add(path, arcname=name, recursive=False, filter=_reset_metadata)
        for name, path in (extra_files or {}).items():
            tar.add(path, arcname=f"./{name}", recursive=False, filter=_reset_metadata)


def unpack(archive: Path, folder: Path, *, error: type[HecktorError] = ModelPackageError) -> None:
    """Unpack an untrusted `.tar.gz`, `.tar.xz` or `.tar` of files and folders with relative names.

    The whole archive is read and checked before anything is written. Modes follow the umask; an executable file stays
    executable.

    Raises:
        HecktorError: Of class `error`: the file is not such an archive, is damaged or too large; or a member is a link,
            a device or a sparse file, appears twice or has a name that leads out of the folder.
    """
    with _convert_errors(archive.name, error):
        for member, _ in _iterate_members(archive):
            _split_name(archive.name, member, error)
        folder.mkdir(parents=True, exist_ok=True)
        for member, tar in _iterate_members(archive):
            path = folder.joinpath(*_split_name(archive.name, member, error))
            try:
                _extract(member, tar, path)
            except FileExistsError:
                raise error(archive.name, f"found {member.name[:80]!r} twice", "each member once") from None
            except OSError as problem:
                raise error(archive.name, f"{member.name[:80]!r} cannot be written ({problem.strerror})") from None


def _extract(member: tarfile.TarInfo, tar: tarfile.TarFile, path: Path) -> None:
    """Write a checked member to `path`, which must not exist if it is a file."""
    (path if member.isdir() else path.parent).mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(member)
    if content is not None:
        with path.open("xb") as file:
            shutil.copyfileobj(content, file, _CHUNK_BYTES)
        if member.mode & 0o100:
            # Everyone who may read the file may also execute it.
            path.chmod(path.stat().st_mode | (path.stat().st_mode & 0o444) >> 2)


def read_member(archive: Path, name: str, *, max_bytes: int, error: type[HecktorError] = ModelPackageError) -> bytes:
    """Read one file at the top level of an archive.

    Raises:
        HecktorError: Of class `error`: the archive cannot be read, does not contain the file, or the file is larger
            than `max_bytes`.
    """
    with _convert_errors(archive.name, error):
        for member, tar in _iterate_members(archive):
            if member.isreg() and _split_name(archive.name, member, error) == [name]:
                if member.size > max_bytes:
                    raise error(archive.name, f"{name} of {member.size} bytes", f"at most {max_bytes}")
                content = tar.extractfile(member)
                return b"" if content is None else content.read()
    raise error(archive.name, f"no {name}", f"{name} at the top level")


def _iterate_members(archive: Path) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    """Yield each member of a tar file with the open file; the content must be read before the next member.

    The headers, the number of members and the total size are limited, which also bounds the memory. Damage raises
    one of the exceptions in `_DAMAGE`.
    """
    with _open_uncompressed(archive) as content:
        stream = _Stream(content, MAX_UNPACKED_BYTES)
        tar = tarfile.TarFile(fileobj=cast(IO[bytes], stream), tarinfo=_Header, encoding="utf-8", errors="strict")
        for number, info in enumerate(tar):
            if number == MAX_MEMBERS:
                raise _DamageError(f"more than {MAX_MEMBERS} members")
            if info.size < 0:
                raise _DamageError(f"{info.name[:80]!r} with size {info.size}")
            if not any(map(is_added_by_system, info.name.split("/"))):
                yield info, tar
        stream.finish()


@contextmanager
def _convert_errors(name: str, error: type[HecktorError]) -> Iterator[None]:
    """Convert the exceptions of a damaged archive to `error`; `name` is the name of the archive in messages."""
    try:
        yield
    except _DAMAGE as problem:
        reason = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        raise error(name, f"cannot be unpacked ({reason})", "an intact .tar.gz") from None


def _open_uncompressed(archive: Path) -> IO[bytes]:
    """Open a plain, gzip or xz file for reading its uncompressed content."""
    with archive.open("rb") as file:
        start = file.read(6)
    if start.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(archive))
    return lzma.open(archive) if start == b"\xfd7zXZ\0" else archive.open("rb")


def _split_name(archive: str, member: tarfile.TarInfo, error: type[HecktorError]) -> list[str]:
    """Split the name of a member into folders and file name; raise `error` if its name or type is not allowed."""
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    if member.issparse() or not (member.isreg() or member.isdir()):
        kind = "link" if member.issym() or member.islnk() else "device or sparse file"
        raise error(archive, f"found {member.name[:80]!r}, a {kind}", "files and folders only")
    leads_out = member.name.startswith("/") or ".." in parts or "\0" in member.name
    if leads_out or not (parts or member.isdir()):
        raise error(archive, f"found {member.name[:80]!r}", "names inside the folder")
    if len(member.name.encode()) > MAX_NAME_BYTES or len(parts) > MAX_DEPTH:
        problem = f"found a name of {len(member.name.encode())} bytes and {len(parts)} levels"
        raise error(archive, problem, f"at most {MAX_NAME_BYTES} bytes and {MAX_DEPTH} levels")
    return parts


def _reset_metadata(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    member.mode = 0o755 if member.isdir() else 0o644
    return member
