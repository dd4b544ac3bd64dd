"""Archives: model packages in the platform's form, and a reader of tar files that are not trusted.

`tarfile` is not used for reading: its filter "data" can be defeated by long paths (CVE-2025-4517) and is absent from
Python 3.11.2, and it reads headers of any size into memory.
"""

from __future__ import annotations

import gzip
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Literal, cast

from contract.errors import HecktorError, ModelPackageError

SUFFIX: Final = ".tar.gz"
MAX_MEMBERS: Final = 10_000
MAX_UNPACKED_BYTES: Final = 16_000_000_000
MAX_NAME_BYTES: Final = 1024
MAX_DEPTH: Final = 32
Kind = Literal["file", "folder", "symbolic link", "hard link", "device or sparse file"]
_BLOCK: Final = 512
_PIECE: Final = 1 << 20
_MAX_EXTENSION_BYTES: Final = 1 << 20
_MAX_EXTENSIONS_BYTES: Final = 16 << 20  # of an archive together: 1 kB of a compressed one holds 1 MiB of them
_KINDS: Final[dict[bytes, Kind]] = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"5": "folder",
    b"1": "hard link",
    b"2": "symbolic link",
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


_DAMAGE: Final = (OSError, EOFError, zlib.error, lzma.LZMAError, MemoryError, _DamageError)


class _Blocks:
    """The uncompressed bytes of an archive, in order and at most `limit`."""

    def __init__(self, file: IO[bytes], limit: int, refused: Callable[[Exception], HecktorError]) -> None:
        self._file, self._limit, self._left, self._refused = file, limit, limit, refused

    def read(self, size: int) -> bytes:
        """The next `size` bytes, all of them."""
        try:
            if size > self._left:
                raise _DamageError(f"more than {self._limit} bytes unpacked")
            content = self._file.read(size)
            self._left -= size
            if len(content) < size:
                raise _DamageError("it ends early")
        except _DAMAGE as problem:
            raise self._refused(problem) from None
        return content

    def pieces(self, size: int) -> Iterator[bytes]:
        for start in range(0, size, _PIECE):
            yield self.read(min(_PIECE, size - start))
        self.read(-size % _BLOCK)

    def finish(self) -> None:
        """Read the padding behind the last member to the end, where compressed files have their checksum."""
        padding = self._file.read(_PIECE)
        if len(padding) == _PIECE or any(padding):
            raise _DamageError("content behind its end")


def pack(folder: Path, archive: Path) -> None:
    """Pack the content of `folder`, as `tar -C folder .` does; the same files give the same bytes."""
    with (
        archive.open("wb") as raw,
        # Weights barely compress, so the fastest level is enough.
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=1) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in [folder, *sorted(folder.rglob("*"))]:
            name = "." if path == folder else f"./{path.relative_to(folder).as_posix()}"
            tar.add(path, arcname=name, recursive=False, filter=_without_owner)


def unpack(archive: Path, folder: Path, *, error: type[HecktorError] = ModelPackageError) -> None:
    """Unpack a `.tar.gz` or `.tar` that is not trusted: files and folders with relative names, nothing else.

    Modes follow the umask; an executable file stays executable.

    Raises:
        HecktorError: of class `error`: not such an archive, damaged, too large, or a member that is a link, a device,
            a sparse file, appears twice or has a name that leads out of the folder.
    """
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

    def refused(problem: Exception) -> HecktorError:
        reason = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        return error(archive.name, f"cannot be unpacked ({reason})", "an intact .tar.gz")

    try:
        with archive.open("rb") as file:
            start = file.read(6)
        with _opened(archive, start) as content:
            yield from _members(_Blocks(content, max_bytes, refused))
    except _DAMAGE as problem:
        raise refused(problem) from None


def _opened(archive: Path, start: bytes) -> IO[bytes]:
    if start.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(archive))
    return lzma.open(archive) if start == b"\xfd7zXZ\0" else archive.open("rb")


