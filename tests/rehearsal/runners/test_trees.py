"""A program's output is copied without following a link, and removed completely."""

import os
import socket
from pathlib import Path

import pytest

from rehearsal.runners import trees
from rehearsal.runners.trees import UntrustedFileError, copy_file, copy_tree, remove_tree


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Write an output folder with one regular file in a folder, and a file outside."""
    (tmp_path / "secret").write_text("the reference")
    folder = tmp_path / "output"
    (folder / "images").mkdir(parents=True)
    (folder / "images" / "a.mha").write_bytes(b"mask")
    return folder


def copy_output(folder: Path) -> tuple[tuple[str, ...], list[str]]:
    target = folder.with_name("copy")
    faults = copy_tree(folder, target)
    return faults, sorted(str(path.relative_to(target)) for path in target.rglob("*"))


def test_regular_files_and_folders_are_copied(output: Path) -> None:
    assert copy_output(output) == ((), ["images", "images/a.mha"])
    assert (output.with_name("copy") / "images" / "a.mha").read_bytes() == b"mask"
    assert not (output.with_name("copy") / "images" / "a.mha").samefile(output / "images" / "a.mha")


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
    output: Path, monkeypatch: pytest.MonkeyPatch, kind: str, fault: str
) -> None:
    secret, x = output.with_name("secret"), output / "x"
    if kind == "link":
        x.symlink_to("../secret")
    elif kind == "folder link":
        x.symlink_to("..")
    elif kind == "hard link":
        os.link(secret, x)
    elif kind == "pipe":
        os.mkfifo(x)
    elif kind == "socket":
        monkeypatch.chdir(output)
        with socket.socket(socket.AF_UNIX) as unix_socket:
            unix_socket.bind("x")
    elif kind == "bytes":
        Path(os.fsdecode(os.fsencode(output) + b"/bad\xff")).touch()
    else:
        (output / "\x1b[31mred\nerror: fake").symlink_to("a")
    faults, names = copy_output(output)
    assert len(faults) == 1
    assert faults[0].startswith(fault)
    assert names == ["images", "images/a.mha"]


def make_nested_folders(folder: Path, name: str, levels: int) -> None:
    """Make folders whose path is too long for the kernel."""
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=handle)
        inner = os.open(name, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
    os.close(handle)


@pytest.mark.parametrize(("name", "levels"), [("d", 1500), ("d" * 200, 30)], ids=["deep", "long"])
def test_a_deep_or_long_path_is_one_fault_and_is_removed(output: Path, name: str, levels: int) -> None:
    make_nested_folders(output, name, levels)
    faults, _ = copy_output(output)
    assert len(faults) == 1
    assert "expected at most 1024 bytes and 32 levels" in faults[0]
    remove_tree(output)
    assert not output.exists()


def test_the_number_and_size_of_files_are_bounded(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 7 bytes for all files together, 4 and 2 bytes leave 1."""
    monkeypatch.setattr(trees, "MAX_ENTRIES", 4)
    monkeypatch.setattr(trees, "MAX_BYTES", 7)
    for name in ("x", "y", "z"):
        (output / name).write_bytes(b"12")
    assert copy_output(output)[0] == ("y: 2 bytes, expected at most 1", "more than 4 files and folders")


def test_one_file_is_copied_out_or_named(output: Path, tmp_path: Path) -> None:
    (output / "link").symlink_to("../secret")
    copy_file(output / "images", "a.mha", tmp_path / "b", 4)
    assert (tmp_path / "b").read_bytes() == b"mask"
    copy_file(output, "absent", tmp_path / "c", 4)
    with pytest.raises(UntrustedFileError, match=r"^4 bytes, expected at most 3$"):
        copy_file(output / "images", "a.mha", tmp_path / "c", 3)
    with pytest.raises(UntrustedFileError, match=r"^a symbolic link"):
        copy_file(output, "link", tmp_path / "c", 4)
    assert not (tmp_path / "c").exists()


def test_a_tree_is_removed_without_what_its_links_point_to(output: Path) -> None:
    (output / "link").symlink_to("..")
    locked = output / "locked"
    (locked / "inner").mkdir(parents=True)
    (locked / "inner").chmod(0)
    locked.chmod(0o500)
    remove_tree(output)
    assert not output.exists()
    assert output.with_name("secret").read_text() == "the reference"
    remove_tree(output)
