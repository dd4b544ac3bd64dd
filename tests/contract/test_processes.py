"""Worker processes end with their parent; usable CPUs follow affinity and quota."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from contract import processes
from contract.errors import HecktorError
from contract.processes import fresh_processes, usable_cpus

PATHS = {"PYTHONPATH": ":".join(sys.path)}
PAUSE = """
import os, time

def work(number):
    print(os.getpid(), flush=True)
    time.sleep(600)
"""
# Without a guard: the processes do not run the script again.
WORKERS = """
from contract.processes import fresh_processes
from pause import work

with fresh_processes(2) as pool:
    list(pool.map(work, [1, 2]))
"""


def is_running(process: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between open and read
        return False


def wait_for_end(processes: list[int], within_s: float = 20) -> bool:
    """Wait for the end of all processes; False after `within_s` seconds."""
    until = time.monotonic() + within_s
    while any(map(is_running, processes)) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(map(is_running, processes))


def start(code: str, path: Path, children: int) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a process that runs `code`; also return the process IDs that it prints."""
    path.write_text(code)
    process = subprocess.Popen(
        [sys.executable, path], stdout=-1, stderr=-1, text=True, env=os.environ | PATHS, start_new_session=True
    )
    assert process.stdout is not None
    return process, [int(process.stdout.readline()) for _ in range(children)]


def process_id(_number: int) -> int:
    return os.getpid()


def set_variable() -> None:
    os.environ["HECKTOR_TEST_INITIALIZED"] = "yes"


def read_variable(_number: int) -> str | None:
    return os.environ.get("HECKTOR_TEST_INITIALIZED")


def test_workers_are_new_processes_that_run_the_initializer() -> None:
    with fresh_processes(1, set_variable) as pool:
        assert list(pool.map(read_variable, [1, 2])) == ["yes", "yes"]
        assert pool.submit(process_id, 1).result() != os.getpid()
    assert read_variable(0) is None


def test_no_shared_memory_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("multiprocessing.synchronize.SemLock.__init__", refuse)
    with pytest.raises(HecktorError, match=r"^worker processes: no shared memory in /dev/shm \(No such file"):
        fresh_processes(1)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")
def test_workers_end_when_the_parent_is_killed(tmp_path: Path) -> None:
    (tmp_path / "pause.py").write_text(PAUSE)
    process, children = start(WORKERS, tmp_path / "workers.py", 2)
    assert all(map(is_running, children))
    process.kill()
    process.communicate(timeout=60)
    assert wait_for_end(children)


@pytest.fixture
def cgroup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty control group; the affinity allows 8 CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(processes, "CGROUP_ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("10000 100000", 1), ("6400000 100000", 8)],
)
def test_quota_of_version_2(cgroup: Path, quota: str, expected: int) -> None:
    """Granted microseconds per period, rounded up; at least one CPU, at most those of the affinity."""
    (cgroup / "cpu.max").write_text(f"{quota}\n")
    assert usable_cpus() == expected


@pytest.mark.parametrize(("quota_us", "expected"), [(-1, 8), (200000, 2), (250000, 3)])
def test_quota_of_version_1(cgroup: Path, quota_us: int, expected: int) -> None:
    (cgroup / "cpu").mkdir()
    (cgroup / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota_us}\n")
    (cgroup / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cpus() == expected


def test_no_quota(cgroup: Path) -> None:
    assert usable_cpus() == 8


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_a_pool_without_threads_is_an_error(monkeypatch, threads):
    """As under `ulimit -v`; the pool needs its own threads, and would wait for ever."""
    start, count = threading.Thread.start, iter(range(threads))

    def limited(thread: threading.Thread) -> None:
        if next(count, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(HecktorError, match="no thread starts"), fresh_processes(1) as pool:
        pool.submit(int)


INTERRUPTED = """
import signal
from contract.errors import run_main
from contract.processes import fresh_processes
from pause import work

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it

def main(_):
    print(0, flush=True)
    with fresh_processes(2) as pool:
        list(pool.map(work, [1, 2]))

raise SystemExit(run_main(main))
"""


@pytest.mark.parametrize(("printed", "after_s"), [(1, 0.3), (3, 0)])
def test_ctrl_c_is_one_line_and_ends_the_processes_at_once(tmp_path: Path, printed: int, after_s: float) -> None:
    """A terminal sends it to all processes, which start or work; their work of ten minutes is not waited for."""
    (tmp_path / "pause.py").write_text(PAUSE)
    process, (_, *children) = start(INTERRUPTED, tmp_path / "interrupted.py", printed)
    time.sleep(after_s)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=30)[1] == "error: interrupted\n"
    assert process.returncode == 130
    assert wait_for_end(children)
