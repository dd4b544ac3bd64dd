"""A working folder that is gone, and numbers that are too long."""

from __future__ import annotations

import json

import pytest

from contract.errors import InputError, run_main
from contract.files import parse_json, read_json


def test_a_deleted_working_folder_is_an_error(tmp_path, monkeypatch, capsys):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert run_main(lambda _: len(str(tmp_path.cwd()))) == 1
    assert capsys.readouterr().err == "error: the working folder: it was deleted, expected an existing one (cd)\n"


def test_an_absent_file_stays_a_bug(tmp_path):
    with pytest.raises(FileNotFoundError):
        run_main(lambda _: len((tmp_path / "absent").read_text()))


@pytest.mark.parametrize("digits", [311, 5000])
@pytest.mark.parametrize("sign", ["", "-"])
def test_long_whole_numbers(tmp_path, digits, sign):
    """Beyond a double, as 1e400 is."""
    text = f'{{"a": {sign}{"7" * digits}, "b": 1}}'
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match="too large"):
        read_json(tmp_path / "a.json")
    assert parse_json(text, "a.json", accept_nan=True) == {"a": None, "b": 1}


def test_whole_numbers_of_a_double_keep_their_digits():
    for number in (0, -12, 2**63 + 1, 10**307 + 1):
        assert parse_json(json.dumps([number]), "a.json") == [number]
