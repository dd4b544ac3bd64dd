"""Worker processes end with their parent; usable CPUs follow affinity and quota."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from contract import processes
from contract.errors import HecktorError
from contract.processes import WorkerDeath, count_usable_cpus, map_in_processes

PATHS = {"PYTHONPATH": ":".join(sys.path)}
PAUSE = """
import os, time

def work(number):
    print(os.getpid(), flush=True)
    time.sleep(600)
"""
# Without a guard: the processes do not run the script again.
WORKERS = """
from contract.processes import map_in_processes
from pause import work

list(map_in_processes(work, [1, 2], 2))
"""


def is_running(process: int) -> bool:
    """Return whether a process runs; a zombie does not."""
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


def set_variable() -> None:
    os.environ["HECKTOR_TEST_INITIALIZED"] = "yes"


def read_variable(_number: int) -> str | None:
    return os.environ.get("HECKTOR_TEST_INITIALIZED")


def test_workers_are_new_processes_that_run_the_initializer() -> None:
    assert list(map_in_processes(read_variable, [1, 2], 1, set_variable)) == [(0, "yes"), (1, "yes")]
    assert read_variable(0) is None


@pytest.mark.parametrize("name", ["multiprocessing.synchronize.SemLock.__init__", "threading.Thread.start"])
def test_neither_semaphore_nor_thread_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Semaphores need shared memory in /dev/shm; under `ulimit -v` a pool would wait for its threads forever."""

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(name, refuse)
    assert list(map_in_processes(abs, [-1], 1)) == [(0, 1)]


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
    """Make an empty control group; the affinity allows 8 CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(processes, "CGROUP_ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("quota", "expected"), [("max 100000", 8), ("150000 100000", 2), ("10000 100000", 1), ("6400000 100000", 8)]
)
def test_quota_of_version_2(cgroup: Path, quota: str, expected: int) -> None:
    """Granted microseconds per period, rounded up; at least one CPU, at most those of the affinity."""
    assert count_usable_cpus() == 8  # without a quota
    (cgroup / "cpu.max").write_text(f"{quota}\n")
    assert count_usable_cpus() == expected


@pytest.mark.parametrize(("quota_us", "expected"), [(-1, 8), (250000, 3)])
def test_quota_of_version_1(cgroup: Path, quota_us: int, expected: int) -> None:
    (cgroup / "cpu").mkdir()
    (cgroup / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota_us}\n")
    (cgroup / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert count_usable_cpus() == expected


def test_no_process_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("multiprocessing.util.spawnv_passfds", refuse)
    with pytest.raises(HecktorError, match=r"^worker processes: no process starts \(Resource temporarily"):
        list(map_in_processes(abs, [-1], 1))


def sleep_long() -> None:
    time.sleep(600)


def refuse_to_begin() -> None:
    raise OSError("no memory for libmkl.so")


def test_an_initializer_that_fails_is_one_line() -> None:
    with pytest.raises(HecktorError, match=r"^worker processes: cannot start \(OSError: no memory for libmkl.so\)"):
        list(map_in_processes(abs, [-1], 1, refuse_to_begin))


def test_a_process_that_never_begins_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under short memory, imports can wait for a thread that does not exist: no item would end."""
    monkeypatch.setattr(processes, "MAX_START_S", 0.5)
    with pytest.raises(HecktorError, match=r"each process ends while it starts \(no import within 0.5 s\)"):
        list(map_in_processes(abs, [-1], 1, sleep_long))


class NotPicklableError(Exception):
    """Its constructor needs more than its message."""

    def __init__(self, _case: str, message: str) -> None:
        super().__init__(message)


