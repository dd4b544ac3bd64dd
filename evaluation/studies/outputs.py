"""What studies have in common: named inputs on the command line, and results as JSON, CSV and a picture."""

from __future__ import annotations

import argparse
import csv
import io
import math
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from matplotlib.figure import Figure

from contract.errors import HecktorError
from contract.files import write_json, write_text
from evaluation.report.drawing import svg_text

Value = TypeVar("Value")


def named_path(text: str) -> tuple[str, Path]:
    """NAME=PATH, for argparse."""
    name, sign, path = text.partition("=")
    if not sign or not name.strip() or not path:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=PATH")
    return name.strip(), Path(path)


def named_paths(text: str) -> tuple[str, list[Path]]:
    """NAME=PATH,PATH for argparse."""
    name, sign, paths = text.partition("=")
    found = [Path(path) for path in paths.split(",") if path]
    if not sign or not name.strip() or not found:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=FILE,FILE")
    return name.strip(), found


def by_name(pairs: Sequence[tuple[str, Value]], what: str, at_least: int) -> dict[str, Value]:
    """The named things by name, in the order given.

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
    """The folder that every study writes to."""
    parser.add_argument("--output", type=Path, required=True, help="folder for the results")


def write_study(
    folder: Path,
    name: str,
    content: Mapping[str, Any],
    table: Sequence[Mapping[str, Any]],
    picture: Figure | None = None,
) -> list[str]:
    """Write `<name>.csv`, `<name>.svg` where there is a picture, and last `<name>.json`, each whole.

    Args:
        folder: where to; made if need be.
        name: the study.
        content: the results, plain data; a number that is not finite becomes null.
        table: the CSV's lines, in which infinity stands as `inf` and what is absent as an empty field.
        picture: what to draw.

    Returns:
        The files' names.
    """
    written = []
    if table:
        write_text(folder / f"{name}.csv", as_csv(table))
        written.append(f"{name}.csv")
    if picture is not None:
        write_text(folder / f"{name}.svg", svg_text(picture, transparent=False))
        written.append(f"{name}.svg")
    write_json(folder / f"{name}.json", plain({"study": name, "version": _version(), **content}))
    return [*written, f"{name}.json"]


def shown(found: Mapping[str, Any]) -> str:
    """A figure of `aggregates` with its interval, for a line on the screen."""
    value, low, high = (
        "inf" if key in found.get("infinite", ()) else "null" if found[key] is None else f"{found[key]:.4f}"
        for key in ("value", "ci95_low", "ci95_high")
    )
    return f"{value}  [{low}, {high}]"


def as_csv(table: Sequence[Mapping[str, Any]]) -> str:
    """Lines under the columns of all of them, in the order of their first appearance."""
    columns = list(dict.fromkeys(column for line in table for column in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


def plain(value: Any) -> Any:
    """The value as JSON can hold it: without NaN and infinities."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def _version() -> str:
    try:
        return version("hecktor")
    except PackageNotFoundError:
        return "unknown"
