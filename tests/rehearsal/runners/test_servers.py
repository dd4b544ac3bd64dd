"""Answers of a client in an unknown image, which may print anything."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rehearsal.runners.monitor import Logs, make_group_stopper
from rehearsal.runners.runner import RunningServer


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as running:
        yield running
        running.kill()


def make_server(process: subprocess.Popen[bytes], python: tuple[str, ...], folder: Path) -> RunningServer:
    logs = Logs(process, folder / "stdout", folder / "stderr")
    return RunningServer(process, logs, python, 1, make_group_stopper(process.pid), lambda: None)


@pytest.mark.parametrize("printed", ["garbage", "[1]", '{"status": 201}', "[" * 100_000])
def test_nonsense_is_no_answer(tmp_path: Path, process: subprocess.Popen[bytes], printed: str) -> None:
    python = (sys.executable, "-c", f"print({printed!r})")
    server = make_server(process, python, tmp_path)
    assert server.invoke(5).status is None


def test_an_endless_answer_is_cut(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    """Reading ends after 4 MiB, before the limit of the call."""
    python = (sys.executable, "-c", "while True: print('x' * 100_000)")
    server = make_server(process, python, tmp_path)
    begun = time.monotonic()
    assert server.invoke(100).text == "no answer"
    assert time.monotonic() - begun < 60
