"""Atomic writing and strict JSON."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import InputError, ModelPackageError, OutputError, make_write_error
from contract.io import files
from contract.io.files import (
    atomic_folder,
    atomic_path,
    check_free_space,
    parse_json,
    read_json,
    suggest_folder,
    write_files,
    write_json,
    write_text,
)
from contract.io.tables import format_csv, remove_apostrophes, write_csv


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_write_json_creates_folders_and_replaces_a_file(tmp_path: Path) -> None:
    """NaN is refused before the file is touched."""
    for content in ({"x": 1}, {"x": 2}):
        write_json(tmp_path / "deep" / "a.json", content)
        assert read_json(tmp_path / "deep" / "a.json") == content
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "deep" / "a.json", {"x": float("nan")})
    assert (read_json(tmp_path / "deep" / "a.json"), list_names(tmp_path / "deep")) == ({"x": 2}, ["a.json"])


def test_an_error_keeps_the_existing_file(tmp_path: Path) -> None:
    target = tmp_path / "mask.nii.gz"
    target.write_text("earlier")

    def write_half() -> None:
        with atomic_path(target) as partial:
            assert partial.name.endswith(".nii.gz")
            partial.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert target.read_text() == "earlier"
    assert list_names(tmp_path) == ["mask.nii.gz"]


KILLED_WHILE_WRITING = """
import os, signal, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from contract.io import files
real = Path.write_bytes
def half(path, content):
    real(path, content[: len(content) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
Path.write_bytes = half
target = Path(sys.argv[1])
files.write_files({target: bytes(1 << 20)}, partials=target.parents[1])
"""


@pytest.mark.parametrize("earlier", [None, "earlier"])
def test_a_killed_process_leaves_its_partial_file_elsewhere(tmp_path: Path, earlier: str | None) -> None:
    target = tmp_path / "answers" / "output.mha"
    target.parent.mkdir()
    if earlier:
        target.write_text(earlier)
    done = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert list_names(target.parent) == (["output.mha"] if earlier else [])
    assert [name.startswith(".partial-") for name in list_names(tmp_path)] == [True, False]
    assert not earlier or target.read_text() == earlier


@pytest.mark.parametrize(("umask", "mode"), [(0o027, 0o640), (0o002, 0o664)])
def test_modes_follow_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    earlier = os.umask(umask)
    try:
        write_text(tmp_path / "text.txt", "text")
        with atomic_path(tmp_path / "named.txt") as partial:
            partial.write_text("text")
    finally:
        os.umask(earlier)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"text.txt": mode, "named.txt": mode}


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match=r"^a\.txt: no space left on the disk"):
        write_text(tmp_path / "a.txt", "text")
    assert list_names(tmp_path) == []
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4095))
    with pytest.raises(OutputError, match=r"^a\.txt: no space left"), atomic_path(tmp_path / "a.txt") as partial:
        check_free_space(partial.parent)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4096))
    check_free_space(tmp_path)


def test_a_full_disk_is_recognised_by_its_message() -> None:
    """safetensors has no error number."""
    problem = ValueError("Error while serializing: I/O error: No space left on device (os error 28)")
    assert str(make_write_error("model", problem)) == "model: no space left on the disk, expected free space"
    read_only = make_write_error("model", OSError(errno.EROFS, "Read-only file system"))
    assert str(read_only) == "model: cannot be written (Read-only file system), expected a writable folder"


def test_a_file_in_place_of_the_folder_and_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("I am a file")
    (tmp_path / "rfs.json").mkdir()
    for path in (tmp_path / "output" / "rfs.json", tmp_path / "rfs.json"):
        with pytest.raises(OutputError, match=r"^rfs\.json: cannot be written \(.+\)"):
            write_json(path, 1.0)
    assert list_names(tmp_path) == ["output", "rfs.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [('{"a": -Infinity}', "found -Infinity"), ('{"a": 1, "a": 2}', "appears twice"), ("{'a': 1}", "not valid JSON")],
)
def test_strict_json(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ModelPackageError, match=rf"^a\.json: .*{message}"):
        read_json(path, error=ModelPackageError)


def test_accept_nan_reads_non_finite_numbers_as_none() -> None:
    """Python's parser refuses a whole number of 5,000 digits; one of 311 is beyond a double."""
    text = f"[NaN, Infinity, 1e400, {'7' * 311}, -{'7' * 5000}, 1.5]"
    assert parse_json(text, "a.json", accept_nan=True) == [None, None, None, None, None, 1.5]


def test_a_table_has_a_header_and_empty_cells(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", ["id", "note"], [{"id": 1, "note": "a,b"}, {"id": 2}])
    assert (tmp_path / "t.csv").read_text() == 'id,note\n1,"a,b"\n2,\n'


def test_atomic_folder_replaces_the_target_when_complete(tmp_path: Path) -> None:
    """The new folder has the mode of the earlier one."""
    target = tmp_path / "new" / "case"
    with atomic_folder(target) as partial:
        (partial / "a").write_text("1")
        assert not target.exists()
    target.chmod(0o750)
    with atomic_folder(target) as partial:
        (partial / "b").write_text("2")
    assert ([path.name for path in target.iterdir()], target.stat().st_mode & 0o777) == (["b"], 0o750)
    assert [path.name for path in target.parent.iterdir()] == ["case"]


def test_atomic_folder_is_unchanged_after_an_error(tmp_path: Path) -> None:
    (tmp_path / "case").mkdir()
    (tmp_path / "case" / "a").touch()
    with pytest.raises(FileNotFoundError), atomic_folder(tmp_path / "case") as partial:
        (partial / "a" / "b").write_text("a does not exist here")
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["case", "case/a"]


def test_names_in_a_table_for_people_are_not_formulas() -> None:
    """Numbers, negative and infinite ones too, and a single dash stay; a table for programs keeps all names.

    A spreadsheet whose cells are separated by semicolons splits the text at them, and takes quotes away.
    """
    names = ["=1+1", "+x", "-x", "@x", "\tx", "-0.5", "+1e-3", "-inf", "-", "x=1", "'=x", "=", ""]
    escaped = ["'=1+1", "'+x", "'-x", "'@x", "'\tx", "-0.5", "+1e-3", "-inf", "-", "x=1", "''=x", "=", ""]
    names += ["x;=1+1", 'x;"=1+1"', "x;y", "x\t @SUM(1)", "x;'=1", ";=1;-2", "x\n=1"]
    escaped += ["x;'=1+1", 'x;\'"=1+1"', "x;y", "x\t' @SUM(1)", "x;''=1", ";'=1;'-2", "x\n'=1"]
    rows = [{"team": name, "value": -0.5} for name in names]
    read = list(csv.DictReader(io.StringIO(format_csv(["team", "value"], rows, for_people=True))))
    assert [row["team"] for row in read] == escaped
    assert {row["value"] for row in read} == {"-0.5"}
    assert [remove_apostrophes(name) for name in escaped] == names
    cells = [cell.strip('" ') for name in escaped for cell in re.split("[;\t\n]", name)]
    assert [cell for cell in cells if cell[:1] in {"=", "@"} and len(cell) > 1] == []
    assert [row["team"] for row in csv.DictReader(io.StringIO(format_csv(["team", "value"], rows)))] == names


def test_the_intended_folder_is_named(tmp_path: Path) -> None:
    """It is the parent folder or a folder inside; a closed parent hides no folder inside."""
    (tmp_path / "release" / "Task 1").mkdir(parents=True)

    def is_release(folder: Path) -> bool:
        return (folder / "Task 1").is_dir()

    for folder in (tmp_path, tmp_path / "release" / "Task 1"):
        assert suggest_folder(folder, is_release) == f", but {tmp_path}/release is one"
    assert suggest_folder(tmp_path / "release" / "Task 1", Path.is_file) == ""
    assert suggest_folder(tmp_path / "absent", is_release) == ""

    def is_task(folder: Path) -> bool:
        if folder == tmp_path:
            raise PermissionError(folder)
        return folder.name == "Task 1"

    assert suggest_folder(tmp_path / "release", is_task) == f", but {tmp_path}/release/Task 1 is one"


def test_concurrent_writers_of_one_folder_leave_one_atomic_folder(tmp_path: Path) -> None:
    """Eight threads write the folder five times each; each writes 20 files that hold its number."""
    target = tmp_path / "case"

    def write(number: int) -> None:
        for _ in range(5):
            with atomic_folder(target) as partial:
                for name in range(20):
                    (partial / str(name)).write_text(str(number))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert len({path.read_text() for path in target.iterdir()}) == 1
    assert (len(list_names(target)), list_names(tmp_path)) == (20, ["case"])


def test_the_earlier_folder_gets_its_name_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renaming the new folder fails."""
    target = tmp_path / "case"
    with atomic_folder(target) as partial:
        (partial / "a").write_text("1")
    real, calls = Path.rename, []

    def fail_second(path: Path, to: Path) -> Path:
        calls.append(path)
        if len(calls) == 2:
            raise OSError(errno.EIO, "Input/output error")
        return real(path, to)

    monkeypatch.setattr(Path, "rename", fail_second)
    with pytest.raises(OutputError, match=r"case: cannot be written \(Input/output error\)"):  # noqa: SIM117
        with atomic_folder(target) as partial:
            (partial / "b").write_text("2")
    assert (list_names(target), list_names(tmp_path)) == (["a"], ["case"])


def test_a_folder_that_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    code = "import os, sys; from pathlib import Path; from contract.io.files import atomic_folder\n"
    code += "with atomic_folder(Path(sys.argv[1])) as partial: (partial / 'a').touch(); os._exit(1)"
    subprocess.run([sys.executable, "-c", code, tmp_path / "case"], check=False)
    assert [name.startswith(".partial-case-") for name in list_names(tmp_path)] == [True]
    with atomic_folder(tmp_path / "case"):
        pass
    assert list_names(tmp_path) == ["case"]


def test_all_files_are_replaced_or_none(tmp_path: Path) -> None:
    """The last file has the name of a folder."""
    (tmp_path / "a.json").write_text("earlier")
    (tmp_path / "c.json").mkdir()
    with pytest.raises(OutputError, match=r"c\.json"):
        write_files({tmp_path / name: b"new" for name in ("a.json", "b.json", "c.json")})
    assert (list_names(tmp_path), (tmp_path / "a.json").read_text()) == (["a.json", "c.json"], "earlier")


def test_numbers_beyond_a_double_are_refused_at_any_place():
    for number in ("1e400", "-1E+0400", "9" * 311, "-" + "9" * 5000, "1.5e999"):
        for text in (number, f"[{number}]", f'{{"sha256": "3e123", "a": {number} }}', f"[1,\n{number}\n]"):
            with pytest.raises(InputError, match="too large"):
                files.parse_json(text, "x.json")
    sound = {"sha256": "3e1234", "a": 1e300, "b": 0}
    assert files.parse_json('{"sha256": "3e1234", "a": 1e300, "b": 1e-400}', "x") == sound


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


@given(JSON_VALUES, st.booleans(), st.sampled_from([None, 2]))
def test_a_large_file_is_read_as_a_small_one(value, ensure_ascii, indent):
    """Both parsers give the same document, or the faster one leaves the decision to the other."""
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)
    try:
        content = files.parse_large_json(text)
    except ValueError:
        return
    assert content == files.parse_json(text, "x") == value
    assert json.dumps(content) == json.dumps(value)  # -0.0 and 1.0 as such


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"b": 1, "b": 1}}',
        '[{"a": 1, "a" : ":"}]',
        r'{"a": "\u003a", "b": 1, "b": 2}',
        r'{"a": "\u003A", "b": 1, "b": 2}',
        *(f"[{number}]" for number in ("-1e999", "9" * 311, "9" * 5000, "NaN", "Infinity", "1,")),
        "",
        "[" * 100_000,
    ],
)
def test_the_faster_parser_leaves_faults_to_the_slower_parser(text, tmp_path):
    with pytest.raises(ValueError, match=r"."):
        files.parse_large_json(text)
    path = tmp_path / "large.json"
    path.write_text(text + " " * files._LARGE_TEXT)
    with pytest.raises(InputError):
        files.read_json(path)


def test_the_garbage_collector_works_again_after_an_error():
    with pytest.raises(ValueError, match=r"."):
        files.parse_large_json("[")
    assert files.gc.isenabled()
    with files.pause_garbage_collector(), files.pause_garbage_collector():
        assert not files.gc.isenabled()
    assert files.gc.isenabled()
