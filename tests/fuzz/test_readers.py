"""Random damage to a file of each kind, from a fixed seed; a crash of a library fails the test, too."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pytest

from contract.processes import fresh_processes
from tests.fuzz.readers import READERS

EDITS = 300
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


def damaged(content: bytes, rng: random.Random) -> bytes:
    """The content with one to four bytes altered, removed, repeated or replaced by a word that readers stumble over."""
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(content) + 1)
        length = rng.choice((0, 1, 1, 4, 30))
        new = rng.choice((b"", rng.randbytes(max(1, length)), content[place : place + length] * 2, rng.choice(WORDS)))
        content = content[:place] + new + content[place + length :]
    return content


def read_damaged(name: str) -> int:
    """Read all damaged files of one kind; the number that was refused."""
    reader, rng = READERS[name], random.Random(name)
    valid = reader.valid()
    return sum(not reader(content) for content in [rng.randbytes(600), *(damaged(valid, rng) for _ in range(EDITS))])


class Worker:
    """A process for all readers, and another one after a crash."""

    pool: ProcessPoolExecutor | None = None

    def refused(self, name: str) -> int:
        self.pool = self.pool or fresh_processes(1)
        try:
            return self.pool.submit(read_damaged, name).result()
        except BrokenProcessPool:
            self.pool = None
            raise


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    one = Worker()
    yield one
    if one.pool is not None:
        one.pool.shutdown()


@pytest.mark.parametrize("name", READERS)
def test_damage_is_refused_in_one_line_or_harmless(worker: Worker, name: str) -> None:
    assert worker.refused(name) > 0 or name == "request"


@pytest.mark.parametrize("name", READERS)
def test_the_undamaged_file_is_accepted(name: str) -> None:
    assert READERS[name](READERS[name].valid())
