"""Finished rows on disk, one small JSON file each under the key of what they were made from."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from contract.errors import HecktorError
from contract.files import read_json, write_json

Row = TypeVar("Row")

# Part of every key: raised with any change to what a row holds or means, so that older ones are made anew.
ROWS_FORMAT: Final = 1
_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class RowStore(Generic[Row]):
    """A folder of rows, with their form in JSON and the way back."""

    folder: Path
    dump: Callable[[Row], Mapping[str, Any]]
    load: Callable[[Mapping[str, Any]], Row]

    def get(self, key: str) -> Row | None:
        """The row of a key; None where there is none, or a damaged one that must be made again."""
        path = self._path(key)
        if not path.is_file():
            return None
        try:
            return self.load(read_json(path, error=HecktorError))
        except (HecktorError, KeyError, TypeError, ValueError):
            return None

    def put(self, key: str, row: Row) -> None:
        """Keep a row, whole or not at all."""
        write_json(self._path(key), self.dump(row))

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"


def key_of(options: Mapping[str, Any], *files: Path) -> str:
    """A key that differs where the options, any file's name or any byte of a file differs."""
    digest = hashlib.sha256()
    digest.update(json.dumps([ROWS_FORMAT, options], sort_keys=True, default=str).encode())
    for path in files:
        digest.update(b"\n" + os.fsencode(path.name) + b"\n" + _sha256(path))
    return digest.hexdigest()


def _sha256(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.digest()
