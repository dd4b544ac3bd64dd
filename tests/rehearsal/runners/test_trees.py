"""What a program wrote is copied out without following a link, and removed whatever it is."""

import os
import socket
from pathlib import Path

import pytest

from rehearsal.runners import trees
from rehearsal.runners.trees import UntrustedFileError, copy_file, copy_tree, remove_tree


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """An output folder with one regular file in a folder, and a file outside of it."""
    (tmp_path / "secret").write_text("the reference")
    folder = tmp_path / "output"
    (folder / "images").mkdir(parents=True)
    (folder / "images" / "a.mha").write_bytes(b"mask")
    return folder


def copied(folder: Path) -> tuple[tuple[str, ...], list[str]]:
    target = folder.with_name("copy")
    faults = copy_tree(folder, target)
    return faults, sorted(str(path.relative_to(target)) for path in target.rglob("*"))


def test_regular_files_and_folders_are_copied(written: Path) -> None:
    assert copied(written) == ((), ["images", "images/a.mha"])
    assert (written.with_name("copy") / "images" / "a.mha").read_bytes() == b"mask"
    assert not (written.with_name("copy") / "images" / "a.mha").samefile(written / "images" / "a.mha")


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("link", "x: a symbolic link"),
        ("folder link", "x: a symbolic link"),
        ("hard link", "x: a file with 2 names (hard links)"),
        ("pipe", "x: a device, socket or pipe"),
        ("socket", "x: a device, socket or pipe"),
        ("bytes", "bad\\xff: a name that is not UTF-8"),
        ("escape", "\\x1b[31mred\\nerror: fake: a symbolic link"),
    ],
)
def test_anything_else_is_refused_and_named(
    written: Path, monkeypatch: pytest.MonkeyPatch, kind: str, fault: str
) -> None:
    secret, x = written.with_name("secret"), written / "x"
    if kind == "link":
        x.symlink_to("../secret")
    elif kind == "folder link":
        x.symlink_to("..")
    elif kind == "hard link":
        os.link(secret, x)
    elif kind == "pipe":
        os.mkfifo(x)
    elif kind == "socket":
        monkeypatch.chdir(written)
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("x")
    elif kind == "bytes":
        Path(os.fsdecode(os.fsencode(written) + b"/bad\xff")).touch()
    else:
        (written / "\x1b[31mred\nerror: fake").symlink_to("a")
    faults, names = copied(written)
    assert len(faults) == 1
    assert faults[0].startswith(fault)
    assert names == ["images", "images/a.mha"]


def nested(folder: Path, name: str, levels: int) -> None:
    """Folders whose path the kernel would not take as one text."""
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=handle)
        inner = os.open(name, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
    os.close(handle)


@pytest.mark.parametrize(("name", "levels"), [("d", 1500), ("d" * 200, 30)], ids=["deep", "long"])
def test_a_deep_or_long_path_is_one_fault_and_is_removed(written: Path, name: str, levels: int) -> None:
    nested(written, name, levels)
    faults, _ = copied(written)
    assert len(faults) == 1
    assert "expected at most 1024 bytes and 32 levels" in faults[0]
    remove_tree(written)
    assert not written.exists()


def test_the_number_and_size_of_files_are_bounded(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all files together: 4 and 2 bytes leave 1 of 7."""
    monkeypatch.setattr(trees, "MAX_ENTRIES", 4)
    monkeypatch.setattr(trees, "MAX_BYTES", 7)
    for name in ("x", "y", "z"):
        (written / name).write_bytes(b"12")
    assert copied(written)[0] == ("y: 2 bytes, expected at most 1", "more than 4 files and folders")


def test_one_file_is_copied_out_or_named(written: Path, tmp_path: Path) -> None:
    (written / "link").symlink_to("../secret")
    copy_file(written / "images", "a.mha", tmp_path / "b", 4)
    assert (tmp_path / "b").read_bytes() == b"mask"
    copy_file(written, "absent", tmp_path / "c", 4)
    with pytest.raises(UntrustedFileError, match=r"^4 bytes, expected at most 3$"):
        copy_file(written / "images", "a.mha", tmp_path / "c", 3)
    with pytest.raises(UntrustedFileError, match=r"^a symbolic link"):
        copy_file(written, "link", tmp_path / "c", 4)
    assert not (tmp_path / "c").exists()


def test_a_tree_is_removed_without_what_its_links_point_to(written: Path) -> None:
    (written / "link").symlink_to("..")
    locked = written / "locked"
    (locked / "inner").mkdir(parents=True)
    (locked / "inner").chmod(0)
    locked.chmod(0o500)
    remove_tree(written)
    assert not written.exists()
    assert written.with_name("secret").read_text() == "the reference"
    remove_tree(written)
