from __future__ import annotations

import os
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest

from baseline import cache as cache_module
from baseline.cache import compute_key, load_cached, map_items, read_digests, store_cached
from baseline.work import WorkFolders
from contract.errors import HecktorError, InputError
from contract.io.files import read_json, write_json, write_text


def test_a_result_is_read_only_under_its_key(tmp_path: Path) -> None:
    path = tmp_path / "a" / "x.json"
    assert load_cached(path, "key") is None
    store_cached(path, "key", [])
    assert load_cached(path, "key") == []
    assert load_cached(path, "other") is None


@pytest.mark.parametrize("content", ["", "[1]", '{"key": "key"}'])
def test_a_damaged_result_is_made_again(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    assert load_cached(tmp_path / "x.json", "key") is None


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failure_comes_through(jobs: int) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        list(map_items(int, ["1", "x"], jobs, "test"))


def test_every_item_is_worked_on_once_and_not_held() -> None:
    """Results of processes are freed after the next result is taken."""
    assert sorted(map_items(abs, [-3, 1, -2], 1, "test")) == [1, 2, 3]
    assert list(map_items(abs, [], 2, "test")) == []
    earlier: list[weakref.ref[np.ndarray]] = []
    sizes = []
    for array in map_items(np.zeros, range(1000, 1005), 2, "test"):
        assert all(reference() is None for reference in earlier[:-1])
        earlier.append(weakref.ref(array))
        sizes.append(array.size)
    assert sorted(sizes) == list(range(1000, 1005))


def test_a_process_that_dies_is_one_line() -> None:
    """The system may kill a process for its memory, for example."""
    with pytest.raises(HecktorError, match=r"^measure: a process ended without a result .*"):
        list(map_items(os._exit, [3, 3], 2, "measure"))


# printf 1 | sha256sum
SHA256_OF_1 = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write a working directory, `work`, prepared from `release`, which holds one file with the text 1."""
    write_text(tmp_path / "release" / "A" / "ct", "1")
    write_json(tmp_path / "work" / "prepare.json", {"options": {"release": str(tmp_path / "release")}})
    return tmp_path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the names of the files that are read."""
    read: list[str] = []
    real = cache_module.make_file_entry
    monkeypatch.setattr(cache_module, "make_file_entry", lambda path: read.append(path.name) or real(path))
    return read


def read_sha256(root: Path) -> str | None:
    """Read the digest of the release's file."""
    path = root / "release" / "A" / "ct"
    return read_digests(WorkFolders(root / "work"), [path])[path]


def test_a_key_follows_names_contents_presence_and_options(root: Path) -> None:
    work, path = WorkFolders(root / "work"), root / "release" / "A" / "ct"
    first = compute_key(work, (path, None), {"spacing": 3})
    os.utime(path, (5, 5))
    assert compute_key(work, (path, None), {"spacing": 3}) == first
    other_keys = {
        compute_key(work, (path, None), {"spacing": 4}),
        compute_key(work, (path,), {"spacing": 3}),
        compute_key(work, (None, path), {"spacing": 3}),
        compute_key(work, (path.rename(path.with_name("pet")), None), {"spacing": 3}),
    }
    path.write_text("2")
    os.utime(path, (6, 6))
    other_keys.add(compute_key(work, (path, None), {"spacing": 3}))
    assert len(other_keys | {first}) == 6


def test_a_file_is_read_once(root: Path, reads: list[str]) -> None:
    """Files are read again after their time changes, or if they are in neither folder. A change that keeps size and
    time goes unnoticed.
    """
    path = root / "release" / "A" / "ct"
    os.utime(path, (5, 5))
    assert [read_sha256(root), read_sha256(root)] == [SHA256_OF_1] * 2
    path.write_text("2")
    os.utime(path, (5, 5))
    assert read_sha256(root) == SHA256_OF_1
    assert reads == ["ct"]
    os.utime(path, (6, 6))
    assert read_sha256(root) != SHA256_OF_1
    assert reads == ["ct"] * 2
    for _ in range(2):
        read_digests(WorkFolders(root / "work"), [Path(shutil.copy(path, root / "elsewhere"))])
    assert reads == ["ct", "ct", "elsewhere", "elsewhere"]


def test_digests_are_stored_by_relative_paths(root: Path, reads: list[str]) -> None:
    """Relative paths allow both folders to be moved."""
    read_sha256(root)
    assert list(read_json(root / "work" / "digests.json")) == ["release/A/ct"]
    moved = root / "moved"
    moved.mkdir()
    for name in ("work", "release"):
        (root / name).rename(moved / name)
    write_json(moved / "work" / "prepare.json", {"options": {"release": str(moved / "release")}})
    assert (read_sha256(moved), reads) == (SHA256_OF_1, ["ct"])


@pytest.mark.parametrize("content", ["{", '{"release/A/ct": []}'])
def test_damaged_digests_are_made_again(root: Path, content: str) -> None:
    (root / "work" / "digests.json").write_text(content)
    assert read_sha256(root) == SHA256_OF_1
    assert read_json(root / "work" / "digests.json")["release/A/ct"][-1] == SHA256_OF_1


def test_digests_of_another_process_are_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process writes its digests while this process reads."""
    real = cache_module.make_file_entry

    def write_first(path: Path) -> dict[str, object]:
        write_json(root / "work" / "digests.json", {"work/other": [1, 1, "0"]})
        return real(path)

    monkeypatch.setattr(cache_module, "make_file_entry", write_first)
    read_sha256(root)
    assert set(read_json(root / "work" / "digests.json")) == {"work/other", "release/A/ct"}


def test_an_interruption_loses_only_what_was_not_read(
    root: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several threads read many bytes, and the last file is not reached."""
    work, paths = WorkFolders(root / "work"), [root / "release" / f"{number}" for number in range(3)]
    for path in paths:
        path.write_text("1")
    make_counted_entry = cache_module.make_file_entry

    def interrupt(path: Path) -> dict[str, object]:
        if path.name == "2":
            raise KeyboardInterrupt
        return make_counted_entry(path)

    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "_MAX_BYTES_WITHOUT_THREADS", 0)
        patch.setattr(cache_module, "make_file_entry", interrupt)
        with pytest.raises(KeyboardInterrupt):
            read_digests(work, paths)
    assert read_digests(work, paths) == dict.fromkeys(paths, SHA256_OF_1)
    assert sorted(reads) == ["0", "1", "2"]


