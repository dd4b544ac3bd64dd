"""Serving cases does not need more and more memory."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.error import URLError

import pytest

# Three threads of a case allocate and free arrays of 2 to 24 MB, as the reading of images does.
PROGRAM = """
import ctypes
import sys
from threading import Thread

import numpy as np

from contract.servers import run_server


def allocate(seed):
    rng = np.random.default_rng(seed)
    for _ in range(8):
        arrays = [np.ones(int(rng.integers(2, 24)) * 125_000) for _ in range(3)]
        del arrays


def answer():
    threads = [Thread(target=allocate, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
    libc.malloc_info(0, file)
    libc.fclose(file)
    return "answered"


run_server(answer, lambda: None, lambda: None, int(sys.argv[1]))
"""


def call(address: str, method: str) -> None:
    urllib.request.urlopen(urllib.request.Request(address, method=method), timeout=60).close()


def wait_until_healthy(address: str) -> None:
    for _ in range(300):
        try:
            return call(address, "GET")
        except URLError:
            time.sleep(0.1)
    pytest.fail("the server does not start")


def read_resident_mb(process_id: int) -> float:
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1e3


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_freed_arrays_do_not_stay_with_the_server(tmp_path: Path) -> None:
    """All arrays of a case are freed before its reply, so that 10 cases leave no more than the first one.

    Without the limits that the server sets, glibc keeps up to 64 MB for each thread: 198 MB more after 25 cases. The
    threads of the cases share the pool ("heap") of the main thread.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", PROGRAM, str(port), str(tmp_path / "pools.xml")]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}/health")
        before = read_resident_mb(server.pid)
        for _ in range(10):
            call(f"http://127.0.0.1:{port}/invoke", "POST")
        assert read_resident_mb(server.pid) < 1.05 * before + 5
        assert (tmp_path / "pools.xml").read_text().count("<heap nr=") == 1
    finally:
        server.terminate()
        server.wait(timeout=30)
