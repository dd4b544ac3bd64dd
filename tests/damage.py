"""Replace values in any place of a JSON document, for tests of damaged files."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

ABSENT = object()


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to every value inside a JSON document."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*path, key)
        yield from list_paths(inner, (*path, key))


def replace_at(document: Any, path: Sequence[Any], value: Any) -> Any:
    """Return a copy of the document with the value in this place, or without the place for `ABSENT`."""
    if not path:
        return value
    document = copy.deepcopy(document)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    if value is not ABSENT:
        inner[path[-1]] = copy.deepcopy(value)
    elif isinstance(inner, dict):
        inner.pop(path[-1], None)
    else:
        del inner[path[-1]]
    return document
