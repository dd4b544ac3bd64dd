"""Signals at awkward moments, each in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from baseline import cli
from contract.errors import HecktorError

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


def test_ctrl_c_ends_a_pool_that_would_never_end(tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(POOL)
    command = [sys.executable, tmp_path / "pool.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | PATHS, timeout=60, check=False)
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == "error: interrupted: made anew"


def test_ctrl_c_in_any_step_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "fit_all_heads", interrupted)
    with pytest.raises(HecktorError, match=r"^interrupted: what is done is kept, and the same command goes on"):
        cli.main(["heads", "--work", str(tmp_path)])
