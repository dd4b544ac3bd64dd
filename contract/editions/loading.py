"""Load an edition from its JSON documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from contract.documents import parse_document
from contract.editions.edition import Edition
from contract.editions.whole import DEFAULT_EDITION, PROFILE, SHIPPED, whole_edition
from contract.errors import HecktorError
from contract.files import parse_json, read_json

_TEXT: Final = "edition"


def known_editions() -> tuple[str, ...]:
    """Names of the editions that come with the package."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.json")))


def load_edition(name_or_path: str = DEFAULT_EDITION) -> Edition:
    """Load an edition by its name, by the path of its declaration or profile (`.json`), or from a JSON text with both.

    Raises:
        HecktorError: no such edition or file, or a declaration that breaks the schema; the message names the place.
    """
    if name_or_path in known_editions() or name_or_path.startswith("{"):
        return _without_file(name_or_path)
    path = Path(name_or_path)
    if path.suffix != ".json":
        choices = ", ".join(known_editions())
        raise HecktorError("edition", f"found {name_or_path!r}", f"one of {choices} or the JSON file of an edition")
    content, profile_place = _from_file(path)
    return _checked(content, path.name, str(path.absolute()), profile_place)


@cache
def _without_file(name_or_text: str) -> Edition:
    """An edition of the package, or one that a file embeds, which names no further file."""
    if not name_or_text.startswith("{"):
        return _edition(_shipped(name_or_text), f"{name_or_text}.json").loaded_from(name_or_text)
    content, place = parse_json(name_or_text, _TEXT, error=HecktorError), f"{_TEXT}.{PROFILE}"
    if str(content.get(PROFILE)).endswith(".json"):
        raise HecktorError(place, f"found {content[PROFILE]!r}", "a profile itself, or the name of one of the package")
    return _checked(content, _TEXT, name_or_text, place)


def _checked(content: Any, where: str, source: str, profile_place: str) -> Edition:
    edition = _edition(content, where)
    if edition.name not in known_editions():
        return edition.loaded_from(source, content, profile_place)
    shipped = _shipped(edition.name)
    if declared_part(content) != declared_part(shipped):
        found = f"found {edition.name!r}, an edition of the package with other contents"
        raise HecktorError(f"{where}.name", found, "a name of its own")
    return edition.loaded_from(source, None if content == shipped else content, profile_place)


def _from_file(path: Path) -> tuple[Any, str]:
    content = read_json(path, error=HecktorError)
    if not isinstance(content, dict) or "tasks" not in content:
        _edition(content, path.name)  # its faults before those of its profile
    try:
        return whole_edition(path, partial(read_json, error=HecktorError))
    except ValueError as problem:
        raise HecktorError(str(problem)) from None


def edition_from(content: Mapping[str, Any]) -> Edition:
    """The edition of a document that embeds it, see `Edition.content`. Raises as `load_edition`."""
    return load_edition(json.dumps(content, sort_keys=True))


def declared_part(content: Mapping[str, Any]) -> dict[str, Any]:
    """The declaration without the evaluation profile."""
    return {key: value for key, value in content.items() if key != PROFILE}


def content_digest(content: Mapping[str, Any] | None) -> str:
    """First digits of the sha256 of an edition's text; `none` for an edition of the package."""
    if content is None:
        return "none"
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _shipped(name: str) -> Any:
    return read_json(SHIPPED / f"{name}.json", error=HecktorError)


def _edition(content: object, where: str) -> Edition:
    return parse_document(content, Edition, where, error=HecktorError)
