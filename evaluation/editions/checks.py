"""Checks of a profile's JSON; each error names the place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from contract.editions.values import is_member, is_number, is_text
from contract.errors import HecktorError


def object_with(raw: Any, where: str, keys: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """The object `raw`, if it has exactly these keys."""
    if not isinstance(raw, dict):
        raise HecktorError(where, f"found a {type(raw).__name__}", "an object")
    unknown, absent = sorted(set(raw) - set(keys) - set(optional)), sorted(set(keys) - set(raw))
    if unknown or absent:
        parts = [f"{word} {', '.join(names)}" for word, names in (("unknown", unknown), ("absent", absent)) if names]
        raise HecktorError(where, f"keys {'; '.join(parts)}; expected exactly {', '.join(keys)}")
    return raw


def nonempty(content: Mapping[str, Any], key: str, where: str, entry: str) -> dict[str, Any]:
    """The object `content[key]`, if it has an entry; `entry` is the word for one."""
    value = content[key]
    if not isinstance(value, dict) or not value:
        raise HecktorError(f"{where}.{key}", f"expected an object with at least one {entry}")
    return value


def text(content: Mapping[str, Any], key: str, where: str) -> str:
    """The text `content[key]`, if it is not empty."""
    value = content[key]
    if not is_text(value):
        raise HecktorError(f"{where}.{key}", f"found {shown(value)}", "a text")
    return str(value)


def choice(content: Mapping[str, Any], key: str, choices: tuple[object, ...], where: str) -> Any:
    """The value `content[key]`, if it is one of `choices`."""
    value = content[key]
    if not is_member(value, choices):
        wanted = ", ".join(map(json.dumps, choices))
        raise HecktorError(f"{where}.{key}", f"found {shown(value)}", f"{'one of ' * (len(choices) > 1)}{wanted}")
    return value


def number(content: Mapping[str, Any], key: str, bounds: tuple[float, float], where: str) -> float:
    """The number `content[key]`, if it lies within `bounds`, the upper one excluded."""
    value, (low, high) = content[key], bounds
    if not is_number(value) or not low <= value < high:
        raise HecktorError(
            f"{where}.{key}", f"found {shown(value)}", f"a number from {low:g} up to, not including, {high:g}"
        )
    return float(value)


def shown(value: object) -> str:
    """A value as the profile spells it, cut to 80 characters."""
    return json.dumps(value)[:80]
