"""Description of a model by its author."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from contract.documents import Document, Text, read_document


class Description(Document):
    """Name, purpose, intended use, training data and licence of a package."""

    name: Text = "hecktor-baseline"
    purpose: Text = "research; not a medical device"
    intended_use: Text = (
        "answering the tasks of the named challenge from images of head and neck cancer, in research; "
        "never for diagnosis or treatment"
    )
    training_data: Text = "not described"
    licence: Text = "not stated; the terms of the training data may bind what was trained on them"


DEFAULTS: Final[Mapping[str, str]] = Description().model_dump()


def read_description(path: Path | None) -> dict[str, str]:
    """The description in a JSON file, completed with defaults; the defaults alone if `path` is None."""
    return dict(DEFAULTS) if path is None else read_document(path, Description).model_dump()
