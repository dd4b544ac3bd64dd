"""JSON documents as pydantic models, parts of Markdown documents, and checks of JSON values.

Every document is one class, which refuses unknown keys. An error names the file, the path in it, the value and the
expectation::

    leaderboard.json.teams[3].score: found "x", expected a number
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json

from contract.errors import HecktorError, InputError
from contract.io.files import MAX_JSON_BYTES, read_json

# A number, or a placeholder for a missing number, in a cell of a Markdown table.
_NUMBER_CELL: Final = re.compile(r"-?\d[\d.]*( |$)|-$|undefined$")
# Maximum length of a name or of another string that is printed.
MAX_NAME_LENGTH: Final = 1000
# Unicode categories of control and format characters, surrogates, and separators of lines and paragraphs.
_UNPRINTABLE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Names become parts of file names, metric names and command lines.
NAME_PATTERN: Final = r"^[a-z][a-z0-9_-]*$"
TEXT_PATTERN: Final = r"\S"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Text = Annotated[str, Field(pattern=TEXT_PATTERN)]


def find_version(package: str, absent: str = "unknown") -> str:
    """Find the version of a package for a document's provenance; return `absent` if the package is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return absent


def check_unique(values: Iterable[str]) -> None:
    """Check that no value occurs more than once; raise ValueError, as pydantic's validators do."""
    twice = sorted(value for value, count in Counter(values).items() if count > 1)
    if twice:
        raise ValueError(f"each value once, not {', '.join(twice)} twice")


def check_keys(document: BaseModel, required: Sequence[str], optional: Sequence[str] = ()) -> None:
    """Check that a part of a document, which has one of several kinds, has the keys of its kind.

    Raises:
        ValueError: A key is missing or unknown; pydantic's validators raise the same exception.
    """
    keys = document.model_fields_set
    absent = [key for key in required if key not in keys]
    unknown = sorted(keys.difference(required, optional))
    problems = [f"without {', '.join(absent)}"] if absent else []
    problems += [f"with {', '.join(unknown)}"] if unknown else []
    if problems:
        raise ValueError(f"{', '.join([*required, *optional])}, not an object {' and '.join(problems)}")


def _check_different(texts: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(texts)) < len(texts):
        raise ValueError("a list of different strings")
    return texts


def _check_lower_case(word: str) -> str:
    if word != word.strip().lower():
        raise ValueError("words in lower case")
    return word


UniqueTexts = Annotated[tuple[Text, ...], AfterValidator(_check_different)]
# A lower-case word, which is compared with the cells of a table.
Word = Annotated[Text, AfterValidator(_check_lower_case)]


class Document(BaseModel):
    """Base class of all documents and their parts: immutable, without unknown keys, without conversion of types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)


class PlatformDocument(Document):
    """Base class of documents that the platform writes: unknown keys are ignored."""

    model_config = ConfigDict(extra="ignore", strict=False)


AnyDocument = TypeVar("AnyDocument", bound=Document)

# The expectation in the message for each error type of pydantic. Other types use pydantic's own message.
_EXPECTED: Final[Mapping[str, str]] = {
    "missing": "this key",
    "extra_forbidden": "no such key",
    "unexpected_keyword_argument": "no such key",
    "string_type": "a string",
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
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
}
_PATTERNS: Final[Mapping[str, str]] = {
    NAME_PATTERN: "a name of lower-case letters, digits, - and _",
    TEXT_PATTERN: "a string that is not blank",
}


def read_document(
    path: Path, model: type[AnyDocument], *, error: type[HecktorError] = InputError, max_bytes: int = MAX_JSON_BYTES
) -> AnyDocument:
    """Read a JSON file, as strictly as `contract.io.files.read_json`, and validate it as `model`.

    Raises:
        HecktorError: Of class `error`: the file is unusable or breaks the model.
    """
    return parse_document(read_json(path, error=error, max_bytes=max_bytes), model, path.name, error=error)


def check_texts(content: object, place: str, error: type[HecktorError], max_length: int = MAX_NAME_LENGTH) -> None:
    """Check that all keys and strings of a JSON document are single lines of printable characters and not too long.

    The strings are printed: an escape sequence would change the terminal, and a line break could forge a log line.

    Raises:
        HecktorError: Of class `error`, for the first string that is not such a line.
    """
    if isinstance(content, Mapping):
        for key, value in content.items():
            check_texts(str(key), place, error, max_length)
            check_texts(value, f"{place}.{key}", error, max_length)
    elif isinstance(content, list | tuple):
        for value in content:
            check_texts(value, place, error, max_length)
    elif isinstance(content, str):
        if len(content) > max_length:
            raise error(place, f"found a string of {len(content)} characters", f"at most {max_length}")
        if any(unicodedata.category(character) in _UNPRINTABLE_CATEGORIES for character in content):
            raise error(place, f"found {content[:60]!a}", "one line of printable characters")


def parse_document(
    content: object, model: type[AnyDocument], name: str, *, error: type[HecktorError] = InputError
) -> AnyDocument:
    """Validate parsed JSON as `model`; `name` is the name of the file in messages.

    Raises:
        HecktorError: Of class `error`, for the first error: its place, the value and the expectation. A `HecktorError`
            of a validator of the model is raised as it is.
    """
    try:
        return model.model_validate_json(to_json(content))
    except PydanticSerializationError:
        raise error(name, "text with an unpaired surrogate", "Unicode text") from None
    except ValidationError as problem:
        raise make_document_error(problem, name, error) from None


def make_document_error(
    problem: ValidationError,
    name: str,
    error: type[HecktorError] = InputError,
    *,
    keys: Mapping[str, str] | None = None,
) -> HecktorError:
    """Make a one-line error from the first error of a failed validation; unknown keys have precedence.

    Args:
        problem: The failed validation.
        name: Name of the file in messages.
        error: Class of the error.
        keys: Keys in the file by the model's field, for fields that have another name in the file.
    """
    first = min(problem.errors(include_url=False), key=lambda details: details["type"] != "extra_forbidden")
    location = [(keys or {}).get(part, part) if isinstance(part, str) else part for part in first["loc"]]
    return error(name + _format_location(location), f"found {_format_value(first)}", _format_expectation(first))


def build_json_schema(model: type[Document]) -> dict[str, Any]:
    """Build the JSON schema of a document."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}


