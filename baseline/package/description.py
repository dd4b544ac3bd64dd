"""Description of a model by its author: name, purpose, licence, intended use, training data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from contract.errors import InputError
from contract.files import read_json

DEFAULTS: Final[Mapping[str, str]] = {
    "name": "hecktor-baseline",
    "purpose": "research; not a medical device",
    "intended_use": (
        "answering the tasks of the HECKTOR challenge from FDG-PET/CT of head and neck cancer, in research; "
        "never for diagnosis or treatment"
    ),
    "training_data": "not described",
    "licence": "not stated; the terms of the training data may bind what was trained on them",
}


def read_description(path: Path | None) -> dict[str, str]:
    """The description in a JSON file, completed with defaults; the defaults alone if `path` is None.

    Raises:
        InputError: no object, an unknown key, or a value that is not a non-empty text.
    """
    if path is None:
        return dict(DEFAULTS)
    content: Any = read_json(path)
    if not isinstance(content, dict):
        raise InputError(path.name, f"found a {type(content).__name__}", "an object")
    for key, value in content.items():
        if key not in DEFAULTS:
            raise InputError(path.name, f"found {key!r}", ", ".join(DEFAULTS))
        if not isinstance(value, str) or not value.strip():
            raise InputError(path.name, f"{key} is {value!r}", "a text")
    return {**DEFAULTS, **content}
