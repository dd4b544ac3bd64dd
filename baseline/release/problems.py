"""Problems of a release: creation, order, a table for the console, and two files."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from contract.errors import Finding, HecktorError
from contract.io.files import write_json, write_text
from contract.io.tables import format_csv
from contract.release.tables import ERROR, WARNING, Problem

_WIDTH: Final = 118


@dataclass(frozen=True)
class ProblemReporter:
    """Creates the problems of one file of one patient; `file` is relative to the release's folder."""

    patient_id: str
    file: str

    def error(self, kind: str, actual: str, expected: str) -> Problem:
        return Problem(ERROR, kind, self.patient_id, self.file, actual, expected)

    def warning(self, kind: str, actual: str, expected: str) -> Problem:
        return Problem(WARNING, kind, self.patient_id, self.file, actual, expected)

    def finding(self, kind: str, finding: Finding) -> Problem:
        actual = f"{finding.found}; {finding.action}" if finding.action else finding.found
        return self.warning(kind, actual, finding.expected)

    def unreadable(self, problem: HecktorError) -> Problem:
        return self.error("unreadable", problem.found or problem.what, problem.expected or "a sound file")


def sort_problems(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Sort distinct problems: errors before warnings, then by patient, file and kind."""
    return tuple(sorted(set(problems), key=lambda p: (not p.is_error, p.patient_id, p.file, p.kind, p.found)))


def list_patients_with_errors(problems: Sequence[Problem]) -> tuple[str, ...]:
    """List the IDs of the patients with at least one error, sorted."""
    return tuple(sorted({problem.patient_id for problem in problems if problem.is_error and problem.patient_id}))


def format_problems(problems: Sequence[Problem]) -> str:
    """Format the table for the console: errors, warnings, and a line with both counts."""
    lines: list[str] = []
    for severity, title in ((ERROR, "Errors"), (WARNING, "Warnings")):
        selected = [problem for problem in problems if problem.severity == severity]
        if selected:
            lines += [f"{title} ({len(selected)})", *_format_rows(selected), ""]
    errors = sum(problem.is_error for problem in problems)
    return "\n".join(
        [*lines, f"release: {_format_count(errors, 'error')}, {_format_count(len(problems) - errors, 'warning')}"]
    )


def write_problems(folder: Path, problems: Sequence[Problem]) -> None:
    """Write `problems.csv` and `problems.json`, even if there are no problems."""
    records = as_json(problems)
    table = format_csv([field.name for field in fields(Problem)], records, for_people=True)
    write_text(folder / "problems.csv", table)
    write_json(folder / "problems.json", records)


def as_json(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    """Return the problems as records; `Problem(**record)` restores a problem."""
    return [asdict(problem) for problem in problems]


def _format_rows(problems: Sequence[Problem]) -> list[str]:
    patient = max(len(problem.patient_id) for problem in problems)
    kind = max(len(problem.kind) for problem in problems)
    indent = " " * (patient + kind + 6)
    lines = []
    for problem in problems:
        text = f"{problem.file}: {problem.found}, expected {problem.expected}"
        first = f"  {problem.patient_id:<{patient}}  {problem.kind:<{kind}}  "
        lines += textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
    return lines


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
