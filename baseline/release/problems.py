"""What is wrong with a release: one record a fault, told on the console and kept as a table."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from contract.errors import HecktorError
from contract.files import write_json, write_text

ERROR: Final = "error"
WARNING: Final = "warning"
_WIDTH: Final = 118


@dataclass(frozen=True)
class Problem:
    """One fault of the release.

    `severity` is "error" (the case cannot be trained on as it is) or "warning" (it can, but look at it);
    `patient_id` is empty where the fault is not one patient's; `file` is relative to the release's folder.
    """

    severity: str
    kind: str
    patient_id: str
    file: str
    found: str
    expected: str

    @property
    def is_error(self) -> bool:
        """Whether training stops at it."""
        return self.severity == ERROR


@dataclass(frozen=True)
class Told:
    """Makes problems of one file of one patient; `file` is relative to the release's folder."""

    patient_id: str
    file: str

    def error(self, kind: str, found: str, expected: str) -> Problem:
        """What the case cannot be trained on for."""
        return Problem(ERROR, kind, self.patient_id, self.file, found, expected)

    def warning(self, kind: str, found: str, expected: str) -> Problem:
        """What should be looked at."""
        return Problem(WARNING, kind, self.patient_id, self.file, found, expected)


def refused(kind: str, patient_id: str, file: str, error: HecktorError) -> Problem:
    """The problem that an error of reading `file` stands for."""
    return Problem(ERROR, kind, patient_id, file, error.found or error.what, error.expected or "a sound file")


def in_order(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Errors before warnings, each by patient, file and kind; what was said twice stands once."""
    return tuple(sorted(set(problems), key=lambda p: (not p.is_error, p.patient_id, p.file, p.kind, p.found)))


def patients_with_errors(problems: Sequence[Problem]) -> tuple[str, ...]:
    """IDs of the patients that have at least one error, sorted."""
    return tuple(sorted({problem.patient_id for problem in problems if problem.is_error and problem.patient_id}))


def as_text(problems: Sequence[Problem]) -> str:
    """The table for the console: errors, then warnings, then one line that counts both."""
    lines: list[str] = []
    for severity, title in ((ERROR, "Errors"), (WARNING, "Warnings")):
        some = [problem for problem in problems if problem.severity == severity]
        if some:
            lines += [f"{title} ({len(some)})", *_rows(some), ""]
    errors = sum(problem.is_error for problem in problems)
    return "\n".join([*lines, f"{errors} errors, {len(problems) - errors} warnings"])


def write_problems(folder: Path, problems: Sequence[Problem]) -> None:
    """Write `problems.csv` and `problems.json` into `folder`, also where there are none."""
    columns = [field.name for field in fields(Problem)]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(problem) for problem in problems)
    write_text(folder / "problems.csv", text.getvalue())
    write_json(folder / "problems.json", as_json(problems))


def as_json(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    """The records that `Problem(**record)` takes back."""
    return [asdict(problem) for problem in problems]


def _rows(problems: Sequence[Problem]) -> list[str]:
    who = max(len(problem.patient_id) for problem in problems)
    kind = max(len(problem.kind) for problem in problems)
    indent = " " * (who + kind + 6)
    lines = []
    for problem in problems:
        text = f"{problem.file}: {problem.found}, expected {problem.expected}"
        first = f"  {problem.patient_id:<{who}}  {problem.kind:<{kind}}  "
        lines += textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
    return lines
