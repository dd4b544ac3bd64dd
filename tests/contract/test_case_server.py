"""The server of the `invoke` mode of both kinds of images: replies, start and end."""

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

import pytest

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
def server(cases: Cases) -> Iterator[CaseServer]:
    """Start a server on a free port, in threads of this process."""
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
    assert call(port, "GET", "/health") == (503, "still loading, no cases are accepted yet")
    assert call(port, "POST", "/invoke")[0] == 503
    server.is_ready.set()
    assert call(port, "GET", "/health") == (200, "ready")
    assert call(port, "POST", "/invoke") == (201, "answered")


def test_a_bad_case_and_a_bug_do_not_fail_the_next_case(cases: Cases, server: CaseServer, port: int, caplog):
    def raise_input_error() -> str:
        raise InputError("a.mha: truncated, expected 12 bytes\nmore")

    def divide_by_zero() -> str:
        return str(1 / 0)

    server.is_ready.set()
    cases.coming += [raise_input_error, divide_by_zero]
    assert call(port, "POST", "/invoke") == (500, "a.mha: truncated, expected 12 bytes more")
    assert call(port, "POST", "/invoke") == (500, "internal error (ZeroDivisionError)")
    assert call(port, "GET", "/health")[0] == 200
    assert call(port, "POST", "/invoke") == (201, "answered")
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "error: a.mha: truncated, expected 12 bytes more",
        "a bug; the case is not at fault",
        "error: internal error (ZeroDivisionError)",
    ]


def test_a_folder_without_permission_is_one_line(cases: Cases, server: CaseServer, port: int, caplog, tmp_path):
    """The reply names path and command, and the log holds no trace."""

    def refuse() -> str:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    server.is_ready.set()
    cases.coming.append(refuse)
    status, message = call(port, "POST", "/invoke")
    assert status == 500
    assert "has no permission" in message
    assert f"chmod -R a+rX {tmp_path.parent}" in message or f"chmod a+rwX {tmp_path.parent}" in message
    assert [record.exc_info for record in caplog.records if record.levelname == "ERROR"] == [None]


def test_the_next_case_may_follow_at_once(server: CaseServer, port: int):
    """Cases end before their reply is sent, so that a fast caller is not rejected."""
    server.is_ready.set()
    assert {call(port, "POST", "/invoke") for _ in range(50)} == {(201, "answered")}


def test_one_case_at_a_time(cases: Cases, server: CaseServer, port: int):
    """While the first call is answered a second one is rejected, and health is reported."""
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
    assert call(port, "POST", "/invoke") == (201, "answered")


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


def test_a_body_is_ignored(server: CaseServer, port: int):
    server.is_ready.set()
    assert call(port, "POST", "/invoke", b"x" * 60_000) == (201, "answered")


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
    deadline = time.monotonic() + 30
    while (reply := call(port, "POST", "/invoke"))[0] == 409 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert reply == (201, "answered")


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

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
run_server(answer, ended.set, lambda: time.sleep(float(sys.argv[1])), 0)
"""


@contextmanager
def start_server(load_s: float) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-u", "-c", textwrap.dedent(PROGRAM), str(load_s)]
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_the_current_case_with_an_answer_and_the_process_with_0(number):
    with start_server(0) as process:
        port = int(read_line(process).rsplit(" ", 1)[1])
        with call_in_background(port) as replies:
            assert read_line(process) == "begun"
            process.send_signal(number)
        assert replies == [(201, "best so far")]
        assert process.wait(30) == 0
        assert read_line(process) == f"{number.name}: draining"


def test_a_signal_without_a_case_ends_the_process_with_0():
    with start_server(0) as process:
        assert read_line(process).startswith("ready")
        process.terminate()
        assert process.wait(30) == 0


def test_a_signal_during_the_load_takes_effect_after_it():
    with start_server(1) as process:
        time.sleep(0.5)
        process.terminate()
        assert process.wait(30) in {0, -signal.SIGTERM}  # the latter where Python itself was still starting
