from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = "from contract.entry import run_program\n{}\nrun_program(main)\n"


def run_until_end(main: str, **settings: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM.format(main)]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **settings)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("main", "status", "last"),
    [
        ("def main(_): return 3", 3, []),
        ("def main(_): return 1 // 0", 1, ["ZeroDivisionError: integer division or modulo by zero"]),
        ("def main(_): raise SystemExit(2)", 2, []),
    ],
)
def test_status_and_last_line(main: str, status: int, last: list[str]) -> None:
    done = run_until_end(main)
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (status, last)


def test_exit_functions_run_and_threads_are_not_awaited() -> None:
    main = (
        "import atexit, sys, threading, time\n"
        "atexit.register(sys.stderr.write, 'tidied up')\n"
        "def main(_):\n    threading.Thread(target=time.sleep, args=(600,)).start()\n    return 0"
    )
    done = run_until_end(main, timeout=60)
    assert (done.returncode, done.stderr) == (0, "tidied up")


PRINTS = "import sys, pathlib\ndef main(_):\n    print('x' * 100_000)\n    pathlib.Path(RESULT).write_text('whole')\n    return 0"
FULL = ["error: stdout: cannot be written (No space left on device), expected space for it"]


@pytest.mark.parametrize(
    ("redirection", "status", "lines", "unbuffered"),
    [
        (">/dev/full", 120, FULL, ""),
        (">/dev/full", 120, FULL, "1"),
        (">/dev/full 2>&1", 120, [], ""),
        (">&- 2>&-", 0, [], ""),
        ("| true", 0, [], ""),
        ("| true", 0, [], "1"),
    ],
)
def test_the_result_is_whole_if_stdout_cannot_be_written(
    tmp_path: Path, redirection: str, status: int, lines: list[str], unbuffered: str
) -> None:
    """Standard output is full, closed or broken, at once or at the end; there is no trace."""
    (tmp_path / "program.py").write_text(PROGRAM.format(PRINTS.replace("RESULT", repr(str(tmp_path / "result")))))
    command = f"set -o pipefail; {sys.executable} {tmp_path / 'program.py'} {redirection}"
    environment = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr.splitlines()) == (status, lines)
    assert (tmp_path / "result").read_text() == "whole"


def test_help_on_a_full_stdout_is_no_success() -> None:
    main = "import argparse\ndef main(_): argparse.ArgumentParser(prog='p').parse_args(['--help'])"
    with Path("/dev/full").open("w") as full:
        done = run_until_end(main, stdout=full, env={"PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stderr.splitlines()) == (120, FULL)


def test_the_hook_prints_a_bug() -> None:
    main = "import sys\nsys.excepthook = lambda *_: sys.stderr.write('hook')\ndef main(_): return 1 // 0"
    done = run_until_end(main)
    assert (done.returncode, done.stderr) == (1, "hook")


def test_the_log_marks_warnings_that_have_no_mark() -> None:
    """Neither the process nor its pool configures a log; other messages get no mark."""
    main = (
        "import logging\nfrom contract.processes import map_in_processes\nlog = logging.getLogger('hecktor')\n"
        "def main(_):\n"
        "    log.warning('odd: %d', 1); log.warning('*** FALLBACK *** a rule'); log.error('error: no'); log.info('hidden')\n"
        "    list(map_in_processes(log.warning, ['in a pool'], 1))\n"
        "    return 0"
    )
    lines = ["*** WARNING *** odd: 1", "*** FALLBACK *** a rule", "error: no", "*** WARNING *** in a pool"]
    assert run_until_end(main, timeout=60).stderr.splitlines() == lines
