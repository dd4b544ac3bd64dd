"""One analysis of a challenge: a table, and how a page draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Analysis:
    """A table of figures with its chart.

    Attributes:
        name: unique within a task, usable as a file name: `dsc-by-team`.
        title: the heading, without a full stop.
        caption: what is shown and how it was computed, with the source; one or two sentences.
        columns: the heading of each column, with its unit, by the column's key. The keys `team`, `centre` and `case`
            let a reader filter the page by a click.
        rows: one mapping for each line; an absent or null value is shown as a dash.
        chart: the kind of chart and the columns it uses (docs/analyses.md); empty for a table alone.
        notes: lines below the chart, such as the reason why no p is printed.
    """

    name: str
    title: str
    caption: str
    columns: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]
    chart: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
