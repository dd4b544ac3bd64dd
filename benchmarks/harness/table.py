"""Timings as rows of a report, and rows as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final

from benchmarks.harness.bounds import MEDIAN_S, MEMORY_RATIO, PEAK_GB, TIME_RATIO, gigabytes
from benchmarks.harness.measurement import Measurement
from benchmarks.harness.timing import Timing

Measured = Sequence[tuple[Measurement, Timing]]

HEADER: Final = ("measurement", "min", "median", "p90", "peak MiB", "time ratio", "memory ratio", "to")


def report_rows(measured: Measured) -> list[dict[str, Any]]:
    """One row a measurement, with its ratios to the fastest and the leanest partner, None if none was measured."""
    timings = {measurement.key: timing for measurement, timing in measured}
    return [_report_row(measurement, timing, timings) for measurement, timing in measured]


def _report_row(measurement: Measurement, timing: Timing, timings: Mapping[str, Timing]) -> dict[str, Any]:
    timed = (key for key in measurement.against if key in timings)
    partners = {key: timings[key] for key in timed if timings[key].median_s > 0}  # 0 s: what could not run
    fastest = min(partners, key=lambda key: partners[key].median_s, default=None)
    leanest = min(partners, key=lambda key: partners[key].peak_memory_mib, default=None)
    ratios = {
        TIME_RATIO: timing.median_s / partners[fastest].median_s if fastest else None,
        MEMORY_RATIO: timing.peak_memory_mib / partners[leanest].peak_memory_mib if leanest else None,
    }
    figures = {**ratios, PEAK_GB: gigabytes(timing.peak_memory_mib), MEDIAN_S: timing.median_s}
    figures |= timing.figures
    notes = [f"{name} {value:.4g}" for name, value in timing.figures.items()]
    return {
        "group": measurement.group,
        "name": measurement.name,
        **timing.to_dict(),
        **{name.replace(" ", "_"): ratio for name, ratio in ratios.items()},
        "fastest": fastest,
        "leanest": leanest,
        "bounds": [{**asdict(bound), "held": bound.held(figures)} for bound in measurement.bounds],
        "notes": ", ".join([*notes, *(bound.text(figures) for bound in measurement.bounds)]),
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as one Markdown table a group, with further figures and bounds below it."""
    lines: list[str] = []
    for group, members in groupby(rows, key=lambda row: str(row["group"])):
        listed = list(members)
        lines += ["", f"**{group.replace('_', ' ')}**", "", *markdown([HEADER, *map(_cells, listed)])]
        notes = [f"- {row['name']}: {row['notes']}" for row in listed if row["notes"]]
        lines += ["", *notes] if notes else []
    return "\n".join(lines)


def markdown(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """A header and rows as a padded Markdown table; the first column and `to` are aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = [n == 0 or name == "to" for n, name in enumerate(lines[0])]
    for number, line in enumerate(lines):
        cells = zip(line, widths, left, strict=True)
        yield "| " + " | ".join(t.ljust(width) if at_left else t.rjust(width) for t, width, at_left in cells) + " |"
        if number == 0:
            rules = ("-" * (width + 1) + ("-" if at_left else ":") for width, at_left in zip(widths, left, strict=True))
            yield "|" + "|".join(rules) + "|"


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    partners = [(row[name] or "").rpartition("/")[2] for name in ("fastest", "leanest")]
    return (
        row["name"],
        *(shown_seconds(row["seconds"][key]) for key in ("min", "median", "p90")),
        f"{row['peak_memory_mib']:.0f}",
        *("" if row[key] is None else shown_ratio(row[key]) for key in ("time_ratio", "memory_ratio")),
        "; ".join(dict.fromkeys(partners)),
    )


def shown_seconds(seconds: float) -> str:
    """Three figures with a unit: `12.3 s`, `4.56 ms`, `78.9 us`."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{_three_figures(seconds * factor)} {unit}"
    return f"{_three_figures(seconds * 1e6)} us"


def shown_ratio(ratio: float) -> str:
    """Three figures, `< 0.001` below that."""
    return "< 0.001" if ratio < 0.001 else _three_figures(ratio)


def _three_figures(value: float) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:.{digits}f}"