def _members(blocks: _Blocks) -> Iterator[tuple[Member, Iterator[bytes]]]:
    extensions: dict[str, str] = {}
    left = _MAX_EXTENSIONS_BYTES
    for _ in range(MAX_MEMBERS):
        header = blocks.read(_BLOCK)
        if not any(header):
            blocks.finish()
            return
        kind, size = header[156:157], _number(header[124:136])
        if _number(header[148:156]) != sum(header[:148]) + sum(header[156:]) + 8 * ord(" "):
            raise _DamageError("a header with a wrong checksum, or no tar archive")
        if kind in (b"x", b"g", b"X", b"L", b"K"):
            if size > _MAX_EXTENSION_BYTES:
                raise _DamageError(f"a header of {size} bytes")
            left -= size
            if left < 0:
                raise _DamageError(f"headers of more than {_MAX_EXTENSIONS_BYTES} bytes together")
            content = b"".join(blocks.pieces(size))
            # Records for the whole archive (g) hold no names that a writer uses.
            extensions |= {} if kind == b"g" else _extensions(kind, content)
            continue
        member = _member(header, kind, size, extensions)
        extensions = {}
        pieces = blocks.pieces(member.size)
        yield member, pieces
        for _piece in pieces:
            pass
    raise _DamageError(f"more than {MAX_MEMBERS} members")


def _member(header: bytes, kind: bytes, size: int, extensions: dict[str, str]) -> Member:
    name = extensions.get("path") or _text(header[:100])
    if header[257:263] == b"ustar\0" and "path" not in extensions and (prefix := _text(header[345:500])):
        name = f"{prefix}/{name}"
    digits = extensions.get("size", str(size))
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise _DamageError(f"{name[:80]!r} with size {digits[:20]!r}")
    sparse = any(key.startswith("GNU.sparse") for key in extensions)
    what: Kind = "device or sparse file" if sparse else _KINDS.get(kind, "device or sparse file")
    if what == "file" and name.endswith("/"):
        what = "folder"
    # Only files have content; some writers give a folder or a hard link a size nevertheless.
    size = int(digits) if what in ("file", "device or sparse file") else 0
    target = extensions.get("linkpath") or _text(header[157:257])
    return Member(name, what, size, target, executable=bool(_number(header[100:108]) & 0o100))


def _extensions(kind: bytes, content: bytes) -> dict[str, str]:
    """The records of a PAX header, `LENGTH KEY=VALUE` lines, or a long name of GNU tar."""
    if kind in (b"L", b"K"):
        return {"path" if kind == b"L" else "linkpath": _text(content)}
    records, start = {}, 0
    while start < len(content):
        digits, space, _ = content[start : start + 20].partition(b" ")
        if not (space and digits.isdigit() and len(digits) < int(digits) <= len(content) - start):
            raise _DamageError("a PAX header without its length")
        record = content[start + len(digits) + 1 : start + int(digits)]
        start += int(digits)
        key, equals, value = record.partition(b"=")
        if not equals or not value.endswith(b"\n"):
            raise _DamageError("a PAX header without a value")
        if key in (b"path", b"linkpath", b"size") or key.startswith(b"GNU.sparse"):
            records[key.decode(errors="replace")] = _text(value[:-1], whole=True)
    return records


def _text(field: bytes, *, whole: bool = False) -> str:
    """A field's text up to its first NUL; with `whole` a NUL is damage."""
    if whole and b"\0" in field:
        raise _DamageError("a name with NUL")
    try:
        return field.split(b"\0", 1)[0].decode()
    except UnicodeDecodeError:
        raise _DamageError("a name that is not UTF-8") from None


def _number(field: bytes) -> int:
    """An octal number, or a binary one as GNU tar writes it for large values."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:])
    digits = field.split(b"\0", 1)[0].strip(b" ")
    if not re.fullmatch(rb"[0-7]*", digits):
        raise _DamageError("a header without numbers, or no tar archive")
    return int(digits or b"0", 8)


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
