"""An error in a document names the file, the place in it, and the found and expected values."""

from __future__ import annotations

import numpy as np
import pytest

from contract.documents import Document, Name, find_version, parse_document
from contract.errors import GroundTruthError, InputError


class Entry(Document):
    name: Name
    score: float


class Board(Document):
    format: int
    entries: tuple[Entry, ...]


def test_versions() -> None:
    assert find_version("numpy") == np.__version__
    assert find_version("no-such-package") == "unknown"


GOOD = {"format": 1, "entries": [{"name": "alpha", "score": 1}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({**GOOD, "format": 1.5}, "board.json.format: found 1.5, expected a whole number"),
        ({**GOOD, "entries": [{"name": "a", "score": "x"}]}, 'board.json.entries[0].score: found "x", expected a'),
        ([1], "board.json: found [1], expected an object"),
    ],
)
def test_a_fault_names_its_place(content: object, message: str) -> None:
    """Tests of editions, manifests and `predictions.json` have the other faults."""
    with pytest.raises(InputError) as problem:
        parse_document(content, Board, "board.json")
    assert problem.value.message.startswith(message)


def test_the_unknown_key_comes_first() -> None:
    """Unknown keys are often misspellings of missing ones."""
    with pytest.raises(GroundTruthError, match=r"board\.json\.formt: found 1"):
        parse_document({"formt": 1, "entries": []}, Board, "board.json", error=GroundTruthError)
