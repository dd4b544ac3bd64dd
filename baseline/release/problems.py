"""Problems of a release as the check makes, prints and writes them: a table for the console and two files."""

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

    def error(self, kind: str, found: str, expected: str) -> Problem:
        return Problem(ERROR, kind, self.patient_id, self.file, found, expected)

    def warning(self, kind: str, found: str, expected: str) -> Problem:
        return Problem(WARNING, kind, self.patient_id, self.file, found, expected)

    def finding(self, kind: str, finding: Finding) -> Problem:
        found = f"{finding.found}; {finding.action}" if finding.action else finding.found
        return self.warning(kind, found, finding.expected)

    def unreadable(self, problem: HecktorError) -> Problem:
        return self.error("unreadable", problem.found or problem.what, problem.expected or "a sound file")


def in_order(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Distinct problems: errors before warnings, each sorted by patient, file and kind."""
    return tuple(sorted(set(problems), key=lambda p: (not p.is_error, p.patient_id, p.file, p.kind, p.found)))


def patients_with_errors(problems: Sequence[Problem]) -> tuple[str, ...]:
    """IDs of the patients that have at least one error, sorted."""
    return tuple(sorted({problem.patient_id for problem in problems if problem.is_error and problem.patient_id}))


def as_text(problems: Sequence[Problem]) -> str:
    """The table for the console: errors, warnings, and a line with both counts."""
    lines: list[str] = []
    for severity, title in ((ERROR, "Errors"), (WARNING, "Warnings")):
        some = [problem for problem in problems if problem.severity == severity]
        if some:
            lines += [f"{title} ({len(some)})", *_rows(some), ""]
    errors = sum(problem.is_error for problem in problems)
    return "\n".join([*lines, f"release: {_count(errors, 'error')}, {_count(len(problems) - errors, 'warning')}"])


def write_problems(folder: Path, problems: Sequence[Problem]) -> None:
    """Write `problems.csv` and `problems.json`, even if there are no problems."""
    records = as_json(problems)
    table = format_csv([field.name for field in fields(Problem)], records, for_people=True)
    write_text(folder / "problems.csv", table)
    write_json(folder / "problems.json", records)


def as_json(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    """Records from which `Problem(**record)` restores the problems."""
    return [asdict(problem) for problem in problems]


def _rows(problems: Sequence[Problem]) -> list[str]:
    patient = max(len(problem.patient_id) for problem in problems)
    kind = max(len(problem.kind) for problem in problems)
    indent = " " * (patient + kind + 6)
    lines = []
    for problem in problems:
        text = f"{problem.file}: {problem.found}, expected {problem.expected}"
        first = f"  {problem.patient_id:<{patient}}  {problem.kind:<{kind}}  "
        lines += textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
