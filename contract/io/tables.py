"""Read and write CSV text for programs and spreadsheets."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.errors import HecktorError
from contract.io.files import read_bytes, write_text
from contract.platform import normalise_unicode

_CSV_IN_UTF8 = 'a CSV file in UTF-8: save it as "CSV UTF-8"'
# A spreadsheet evaluates a text that begins with one of these characters as a formula. Some spreadsheets also split a
# cell at semicolons and tabs, for example if they use a decimal comma. Numbers and a single dash are not formulas.
_AT_START = r"'*[=+@\t\r-](?=(?s:.))(?![\d.]+(e[+-]?\d+)?$|inf$)"
_AFTER_SEPARATOR = r"(?<=[;\t\r\n])"
_IN_CELL = r"[\"'\s]*[=+@-]"
_FORMULA = re.compile(rf"\A(?={_AT_START})|{_AFTER_SEPARATOR}(?={_IN_CELL})")
_MARKED_FORMULA = re.compile(rf"\A'(?={_AT_START})|{_AFTER_SEPARATOR}'(?={_IN_CELL})")


def write_csv(target: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a table atomically as `format_csv` formats it."""
    write_text(target, format_csv(columns, rows))


def format_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, for_people: bool = False) -> str:
    """Format a table as CSV with a header.

    Args:
        columns: Names of the columns.
        rows: Cells by column. A missing cell is empty.
        for_people: Whether people open the table in a spreadsheet. Then an apostrophe is put before a text that the
            spreadsheet would take for a formula, such as the name of a team that begins with `=`, or has `=` after a
            semicolon. Programs get the names as they are.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({column: _mark_formula(cell) for column, cell in row.items()} if for_people else row)
    return text.getvalue()


def _mark_formula(cell: Any) -> Any:
    return _FORMULA.sub("'", cell) if isinstance(cell, str) else cell


def remove_apostrophes(text: str) -> str:
    """Remove the apostrophes that `format_csv` put into a text for people."""
    return _MARKED_FORMULA.sub("", text)


def read_csv_text(path: Path, *, error: type[HecktorError], max_bytes: int) -> str:
    """Read the text of a CSV file in UTF-8; line ends become `\\n`.

    Raises:
        HecktorError: Of class `error`: see `read_text` and `decode_csv`.
    """
    content = read_bytes(path, "a CSV file", error=error, max_bytes=max_bytes, name=path.name)
    return decode_csv(content, path.name, error=error)


def decode_csv(content: bytes, name: str, *, error: type[HecktorError]) -> str:
    """Decode the content of a CSV file in UTF-8, with or without a byte order mark.

    Line ends become `\\n`, and the text is converted to Unicode form NFC.

    Raises:
        HecktorError: Of class `error`: the text has another encoding, or its first line is `sep=,` or similar, as
            spreadsheets write. The message tells how to save the table.
    """
    # UTF-16 text begins with a byte order mark, or with a character of one byte and a zero byte, in either order.
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or content[:2].count(0) == 1:
        raise error(name, "UTF-16 text", _CSV_IN_UTF8)
    try:
        text = normalise_unicode(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise error(name, "not UTF-8 text, perhaps Latin-1 or Windows-1252", _CSV_IN_UTF8) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    first_line = text.partition("\n")[0].strip().strip('"')
    if first_line.lower().startswith("sep=") and len(first_line) <= len("sep=") + 1:
        raise error(name, f'"{first_line}" in line 1', f"the names of the columns; {_CSV_IN_UTF8}")
    return text
