from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = "from contract.entry import run_program\n{}\nrun_program(main)\n"


def ended(main: str, **settings: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM.format(main)]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **settings)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("main", "status", "last"),
    [
        ("def main(_): return 3", 3, []),
        (
            "from contract.errors import InputError\ndef main(_): raise InputError('a.mha: odd')",
            1,
            ["error: a.mha: odd"],
        ),
        ("def main(_): return 1 // 0", 1, ["ZeroDivisionError: integer division or modulo by zero"]),
        ("def main(_): raise SystemExit(2)", 2, []),
    ],
)
def test_status_and_last_line(main: str, status: int, last: list[str]) -> None:
    done = ended(main)
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (status, last)


def test_a_computing_thread_is_not_waited_for_but_exit_functions_run() -> None:
    main = (
        "import atexit, sys, threading, time\n"
        "atexit.register(sys.stderr.write, 'tidied up')\n"
        "def main(_):\n    threading.Thread(target=time.sleep, args=(600,)).start()\n    return 0"
    )
    done = ended(main, timeout=60)
    assert (done.returncode, done.stderr) == (0, "tidied up")


def test_results_that_cannot_be_printed_are_no_success() -> None:
    with Path("/dev/full").open("w") as full:
        done = ended("def main(_): return int(print('result') or 0)", stdout=full, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 120
