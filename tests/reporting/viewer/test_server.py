"""The viewer's server and exported page: who gets an answer, and what."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from socket import create_connection
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from contract.errors import HecktorError, OutputError
from reporting.report.cli import main as report
from reporting.viewer import server
from reporting.viewer.case import build_case
from reporting.viewer.cohort import ViewerCohort
from reporting.viewer.server import export_viewer, serve_viewer
from tests.signals import reset_signals


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


WITHOUT_TOKEN = "/ /viewer.js /{wrong}/viewer.js /{short}/viewer.js /{token} /?token={token} /%C3%A9/viewer.js"
UNLISTED = """
../viewer.js %2e%2e/%2e%2e/etc/passwd /etc/passwd %2Fetc%2Fpasswd case/../viewer.js ./viewer.js viewer.js/ server.py
case/C-1/%2e%2e%2fC-1__CT.nii.gz case/C-1/C-1__CT.nii.gz case/%2e%2e/C-1__CT.nii.gz case/C-9 index.html
case/C-1/ case/ case case/C-1%00 case/C-1/../../viewer.js
"""
OTHER_HOSTS = ("evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1", "[::1]:{port}", "")


def test_without_token_listed_name_and_host_there_is_nothing(address: str) -> None:
    prefix, port = get_prefix(address), urlsplit(address).port
    token = prefix[1:]
    wrong = ("A" if token[0] != "A" else "B") + token[1:]
    paths = [path.format(token=token, wrong=wrong, short=token[:-1]) for path in WITHOUT_TOKEN.split()]
    requests = [(path, None) for path in (*paths, *(f"{prefix}/{name}" for name in UNLISTED.split()))]
    requests += [(f"{prefix}/viewer.js", host.format(port=port)) for host in OTHER_HOSTS]
    for path, host in requests:
        response, content = ask(address, path, host=host)
        assert (response.status, content) == (404, b""), (path, host)
    assert ask(address, f"{prefix}/viewer.js", host=f"localhost:{port}")[0].status == 200


def test_other_methods_are_refused(address: str) -> None:
    _, content = ask(address, f"{get_prefix(address)}/viewer.js")
    head, nothing = ask(address, f"{get_prefix(address)}/viewer.js", "HEAD")
    assert (head.status, head.headers["Content-Length"], nothing) == (200, str(len(content)), b"")
    for method in ("POST", "OPTIONS", "TRACE", "ODD"):
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


def test_a_signal_ends_it(cohort: ViewerCohort, tmp_path: Path) -> None:
    options = ["view", "--cohort", str(tmp_path / "cohort"), "--masks", f"A={tmp_path / 'A'}"]
    command = [sys.executable, "-c", "from hecktor.cli import entry; entry()", *options]
    with subprocess.Popen(reset_signals(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == "Reading the cohort and the results ...\n"
        line = process.stdout.readline()
        address = re.fullmatch(r"2 cases at (http://127\.0\.0\.1:\d+/[\w-]{32}/)\n", line)
        assert address is not None, line
        with urlopen(address[1] + "case/C-1") as response:
            assert response.status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0


def read_cases(page: Path) -> dict[str, dict]:
    """Return the cases of a page in their order."""
    scripts = re.findall(r'<script type="application/json" id="case-(\d+)">(.*?)</script>', page.read_text())
    assert [int(number) for number, _ in scripts] == list(range(len(scripts)))
    return {case["case"]: case for case in (json.loads(text) for _, text in scripts)}


def test_the_page_holds_what_the_server_sends(cohort: ViewerCohort, tmp_path: Path) -> None:
    page = export_viewer(tmp_path / "viewer", cohort)
    assert page == tmp_path / "viewer" / "index.html"
    sent = {name: json.loads(json.dumps(build_case(sources))) for name, sources in cohort.cases.items()}
    assert read_cases(page) == sent
    assert list(page.parent.iterdir()) == [page]
    text = page.read_text()
    assert "Copyright (c) 2021, Niivue" in text
    assert re.findall(r'(?:src|href)="([^"]*)"', text.replace("\\", "")[:3000]) == ["data:,"]


def test_an_earlier_page_is_replaced_and_another_file_is_not(cohort: ViewerCohort, tmp_path: Path) -> None:
    page = tmp_path / "viewer.html"
    export_viewer(page, cohort)
    export_viewer(page, cohort.select_worst(1))
    assert list(read_cases(page)) == ["C-1"]
    page.write_text("<p>mine</p>")
    with pytest.raises(OutputError, match=r"viewer\.html: exists and is not a viewer"):
        export_viewer(page, cohort)
    assert page.read_text() == "<p>mine</p>"


def test_a_failed_export_leaves_the_earlier_page(cohort: ViewerCohort, tmp_path: Path) -> None:
    page = export_viewer(tmp_path / "viewer.html", cohort.select_worst(1))
    before = page.read_bytes()
    cohort.cases["C-2"].files.ct.write_bytes(b"nothing")
    with pytest.raises(HecktorError, match="C-2__CT"):
        export_viewer(page, cohort)
    assert page.read_bytes() == before


def test_the_report_writes_a_page_of_the_worst_cases(ranked_cohort: Path) -> None:
    """Mean GTVp DSC: 1 of C-1 and 0.375 of C-2."""
    viewer, cohort = ranked_cohort / "viewer", ["--cohort", str(ranked_cohort / "cohort"), "--max-patients", "0"]
    options = ["--results", str(ranked_cohort / "results"), "--output", str(ranked_cohort / "report.html"), "--cases"]
    assert report([*options, *cohort, "--viewer", str(viewer), "--viewer-cases", "1"]) == 0
    assert list(read_cases(viewer / "index.html")) == ["C-2"]
    with pytest.raises(HecktorError, match="--viewer: found without --cohort, expected both"):
        report([*options, "--viewer", str(viewer)])
    assert not (viewer / "index.html").exists()