def fail(kind: str) -> object:
    """Fail in one of the ways in which the work of a process can fail."""
    if kind == "raise":
        raise ValueError("a bug")
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "exit":
        raise SystemExit(0)
    if kind == "exception that cannot be pickled":
        raise NotPicklableError("P1", "a bug")
    if kind == "result that cannot be pickled":
        return lambda: None
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return kind


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("raise", ValueError, "a bug"),
        ("interrupt", KeyboardInterrupt, "In a worker process"),
        ("exit", RuntimeError, "SystemExit: 0"),
        ("exception that cannot be pickled", RuntimeError, "NotPicklableError: a bug"),
        ("result that cannot be pickled", Exception, "pickle"),
    ],
)
def test_an_exception_comes_with_its_trace(kind: str, error: type[BaseException], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        list(map_in_processes(fail, ["fine", kind, "fine", "fine"], 2))
    assert "In a worker process" in raised.value.__notes__[0]


def test_a_killed_process_is_replaced() -> None:
    results = dict(map_in_processes(fail, ["killed", "a", "killed", "b"], 1))
    assert results == {0: WorkerDeath("signal 9"), 1: "a", 2: WorkerDeath("signal 9"), 3: "b"}


PROGRAM = """
import os, sys
from contract.entry import run_program
from contract.processes import map_in_processes
from tests.contract.test_processes import fail, import_images, print_and_pause

def main(_):
    results = {kept}map_in_processes({work}, {items}, 2)
    for index, result in results:
        {body}
    return 0

if __name__ == "__main__":
    {end}
"""


def import_images(_number: int) -> None:
    """Import what a worker of an evaluation needs."""
    import numpy as np  # noqa: F401
    import SimpleITK  # noqa: F401


def print_and_pause(number: float) -> float:
    """Print this process and pause so many seconds."""
    print(os.getpid(), flush=True)
    time.sleep(number)
    return number


@pytest.mark.parametrize(
    ("work", "items", "body", "kept", "end"),
    [
        ("fail", ["raise"], "pass", "", "main(0)"),
        ("fail", ["fine"] * 40 + ["raise"], "pass", "", "run_program(main)"),
        ("print_and_pause", [0, 600], "raise ValueError('a bug')", "sys.kept = ", "run_program(main)"),
        ("print_and_pause", [0, 600], "raise ValueError('a bug')", "sys.kept = ", "main(0)"),
    ],
)
def test_a_program_with_a_bug_ends(
    tmp_path: Path, work: str, items: list[object], body: str, kept: str, end: str
) -> None:
    """Trace and exit status 1 are the result, and no process is left; even if an iterator is never closed."""
    code = PROGRAM.format(work=work, items=items, body=body, kept=kept, end=end)
    process, children = start(code, tmp_path / "program.py", 1 if work == "print_and_pause" else 0)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert stderr.startswith("Traceback (most recent call last):")
    assert "ValueError: a bug" in stderr
    assert wait_for_end([*children, *list_group(process.pid)])


def list_group(leader: int) -> list[int]:
    """Return the processes of the group of this leader, such as those that a program leaves."""
    processes_of_group = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[2] == str(leader):
                processes_of_group.append(int(stat.parent.name))
    return processes_of_group


@pytest.mark.parametrize("limit_kib", [60_000, 200_000, 550_000])
def test_too_little_memory_ends_the_program(tmp_path: Path, limit_kib: int) -> None:
    """NumPy and SimpleITK need more memory; under some limits the program runs, and it never hangs."""
    script = tmp_path / "program.py"
    code = PROGRAM.format(work="import_images", items=[1, 2, 3], body="pass", kept="", end="run_program(main)")
    script.write_text(code)
    limited: list[str | Path] = ["bash", "-c", f'ulimit -v {limit_kib}; exec "$0" "$1"', sys.executable, script]
    process = subprocess.Popen(limited, stdout=-1, stderr=-1, text=True, env=os.environ | PATHS, start_new_session=True)
    stderr = process.communicate(timeout=120)[1]
    assert process.returncode == 0 or stderr.strip()
    assert wait_for_end(list_group(process.pid))


INTERRUPTED = """
import signal
from contract.errors import run_main
from contract.processes import map_in_processes
from pause import work

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it

def main(_):
    print(0, flush=True)
    list(map_in_processes(work, [1, 2], 2))

raise SystemExit(run_main(main))
"""


@pytest.mark.parametrize(("printed", "after_s"), [(1, 0.3), (3, 0)])
def test_ctrl_c_is_one_line_and_ends_the_processes_at_once(tmp_path: Path, printed: int, after_s: float) -> None:
    """Terminals send it to all processes, which start or work; their work of ten minutes is not awaited."""
    (tmp_path / "pause.py").write_text(PAUSE)
    process, (_, *children) = start(INTERRUPTED, tmp_path / "interrupted.py", printed)
    time.sleep(after_s)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=30)[1] == "error: interrupted\n"
    assert process.returncode == 130
    assert wait_for_end(children)
