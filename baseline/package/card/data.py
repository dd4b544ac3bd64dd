"""What a model's training data cover: patients by centre, scans, clinical variables, and what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from baseline.release.cases import ReleaseCase
from contract.editions import ClinicalVariable, load_edition
from contract.editions.clinical import CENTRE
from contract.errors import HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import read_header
from contract.markdown import table

_COUNTED: Final[Mapping[str, Callable[[ReleaseCase], bool]]] = {
    "Patients": lambda _: True,
    "Mask": lambda case: case.mask is not None,
    "RFS": lambda case: case.rfs_days is not None and case.relapse is not None,
    "Relapses": lambda case: case.relapse is True and case.rfs_days is not None,
    "HPV status": lambda case: case.hpv is not None,
    "HPV negative": lambda case: case.hpv is False,
    "RT dose": lambda case: case.dose is not None,
}
_MEASURES: Final[Mapping[str, Callable[[Geometry], float]]] = {
    "voxel in plane, mm": lambda grid: max(grid.spacing_mm[:2]),
    "slice distance, mm": lambda grid: grid.spacing_mm[2],
    "width, mm": lambda grid: grid.spacing_mm[0] * grid.size[0],
    "length, mm": lambda grid: grid.spacing_mm[2] * grid.size[2],
}


def centres_table(cases: Sequence[ReleaseCase]) -> str:
    """How many patients each centre gave, and of how many what is known."""
    groups = {centre: [case for case in cases if case.centre == centre] for centre in centres_of(cases)}
    rows = [
        [name, *(sum(map(counted, some)) for counted in _COUNTED.values())]
        for name, some in [*groups.items(), ("all", list(cases))]
    ]
    return table(["Centre", *_COUNTED], rows)


def centres_of(cases: Sequence[ReleaseCase]) -> list[str]:
    """The centres by name."""
    return sorted({case.centre for case in cases})


def left_out(prepared: Mapping[str, Any], problems: Sequence[Mapping[str, Any]]) -> str:
    """Who is not among the training patients, and for which kinds of errors; IDs stay in the working directory.

    Args:
        prepared: `prepare.json`.
        problems: `problems.json`.
    """
    names = set(prepared["left_out"])
    if not names:
        return "No patient of the release was left out."
    found = {(one["patient_id"], one["kind"]) for one in problems if one["severity"] == "error"}
    kinds = Counter(kind for patient, kind in found if patient in names)
    told = ", ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items()))
    return f"Left out for errors in their files: {len(names)}" + (f" ({told})." if told else ".")


@dataclass(frozen=True)
class Scans:
    """The grids of the training images; `unread` images could not be opened any more."""

    grids: Mapping[str, Sequence[Geometry]]
    unread: int

    def table(self) -> str:
        """Lowest, middle and highest of each image's voxel and field of view."""
        rows = []
        for kind, grids in self.grids.items():
            for name, measure in _MEASURES.items():
                values = sorted(measure(grid) for grid in grids)
                if values:
                    rows.append([f"{kind}: {name}", *map(short, (values[0], float(np.median(values)), values[-1]))])
        return table(["", "Lowest", "Median", "Highest"], rows)

    def note(self) -> str:
        """What is not in the table."""
        if not self.unread:
            return ""
        return f"Not in the table, since they were not at hand when this was written: {self.unread} images."

    def span(self, kind: str, name: str) -> tuple[float, float] | None:
        """The range of one row of the table."""
        values = [_MEASURES[name](grid) for grid in self.grids[kind]]
        return (min(values), max(values)) if values else None


def scans_of(cases: Sequence[ReleaseCase]) -> Scans:
    """Read the headers of all CT and PET images."""
    grids: dict[str, list[Geometry]] = {"CT": [], "PET": []}
    unread = 0
    for case in cases:
        for kind, path in (("CT", case.ct), ("PET", case.pet)):
            found = _grid(path)
            if found is None:
                unread += 1
            else:
                grids[kind].append(found)
    return Scans(grids, unread)


def short(value: float) -> str:
    """Three digits, and all of them before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _grid(path: Path) -> Geometry | None:
    try:
        return read_header(path).geometry
    except HecktorError:  # the release is elsewhere by now; the card counts what it could not read
        return None


@dataclass(frozen=True)
class Variable:
    """A clinical variable: of how many patients and centres it is known, and between what its values lie."""

    title: str
    known: int
    centres: int
    values: str


def variables_of(cases: Sequence[ReleaseCase]) -> list[Variable]:
    """Every clinical variable that `ehr.json` may hold; the centre is told elsewhere."""
    return [_variable(variable, cases) for variable in load_edition().clinical if variable.name != CENTRE]


def _variable(variable: ClinicalVariable, cases: Sequence[ReleaseCase]) -> Variable:
    known = [case for case in cases if case.patient.values.get(variable.name) is not None]
    values: list[Any] = [case.patient.values[variable.name] for case in known]
    if variable.type == "years" and values:
        told = f"{min(values):g} to {max(values):g}"
    else:
        told = ", ".join(f"{value}: {count}" for value, count in sorted(Counter(values).items()))
    return Variable(variable.key, len(known), len(centres_of(known)), told or "-")


def variables_table(variables: Sequence[Variable], patients: int) -> str:
    """Of how many patients each variable is known."""
    rows = [[one.title, f"{one.known} of {patients}", one.centres, one.values] for one in variables]
    return table(["Variable", "Known", "Centres", "Values"], rows)
