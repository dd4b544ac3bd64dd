"""Organ positions of real patients, one row of a table each, and which of them can be believed."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from contract.errors import HecktorError

Interval = tuple[float, float]
_Vector = npt.NDArray[np.float64]

# Parotid and submandibular glands together are 80 to 140 mm high; more is another organ taken for a gland.
HIGHEST_GLANDS_MM: Final = 150.0
# Largest believable height of an organ; if its row has more, its upper end is taken for wrong.
HIGHEST_MM: Final = {"heart": 170.0, "liver": 250.0, "bladder": 110.0}
# Medians of the table, for glands whose extents are unknown because the brain is not in view.
USUAL_GLANDS_X_MM: Final = (-69.0, 72.0)
USUAL_GLANDS_Y_MM: Final = (-65.0, 17.0)
# The region must hold the neck from this height above the lower end of the brain down to the lung apices.
NECK_ABOVE_BRAIN_END_MM: Final = 20.0
# The neck's centre lies behind the centre of the glands. Half width, and extent in front of and behind the centre.
NECK_BEHIND_GLANDS_MM: Final = 35.0
NECK_HALF_WIDTH_MM: Final = 60.0
NECK_FRONT_MM: Final = 65.0
NECK_BACK_MM: Final = 80.0


@dataclass(frozen=True)
class Person:
    """One row, counted from 0. Intervals along z are (top, bottom) in mm below the top of the field of view.

    The brain is (top, centre, bottom), None if it is not in view. The extents of the glands along x (to the left) and
    y (to the back) are relative to the brain's centre; `glands_doubtful` is True if they were left out.
    """

    row: int
    field_mm: float
    brain: tuple[float, float, float] | None
    brain_ml: float
    glands: Interval | None
    glands_x_mm: Interval
    glands_y_mm: Interval
    lungs: Interval
    heart: Interval | None
    liver: Interval | None
    bladder: Interval | None
    glands_doubtful: bool

    @property
    def neck_mm(self) -> tuple[float, float]:
        """Centre (x, y) of the neck."""
        x, y = float(np.mean(self.glands_x_mm)), float(np.mean(self.glands_y_mm))
        return x, y + NECK_BEHIND_GLANDS_MM

    def gland_corners_mm(self) -> tuple[_Vector, _Vector] | None:
        """Lowest and highest corner (x, y, z, LPS) of the glands; the top of the field of view is z = 0."""
        if self.glands is None:
            return None
        (x_low, x_high), (y_low, y_high), (top, bottom) = self.glands_x_mm, self.glands_y_mm, self.glands
        return np.array([x_low, y_low, -bottom]), np.array([x_high, y_high, -top])

    def neck_corners_mm(self) -> tuple[_Vector, _Vector]:
        """Corners of the neck from 20 mm above the brain's lower end, or the field's top, down to the apices."""
        x, y = self.neck_mm
        top = max(self.brain[2] - NECK_ABOVE_BRAIN_END_MM, 0.0) if self.brain else 0.0
        low = np.array([x - NECK_HALF_WIDTH_MM, y - NECK_FRONT_MM, -self.lungs[0]])
        return low, np.array([x + NECK_HALF_WIDTH_MM, y + NECK_BACK_MM, -top])


def read_people(path: Path) -> list[Person]:
    """The rows of a table of organ positions.

    Raises:
        HecktorError: a column is missing, or a value is no number.
    """
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    people = []
    for number, row in enumerate(rows):
        try:
            people.append(person_of(number, row))
        except (KeyError, TypeError, ValueError) as problem:
            raise HecktorError(f"{path.name} row {number}", str(problem), "a number in each column") from problem
    return people


def person_of(number: int, row: Mapping[str, str]) -> Person:
    """A row of the table; an empty cell is an organ out of view."""
    glands = _interval(row, "glands_top", "glands_bottom")
    doubtful = glands is not None and glands[1] - glands[0] > HIGHEST_GLANDS_MM
    x, y = (None if doubtful else _interval(row, f"glands_{axis}_low", f"glands_{axis}_high") for axis in "xy")
    ends = _interval(row, "brain_top", "brain_bottom")
    brain = None if ends is None else (ends[0], float(row["brain_centre"]), ends[1])
    return Person(
        row=number,
        field_mm=float(row["field_mm"]),
        brain=brain,
        brain_ml=float(row["brain_ml"] or 0),
        glands=None if doubtful else glands,
        glands_x_mm=x or USUAL_GLANDS_X_MM,
        glands_y_mm=y or USUAL_GLANDS_Y_MM,
        lungs=(float(row["lung_apex"]), float(row["lungs_bottom"])),
        heart=_organ(row, "heart"),
        liver=_organ(row, "liver"),
        bladder=_organ(row, "bladder"),
        glands_doubtful=doubtful,
    )


def _organ(row: Mapping[str, str], name: str) -> Interval | None:
    """Heights of an organ; an unbelievable upper end is replaced by the largest believable height."""
    ends = _interval(row, f"{name}_top", f"{name}_bottom")
    return None if ends is None else (max(ends[0], ends[1] - HIGHEST_MM[name]), ends[1])


def _interval(row: Mapping[str, str], low: str, high: str) -> Interval | None:
    return (float(row[low]), float(row[high])) if row[low] and row[high] else None
