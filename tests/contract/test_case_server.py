"""The server of the `invoke` mode of both kinds of images: replies, start, end and memory."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from contract import servers
from contract.errors import HecktorError, InputError
from contract.servers import CaseServer, run_server
from tests.server_calls import Reply, call
from tests.signals import reset_signals


class Cases:
    """A fake program: each case is a callable, and the next one runs at each call."""

    def __init__(self) -> None:
        self.coming: list[Callable[[], str]] = []
        self.ended = threading.Event()

    def answer(self) -> str:
        return self.coming.pop(0)() if self.coming else "answered"


@pytest.fixture
def cases() -> Cases:
    return Cases()


@pytest.fixture
def server(cases: Cases, monkeypatch: pytest.MonkeyPatch) -> Iterator[CaseServer]:
    """Start a server on a free port, in threads of this process.

    On a busy machine the end of a case after its reply may take longer than the time that the server allows for it.
    """
    monkeypatch.setattr(servers, "_MAX_REPLY_S", 30)
    with CaseServer(cases.answer, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def port(server: CaseServer) -> int:
    return server.server_port


@contextmanager
def call_in_background(port: int) -> Iterator[list[Reply]]:
    """Call for a case in a thread; the list holds the reply when the block ends."""
    replies: list[Reply] = []
    thread = threading.Thread(target=lambda: replies.append(call(port, "POST", "/invoke")))
    thread.start()
    yield replies
    thread.join()


def test_no_case_is_taken_before_the_server_is_ready(server: CaseServer, port: int):
    """A body is ignored, and cases end before their reply is sent, so that a fast caller is not rejected."""
    assert call(port, "GET", "/health") == (503, "still loading, no cases are accepted yet")
    assert call(port, "POST", "/invoke")[0] == 503
    server.is_ready.set()
    assert call(port, "GET", "/health") == (200, "ready")
    assert {call(port, "POST", "/invoke", b"x" * 60_000) for _ in range(20)} == {(201, "answered")}


def test_a_bad_case_and_a_bug_do_not_fail_the_next_case(cases: Cases, server: CaseServer, port: int, caplog):
    """Only a bug has a trace in the log."""

    def fail_with(problem: Exception) -> Callable[[], str]:
        def answer() -> str:
            raise problem

        return answer

    server.is_ready.set()
    denied = PermissionError(13, "Permission denied", "/here")
    cases.coming += map(fail_with, (InputError("a.mha: truncated\nmore"), denied, ZeroDivisionError()))
    assert call(port, "POST", "/invoke") == (500, "a.mha: truncated more")
    status, message = call(port, "POST", "/invoke")
    assert (status, "has no permission" in message) == (500, True)
    assert call(port, "POST", "/invoke") == (500, "internal error (ZeroDivisionError)")
    assert call(port, "GET", "/health")[0] == 200
    assert call(port, "POST", "/invoke") == (201, "answered")
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.getMessage() for record in errors if record.exc_info] == ["a bug; the case is not at fault"]
    assert len(errors) == 4


def test_one_case_at_a_time(cases: Cases, server: CaseServer, port: int, monkeypatch: pytest.MonkeyPatch):
    """While the first call is answered a second one is rejected, and health is reported."""
    monkeypatch.setattr(servers, "_MAX_REPLY_S", 0.01)
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        assert go_on.wait(30)
        return "slow"

    server.is_ready.set()
    cases.coming.append(slow)
    with call_in_background(port) as first:
        assert begun.wait(30)
        assert call(port, "POST", "/invoke")[0] == 409
        assert call(port, "GET", "/health")[0] == 200
        go_on.set()
    assert first == [(201, "slow")]


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("POST", "/health", 405, "GET"),
        ("HEAD", "/health", 405, "GET"),
        *((method, "/invoke", 405, "POST") for method in ("GET", "PUT", "DELETE", "OPTIONS", "PATCH")),
        ("POST", "/invoke/", 404, None),
        ("GET", "/health?why=1", 200, None),
    ],
)
def test_other_paths_and_methods(server: CaseServer, port: int, method, path, status, allowed):
    server.is_ready.set()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path)
    response = connection.getresponse()
    assert (response.status, response.getheader("Allow")) == (status, allowed)
    assert (response.read() == b"") == (method == "HEAD")
    connection.close()


def test_a_caller_that_goes_away_does_not_stop_the_case(cases: Cases, server: CaseServer, port: int):
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        assert go_on.wait(30)
        done.set()
        return "slow"

    server.is_ready.set()
    cases.coming.append(slow)
    with socket.create_connection(("127.0.0.1", port)) as caller:
        caller.sendall(b"POST /invoke HTTP/1.1\r\n\r\n")
        assert begun.wait(30)
    go_on.set()
    assert done.wait(30)
    assert call(port, "POST", "/invoke") == (201, "answered")


def test_draining_ends_the_current_case_and_takes_no_other_case(cases: Cases, server: CaseServer, port: int):
    begun = threading.Event()

    def wait_until_ended() -> str:
        begun.set()
        assert cases.ended.wait(30)
        time.sleep(0.2)
        return "best so far"

    server.is_ready.set()
    cases.coming.append(wait_until_ended)
    with call_in_background(port) as replies:
        assert begun.wait(30)
        server.drain(cases.ended.set)
        assert call(port, "GET", "/health")[0] == 503
        assert call(port, "POST", "/invoke")[0] == 503
    assert replies == [(201, "best so far")]


def test_a_port_that_is_taken(port: int):
    with pytest.raises(HecktorError, match=f"port {port}: cannot listen .*expected a free port"):
        CaseServer(str, port)


def test_a_failed_load_ends_the_server():
    def load() -> None:
        raise InputError("manifest.json: not found")

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with pytest.raises(HecktorError, match=r"manifest\.json: not found"):
        run_server(str, lambda: None, load, 0)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


PROGRAM = """
import logging, sys, threading, time
from contract.servers import run_server

