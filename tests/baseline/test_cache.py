from __future__ import annotations

import os
import weakref
from pathlib import Path

import numpy as np
import pytest

from baseline.cache import cache, load_cached, map_items
from contract.errors import HecktorError


def test_a_result_is_read_back_under_its_key_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "x.json"
    assert load_cached(path, "key") is None
    cache(path, "key", [])
    assert load_cached(path, "key") == []
    assert load_cached(path, "other") is None


@pytest.mark.parametrize("content", ["", "{", "[1]", "null", '{"key": "key"}'])
def test_a_damaged_result_is_made_again(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    assert load_cached(tmp_path / "x.json", "key") is None


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_item_is_worked_on_once(jobs: int) -> None:
    assert sorted(map_items(abs, [-3, 1, -2], jobs, "test")) == [1, 2, 3]
    assert list(map_items(abs, [], jobs, "test")) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failure_comes_through(jobs: int) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        list(map_items(int, ["1", "x"], jobs, "test"))


def test_results_of_processes_are_not_held() -> None:
    """Each result is freed once the next one is taken."""
    earlier: list[weakref.ref[np.ndarray]] = []
    for array in map_items(np.zeros, [1000] * 5, 2, "test"):
        assert all(one() is None for one in earlier[:-1])
        earlier.append(weakref.ref(array))
    assert len(earlier) == 5


def test_a_process_that_dies_is_one_line() -> None:
    """As one that the system kills for its memory."""
    with pytest.raises(HecktorError, match=r"^measure: a process ended without a result .*"):
        list(map_items(os._exit, [3, 3], 2, "measure"))
