"""Worker processes: order, errors, and a process that dies."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from contract.errors import GroundTruthError
from evaluation.execution.pool import Kept, map_cases
from evaluation.row_store import RowStore, key_of

SCORES = """
import os
from contract.errors import GroundTruthError

def double(number):
    if number == "die":
        os._exit(9)
    if number == "bad":
        raise GroundTruthError("bad.mha: empty file")
    return 2 * number
"""


@pytest.fixture
def double(tmp_path, monkeypatch):
    """A function in a module that fresh interpreters can import."""
    Path(tmp_path / "scores_for_pool.py").write_text(SCORES)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = importlib.util.find_spec("scores_for_pool")
    assert spec is not None
    import scores_for_pool

    yield scores_for_pool.double
    del sys.modules["scores_for_pool"]


def test_order_is_kept(double):
    assert map_cases(double, [5, 1, 4, 2, 3], 2, on_death=lambda _: None) == [10, 2, 8, 4, 6]


@pytest.mark.parametrize("items", [["die"], [1, 2, "die", 3, 4], ["die", 1, "die", 2]])
def test_a_process_that_dies_costs_its_own_case_only(double, items):
    rows = map_cases(double, items, 2, on_death=lambda item: f"lost {item}")
    assert rows == ["lost die" if item == "die" else 2 * item for item in items]


def test_errors_come_through(double):
    with pytest.raises(GroundTruthError, match="empty file"):
        map_cases(double, [1, 2, "bad", 3, 4], 2, on_death=lambda _: None)


def test_no_workers_stay_in_this_process():
    assert map_cases(lambda number: number + 1, [1, 2], 0, on_death=lambda _: None) == [2, 3]


def test_finished_rows_outlast_an_interrupted_run(double, tmp_path):
    """The first run stops at the bad item; the second, with that item mended, works on what was not finished.

    The row 8 is not final, the item 3 has no key: both are always made again.
    """
    store = RowStore(tmp_path / "rows", lambda row: {"row": row}, lambda raw: raw["row"])
    worked = []

    def work(item):
        worked.append(item)
        return double(item)

    def kept(keys):
        return Kept(store, keys.get, lambda row: row != 8)

    with pytest.raises(GroundTruthError):
        map_cases(work, [1, 2, "bad", 3], 0, on_death=lambda _: None, kept=kept({1: "aa1", 2: "aa2", "bad": "bb"}))
    assert worked == [1, 2, "bad"]
    worked.clear()
    keys = {1: "aa1", 2: "aa2", 4: "aa4", 3: None}
    assert map_cases(work, [1, 2, 4, 3], 0, on_death=lambda _: None, kept=kept(keys)) == [2, 4, 8, 6]
    assert worked == [4, 3]
    worked.clear()
    assert map_cases(work, [1, 4, 3], 0, on_death=lambda _: None, kept=kept(keys)) == [2, 8, 6]
    assert worked == [4, 3]


def test_a_dead_process_leaves_no_row_behind(double, tmp_path):
    store = RowStore(tmp_path / "rows", lambda row: {"row": row}, lambda raw: raw["row"])
    kept = Kept(store, lambda item: f"aa{item}", lambda row: True)
    assert map_cases(double, ["die", 1], 1, on_death=lambda _: "lost", kept=kept) == ["lost", 2]
    assert store.get("aadie") is None
    assert store.get("aa1") == 2


def test_a_damaged_row_is_made_again(tmp_path):
    store = RowStore(tmp_path / "rows", lambda row: {"row": row}, lambda raw: raw["row"])
    store.put("aa", 5)
    assert store.get("aa") == 5
    (tmp_path / "rows" / "aa" / "aa.json").write_text("{")
    assert store.get("aa") is None
    (tmp_path / "rows" / "aa" / "aa.json").write_text("{}")
    assert store.get("aa") is None


def test_keys_differ_with_bytes_names_and_options(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"1")
    key = key_of({"k": 26}, tmp_path / "a")
    assert key == key_of({"k": 26}, tmp_path / "a")
    others = {key_of({"k": 6}, tmp_path / "a"), key_of({"k": 26}, tmp_path / "b")}
    (tmp_path / "a").write_bytes(b"2")
    others.add(key_of({"k": 26}, tmp_path / "a"))
    assert len(others) == 3
    assert key not in others
