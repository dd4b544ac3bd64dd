"""Processes that work on cases end with the one that began them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contract.processes import fresh_processes

PATHS = {"PYTHONPATH": ":".join(sys.path)}
WORKERS = """
import os, time
from contract.processes import fresh_processes

def work(number):
    print(os.getpid(), flush=True)
    time.sleep(600)

if __name__ == "__main__":
    with fresh_processes(2) as pool:
        list(pool.map(work, [1, 2]))
"""


def is_there(process: int) -> bool:
    """Whether a process runs; one that has ended and waits for init to notice does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter where it ends between opening and reading
        return False


def gone(processes: list[int], within_s: float = 20) -> bool:
    """Whether all of them end soon."""
    until = time.monotonic() + within_s
    while any(map(is_there, processes)) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(map(is_there, processes))


def begun(code: str, path: Path, children: int) -> tuple[subprocess.Popen[str], list[int]]:
    """A process that runs `code`, and its children as it tells of them."""
    path.write_text(code)
    process = subprocess.Popen([sys.executable, path], stdout=-1, stderr=-1, text=True, env=os.environ | PATHS)
    assert process.stdout is not None
    return process, [int(process.stdout.readline()) for _ in range(children)]


def own_number(_number: int) -> int:
    return os.getpid()


def named() -> None:
    os.environ["HECKTOR_TEST_BEGUN"] = "yes"


def begun_with(_number: int) -> str | None:
    return os.environ.get("HECKTOR_TEST_BEGUN")


def test_each_process_is_another_and_begins_as_told() -> None:
    with fresh_processes(1, named) as pool:
        assert list(pool.map(begun_with, [1, 2])) == ["yes", "yes"]
        assert pool.submit(own_number, 1).result() != os.getpid()
    assert begun_with(0) is None


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no /proc tells of other processes")
def test_workers_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    process, children = begun(WORKERS, tmp_path / "workers.py", 2)
    assert all(map(is_there, children))
    process.kill()
    process.communicate(timeout=60)
    assert gone(children)
