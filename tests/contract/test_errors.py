"""Errors and warnings: fields, messages, pickling and the exit status of a command."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest

from contract.errors import (
    EngineError,
    Finding,
    HecktorError,
    InputError,
    format_sentence,
    run_main,
)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (("ct.mha", "2 channels"), "ct.mha: 2 channels"),
        (("ct.mha", "2 channels", "one"), "ct.mha: 2 channels, expected one"),
        (("ct.mha", "", "one channel"), "ct.mha, expected one channel"),
    ],
)
def test_sentence_and_error_message(fields: tuple[str, ...], text: str) -> None:
    assert format_sentence(*fields) == text
    assert str(HecktorError(*fields)) == HecktorError(*fields).message == str(Finding(*fields)) == text
    assert str(Finding("a", "b", "c", "d")) == "a: b, expected c; d"


def test_error_fields_are_unchanged_while_the_message_is_one_printable_line() -> None:
    fields = ("ct\n.mha", "a\ttab, \x00 and \ud800 in é", "  one  ")
    error, odd = InputError(*fields), "\N{REPLACEMENT CHARACTER}"
    assert (error.what, error.found, error.expected) == fields
    assert error.message == f"ct .mha: a tab, {odd} and {odd} in é, expected one"


def test_pickling_keeps_class_and_fields() -> None:
    copy = pickle.loads(pickle.dumps(InputError("ct.mha", "2 channels", "one")))
    assert (type(copy), copy.what, copy.found, copy.expected) == (InputError, "ct.mha", "2 channels", "one")


def test_run_main_prints_an_error_as_the_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    def main(argv: Sequence[str] | None) -> int:
        print("before")
        raise EngineError("ct.mha: two\n  lines,\texpected one")

    assert run_main(main, []) == 1
    captured = capsys.readouterr()
    assert captured.err == "error: ct.mha: two lines, expected one\n"
    assert captured.out == "before\n"


@pytest.mark.parametrize(
    ("code", "file", "name"),
    [
        (errno.ENOSPC, "/deep/a.txt", "a.txt"),
        (errno.EROFS, b"b.txt", "b.txt"),
        (errno.EDQUOT, None, "a file"),
        (errno.EFBIG, 3, "a file"),
    ],
)
def test_run_main_prints_a_full_or_read_only_disk_as_one_line(
    code: int, file: object, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(argv: Sequence[str] | None) -> int:
        raise OSError(code, os.strerror(code), file)

    assert run_main(main, []) == 1
    reason = os.strerror(code)
    assert (
        capsys.readouterr().err == f"error: {name}: cannot be written ({reason}), expected a writable disk with space\n"
    )


def test_a_loop_of_links_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`Path.resolve` raises a RuntimeError for a link to itself, where other calls raise an OSError."""
    loop = tmp_path / "loop"
    loop.symlink_to("loop")

    def resolve(_: object) -> int:
        return len(loop.resolve().parts)

    assert run_main(resolve) == 1
    reason = os.strerror(errno.ELOOP)
    assert capsys.readouterr().err == f"error: {loop}: cannot be used ({reason}), expected a usable path\n"