def make_tag_reader(key: str) -> Callable[[Any], str]:
    """Make the discriminator of a union: a function that returns the value of a part's `key` in parentheses."""

    def read_tag(part: Any) -> str:
        return f"({part.get(key) if isinstance(part, Mapping) else getattr(part, key, None)})"

    return read_tag


def _format_location(location: Sequence[str | int]) -> str:
    """Format the path inside the document, such as `.teams[3].score`, without the tags of unions in parentheses."""
    parts = (part for part in location if isinstance(part, int) or not part.startswith("("))
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def _format_value(details: ErrorDetails) -> str:
    if details["type"] == "missing":
        return "nothing"
    value = details["input"]
    text = json.dumps(value, default=str)
    if len(text) <= 80:
        return text
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else f"{text[:77]}..."


def _format_expectation(details: ErrorDetails) -> str:
    kind = details["type"]
    context = details.get("ctx", {})
    if kind in _EXPECTED:
        return _EXPECTED[kind].format(**context)
    if kind == "literal_error":
        return f"one of {context['expected']}" if " or " in context["expected"] else str(context["expected"])
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(context["pattern"], f"a string of the form {context['pattern']}")
    reason = str(context.get("error", "")) or details["msg"]
    return reason.removeprefix("Input should be ").removeprefix("Value error, ")


def format_section(level: int, title: str, *parts: str) -> str:
    """Format a Markdown heading and the parts below it; empty parts are left out."""
    return "\n\n".join([f"{'#' * level} {escape_markdown(title)}", *filter(None, parts)])


def format_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format a Markdown table with right-aligned columns of numbers; empty if there are no rows."""
    if not rows:
        return ""
    are_numbers = [all(_NUMBER_CELL.match(str(row[column])) for row in rows) for column in range(len(header))]
    lines = [header, ["---:" if is_number_column else "---" for is_number_column in are_numbers], *rows]
    return "\n".join("| " + " | ".join(escape_markdown(str(cell)) for cell in line) + " |" for line in lines)


def format_bullets(lines: Sequence[str]) -> str:
    """Format a Markdown list."""
    return "\n".join(f"- {line}" for line in lines)


def escape_markdown(text: str) -> str:
    """Join the lines of a text, and escape vertical bars so that they do not end a table cell."""
    return " ".join(text.split()).replace("|", r"\|")


def is_text(value: object) -> bool:
    """Return whether a value is a string that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def is_integer(value: object) -> bool:
    """Return whether a value is a whole number; JSON's true and false are not numbers."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Return whether a value is a finite number that fits a double."""
    if type(value) is float:
        return math.isfinite(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_member(value: object, values: Sequence[object]) -> bool:
    """Return whether `values` contains `value` with the same type: true is not 1."""
    return (type(value), value) in [(type(member), member) for member in values]
