"""The rows of one answer as columns, read from metrics.json without an object for each row.

The models of rows (`RowPart`) declare what a row is: their fields, and rules that relate the fields. A model applies
them to one row, and `read_table` applies them to all rows at once, which is several times faster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, compress
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Annotated, Any, ClassVar, Self, get_args, get_origin

import numpy as np
from pydantic import TypeAdapter, model_validator
from pydantic.fields import FieldInfo

from contract.documents import Document
from evaluation.metrics.overlap import Floats


@dataclass(frozen=True)
class RowRule:
    """A rule about fields of one row.

    Attributes:
        fields: Names of the fields; `gtvp.predicted_voxels` is a field of the nested object `gtvp`.
        check_columns: Takes the column of each field and returns whether all rows follow the rule. To check a single
            row, the columns have one element.
        expected: The expectation, for the message about a row that breaks the rule.
    """

    fields: tuple[str, ...]
    check_columns: Callable[..., bool]
    expected: str


class RowPart(Document):
    """Base of rows and of the objects in rows."""

    RULES: ClassVar[tuple[RowRule, ...]] = ()

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        for rule in self.RULES:
            if not rule.check_columns(*([attrgetter(name)(self)] for name in rule.fields)):
                raise ValueError(rule.expected)
        return self


@dataclass(frozen=True)
class RowTable:
    """The rows of one answer as columns.

    Attributes:
        columns: The values of each field, as in JSON. `gtvp.dsc` is the field `dsc` of the nested object `gtvp`; it is
            None in rows without this object. The column `gtvp` itself is True in rows with the object, otherwise None.
    """

    columns: Mapping[str, Sequence[Any]]

    @property
    def cases(self) -> Sequence[str]:
        """The names of the cases."""
        return self.columns["case"]

    @property
    def errors(self) -> Sequence[str | None]:
        """The reason why a case has no usable prediction, None if it has one."""
        return self.columns["error"]

    def numbers(self, name: str) -> Floats:
        """Return a column of numbers or booleans as an array, NaN for None."""
        return np.array(self.columns[name], dtype=np.float64)

    def select(self, is_selected: Collection[bool]) -> RowTable:
        """Return the rows for which `is_selected` is true."""
        if all(is_selected):
            return self
        return RowTable({name: list(compress(values, is_selected)) for name, values in self.columns.items()})


def read_table(model: type[RowPart], rows: Sequence[Mapping[str, Any]]) -> RowTable:
    """Check rows as columns and return the columns.

    Accepts the same rows as `model`, without the fields that it does not store.

    Args:
        model: Class of the rows.
        rows: Parsed JSON objects with the names of the model's fields as keys.

    Raises:
        ValueError, TypeError, KeyError: `model` does not accept a row. The error does not name the row; validate the
            rows one by one with `model` to find it.
    """
    return RowTable(_read_objects(model, rows))


def _read_objects(model: type[RowPart], rows: Sequence[Mapping[str, Any]]) -> dict[str, Sequence[Any]]:
    """Check objects of one class and return their columns; raise the exceptions of `read_table`."""
    fields = {name: field for name, field in model.model_fields.items() if not field.exclude}
    if not fields.keys() >= set(chain.from_iterable(rows)):
        raise ValueError("an unknown key")
    columns: dict[str, Sequence[Any]] = {}
    for name, field in fields.items():
        values = _read_column(rows, name, field)
        part = _find_part(field.annotation)
        if part is None:
            columns[name] = _make_adapter(model, name).validate_python(values)
        elif get_origin(field.annotation) is list:
            # The objects of a list are only checked; the column keeps the lists.
            _check_types(values, list)
            _read_objects(part, list(chain.from_iterable(values)))
            columns[name] = values
        else:
            columns |= _read_nested_objects(name, part, values, is_optional=NoneType in get_args(field.annotation))
    for rule in model.RULES:
        if not rule.check_columns(*(columns[name] for name in rule.fields)):
            raise ValueError(rule.expected)
    return columns


def _read_column(rows: Sequence[Mapping[str, Any]], name: str, field: FieldInfo) -> list[Any]:
    """Return the values of a field, or its default for a row without it; raise `KeyError` if it has no default."""
    if field.is_required():
        return list(map(itemgetter(name), rows))
    default = field.get_default(call_default_factory=True)
    return [row.get(name, default) for row in rows]


def _find_part(annotation: Any) -> type[RowPart] | None:
    """Return the class of the objects in a field; None if the field contains no objects."""
    candidates = (annotation, *get_args(annotation))
    return next((part for part in candidates if isinstance(part, type) and issubclass(part, RowPart)), None)


@cache
def _make_adapter(model: type[RowPart], name: str) -> TypeAdapter[list[Any]]:
    """Make the validator of a column, which checks each value as the model checks its field."""
    field = model.model_fields[name]
    values = field.annotation
    if field.metadata:
        values = Annotated[values, *field.metadata]  # type: ignore[assignment]
    return TypeAdapter(list[values], config=model.model_config)  # type: ignore[valid-type]


def _read_nested_objects(
    name: str, part: type[RowPart], values: Sequence[Any], *, is_optional: bool
) -> dict[str, Sequence[Any]]:
    """Read nested objects as columns.

    Rows without the object get None in each column. The column `name` marks the rows that have the object.
    """
    present = [value for value in values if value is not None]
    if len(present) < len(values) and not is_optional:
        raise TypeError("null in place of an object")
    _check_types(present, dict)
    columns: dict[str, Sequence[Any]] = {name: [True] * len(present)}
    columns |= {f"{name}.{key}": column for key, column in _read_objects(part, present).items()}
    if len(present) == len(values):
        return columns
    return {key: _fill_gaps(column, values) for key, column in columns.items()}


def _fill_gaps(column: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Return a column of the objects among `values`, with None where a value is None."""
    remaining = iter(column)
    return [None if value is None else next(remaining) for value in values]


def _check_types(values: Sequence[Any], expected: type) -> None:
    if set(map(type, values)) - {expected}:
        raise TypeError("a value of another type")
