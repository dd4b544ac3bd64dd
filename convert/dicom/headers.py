"""Access to DICOM attributes with errors that name file and tag."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.errors import InputError

if TYPE_CHECKING:
    from pydicom.dataset import Dataset


@dataclass(frozen=True)
class DicomHeader:
    """Attributes of one DICOM file, or of one item of its sequences.

    `name` is the path relative to the input folder, for messages; `path` is the file.
    """

    name: str
    path: Path
    dataset: Dataset

    def optional(self, keyword: str) -> Any:
        """The value of an attribute; None if it is absent, empty or blank."""
        value = self._value(keyword)
        if value is None or (hasattr(value, "__len__") and len(value) == 0):
            return None
        return None if isinstance(value, str) and not value.strip() else value

    def text(self, keyword: str) -> str:
        """The value as text in one line, empty if absent."""
        value = self.optional(keyword)
        return "" if value is None else " ".join(str(value).split())

    def words(self, keyword: str) -> tuple[str, ...]:
        """The values of a multi-valued code string in capitals, empty if absent."""
        value = self.optional(keyword)
        if value is None:
            return ()
        values = [value] if isinstance(value, str) or not isinstance(value, Sequence) else value
        return tuple(str(one).strip().upper() for one in values)

    def required(self, keyword: str, expected: str) -> Any:
        """The value of an attribute.

        Raises:
            InputError: absent or empty; the message names file, keyword and tag.
        """
        value = self.optional(keyword)
        if value is None:
            raise InputError(self.name, f"found no {tag_name(keyword)}", expected)
        return value

    def optional_number(self, keyword: str) -> float | None:
        """The value as a finite number, None if absent.

        Raises:
            InputError: not a finite number.
        """
        value = self.optional(keyword)
        if value is None:
            return None
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise InputError(self.name, f"found {tag_name(keyword)} {str(value)[:40]!r}", "a number")
        return number

    def number(self, keyword: str, expected: str) -> float:
        """The value as a finite number; raises InputError if absent or not a number."""
        self.required(keyword, expected)
        number = self.optional_number(keyword)
        assert number is not None  # noqa: S101  `required` checked it
        return number

    def numbers(self, keyword: str, count: int | None, expected: str) -> tuple[float, ...]:
        """`count` finite numbers, any count if None; raises InputError for any other value."""
        value = self.required(keyword, expected)
        values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        try:
            numbers = tuple(float(one) for one in values)
        except (TypeError, ValueError):
            numbers = ()
        if len(numbers) != (count or len(values)) or not all(map(math.isfinite, numbers)):
            raise InputError(self.name, f"found {tag_name(keyword)} {str(value)[:60]}", expected)
        return numbers

    def items(self, keyword: str) -> tuple[DicomHeader, ...]:
        """The items of a sequence, empty if absent."""
        return tuple(DicomHeader(self.name, self.path, item) for item in self.optional(keyword) or ())

    def private(self, group: int, creator: str, element: int) -> Any:
        """A private element, such as (0009,xx0D) of creator GEMS_PETD_01; None if absent or empty."""
        from pydicom.tag import BaseTag

        dataset = self.dataset
        try:
            tag = dataset.private_block(group, creator).get_tag(element)
        except KeyError:
            if (group, 0x0010) in dataset:
                return None
            tag = BaseTag(group << 16 | 0x1000 | element)  # anonymisation may have removed the creator
        value = dataset[tag].value if tag in dataset else None
        if isinstance(value, bytes):  # of unknown type without its creator
            value = value.decode("ascii", "replace").strip(" \0")
        return value or None

    def _value(self, keyword: str) -> Any:
        try:
            return self.dataset.get(keyword)
        except Exception as problem:  # noqa: BLE001  values are parsed here, which raises many types in damaged files
            raise InputError(self.name, f"{tag_name(keyword)} cannot be read ({problem})", "a valid value") from None


def tag_name(keyword: str) -> str:
    """Keyword and tag of an attribute: `PatientWeight (0010,1030)`."""
    from pydicom.datadict import tag_for_keyword

    tag = tag_for_keyword(keyword) or 0
    return f"{keyword} ({tag >> 16:04X},{tag & 0xFFFF:04X})"
