"""Random damage to a file of each kind, from a fixed seed; a crash of a library fails the test, too."""

from __future__ import annotations

import random
import traceback

import pytest

from contract.processes import WorkerDeath, map_in_processes
from tests.fuzz.readers import READERS

EDITS = 200
WORDS = (
    b"\0",
    b"\n",
    b"{}",
    b"[]",
    b"null",
    b"-1",
    b"1e999",
    b"9" * 5000,
    b"../",
    b"\xff\xff\xff\xff",
    b'"',
    b"\xc2\xb2",
)


def damage(content: bytes, rng: random.Random) -> bytes:
    """Alter, remove or repeat one to four places of the content, or replace them by words that confuse readers."""
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(content) + 1)
        length = rng.choice((0, 1, 1, 4, 30))
        new = rng.choice((b"", rng.randbytes(max(1, length)), content[place : place + length] * 2, rng.choice(WORDS)))
        content = content[:place] + new + content[place + length :]
    return content


def read_damaged(name: str) -> int:
    """Read all damaged files of one kind; return the number of refused files."""
    reader, rng = READERS[name], random.Random(name)
    valid = reader.valid()
    return sum(not reader(content) for content in [rng.randbytes(600), *(damage(valid, rng) for _ in range(EDITS))])


def try_damaged(name: str) -> int | str:
    """Return the number of files that were refused, or the trace of a failure."""
    try:
        return read_damaged(name)
    except Exception:  # noqa: BLE001 - the test of this reader fails
        return traceback.format_exc()


@pytest.fixture(scope="module")
def refusals() -> dict[str, int | str | WorkerDeath]:
    """Results of all readers by name; a crash of one process leaves the others."""
    names = list(READERS)
    return {names[index]: result for index, result in map_in_processes(try_damaged, names, 1)}


@pytest.mark.parametrize("name", READERS)
def test_damage_is_refused_in_one_line_or_harmless(refusals: dict[str, int | str | WorkerDeath], name: str) -> None:
    number = refusals[name]
    assert isinstance(number, int), number
    assert number > 0 or name == "request"


@pytest.mark.parametrize("name", READERS)
def test_the_undamaged_file_is_accepted(name: str) -> None:
    assert READERS[name](READERS[name].valid())
