"""The page of `scripts/gpu-smoke`: limits that hold on this card, limits that do not, and the time of a training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

from benchmarks.harness.machine import machine_line
from benchmarks.smoke.patients import CARD_GIB, DRIVER_GIB, LIMIT_S, MARGIN_S, PASSES, PLANNED
from benchmarks.smoke.training import FIRST_EPOCH_S, FITS, HOURS, PUBLISHED_GB

TILE: Final = "one tile"
TRAINING: Final = "training"
FOLDS: Final = 5
_RUN_HEADS: Final = ("network", "patient and task", "limit", "took", "passes", "left", "card", "T4 passes", "limits")
_TILE_HEADS: Final = ("network", "a tile", "TFLOP/s")
_TRAINING_HEADS: Final = (
    *("preset", "first epoch", "an epoch", "a network", f"{FOLDS} folds", "peak memory", "of the plain time", "limits"),
)
_Row = Mapping[str, Any]
_VERDICTS: Final = {True: "holds", False: "does not hold", None: "not measured"}
_CLASSES: Final = {True: "held", False: "broken", None: "unknown"}


def smoke_page(report: Mapping[str, Any]) -> str:
    """The page of a report of `run_suite`; one file without scripts."""
    rows: Sequence[_Row] = report["measurements"]
    tiles = [row for row in rows if row["name"].startswith(TILE)]
    trainings = [row for row in rows if row["group"] == TRAINING]
    runs = [row for row in rows if row not in tiles and row not in trainings]
    card = report.get("card") or "no card (CPU)"
    quick = " Tiny networks (--quick): the figures only show that everything runs." if report["quick"] else ""
    return Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8")).substitute(
        card=escape(card),
        lead=escape(machine_line(report["machine"]) + quick),
        limits=_limits(rows),
        runs=_table(_RUN_HEADS, runs, _run),
        tiles=_table(_TILE_HEADS, tiles, _tile),
        trainings=_table(_TRAINING_HEADS, trainings, _training),
    )


def verdict(row: _Row) -> bool | None:
    """False if a bound of the row does not hold, None if one was not measured and the others hold."""
    held = [bound["held"] for bound in row["bounds"]]
    return False if False in held else None if None in held else True


def _limits(rows: Iterable[_Row]) -> str:
    """Every bound that does not hold or was not measured, after the number of those that hold."""
    bounds = [(row, bound) for row in rows for bound in row["bounds"]]
    held = sum(bound["held"] is True for _, bound in bounds)
    lines = [f'<p class="sum">{held} of {len(bounds)} limits hold.</p>']
    for state in (False, None):
        items = [_bound(row, bound) for row, bound in bounds if bound["held"] is state]
        if items:
            title = "Does not hold" if state is False else "Not measured"
            lines.append(f'<h3 class="{_CLASSES[state]}">{title}</h3><ul>{"".join(items)}</ul>')
    return "".join(lines)


def _bound(row: _Row, bound: Mapping[str, Any]) -> str:
    measured = row["figures"].get(bound["figure"], row.get(bound["figure"].replace(" ", "_")))
    found = "" if measured is None else f": measured {measured:.3g}"
    text = f"{row['group']}, {row['name']}: {bound['figure']} {bound['kind']} {bound['limit']:.3g}{found}"
    return f"<li>{escape(text)}</li>"


def _table(heads: Sequence[str], rows: Sequence[_Row], cells: Any) -> str:
    if not rows:
        return "<p>Not measured.</p>"
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells(row))}</tr>" for row in rows)
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _mark(state: bool | None) -> str:
    return f'<span class="{_CLASSES[state]}">{_VERDICTS[state]}</span>'


def _run(row: _Row) -> list[str]:
    figures = row["figures"]
    memory = [f"{figures[name]:.1f} GiB" for name in (CARD_GIB, DRIVER_GIB) if name in figures]
    slow, fast = figures["T4, slow (passes)"], figures["T4, fast (passes)"]
    return [
        escape(row["group"]),
        escape(row["name"]),
        f"{figures[LIMIT_S]:.0f} s",
        f"{row['seconds']['median']:.1f} s",
        f"{figures[PASSES]:.0f} of {figures[PLANNED]:.0f}",
        f"{figures[MARGIN_S]:.0f} s",
        " / ".join(memory) or "-",
        f"{slow:.0f} to {fast:.0f}",
        _mark(verdict(row)),
    ]


def _tile(row: _Row) -> list[str]:
    seconds, figures = row["seconds"], row["figures"]
    return [escape(row["group"]), f"{seconds['median'] * 1000:.1f} ms", f"{figures['TFLOP/s']:.2f}"]


def _training(row: _Row) -> list[str]:
    figures = row["figures"]
    if not figures[FITS]:
        return [escape(row["name"]), "does not fit this card", *[""] * 5, _mark(False)]
    memory, published = figures.get(CARD_GIB), PUBLISHED_GB[row["name"].partition(",")[0]]
    return [
        escape(row["name"]),
        f"{figures[FIRST_EPOCH_S]:.1f} s",
        f"{row['seconds']['median']:.1f} s",
        f"{figures[HOURS]:.1f} h",
        f"{figures[HOURS] * FOLDS / 24:.1f} days",
        "-" if memory is None else f"{memory:.1f} GiB (nnU-Net: {published:.1f} GB)",
        "" if row["time_ratio"] is None else f"{row['time_ratio']:.2f}",
        _mark(verdict(row)),
    ]
