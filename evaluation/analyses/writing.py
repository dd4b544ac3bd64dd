"""Write analyses as JSON and CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from contract.files import write_csv, write_json
from evaluation.analyses.analysis import Analysis


def write_analyses(folder: Path, by_task: Mapping[str, Sequence[Analysis]]) -> list[Path]:
    """Write `<folder>/<task>/<name>.json` and `.csv` for each analysis of each task; returns the paths.

    The JSON file holds the whole analysis, the CSV file its rows under the keys of the columns, absent values empty.
    """
    written = []
    for task, analyses in by_task.items():
        for analysis in analyses:
            target = folder / task / f"{analysis.name}.json"
            write_json(target, vars(analysis), indent=None)
            rows = [{key: row.get(key) for key in analysis.columns} for row in analysis.rows]
            write_csv(target.with_suffix(".csv"), list(analysis.columns), rows)
            written += [target, target.with_suffix(".csv")]
    return written
