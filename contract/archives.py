"""Pack model packages in the platform's form, and read untrusted tar files safely.

`tarfile` parses the headers; what it would read without a bound, or accept, is refused before. Its filters are not
used: "data" can be defeated by long paths (CVE-2025-4517) and is absent from Python 3.11.2.
"""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal, cast

from contract.errors import HecktorError, ModelPackageError

SUFFIX: Final = ".tar.gz"
MAX_MEMBERS: Final = 10_000
MAX_UNPACKED_BYTES: Final = 16_000_000_000
MAX_NAME_BYTES: Final = 1024
MAX_DEPTH: Final = 32
Kind = Literal["file", "folder", "symbolic link", "hard link", "device or sparse file"]
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
_KINDS: Final[dict[bytes, Kind]] = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.CONTTYPE: "file",
    tarfile.DIRTYPE: "folder",
    tarfile.LNKTYPE: "hard link",
    tarfile.SYMTYPE: "symbolic link",
}


@dataclass(frozen=True)
class Member:
    """A member of an archive, as its header describes it; `target` is that of a link."""

    name: str
    kind: Kind
    size: int
    target: str
    executable: bool


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

    def pieces(self, start: int, size: int) -> Iterator[bytes]:
        """The bytes from `start` on, all of them."""
        self.seek(start)
        for done in range(0, size, _PIECE):
            wanted = min(_PIECE, size - done)
            if len(piece := self.read(wanted)) < wanted:
                raise _DamageError("it ends early")
            yield piece

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
        for path in [folder, *sorted(folder.rglob("*"))]:
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
    for member, _ in read_members(archive, error=error):
        _parts(archive.name, member, error)
    folder.mkdir(parents=True, exist_ok=True)
    for member, pieces in read_members(archive, error=error):
        path = folder.joinpath(*_parts(archive.name, member, error))
        try:
            (path if member.kind == "folder" else path.parent).mkdir(parents=True, exist_ok=True)
            if member.kind == "file":
                with path.open("xb") as file:
                    file.writelines(pieces)
                if member.executable:
                    path.chmod(path.stat().st_mode | (path.stat().st_mode & 0o444) >> 2)
        except FileExistsError:
            raise error(archive.name, f"found {member.name[:80]!r} twice", "each member once") from None
        except OSError as problem:
            raise error(archive.name, f"{member.name[:80]!r} cannot be written ({problem.strerror})") from None


def read_member(archive: Path, name: str, *, max_bytes: int, error: type[HecktorError] = ModelPackageError) -> bytes:
    """The content of one file at the top level of an archive.

    Raises:
        HecktorError: of class `error`: the archive cannot be read, lacks the file, or it is larger than `max_bytes`.
    """
    for member, pieces in read_members(archive, error=error):
        if member.kind == "file" and _parts(archive.name, member, error) == [name]:
            if member.size > max_bytes:
                raise error(archive.name, f"{name} of {member.size} bytes", f"at most {max_bytes}")
            return b"".join(pieces)
    raise error(archive.name, f"no {name}", f"{name} at the top level")


def read_members(
    archive: Path, *, max_bytes: int = MAX_UNPACKED_BYTES, error: type[HecktorError] = ModelPackageError
) -> Iterator[tuple[Member, Iterator[bytes]]]:
    """Each member of a tar file (plain, gzip or xz) with its content in pieces, to be read before the next member.

    Headers, the number of members and all bytes together are bounded, so memory is.

    Raises:
        HecktorError: of class `error`: not a tar file, damaged, or larger than `max_bytes` unpacked.
    """

    def pieces(stream: _Stream, start: int, size: int) -> Iterator[bytes]:
        with _one_line(archive.name, error):
            yield from stream.pieces(start, size)

    with _one_line(archive.name, error), _opened(archive) as content:
        stream = _Stream(content, max_bytes)
        tar = tarfile.TarFile(fileobj=cast(IO[bytes], stream), tarinfo=_Header, encoding="utf-8", errors="strict")
        for number, info in enumerate(tar):
            if number == MAX_MEMBERS:
                raise _DamageError(f"more than {MAX_MEMBERS} members")
            member = _member(info)
            yield member, pieces(stream, info.offset_data, member.size)
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


def _member(info: tarfile.TarInfo) -> Member:
    if info.size < 0:
        raise _DamageError(f"{info.name[:80]!r} with size {info.size}")
    if "\0" in info.name + info.linkname:
        raise _DamageError("a name with NUL")
    kind: Kind = "device or sparse file" if info.issparse() else _KINDS.get(info.type, "device or sparse file")
    # Only files have content; some writers give a folder or a hard link a size nevertheless.
    size = info.size if kind == "file" else 0
    return Member(info.name, kind, size, info.linkname, executable=bool(info.mode & 0o100))


def _parts(archive: str, member: Member, error: type[HecktorError]) -> list[str]:
    """The folders and file name of a member, checked."""
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    if member.kind not in ("file", "folder"):
        raise error(archive, f"found {member.name[:80]!r}, a {member.kind}", "files and folders only")
    if member.name.startswith("/") or ".." in parts or not (parts or member.kind == "folder"):
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
