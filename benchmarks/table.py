"""Timings as a report, and a report as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.cases import Measurement
from benchmarks.data import SIZES
from benchmarks.timing import Timing

FORMAT_VERSION = 1
HEADER = ("measurement", "min", "median", "p90", "peak MiB", "ratio", "to")


def report_rows(measured: Sequence[tuple[Measurement, Timing]]) -> list[dict[str, Any]]:
    """One row a measurement; `ratio` is the quotient of medians, None where its partner was not measured."""
    medians = {measurement.key: timing.median_s for measurement, timing in measured}
    rows = []
    for measurement, timing in measured:
        partner = medians.get(measurement.against or "")
        rows.append(
            {
                "group": measurement.group,
                "name": measurement.name,
                "what": measurement.what,
                **timing.as_json(),
                "against": measurement.against,
                "ratio": timing.median_s / partner if partner else None,
            }
        )
    return rows


def heading(report: Mapping[str, Any]) -> str:
    """What the figures were measured on and with, as a paragraph."""
    machine, model, data = report["machine"], report["model"], report["data"]
    packages = ", ".join(f"{name} {machine['packages'][name]}" for name in ("torch", "SimpleITK", "numpy"))
    where = f"{machine['cpu_model']}, {machine['usable_cores']} cores, {machine['memory_gib']} GiB, {machine['system']}"
    load = f"load {machine['load_average_at_start']} at the start"
    lines = [f"{where}, {load}. Python {machine['python']}, {packages}."]
    lines.append(f"Model: {model['name']}, {model['folds']} folds. Cohort of {data['evaluation_cases']} cases.")
    for size in SIZES:
        ct, pet = _grid(data[size]["ct-image"]), _grid(data[size]["pet-image"])
        lines.append(f"{size.replace('_', ' ')}: CT {ct}, PET {pet}.")
    return "\n".join(lines)


def _grid(grid: Mapping[str, Any]) -> str:
    return " x ".join(map(str, grid["size"])) + " at " + " x ".join(f"{step:g}" for step in grid["spacing_mm"]) + " mm"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as Markdown tables that also read well as plain text, one a group."""
    return "\n".join(_lines(rows))


def _lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    cells = [_cells(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(HEADER, *cells, strict=True)]
    group = None
    for row, texts in zip(rows, cells, strict=True):
        if row["group"] != group:
            group = row["group"]
            yield from ("", f"**{group.replace('_', ' ')}**", "")
            yield _line(HEADER, widths)
            yield (
                "|"
                + "|".join("-" * (width + 1) + ("-" if n in {0, 6} else ":") for n, width in enumerate(widths))
                + "|"
            )
        yield _line(texts, widths)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    seconds, ratio = row["seconds"], row["ratio"]
    against = (row["against"] or "").rpartition("/")[2] if ratio is not None else ""
    return (
        row["name"],
        *(shown_seconds(seconds[key]) for key in ("min", "median", "p90")),
        f"{row['peak_memory_mib']:.0f}",
        "" if ratio is None else shown_ratio(ratio),
        against,
    )


def shown_seconds(seconds: float) -> str:
    """Three figures with a unit: `12.3 s`, `4.56 ms`, `78.9 us`."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{_three_figures(seconds * factor)} {unit}"
    raise AssertionError("the last unit always fits")


def shown_ratio(ratio: float) -> str:
    """Three figures; very small ratios are shown as such."""
    return "< 0.001" if ratio < 0.001 else _three_figures(ratio)


def _three_figures(value: float) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:.{digits}f}"


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        f" {text:<{width}} " if number in {0, len(texts) - 1} else f" {text:>{width}} "
        for number, (text, width) in enumerate(zip(texts, widths, strict=True))
    ]
    return "|" + "|".join(padded) + "|"