def test_a_folder_that_cannot_be_written_is_no_fault(root: Path) -> None:
    (root / "work" / "digests.json").mkdir()
    assert read_sha256(root) == SHA256_OF_1


def test_a_file_that_is_gone_is_named(root: Path) -> None:
    """Messages about a file of the release say how to state where the release is now."""
    work, missing = WorkFolders(root / "work"), root / "release" / "B" / "ct.nii.gz"
    expected = (
        rf"^ct\.nii\.gz: No such file or directory, expected it in {missing.parent}, or where the release is now: "
    )
    with pytest.raises(InputError, match=expected + r"`hecktor train prepare --release DIR`$"):
        compute_key(work, (missing,), {})
    with pytest.raises(InputError, match=rf"^x: No such file or directory, expected it in {root}/work$"):
        compute_key(work, (root / "work" / "x",), {})


def test_an_unreadable_file_has_a_key(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check names an unreadable file, whose key changes when it can be read."""
    work, path = WorkFolders(root / "work"), root / "release" / "A" / "ct"
    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "make_file_entry", lambda path: (_ for _ in ()).throw(PermissionError(path)))
        first = compute_key(work, (path,), {})
    assert compute_key(work, (path,), {}) != first


# The layout


def test_the_layout_of_a_working_directory(tmp_path: Path) -> None:
    """Working directories of earlier versions keep their layout."""
    work = WorkFolders(tmp_path)
    assert work.plan_json == tmp_path / "plan.json"
    assert work.masks == tmp_path / "out_of_fold" / "masks"
    assert work.plans == tmp_path / "nnunet/preprocessed/Dataset101_HECKTOR/hecktorPlans.json"
    assert work.fold(1) == (
        tmp_path / "nnunet/results/Dataset101_HECKTOR/HecktorTrainer__hecktorPlans__3d_fullres/fold_1"
    )


def test_an_absent_file_names_the_step_that_writes_it(tmp_path: Path) -> None:
    work = WorkFolders(tmp_path)
    with pytest.raises(HecktorError, match="expected `hecktor train heads` first"):
        work.read(work.heads_json)
    with pytest.raises(HecktorError, match="expected `hecktor train prepare` first"):
        work.read(work.cases_json)
