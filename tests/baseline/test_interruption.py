"""Signals at awkward moments, each in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from baseline import cli
from contract.errors import HecktorError

pytestmark = pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no /proc tells of other processes")
PATHS = {"PYTHONPATH": ":".join(sys.path)}
# A pool's tidy end waits for ever where Ctrl-C caught one of its workers in the middle of an answer.
POOL = """
import os, signal, time
from baseline.interruption import ended_at_once

with ended_at_once("made anew"):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(600)
    finally:
        time.sleep(600)
"""
WORKERS = """
import os, time
from baseline.kept import each

def work(number):
    print(os.getpid(), flush=True)
    time.sleep(600 if number else 0)
    return number

if __name__ == "__main__":
    list(each(work, [1, 2], 2, "test"))
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


def test_ctrl_c_ends_a_pool_that_would_never_end(tmp_path: Path) -> None:
    process, _ = begun(POOL, tmp_path / "pool.py", 0)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "error: interrupted: made anew"


def test_workers_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    process, children = begun(WORKERS, tmp_path / "workers.py", 2)
    assert all(map(is_there, children))
    process.kill()
    process.communicate(timeout=60)
    assert gone(children)


def test_ctrl_c_in_any_step_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "fit_all_heads", interrupted)
    with pytest.raises(HecktorError, match=r"^interrupted: what is done is kept, and the same command goes on"):
        cli.main(["heads", "--work", str(tmp_path)])
