"""Signals at awkward moments, each in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from baseline import cli, steps
from contract.errors import HecktorError

PATHS = {"PYTHONPATH": ":".join(sys.path)}
# A pool's shutdown waits forever if Ctrl-C interrupted a worker in the middle of an answer.
POOL = """
import os, signal, time
from baseline.network.interruption import end_at_once

with end_at_once("made anew"):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(600)
    finally:
        time.sleep(600)
"""


def test_ctrl_c_ends_a_pool_that_would_never_end(tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(POOL)
    command = [sys.executable, tmp_path / "pool.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | PATHS, timeout=60, check=False)
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == "error: interrupted: made anew"


def test_ctrl_c_in_any_step_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(steps, "measure_out_of_fold", interrupted)
    with pytest.raises(HecktorError, match=r"^interrupted: finished work is saved; run the same command again"):
        cli.main(["heads", "--work", str(tmp_path)])
