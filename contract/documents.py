"""JSON documents as pydantic models: one class for each document, unknown keys refused, its JSON schema shipped.

A fault names the file, the path in it, what was found and what was expected::

    leaderboard.json.teams[3].score: found "x", expected a number
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, to_json

from contract.errors import HecktorError, InputError
from contract.files import MAX_JSON_BYTES, read_json

# Names become parts of file names, metric names and command lines.
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]
Text = Annotated[str, Field(pattern=r"\S")]


class Document(BaseModel):
    """Base of all documents and their parts: immutable, without unknown keys, without conversion of types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


AnyDocument = TypeVar("AnyDocument", bound=Document)

# Words for pydantic's types of error; the others use pydantic's own message.
_EXPECTED: Final[Mapping[str, str]] = {
    "missing": "this key",
    "extra_forbidden": "no such key",
    "string_type": "a text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "none_required": "null",
}


def read_document(
    path: Path, model: type[AnyDocument], *, error: type[HecktorError] = InputError, max_bytes: int = MAX_JSON_BYTES
) -> AnyDocument:
    """Read a JSON file as `model`, with the strictness of `contract.files.read_json`.

    Raises:
        HecktorError: of class `error`: the file is unusable or breaks the model.
    """
    return parse_document(read_json(path, error=error, max_bytes=max_bytes), model, path.name, error=error)


def parse_document(
    content: object, model: type[AnyDocument], name: str, *, error: type[HecktorError] = InputError
) -> AnyDocument:
    """Validate parsed JSON as `model`; `name` is the file in messages.

    Raises:
        HecktorError: of class `error`, for the first fault: its place, what was found and what was expected. Errors
            that a validator of the model raises keep their own fields.
    """
    try:
        return model.model_validate_json(to_json(content))
    except ValidationError as problem:
        raise document_error(problem, name, error) from None


def document_error(problem: ValidationError, name: str, error: type[HecktorError] = InputError) -> HecktorError:
    """The first fault of a failed validation as an error of one line."""
    faults = problem.errors(include_url=False)
    first = min(faults, key=lambda fault: fault["type"] != "extra_forbidden")
    more = f" ({len(faults) - 1} more faults)" if len(faults) > 1 else ""
    return error(name + _place(first["loc"]), f"found {_found(first)}", _expected(first) + more)


def json_schema(model: type[Document]) -> dict[str, Any]:
    """The JSON schema of a document."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}


def _place(location: Sequence[str | int]) -> str:
    """The path inside the document, such as `.teams[3].score`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


def _found(fault: ErrorDetails) -> str:
    if fault["type"] == "missing":
        return "nothing"
    text = json.dumps(fault["input"], default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _expected(fault: ErrorDetails) -> str:
    if fault["type"] in _EXPECTED:
        return _EXPECTED[fault["type"]]
    reason = str(fault.get("ctx", {}).get("error", "")) or fault["msg"]
    return reason.removeprefix("Input should be ").removeprefix("Value error, ")
