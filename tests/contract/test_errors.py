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
    GroundTruthError,
    HecktorError,
    InputError,
    MetricError,
    ModelPackageError,
    OutputError,
    PredictionError,
    TimeLimitError,
    format_sentence,
    replace_unprintable,
    run_main,
)
from contract.processes import map_in_processes

KINDS = [
    HecktorError,
    InputError,
    ModelPackageError,
    OutputError,
    GroundTruthError,
    PredictionError,
    MetricError,
    TimeLimitError,
    EngineError,
]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (("ct.mha",), "ct.mha"),
        (("ct.mha", "2 channels"), "ct.mha: 2 channels"),
        (("ct.mha", "2 channels", "one"), "ct.mha: 2 channels, expected one"),
        (("ct.mha", "", "one channel"), "ct.mha, expected one channel"),
    ],
)
def test_sentence_and_error_message(fields: tuple[str, ...], text: str) -> None:
    assert format_sentence(*fields) == text
    assert str(HecktorError(*fields)) == HecktorError(*fields).message == text


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (Finding("ehr.json", "missing Age"), "ehr.json: missing Age"),
        (Finding("ehr.json", "Age '-3'", "an age"), "ehr.json: Age '-3', expected an age"),
        (Finding("ehr.json", "unknown key 'x'", action="ignored"), "ehr.json: unknown key 'x'; ignored"),
        (Finding("a", "b", "c", "d"), "a: b, expected c; d"),
    ],
)
def test_finding_as_a_sentence(finding: Finding, text: str) -> None:
    assert str(finding) == text


def test_error_fields_are_unchanged_while_the_message_is_one_printable_line() -> None:
    error = InputError("ct\n.mha", "a\ttab and \ud800", "  one  ")
    assert (error.what, error.found, error.expected) == ("ct\n.mha", "a\ttab and \ud800", "  one  ")
    assert error.message == "ct .mha: a tab and \N{REPLACEMENT CHARACTER}, expected one"


def test_printable_replaces_control_characters_and_surrogates() -> None:
    assert replace_unprintable("a\x00b\ud800c é") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c é"


def state(error: BaseException) -> tuple[object, ...]:
    assert isinstance(error, HecktorError)
    return type(error), error.what, error.found, error.expected, error.message


@pytest.mark.parametrize("kind", KINDS)
def test_pickling_keeps_class_and_fields(kind: type[HecktorError]) -> None:
    error = kind("ct.mha", "2 channels", "one")
    assert state(pickle.loads(pickle.dumps(error))) == (
        kind, "ct.mha", "2 channels", "one", "ct.mha: 2 channels, expected one",
    )  # fmt: skip


def fail_in_worker(name: str) -> None:
    raise PredictionError(name, "2 channels", "one")


def test_error_from_a_worker_process_keeps_class_and_fields() -> None:
    with pytest.raises(PredictionError) as error:
        list(map_in_processes(fail_in_worker, ["mask.mha"], 1))
    assert state(error.value) == (
        PredictionError,
        "mask.mha",
        "2 channels",
        "one",
        "mask.mha: 2 channels, expected one",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_run_main_prints_an_error_as_the_last_line(
    kind: type[HecktorError], capsys: pytest.CaptureFixture[str]
) -> None:
    def main(argv: Sequence[str] | None) -> int:
        print("before")
        raise kind("ct.mha: two\n  lines,\texpected one")

    assert run_main(main, []) == 1
    captured = capsys.readouterr()
    assert captured.err == "error: ct.mha: two lines, expected one\n"
    assert captured.out == "before\n"


def test_run_main_propagates_a_bug() -> None:
    def main(argv: Sequence[str] | None) -> int:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        run_main(main, [])


def test_run_main_returns_the_exit_status() -> None:
    assert run_main(lambda argv: len(argv or ()), ["a", "b", "c"]) == 3


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize(("file", "name"), [("/deep/a.txt", "a.txt"), (b"b.txt", "b.txt"), (None, "a file"), (3, None)])
def test_run_main_prints_a_full_or_read_only_disk_as_one_line(
    code: int, file: object, name: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(argv: Sequence[str] | None) -> int:
        raise OSError(code, os.strerror(code), file)

    assert run_main(main, []) == 1
    expected = (
        f"error: {name or 'a file'}: cannot be written ({os.strerror(code)}), expected a writable disk with space\n"
    )
    assert capsys.readouterr().err == expected


def test_ctrl_c_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    assert run_main(interrupted) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def test_a_loop_of_links_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`Path.resolve` raises a RuntimeError for a link to itself, where other calls raise an OSError."""
    loop = tmp_path / "loop"
    loop.symlink_to("loop")

    def resolve(_: object) -> int:
        return len(loop.resolve().parts)

    assert run_main(resolve) == 1
    reason = os.strerror(errno.ELOOP)
    assert capsys.readouterr().err == f"error: {loop}: cannot be used ({reason}), expected a usable path\n"
