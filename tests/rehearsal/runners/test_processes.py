"""Plain processes: their input, and their end with the rehearsal."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from rehearsal.runners.runner import Call, Limits, ProcessRunner

LIMITS = Limits(memory_bytes=2 << 30, time_limit_s=60)
# A rehearsal of a program that survives a SIGTERM to its group, writes its process number and then sleeps.
REHEARSAL = """
import sys
from pathlib import Path
from rehearsal.runners.runner import Call, Limits, ProcessRunner
folder = Path(sys.argv[1])
program = "import os, time; from signal import *; signal(SIGTERM, SIG_IGN); os.killpg(0, SIGTERM);"
program += "os.write(1, b'%d ' % os.getpid()); time.sleep(600)"
call = Call.create("test", folder, folder / "log", Limits(2 << 30, 600), None)
ProcessRunner((sys.executable, "-c", program)).run(call)
"""


def test_a_program_has_an_empty_input_and_no_further_files(tmp_path: Path) -> None:
    program = "import os, sys; print(sys.stdin.read() == '', sorted(os.listdir('/proc/self/fd'))[:3])"
    call = Call.create("test", tmp_path, tmp_path / "log", LIMITS, None)
    outcome = ProcessRunner((sys.executable, "-c", program)).run(call)
    assert outcome.exit_code == 0
    assert call.stdout.read_text() == "True ['0', '1', '2']\n"


def test_a_program_starts_without_children(tmp_path: Path) -> None:
    """If the rehearsal were its child, a program that waits for all its children would wait for the rehearsal."""
    program = "import os\ntry: os.wait()\nexcept ChildProcessError: print('no children')"
    call = Call.create("test", tmp_path, tmp_path / "log", LIMITS, None)
    assert ProcessRunner((sys.executable, "-c", program)).run(call).exit_code == 0
    assert call.stdout.read_text() == "no children\n"


def test_a_program_ends_when_the_rehearsal_is_killed(tmp_path: Path) -> None:
    rehearsal = subprocess.Popen([sys.executable, "-c", REHEARSAL, str(tmp_path)])
    log = tmp_path / "log.stdout"
    wait_until(lambda: log.exists() and log.read_text().endswith(" "))
    program = int(log.read_text())
    rehearsal.kill()
    rehearsal.wait()
    wait_until(lambda: not is_running(program))


def wait_until(condition) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def is_running(number: int) -> bool:
    """Return whether a process runs; an ended process may remain until its parent waits for it."""
    try:
        os.kill(number, 0)
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
