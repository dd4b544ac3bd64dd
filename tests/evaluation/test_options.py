"""Options that commands of evaluation share."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from evaluation.options import parse_name_path, parse_name_paths


def test_a_named_path_may_hold_further_equals_signs_and_commas() -> None:
    assert parse_name_path("team=a=b,c") == ("team", Path("a=b,c"))
    assert parse_name_paths(" team =a=b,c") == ("team", [Path("a=b"), Path("c")])


@pytest.mark.parametrize("text", ["team", "=folder", " =folder", "team="])
def test_a_named_path_needs_a_name_and_a_path(text: str) -> None:
    for read in (parse_name_path, parse_name_paths):
        with pytest.raises(argparse.ArgumentTypeError, match="expected NAME=PATH"):
            read(text)
