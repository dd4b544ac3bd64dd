"""One analysis of a challenge: a table of figures with its chart, and its files in JSON and CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from contract.io.files import format_json, write_files
from contract.io.tables import format_csv

NOT_IN_OVERVIEWS: Final = "not from an overview; common for predictions of this kind"


@dataclass(frozen=True)
class Analysis:
    """A table of figures with its chart.

    Attributes:
        name: Unique within a task and usable as a file name, such as `dsc-by-team`.
        title: The heading, without a full stop.
        caption: What is shown and how it was computed; one or two sentences.
        columns: The heading of each column, with its unit, by the column's key. The keys `team`, `centre` and `case`
            let a reader filter the page by a click.
        rows: One mapping for each line; an absent or null value is shown as a dash.
        chart: The kind of chart (reporting/page/kinds.js) and the columns it uses; empty for a table without a chart.
        notes: Lines below the chart, such as the reason why no p is printed.
        source: The figure or table of an overview that the analysis reproduces, or why it is shown without a source.
        of_patients: Whether a reader can infer outcomes or answers of single patients, such as the days at which a
            curve falls. An analysis with a line for each case always `shows_patients`.
    """

    name: str
    title: str
    caption: str
    columns: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]
    chart: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    source: str = ""
    of_patients: bool = False

    @property
    def shows_patients(self) -> bool:
        """Whether a page needs `--cases` to show the analysis."""
        return self.of_patients or "case" in self.columns


def write_analyses(folder: Path, by_task: Mapping[str, Sequence[Analysis]]) -> list[Path]:
    """Write `<folder>/<task>/<name>.json` and `.csv` for each analysis of each task; return the paths.

    The JSON file contains the whole analysis, the CSV file its rows under the keys of the columns, absent values empty
    and numbers of a list separated by spaces.
    """
    written: list[Path] = []
    for task, analyses in by_task.items():
        for analysis in analyses:
            target = folder / task / f"{analysis.name}.json"
            rows = [{key: _format_cell(row.get(key)) for key in analysis.columns} for row in analysis.rows]
            table = format_csv(list(analysis.columns), rows, for_people=True)
            contents = {target: format_json(vars(analysis), indent=None), target.with_suffix(".csv"): table}
            write_files({path: text.encode() for path, text in contents.items()})
            written += contents
    return written


def _format_cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value
