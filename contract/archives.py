"""Pack model packages in the platform's form, and read untrusted tar files safely.

`tarfile` parses the headers; what it would read without a bound, or accept, is refused before. Its filters are not
used: "data" can be defeated by long paths (CVE-2025-4517) and is absent from Python 3.11.2.
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
_PIECE: Final = 1 << 20
# Long names and PAX headers, each and of an archive together: tarfile's time rises with the square of one's length.
_MAX_EXTENSION_BYTES: Final = 1536
_MAX_EXTENSIONS_BYTES: Final = 1 << 18
_EXTENSIONS: Final = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class _DamageError(Exception):
    """The archive breaks the format or a limit; the text says where."""


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
    """The uncompressed bytes of an archive, read forwards and at most `limit`; `last` is what was read last."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file, self._limit, self._at, self._extensions = file, limit, 0, 0
        self.last = b""

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> bytes:
        if size < 0 or self._at + size > self._limit:
            raise _DamageError(f"more than {self._limit} bytes unpacked")
        self.last = self._file.read(size)
        self._at += len(self.last)
        return self.last

    def seek(self, place: int) -> int:
        if place < self._at:
            raise _DamageError("sizes that lead back")
        while self._at < place and self.read(min(_PIECE, place - self._at)):
            pass
        return self._at

    def count_extension(self, size: int) -> None:
        if not 0 <= size <= _MAX_EXTENSION_BYTES:
            raise _DamageError(f"a header of {size} bytes")
        self._extensions += tarfile.BLOCKSIZE + size
        if self._extensions > _MAX_EXTENSIONS_BYTES:
            raise _DamageError(f"headers of more than {_MAX_EXTENSIONS_BYTES} bytes together")

    def finish(self) -> None:
        """Check that zeros end the archive, and read them to the end, where compressed files have their checksum."""
        if len(self.last) < tarfile.BLOCKSIZE:
            raise _DamageError("it ends early")
        if any(self.last):
            raise _DamageError("a header with a wrong checksum, or not a tar archive")
        padding = self._file.read(_PIECE)
        if len(padding) == _PIECE or any(padding):
            raise _DamageError("content behind its end")


class _Header(tarfile.TarInfo):
    """A header whose extensions are bounded before they are read; the map of a sparse file is not read at all."""

    def _proc_member(self, archive: Any) -> tarfile.TarInfo:  # tarfile's own entry point for subclasses
        archive.pax_headers.clear()  # those for the whole archive hold no names that a writer uses
        if self.type in _EXTENSIONS:
            archive.fileobj.count_extension(self.size)
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise _DamageError("a sparse file")
        return cast(tarfile.TarInfo, super()._proc_member(archive))  # type: ignore[misc]

    def _proc_gnusparse_10(self, *_: Any) -> None:
        raise _DamageError("a sparse file")


def pack(folder: Path, archive: Path, others: Mapping[str, Path] | None = None) -> None:
    """Pack the content of `folder`, as `tar -C folder .` does; the same files give the same bytes.

    `others` are files that lie elsewhere, by their names in the archive.
    """
    with (
        archive.open("wb") as raw,
        # Weights barely compress, so the fastest level is enough.
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=1) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        find_files(folder)  # a folder that cannot be read is refused; `rglob` would leave it out
        for path in [folder, *sorted(folder.rglob("*"))]:
            if any(map(is_added_by_system, path.relative_to(folder).parts)):
                continue
            name = "." if path == folder else f"./{path.relative_to(folder).as_posix()}"
            tar.add(path, arcname=name, recursive=False, filter=_without_owner)
        for name, path in (others or {}).items():
            tar.add(path, arcname=f"./{name}", recursive=False, filter=_without_owner)


def unpack(archive: Path, folder: Path, *, error: type[HecktorError] = ModelPackageError) -> None:
    """Unpack an untrusted `.tar.gz` or `.tar`: only files and folders with relative names.

    The whole archive is read and checked before anything is written. Modes follow the umask; an executable file stays
    executable.

    Raises:
        HecktorError: of class `error`: not such an archive, damaged, too large, or a member that is a link, a device,
            a sparse file, appears twice or has a name that leads out of the folder.
    """
    with _one_line(archive.name, error):
        for member, _ in _members(archive):
            _parts(archive.name, member, error)
        folder.mkdir(parents=True, exist_ok=True)
        for member, tar in _members(archive):
            path = folder.joinpath(*_parts(archive.name, member, error))
            try:
                _write(member, tar, path)
            except FileExistsError:
                raise error(archive.name, f"found {member.name[:80]!r} twice", "each member once") from None
            except OSError as problem:
                raise error(archive.name, f"{member.name[:80]!r} cannot be written ({problem.strerror})") from None


def _write(member: tarfile.TarInfo, tar: tarfile.TarFile, path: Path) -> None:
    (path if member.isdir() else path.parent).mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(member)
    if content is not None:
        with path.open("xb") as file:
            shutil.copyfileobj(content, file, _PIECE)
        if member.mode & 0o100:
            path.chmod(path.stat().st_mode | (path.stat().st_mode & 0o444) >> 2)


def read_member(archive: Path, name: str, *, max_bytes: int, error: type[HecktorError] = ModelPackageError) -> bytes:
    """The content of one file at the top level of an archive.

    Raises:
        HecktorError: of class `error`: the archive cannot be read, lacks the file, or it is larger than `max_bytes`.
    """
    with _one_line(archive.name, error):
        for member, tar in _members(archive):
            if member.isreg() and _parts(archive.name, member, error) == [name]:
                if member.size > max_bytes:
                    raise error(archive.name, f"{name} of {member.size} bytes", f"at most {max_bytes}")
                content = tar.extractfile(member)
                return b"" if content is None else content.read()
    raise error(archive.name, f"no {name}", f"{name} at the top level")


def _members(archive: Path) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    """Each member of a tar file (plain, gzip or xz), to be read from the open file before the next one.

    Headers, the number of members and all bytes together are bounded, so memory is. Raises errors of `_DAMAGE`.
    """
    with _opened(archive) as content:
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
def _one_line(name: str, error: type[HecktorError]) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as problem:
        reason = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        raise error(name, f"cannot be unpacked ({reason})", "an intact .tar.gz") from None


def _opened(archive: Path) -> IO[bytes]:
    with archive.open("rb") as file:
        start = file.read(6)
    if start.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(archive))
    return lzma.open(archive) if start == b"\xfd7zXZ\0" else archive.open("rb")


def _parts(archive: str, member: tarfile.TarInfo, error: type[HecktorError]) -> list[str]:
    """The folders and file name of a member, checked."""
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    if member.issparse() or not (member.isreg() or member.isdir()):
        kind = "link" if member.issym() or member.islnk() else "device or sparse file"
        raise error(archive, f"found {member.name[:80]!r}, a {kind}", "files and folders only")
    is_odd = member.name.startswith("/") or ".." in parts or "\0" in member.name
    if is_odd or not (parts or member.isdir()):
        raise error(archive, f"found {member.name[:80]!r}", "names inside the folder")
    if len(member.name.encode()) > MAX_NAME_BYTES or len(parts) > MAX_DEPTH:
        found = f"found a name of {len(member.name.encode())} bytes and {len(parts)} levels"
        raise error(archive, found, f"at most {MAX_NAME_BYTES} bytes and {MAX_DEPTH} levels")
    return parts


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    member.mode = 0o755 if member.isdir() else 0o644
    return member
