"""Write and read tables, and score risks from them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaluation.api import evaluate
from evaluation.results.documents import MetricsJson


def read_lines(path: Path) -> list[dict[str, str]]:
    """Return the lines of a CSV file by its columns."""
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def write_table(path: Path, columns: str, rows: Mapping[str, object]) -> Path:
    """Write a table of patients; `rows` holds the text of the columns by patient."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([f"PatientID,{columns}", *(f"{case},{text}" for case, text in rows.items()), ""]))
    return path


def score_risks(
    folder: Path, follow_up: Mapping[str, tuple[int, float]], risks: Mapping[str, float], **options: Any
) -> MetricsJson:
    """Score risks against relapse and days of follow-up; write the tables and the metrics.json into `folder`."""
    truth = write_table(folder / "truth.csv", "Relapse,RFS", {case: f"{e},{t}" for case, (e, t) in follow_up.items()})
    answers = write_table(folder / "risks.csv", "risk", risks)
    return evaluate(truth, predictions=answers, task="rfs", output=folder, **{"bootstraps": 0, **options})
