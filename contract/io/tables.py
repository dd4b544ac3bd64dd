"""Bounds of tables that strangers hand in, and what two cells of one meaning must share."""

from __future__ import annotations

from typing import Final

from contract.editions.clinical import is_missing
from contract.errors import HecktorError

MAX_TABLE_BYTES: Final = 16 * 1024 * 1024
MAX_TABLE_COLUMNS: Final = 10_000
MAX_TABLE_ROWS: Final = 100_000
# Cells that are kept in memory, each of which takes up to 60 bytes beside its text.
MAX_TABLE_CELLS: Final = 4_000_000
_TRUTH_VALUES: Final = {"true": 1.0, "false": 0.0}


def check_table_size(name: str, error: type[HecktorError], *, columns: int = 0, rows: int = 0, cells: int = 0) -> None:
    """Raise `error` if the table `name` has more columns, rows or cells than are read."""
    limits = (
        ("columns", columns, MAX_TABLE_COLUMNS),
        ("rows", rows, MAX_TABLE_ROWS),
        ("cells", cells, MAX_TABLE_CELLS),
    )
    for kind, count, limit in limits:
        if count > limit:
            raise error(name, f"more than {limit} {kind}", f"at most {limit}")


def normalise_cell(text: str) -> float | str:
    """Return what a cell says, equal for spellings of one value: `1`, `1.0` and `true`, or an empty cell and `NA`."""
    word = text.strip().lower()
    if is_missing(text):
        return ""
    if word in _TRUTH_VALUES:
        return _TRUTH_VALUES[word]
    try:
        return float(word.replace(",", "."))
    except ValueError:
        return word
