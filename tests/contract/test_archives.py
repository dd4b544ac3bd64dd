"""Archives are not trusted: they are unpacked, or refused with one line."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import random
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.archives import pack, read_member, unpack
from contract.errors import HecktorError, ModelPackageError


def make_member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def write_archive(
    path: Path, *members: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT
):
    with tarfile.open(path, "w:gz", format=form) as archive:
        for member in members:
            info, content = member if isinstance(member, tuple) else (member, b"")
            info.size = len(content) or info.size
            archive.addfile(info, io.BytesIO(content))
    return path


def read_tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def make_header(name: bytes, size: bytes, kind: bytes = b"0") -> bytes:
    """Return a header of tar's first format, with its checksum: the sum of all bytes, its own field counted as blanks."""
    block = bytearray(512)
    block[: len(name)], block[100:108], block[124:136], block[156:157] = name, b"0000644\0", size, kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_of_every_format(tmp_path: Path, form: int) -> None:
    """Names of 205 letters in two parts need ustar's prefix, GNU's long name or a PAX header."""
    name = f"{'a' * 102}/{'b' * 90}"
    path = write_archive(tmp_path / "m.tar.gz", (make_member(name), b"content"), form=form)
    unpack(path, tmp_path / "out")
    assert read_tree(tmp_path / "out") == {"a" * 102: None, name: b"content"}


def test_plain_and_xz_archives_are_read_as_well(tmp_path: Path) -> None:
    plain = gzip.decompress(write_archive(tmp_path / "m.tar.gz", (make_member("./a"), b"1")).read_bytes())
    for name, content in {"m.tar": plain, "m.tar.xz": lzma.compress(plain)}.items():
        (tmp_path / name).write_bytes(content)
        assert read_member(tmp_path / name, "a", max_bytes=1) == b"1"


def test_modes_follow_the_umask_and_executables_stay_executable(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "m.tar.gz", make_member("run", mode=0o6755), make_member("data", mode=0o600))
    earlier = os.umask(0o027)
    try:
        unpack(path, tmp_path / "out")
    finally:
        os.umask(earlier)
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (tmp_path / "out").iterdir()}
    assert modes == {"run": 0o750, "data": 0o640}


