"""Shared by studies: named inputs on the command line, and results as JSON, CSV and a picture."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from matplotlib.figure import Figure

from contract.errors import HecktorError
from contract.files import write_csv, write_json, write_text
from contract.versions import installed_version
from evaluation.report.drawing import svg_text

Value = TypeVar("Value")


def by_name(pairs: Sequence[tuple[str, Value]], what: str, at_least: int) -> dict[str, Value]:
    """The named values by name, in the order given.

    Raises:
        HecktorError: a name stands twice, or there are fewer than `at_least`.
    """
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise HecktorError(f"{what} {twice[0]!r} stands twice, expected each {what} once")
    if len(names) < at_least:
        raise HecktorError(f"{len(names)} {what}s, expected at least {at_least}")
    return dict(pairs)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add `--output`, the folder for the results."""
    parser.add_argument("--output", type=Path, required=True, help="folder for the results")


def write_study(
    folder: Path,
    name: str,
    content: Mapping[str, Any],
    table: Sequence[Mapping[str, Any]],
    picture: Figure | None = None,
) -> list[str]:
    """Write `<name>.csv`, `<name>.svg` if there is a picture, and last `<name>.json`, each whole.

    Args:
        folder: created if it does not exist.
        name: the study.
        content: the results as plain data; a number that is not finite becomes null.
        table: the CSV's lines; infinity is written as `inf`, an absent value as an empty field.
        picture: the plot.

    Returns:
        The files' names.
    """
    written = []
    if table:
        write_table(folder / f"{name}.csv", table)
        written.append(f"{name}.csv")
    if picture is not None:
        write_text(folder / f"{name}.svg", svg_text(picture, transparent=False))
        written.append(f"{name}.svg")
    write_json(folder / f"{name}.json", plain({"study": name, "version": installed_version("hecktor"), **content}))
    return [*written, f"{name}.json"]


def shown(figures: Mapping[str, Any]) -> str:
    """A value of `aggregates` with its interval, for a line on the screen."""
    value, low, high = (
        "inf" if key in figures.get("infinite", ()) else "null" if figures[key] is None else f"{figures[key]:.4f}"
        for key in ("value", "ci95_low", "ci95_high")
    )
    return f"{value}  [{low}, {high}]"


def write_table(target: Path, table: Sequence[Mapping[str, Any]]) -> None:
    """Write lines as CSV under the columns of all of them, in the order of their first appearance."""
    write_csv(target, list(dict.fromkeys(column for line in table for column in line)), table)


def plain(value: Any) -> Any:
    """The value with null for NaN and infinities, which JSON lacks."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value
