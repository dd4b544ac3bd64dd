"""Training data of a model: patients by centre, scans, clinical variables, excluded patients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from baseline.release.cases import ReleaseCase
from contract.editions import Answer, ClinicalVariable
from contract.editions.clinical import CENTRE
from contract.errors import HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import read_header
from contract.markdown import table

_MEASURES: Final[Mapping[str, Callable[[Geometry], float]]] = {
    "voxel in plane, mm": lambda grid: max(grid.spacing_mm[:2]),
    "slice distance, mm": lambda grid: grid.spacing_mm[2],
    "width, mm": lambda grid: grid.spacing_mm[0] * grid.size[0],
    "length, mm": lambda grid: grid.spacing_mm[2] * grid.size[2],
}


def centres_table(cases: Sequence[ReleaseCase], answers: Sequence[Answer]) -> str:
    """Patients of each centre: in total, with a mask, with each outcome, with a dose."""
    groups = {centre: [case for case in cases if case.centre == centre] for centre in centres_of(cases)}
    rows = [[name, *_counts(group, answers).values()] for name, group in {**groups, "all": cases}.items()]
    return table(["Centre", *_counts(cases, answers)], rows)


def _counts(cases: Sequence[ReleaseCase], answers: Sequence[Answer]) -> dict[str, int]:
    with_mask = sum(case.mask is not None for case in cases)
    outcomes = {title: count for answer in answers for title, count in outcome_counts(answer, cases).items()}
    return {"Patients": len(cases), "Mask": with_mask, **outcomes, "RT dose": sum(c.dose is not None for c in cases)}


def outcome_counts(answer: Answer, cases: Sequence[ReleaseCase]) -> dict[str, int]:
    """Patients with a known outcome, and of them those with the event, or in each class but the last, by title."""
    known = [case.outcome(answer) for case in cases if case.has(answer)]
    title = answer.socket.title
    if answer.kind == "risk":
        return {title: len(known), f"{answer.columns['event']}s": known.count(True)}
    names = {value: f"{answer.name.upper()} negative" if value is False else str(value) for value in answer.classes}
    return {title: len(known)} | {names[value]: known.count(value) for value in answer.classes[:-1]}


def centres_of(cases: Sequence[ReleaseCase]) -> list[str]:
    """Sorted names of the centres."""
    return sorted({case.centre for case in cases})


def excluded(prepared: Mapping[str, Any], problems: Sequence[Mapping[str, Any]]) -> str:
    """Number of excluded patients by kind of error, from `prepare.json` and `problems.json`; names no patient."""
    names = set(prepared["left_out"])
    if not names:
        return "No patient of the release was excluded."
    errors = {(one["patient_id"], one["kind"]) for one in problems if one["severity"] == "error"}
    kinds = Counter(kind for patient, kind in errors if patient in names)
    listed = ", ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items()))
    return f"Excluded for errors in their files: {len(names)}" + (f" ({listed})." if listed else ".")


@dataclass(frozen=True)
class TrainingScans:
    """The grids of the training images, and the number of images that could not be read any more."""

    grids: Mapping[str, Sequence[Geometry]]
    unread: int

    def values(self, kind: str, name: str) -> list[float]:
        """One measure of all images of a kind, ascending."""
        return sorted(map(_MEASURES[name], self.grids[kind]))

    def table(self) -> str:
        """Minimum, median and maximum of voxel sizes and fields of view."""
        measured = {f"{kind}: {name}": self.values(kind, name) for kind in self.grids for name in _MEASURES}
        rows = [
            [title, *map(short, (values[0], float(np.median(values)), values[-1]))]
            for title, values in measured.items()
            if values
        ]
        return table(["", "Lowest", "Median", "Highest"], rows)

    def note(self) -> str:
        """A sentence about images that are not in the table."""
        return f"Not in the table, because they were unavailable: {self.unread} images." if self.unread else ""


def scans_of(cases: Sequence[ReleaseCase]) -> TrainingScans:
    """Read the headers of all CT and PET images."""
    paths = {"CT": [case.ct for case in cases], "PET": [case.pet for case in cases]}
    grids = {kind: [grid for path in of_kind if (grid := _grid(path))] for kind, of_kind in paths.items()}
    return TrainingScans(grids, 2 * len(cases) - sum(map(len, grids.values())))


def short(value: float) -> str:
    """Three significant digits, or all digits before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _grid(path: Path) -> Geometry | None:
    try:
        return read_header(path).geometry
    except HecktorError:  # the release has moved; the card counts unread images
        return None


@dataclass(frozen=True)
class VariableCoverage:
    """A clinical variable: the numbers of patients and centres that know it, and its values."""

    title: str
    known: int
    centres: int
    values: str


def variables_of(cases: Sequence[ReleaseCase], clinical: Sequence[ClinicalVariable]) -> list[VariableCoverage]:
    """Coverage of every clinical variable except the centre."""
    coverage = []
    for variable in clinical:
        if variable.name == CENTRE:
            continue
        known = [case for case in cases if case.patient.values.get(variable.name) is not None]
        values: list[Any] = [case.patient.values[variable.name] for case in known]
        shown = ", ".join(f"{value}: {count}" for value, count in sorted(Counter(values).items()))
        if variable.type == "years" and values:
            shown = f"{min(values):g} to {max(values):g}"
        coverage.append(VariableCoverage(variable.key, len(known), len(centres_of(known)), shown or "-"))
    return coverage


def variables_table(variables: Sequence[VariableCoverage], patients: int) -> str:
    """Coverage of each variable."""
    rows = [[one.title, f"{one.known} of {patients}", one.centres, one.values] for one in variables]
    return table(["Variable", "Known", "Centres", "Values"], rows)
