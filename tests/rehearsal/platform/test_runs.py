"""Reasons for failures, and logs as the platform keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rehearsal.platform.runs import find_log_warnings, find_run_failure, read_last_line
from rehearsal.runners.monitor import RunOutcome
from rehearsal.runners.runner import GIB, Limits


def test_the_last_line_skips_blank_ones_and_is_cut(tmp_path: Path):
    log = tmp_path / "c.stderr"
    log.write_bytes(b"first\n" + b"x" * 2000 + b"\n \n\n")
    assert read_last_line(log) == "x" * 1024
    log.write_bytes(b"\n")
    assert read_last_line(log) == ""
    assert read_last_line(tmp_path / "absent") == ""


def test_the_message_is_among_the_last_100_lines(tmp_path: Path):
    log = tmp_path / "log.stderr"
    log.write_text("the reason\n" + "\n" * 99)
    assert read_last_line(log) == "the reason"
    log.write_text("the reason\n" + "\n" * 100)
    assert read_last_line(log) == ""


@given(st.binary(max_size=2000))
def test_a_log_may_hold_any_bytes(tmp_path_factory, content):
    log = tmp_path_factory.mktemp("log") / "c.stderr"
    log.write_bytes(content)
    assert len(read_last_line(log)) <= 1024
    try:
        content.decode()
    except UnicodeDecodeError:
        assert any("not UTF-8" in line for line in find_log_warnings(log))
    else:
        assert not any("not UTF-8" in line for line in find_log_warnings(log))


@pytest.mark.parametrize("code", [137, -9])
def test_a_kill_is_explained_by_memory(tmp_path: Path, code):
    message = find_run_failure(RunOutcome(code, 1.0, False, None), Limits(16 * GIB, 600), tmp_path / "absent")
    assert message is not None
    assert "memory beyond 16 GiB; the platform would fail the job" in message


def test_a_last_line_holds_no_escapes(tmp_path: Path):
    (tmp_path / "log").write_bytes(b"first\n\x1b]0;pwned\x07\x1b[31mfake\n")
    assert read_last_line(tmp_path / "log") == "\ufffd]0;pwned\ufffd\ufffd[31mfake"
