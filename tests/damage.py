"""Plain data with one value damaged."""

from __future__ import annotations

import copy
from typing import Any


def damaged(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of the content with `value` at the path of keys; without the key if the value is `KeyError`."""
    whole = inner = copy.deepcopy(content)
    for key in path[:-1]:
        inner = inner[key]
    if value is KeyError:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return whole