ended = threading.Event()

def answer():
    print("begun", flush=True)
    return "best so far" if ended.wait(30) else "never asked to end"

def load():
    if len(sys.argv) > 1:
        print("loading", flush=True)
        time.sleep(1)

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
run_server(answer, ended.set, load, 0)
"""


@contextmanager
def start_server(program: str, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-u", "-c", textwrap.dedent(program), *arguments]
    with subprocess.Popen(
        reset_signals(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def read_port(process: subprocess.Popen[str]) -> int:
    return int(read_line(process).removeprefix("ready for cases on port "))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_the_current_case_with_an_answer_and_the_process_with_0(number):
    with start_server(PROGRAM) as process:
        with call_in_background(read_port(process)) as replies:
            assert read_line(process) == "begun"
            process.send_signal(number)
        assert replies == [(201, "best so far")]
        assert process.wait(30) == 0
        assert read_line(process) == f"{number.name}: draining"


def test_a_signal_without_a_case_ends_the_process_with_0():
    with start_server(PROGRAM) as process:
        read_port(process)
        process.terminate()
        assert process.wait(30) == 0


def test_a_signal_during_the_load_takes_effect_after_it():
    with start_server(PROGRAM, "slowly") as process:
        assert read_line(process) == "loading"
        process.terminate()
        read_port(process)
        assert process.wait(30) == 0


# Three threads of a case allocate and free arrays of 2 to 24 MB, as the reading of images does. The case then writes
# the C library's statistics to the file that is named.
ALLOCATING = """
import ctypes, logging, sys
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
    file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
    libc.malloc_info(0, file)
    libc.fclose(file)
    return "answered"

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
run_server(answer, lambda: None, lambda: None, 0)
"""


def read_resident_mb(process_id: int) -> float:
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1e3


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_freed_arrays_do_not_stay_with_the_server(tmp_path: Path) -> None:
    """All arrays of a case are freed before its reply, so that 10 cases leave no more than the first one.

    Without the limits that the server sets, glibc keeps up to 64 MB for each thread: 198 MB more after 25 cases. The
    threads of the cases share the pool ("heap") of the main thread.
    """
    with start_server(ALLOCATING, tmp_path / "pools.xml") as process:
        port = read_port(process)
        before = read_resident_mb(process.pid)
        for _ in range(10):
            assert call(port, "POST", "/invoke")[0] == 201
        assert read_resident_mb(process.pid) < 1.05 * before + 5
    assert (tmp_path / "pools.xml").read_text().count("<heap nr=") == 1
