"""Localise the simple bodies of real patients and measure each region against their glands, neck and lungs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from algorithm.region.localise import Region, localise
from benchmarks.cases.anatomy import Person, read_people
from benchmarks.cases.bodies import body_case
from benchmarks.cases.regions import smallest_margin_mm
from benchmarks.harness.table import markdown
from contract.images.volumes import Volume

# Beside the repository; not part of it.
ANATOMY: Final = Path(__file__).resolve().parents[3] / "shared/golden/real_anatomy.csv"
HEADER: Final = (
    "real patients",
    "rows",
    "contained",
    "smallest margin to glands mm",
    "median",
    "median reach below apex mm",
    "largest",
    "median litres",
    "largest litres",
    "sure",
)


@dataclass(frozen=True)
class BodyCheck:
    """The region of one body.

    `margin_mm` is the smallest distance from the glands to a face of the region, negative if the face cuts them,
    without faces where the CT itself ends; None without glands. `reach_mm` is the distance from the lung apices down
    to the region's lower end.
    """

    row: int
    brain_in_view: bool
    holds_glands: bool
    holds_neck: bool
    margin_mm: float | None
    reach_mm: float
    region: Region

    @property
    def contained(self) -> bool:
        """True if the region holds the glands and the neck."""
        return self.holds_glands and self.holds_neck


def check_row(path: Path, row: int) -> BodyCheck:
    """Localise the body of one row of a table; rows count from 0."""
    person = read_people(path)[row]
    case = body_case(person)
    return check_body(row, person, case.ct, localise(case))


def check_body(row: int, person: Person, ct: Volume, region: Region) -> BodyCheck:
    """Measure a region against a person's organs."""
    glands, margin_mm = person.gland_corners_mm(), None
    if glands is not None:
        margin_mm = smallest_margin_mm(region, ct, *glands)
    return BodyCheck(
        row=row,
        brain_in_view=person.brain is not None,
        holds_glands=glands is None or _holds(region, ct, *glands),
        holds_neck=_holds(region, ct, *person.neck_corners_mm()),
        margin_mm=margin_mm,
        reach_mm=-person.lungs[0] - region.lower_mm[2],
        region=region,
    )


def _holds(region: Region, ct: Volume, low: Any, high: Any) -> bool:
    """True if the region holds the part of a box that lies within the CT."""
    margin_mm = smallest_margin_mm(region, ct, low, high)
    return margin_mm is None or margin_mm >= 0


def by_view(checks: Sequence[BodyCheck]) -> dict[str, dict[str, Any]]:
    """A summary of the rows with the brain in view, of those without, and of all."""
    groups = {
        "brain in view": [check for check in checks if check.brain_in_view],
        "no brain in view": [check for check in checks if not check.brain_in_view],
        "all": list(checks),
    }
    return {name: _summary(members) for name, members in groups.items() if members}


def _summary(checks: Sequence[BodyCheck]) -> dict[str, Any]:
    margins = [check.margin_mm for check in checks if check.margin_mm is not None]
    reaches = [check.reach_mm for check in checks]
    litres = [check.region.volume_litres for check in checks]
    return {
        "rows": len(checks),
        "contained": sum(check.contained for check in checks),
        "smallest_margin_mm": min(margins, default=None),
        "median_margin_mm": float(np.median(margins)) if margins else None,
        "smallest_reach_mm": min(reaches),
        "median_reach_mm": float(np.median(reaches)),
        "largest_reach_mm": max(reaches),
        "median_litres": float(np.median(litres)),
        "largest_litres": max(litres),
        "sure_share": sum(check.region.sure for check in checks) / len(checks),
    }


def body_table(rows: dict[str, dict[str, Any]]) -> str:
    """The summaries as a Markdown table."""
    return "\n".join(markdown([HEADER, *(_cells(name, row) for name, row in rows.items())]))


def _cells(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    margins = ("" if row[key] is None else f"{row[key]:.0f}" for key in ("smallest_margin_mm", "median_margin_mm"))
    reaches = (f"{row[key]:.0f}" for key in ("median_reach_mm", "largest_reach_mm"))
    litres = (f"{row[key]:.1f}" for key in ("median_litres", "largest_litres"))
    return (
        name,
        str(row["rows"]),
        str(row["contained"]),
        *margins,
        *reaches,
        *litres,
        f"{100 * row['sure_share']:.0f}%",
    )
