"""Localise the simple bodies of real patients and measure each region against their glands, neck and lungs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from algorithm.region.localise import Region, localise
from benchmarks.regions.anatomy import Person
from benchmarks.regions.bodies import body_case
from benchmarks.regions.phantoms import smallest_margin_mm
from benchmarks.suite import markdown
from contract.images.volumes import Volume

# Beside the repository; not part of it.
ANATOMY: Final = Path(__file__).resolve().parents[3] / "shared/golden/real_anatomy.csv"
HEADER: Final = (
    "real patients",
    "rows",
    "contained",
    "smallest margin to glands mm",
    "median",
    "smallest margin to neck mm",
    "shortest reach below apex mm",
    "median",
    "longest",
    "median litres",
    "largest litres",
    "sure",
)
LENGTHS: Final = (
    "smallest_glands_margin_mm",
    "median_glands_margin_mm",
    "smallest_neck_margin_mm",
    "smallest_reach_mm",
    "median_reach_mm",
    "largest_reach_mm",
)


@dataclass(frozen=True)
class BodyCheck:
    """The region of one body.

    A margin is the smallest distance from the organ to a face of the region, negative if the face cuts it, without
    faces where the CT itself ends; None if there is no such face or no organ. `reach_mm` is the distance from the lung
    apices down to the region's lower end.
    """

    row: int
    brain_in_view: bool
    contained: bool
    glands_margin_mm: float | None
    neck_margin_mm: float | None
    reach_mm: float
    region: Region


def check_person(person: Person) -> BodyCheck:
    """Localise a person's body and measure the region."""
    case = body_case(person)
    return check_body(person, case.ct, localise(case))


def check_body(person: Person, ct: Volume, region: Region) -> BodyCheck:
    """Measure a region against a person's glands, neck and lungs."""
    glands = person.gland_corners_mm()
    of_glands = None if glands is None else smallest_margin_mm(region, ct, *glands)
    of_neck = smallest_margin_mm(region, ct, *person.neck_corners_mm())
    contained = all(margin is None or margin >= 0 for margin in (of_glands, of_neck))
    reach_mm = -person.lungs[0] - region.lower_mm[2]
    return BodyCheck(person.row, person.brain is not None, contained, of_glands, of_neck, reach_mm, region)


def by_view(checks: Sequence[BodyCheck]) -> dict[str, dict[str, Any]]:
    """A summary of the rows with the brain in view, of those without, and of all."""
    groups = {
        "brain in view": [check for check in checks if check.brain_in_view],
        "no brain in view": [check for check in checks if not check.brain_in_view],
        "all": list(checks),
    }
    return {name: _summary(members) for name, members in groups.items() if members}


def _summary(checks: Sequence[BodyCheck]) -> dict[str, Any]:
    to_glands = [check.glands_margin_mm for check in checks if check.glands_margin_mm is not None]
    to_neck = [check.neck_margin_mm for check in checks if check.neck_margin_mm is not None]
    reaches = [check.reach_mm for check in checks]
    litres = [check.region.volume_litres for check in checks]
    return {
        "rows": len(checks),
        "contained": sum(check.contained for check in checks),
        "smallest_glands_margin_mm": min(to_glands, default=None),
        "median_glands_margin_mm": float(np.median(to_glands)) if to_glands else None,
        "smallest_neck_margin_mm": min(to_neck, default=None),
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
    lengths = ("" if row[key] is None else f"{row[key]:.0f}" for key in LENGTHS)
    litres = (f"{row[key]:.1f}" for key in ("median_litres", "largest_litres"))
    return (name, str(row["rows"]), str(row["contained"]), *lengths, *litres, f"{100 * row['sure_share']:.0f}%")
