"""Load an edition's declaration from its JSON file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from contract.documents import parse_document
from contract.editions.declaration import Edition
from contract.errors import HecktorError
from contract.files import parse_json, read_json

DEFAULT_EDITION: Final = "hecktor2025"


def known_editions() -> tuple[str, ...]:
    """Names of the editions that come with the package."""
    names = (entry.name for entry in files("contract.editions").iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))


@cache
def load_edition(name_or_path: str = DEFAULT_EDITION) -> Edition:
    """Load an edition by its name, or a declaration file (`.json`) by its path.

    A relative path of an evaluation profile is resolved against the folder of the declaration file.

    Raises:
        HecktorError: no such edition or file, or a declaration that breaks the schema; the message names the place.
    """
    if name_or_path in known_editions():
        source = f"{name_or_path}.json"
        text = files("contract.editions").joinpath(source).read_text(encoding="utf-8")
        return _edition(parse_json(text, source, error=HecktorError), source).loaded_from(name_or_path, None)
    path = Path(name_or_path)
    if path.suffix != ".json":
        choices = ", ".join(known_editions())
        raise HecktorError("edition", f"found {name_or_path!r}", f"one of {choices} or a declaration.json")
    edition = _edition(read_json(path, error=HecktorError), path.name)
    return edition.loaded_from(str(path.resolve()), path.resolve().parent)


def _edition(content: object, where: str) -> Edition:
    if isinstance(content, dict) and "tasks" in content:
        raise HecktorError(where, "found an evaluation profile", "the declaration of an edition, with its algorithms")
    return parse_document(content, Edition, where, error=HecktorError)
