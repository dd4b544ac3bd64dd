"""The server: who gets an answer, and what."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from socket import create_connection
from urllib.parse import urlsplit

import pytest

from contract.errors import HecktorError
from reporting.viewer import server
from reporting.viewer.cohort import ViewerCohort
from reporting.viewer.server import serve_viewer


@pytest.fixture
def address(cohort: ViewerCohort) -> Iterator[str]:
    with serve_viewer(cohort) as url:
        yield url


def ask(address: str, path: str, method: str = "GET", host: str | None = None) -> tuple[HTTPResponse, bytes]:
    """Send a path as it is; `host` replaces the Host header, an empty one leaves it out."""
    parts = urlsplit(address)
    connection = HTTPConnection("127.0.0.1", parts.port, timeout=60)
    connection.putrequest(method, path, skip_host=host is not None)
    if host:
        connection.putheader("Host", host)
    connection.endheaders()
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response, content


def get_prefix(address: str) -> str:
    """Return the path with the token, without the last slash."""
    return urlsplit(address).path.rstrip("/")


def test_the_address_is_local_and_secret(address: str, cohort: ViewerCohort) -> None:
    """24 random bytes are 32 letters in base 64; a second server has another token."""
    parts = urlsplit(address)
    assert (parts.scheme, parts.hostname) == ("http", "127.0.0.1")
    assert len(get_prefix(address)) == 1 + 32
    with serve_viewer(cohort) as second:
        assert get_prefix(second) != get_prefix(address)


def test_page_and_cases_are_served(address: str, cohort: ViewerCohort) -> None:
    response, content = ask(address, f"{get_prefix(address)}/")
    assert (response.status, response.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    (listing,) = re.findall(r'id="cohort">(.*?)</script>', content.decode())
    assert json.loads(listing) == cohort.listing
    response, content = ask(address, f"{get_prefix(address)}/case/C-1")
    assert (response.status, response.headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert json.loads(content)["case"] == "C-1"
    for name, kind in (
        ("viewer.js", "text/javascript"),
        ("viewer.css", "text/css"),
        ("niivue.umd.js", "text/javascript"),
    ):
        response, content = ask(address, f"{get_prefix(address)}/{name}")
        assert (response.status, response.headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
        assert content


def test_head_has_the_headers_of_get_and_no_content(address: str) -> None:
    _, content = ask(address, f"{get_prefix(address)}/viewer.js")
    head, nothing = ask(address, f"{get_prefix(address)}/viewer.js", "HEAD")
    assert (head.status, head.headers["Content-Length"], nothing) == (200, str(len(content)), b"")


WITHOUT_TOKEN = "/ /viewer.js /{wrong}/viewer.js /{short}/viewer.js /{token} /?token={token} /%C3%A9/viewer.js"


def test_without_the_token_there_is_nothing(address: str) -> None:
    token = get_prefix(address)[1:]
    wrong = ("A" if token[0] != "A" else "B") + token[1:]
    for path in WITHOUT_TOKEN.split():
        response, content = ask(address, path.format(token=token, wrong=wrong, short=token[:-1]))
        assert (response.status, content) == (404, b""), path


UNLISTED = """
../viewer.js %2e%2e/%2e%2e/etc/passwd /etc/passwd %2Fetc%2Fpasswd case/../viewer.js ./viewer.js viewer.js/ server.py
case/C-1/%2e%2e%2fC-1__CT.nii.gz case/C-1/C-1__CT.nii.gz case/%2e%2e/C-1__CT.nii.gz case/C-9 index.html
case/C-1/ case/ case case/C-1%00 case/C-1/../../viewer.js
"""


def test_only_listed_names_are_served(address: str) -> None:
    for path in UNLISTED.split():
        response, content = ask(address, f"{get_prefix(address)}/{path}")
        assert (response.status, content) == (404, b""), path


def test_another_host_name_gets_nothing(address: str) -> None:
    port = urlsplit(address).port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", "localhost:1", f"[::1]:{port}", ""):
        response, content = ask(address, f"{get_prefix(address)}/viewer.js", host=host)
        assert (response.status, content) == (404, b""), host


def test_localhost_is_the_same_machine(address: str) -> None:
    response, _ = ask(address, f"{get_prefix(address)}/viewer.js", host=f"localhost:{urlsplit(address).port}")
    assert response.status == 200


def test_other_methods_are_refused(address: str) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "ODD"):
        response, content = ask(address, f"{get_prefix(address)}/viewer.js", method)
        assert (response.status, response.headers["Allow"], content) == (405, "GET, HEAD", b""), method


def test_every_answer_has_the_security_headers(address: str) -> None:
    for path in ("viewer.js", "", "case/C-1", "nothing"):
        headers = ask(address, f"{get_prefix(address)}/{path}")[0].headers
        policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        expected = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
        expected |= {"Server": "hecktor", "Access-Control-Allow-Origin": None}
        assert {name: headers[name] for name in expected} == expected


def test_an_unreadable_ct_fails_only_its_case(address: str, cohort: ViewerCohort) -> None:
    ct = cohort.cases["C-1"].files.ct
    whole = ct.read_bytes()
    ct.write_bytes(b"nothing")
    response, content = ask(address, f"{get_prefix(address)}/case/C-1")
    assert (response.status, response.headers["Content-Type"]) == (500, "application/json; charset=utf-8")
    assert json.loads(content)["error"].startswith("C-1__CT.nii.gz: ")
    assert ask(address, f"{get_prefix(address)}/case/C-2")[0].status == 200
    ct.write_bytes(whole)
    assert ask(address, f"{get_prefix(address)}/case/C-1")[0].status == 200


def test_a_bug_fails_only_its_case(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> dict[str, object]:
        raise ZeroDivisionError("a secret of the program")

    monkeypatch.setattr(server, "build_case", fail)
    response, content = ask(address, f"{get_prefix(address)}/case/C-1")
    assert response.status == 500
    assert b"secret" not in content
    assert "a secret of the program" in capsys.readouterr().err
    assert ask(address, f"{get_prefix(address)}/viewer.js")[0].status == 200


def test_a_browser_that_leaves_early_is_no_error(
    address: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its connection closes after the first bytes of 50 MB, more than the buffers of both ends hold."""
    monkeypatch.setattr(server, "build_case", lambda _: {"ct": "a" * 50_000_000})
    with create_connection(("127.0.0.1", urlsplit(address).port or 0)) as connection:
        request = f"GET {get_prefix(address)}/case/C-1 HTTP/1.1\r\nHost: {urlsplit(address).netloc}\r\n\r\n"
        connection.sendall(request.encode())
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
    assert ask(address, f"{get_prefix(address)}/viewer.js")[0].status == 200
    time.sleep(0.2)
    assert capfd.readouterr().err == ""


def test_a_port_in_use_is_an_error(address: str, cohort: ViewerCohort) -> None:
    port = urlsplit(address).port
    with pytest.raises(HecktorError, match=f"--port: {port} cannot be used"), serve_viewer(cohort, port):
        pass