def test_an_archive_that_defeats_the_filter_of_tarfile_writes_nothing_outside(tmp_path: Path) -> None:
    """CVE-2025-4517: links whose real path is longer than the system's limit are not resolved by the filter "data"."""
    steps, folder, members = "abcdefghijklmnop", "", []
    for step in steps:
        members += [make_member(f"{folder}{'d' * 247}", tarfile.DIRTYPE, mode=0o755)]
        members += [make_member(f"{folder}{step}", tarfile.SYMTYPE, "d" * 247)]
        folder += f"{'d' * 247}/"
    long = "/".join([*steps, "l" * 254])
    members += [
        make_member(long, tarfile.SYMTYPE, "../" * len(steps)),
        make_member("escape", tarfile.SYMTYPE, f"{long}/.."),
    ]
    path = write_archive(tmp_path / "m.tar.gz", *members, (make_member("escape/planted", mode=0o755), b"#!"))
    with pytest.raises(ModelPackageError, match=r"^m\.tar\.gz: found 'a', a link"):
        unpack(path, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["m.tar.gz"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([make_member("../a")], "found '../a', expected names inside the folder"),
        ([make_member("/a")], "found '/a', expected names inside the folder"),
        ([make_member("a", tarfile.LNKTYPE, "nothing")], "found 'a', a link, expected files and folders only"),
        ([make_member("a", tarfile.FIFOTYPE)], "found 'a', a device or sparse file, expected files and folders only"),
        ([make_member("a", tarfile.GNUTYPE_SPARSE)], "cannot be unpacked (a sparse file), expected an intact"),
        ([make_member("a", pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0"})], "cannot be unpacked (a s"),
        ([make_member("a", pax_headers={"GNU.sparse.map": "0,9"})], "found 'a', a device or sparse file, expected"),
        ([make_member("a"), make_member("a")], "found 'a' twice, expected each member once"),
        ([make_member("a"), make_member("a/b")], "found 'a/b' twice, expected each member once"),
        ([make_member("a/" * 600 + "b")], "found a name of 1201 bytes and 601 levels, expected at most 1024 bytes and"),
        ([make_member("a/" * 3000 + "b")], "cannot be unpacked (a header of 60"),
        ([make_member("a" * 256)], f"'{'a' * 80}' cannot be written (File name too long)"),
        ([make_member("a", pax_headers={"path": "a\0b"})], r"found 'a\x00b', expected names inside the folder"),
        ([make_member("a", pax_headers={"size": "-1"})], "cannot be unpacked ('a' with size -1), expected an intact"),
        ([make_member("a", pax_headers={"comment": "x" * 2**20})], "cannot be unpacked (a header of 1048"),
    ],
)
def test_members_that_are_refused(tmp_path: Path, members: list[tarfile.TarInfo], message: str) -> None:
    path = write_archive(tmp_path / "m.tar.gz", *members)
    with pytest.raises(ModelPackageError) as refusal:
        unpack(path, tmp_path / "out")
    assert refusal.value.message.startswith(f"m.tar.gz: {message}")


def test_headers_for_the_whole_archive_rename_nothing(tmp_path: Path) -> None:
    """By a global PAX header with a path, as in archives of `git archive`, each member would have that name."""
    with tarfile.open(tmp_path / "m.tar", "w", pax_headers={"comment": "b5d9d39", "path": "../all"}) as archive:
        archive.addfile(make_member("a"))
    unpack(tmp_path / "m.tar", tmp_path / "out")
    assert read_tree(tmp_path / "out") == {"a": b""}


@pytest.mark.parametrize("name", ["m.tar", "m.tar.gz", "m.tar.xz"])
def test_damaged_archives_are_one_line(tmp_path: Path, name: str) -> None:
    """Cuts of an archive, 200 altered bytes and random bytes are refused, or the content is the same as before.

    An altered byte may hit what no reader uses, such as an owner's name in a header whose checksum it then breaks, or
    gzip's time stamp.
    """
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "weights").write_bytes(random.Random(1).randbytes(3000))
    pack(tmp_path / "folder", tmp_path / "intact.tar.gz")
    plain = gzip.decompress((tmp_path / "intact.tar.gz").read_bytes())
    compress: dict[str, Callable[[bytes], bytes]] = {"m.tar.gz": gzip.compress, "m.tar.xz": lzma.compress}
    content, rng = compress.get(name, bytes)(plain), random.Random(2)
    cuts = [content[:end] for end in range(0, min(len(content), 5120), 97)]
    flips = [content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]
             for place in rng.sample(range(len(content)), 200)]  # fmt: skip
    messages = []
    for number, damaged in enumerate([*cuts, *flips, rng.randbytes(5000)]):
        (tmp_path / name).write_bytes(damaged)
        try:
            unpack(tmp_path / name, tmp_path / str(number))
        except ModelPackageError as error:
            messages.append(error.message)
    assert len(messages) >= len(cuts)
    assert {message.split(" cannot be unpacked (")[0] for message in messages} <= {f"{name}:"}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=st.binary(max_size=80), size=st.binary(min_size=12, max_size=12), kind=st.sampled_from(b"xgXLKS0157"))
def test_headers_of_random_content_are_one_line(tmp_path: Path, records: bytes, size: bytes, kind: int) -> None:
    extension = make_header(b"x", b"%011o\0" % len(records), bytes([kind])) + records.ljust(512, b"\0")
    (tmp_path / "m.tar").write_bytes(extension + make_header(b"a", size) + bytes(2048))
    with pytest.raises(HecktorError, match=r"^m\.tar: "):
        read_member(tmp_path / "m.tar", "manifest.json", max_bytes=1)


def test_the_size_of_a_manifest_is_bounded_while_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 MB of zeros in a manifest or in a PAX header, 0.1 MB compressed, take less than 20 MB of memory."""
    path = write_archive(tmp_path / "m.tar.gz", (make_member("manifest.json"), bytes(60_000_000)))
    header_bomb = gzip.compress(make_header(b"x", b"%011o\0" % 60_000_000, b"x") + bytes(60_000_512), 1)
    (tmp_path / "h.tar.gz").write_bytes(header_bomb)
    tracemalloc.start()
    try:
        with pytest.raises(ModelPackageError, match=r"manifest\.json of 60000000 bytes, expected at most 16777216"):
            read_member(path, "manifest.json", max_bytes=16 * 2**20)
        with pytest.raises(ModelPackageError, match=r"h\.tar\.gz: cannot be unpacked \(a header of 60000000 bytes\)"):
            read_member(tmp_path / "h.tar.gz", "manifest.json", max_bytes=16 * 2**20)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    monkeypatch.setattr("contract.archives.MAX_UNPACKED_BYTES", 10**6)
    with pytest.raises(ModelPackageError, match="more than 1000000 bytes unpacked"):
        unpack(path, tmp_path / "out")


def test_the_number_of_members_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contract.archives.MAX_MEMBERS", 2)
    with pytest.raises(ModelPackageError, match=r"cannot be unpacked \(more than 2 members\)"):
        unpack(write_archive(tmp_path / "m.tar.gz", *(make_member(name) for name in "abc")), tmp_path / "out")
    unpack(write_archive(tmp_path / "m.tar.gz", *(make_member(name) for name in "ab")), tmp_path / "two")


def test_content_after_the_end_is_refused(tmp_path: Path) -> None:
    plain = gzip.decompress(write_archive(tmp_path / "m.tar.gz", make_member("a")).read_bytes())
    for name, rest in {"text.tar": b"hidden", "long.tar": bytes(2**20)}.items():
        (tmp_path / name).write_bytes(plain + rest)
        with pytest.raises(ModelPackageError, match=r"cannot be unpacked \(content after its end\)"):
            unpack(tmp_path / name, tmp_path / name[:-4])


@pytest.mark.parametrize("body", [b"1" * 1536, b"3 a" * 511 + b"3 =", b"5 a=\n" * 307])
def test_headers_that_tarfile_parses_slowly_are_bounded_together(tmp_path: Path, body: bytes) -> None:
    """Its time rises with the square of a header of digits or of short records.

    Each of 200 headers counts 1,535 or 1,536 bytes and its block of 512; 129 of them are more than 262,144 bytes.
    """
    extension = tarfile.TarInfo("x")
    extension.type, extension.size = tarfile.XHDTYPE, len(body)
    header = extension.tobuf(tarfile.USTAR_FORMAT) + body.ljust(1536, b"\0")
    members = b"".join(header + tarfile.TarInfo(f"f{number}").tobuf(tarfile.USTAR_FORMAT) for number in range(200))
    (tmp_path / "many.tar").write_bytes(members + bytes(1024))
    with pytest.raises(ModelPackageError, match="headers of more than 262144 bytes together"):
        unpack(tmp_path / "many.tar", tmp_path / "many")


def test_files_of_other_folders_are_packed_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "folder" / "a", tmp_path / "elsewhere"):
        path.write_text(path.name)
    pack(tmp_path / "folder", tmp_path / "m.tar.gz", {"b": tmp_path / "elsewhere"})
    unpack(tmp_path / "m.tar.gz", tmp_path / "out")
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {"a": "a", "b": "elsewhere"}


def test_files_of_macos_are_ignored(tmp_path: Path) -> None:
    """Both unpacking and packing ignore them; other hidden files stay."""
    names = ("./._manifest.json", "__MACOSX/._a", ".DS_Store", "manifest.json", ".config/a", "folds/._0.pth")
    unpack(write_archive(tmp_path / "m.tar.gz", *((make_member(name), b"x") for name in names)), tmp_path / "model")
    files = {name for name, content in read_tree(tmp_path / "model").items() if content is not None}
    assert files == {"manifest.json", ".config/a"}
    (tmp_path / "model" / ".DS_Store").write_bytes(b"x")
    pack(tmp_path / "model", tmp_path / "again.tar.gz")
    unpack(tmp_path / "again.tar.gz", tmp_path / "again")
    assert {name for name, content in read_tree(tmp_path / "again").items() if content is not None} == files
