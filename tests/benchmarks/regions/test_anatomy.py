"""Rows of organ positions: organs out of view, unbelievable glands, and the boxes that a region must hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.regions.anatomy import USUAL_GLANDS_X_MM, USUAL_GLANDS_Y_MM, person_of, read_people
from contract.errors import HecktorError

HEADER = (
    "field_mm,brain_ml,brain_top,brain_centre,brain_bottom,glands_top,glands_bottom,glands_x_low,glands_x_high,"
    "glands_y_low,glands_y_high,lung_apex,lungs_bottom,heart_top,heart_bottom,liver_top,liver_bottom,bladder_top,"
    "bladder_bottom"
)
WHOLE = "800,1414,40,100,165,120,210,-70,90,-60,20,300,500,370,480,450,600,700,760"


def row(text: str, **changes: str) -> dict[str, str]:
    return dict(zip(HEADER.split(","), text.split(","), strict=True)) | changes


def test_boxes_of_glands_and_neck() -> None:
    """The glands' centre is (10, -20), the neck's 35 mm behind it: (10, 15).

    The neck reaches 60 mm to each side, 65 mm forwards and 80 mm back, from 165 - 20 = 145 mm below the field's top
    down to the apices at 300 mm.
    """
    person = person_of(0, row(WHOLE))
    glands = person.gland_corners_mm()
    assert glands is not None
    np.testing.assert_allclose(glands, [[-70, -60, -210], [90, 20, -120]])
    np.testing.assert_allclose(person.neck_corners_mm(), [[-50, -50, -300], [70, 95, -145]])


def test_without_a_brain_the_neck_begins_at_the_fields_top_and_the_glands_have_usual_extents() -> None:
    blank = dict.fromkeys(("brain_ml", "brain_top", "brain_centre", "brain_bottom"), "")
    extents = dict.fromkeys(("glands_x_low", "glands_x_high", "glands_y_low", "glands_y_high"), "")
    person = person_of(0, row(WHOLE, **blank, **extents))
    assert person.brain is None
    assert (person.glands_x_mm, person.glands_y_mm) == (USUAL_GLANDS_X_MM, USUAL_GLANDS_Y_MM)
    assert person.neck_corners_mm()[1][2] == 0


@pytest.mark.parametrize(("bottom", "doubtful"), [("270", False), ("271", True), ("1324", True)])
def test_glands_higher_than_150_mm_are_left_out(bottom: str, doubtful: bool) -> None:
    """They begin at 120 mm. Without them the neck lies where the table's medians put it."""
    person = person_of(0, row(WHOLE, glands_bottom=bottom))
    assert person.glands_doubtful == doubtful
    assert person.glands == (None if doubtful else (120, 270))
    assert person.glands_x_mm == (USUAL_GLANDS_X_MM if doubtful else (-70, 90))


def test_a_liver_from_the_neck_to_the_pelvis_keeps_its_lower_end() -> None:
    """At most 250 mm above 592 mm: 342 mm."""
    assert person_of(0, row(WHOLE, liver_top="2", liver_bottom="592")).liver == (342, 592)
    assert person_of(0, row(WHOLE)).liver == (450, 600)
    assert person_of(0, row(WHOLE, bladder_top="", bladder_bottom="")).bladder is None


def test_a_table_is_read_row_by_row_and_a_bad_value_named(tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    table.write_text(f"{HEADER}\n{WHOLE}\n{WHOLE.replace('800', '700')}\n", encoding="utf-8")
    assert [(person.row, person.field_mm) for person in read_people(table)] == [(0, 800), (1, 700)]
    table.write_text(f"{HEADER}\n{WHOLE}\n{WHOLE.replace('300', 'high')}\n", encoding="utf-8")
    with pytest.raises(HecktorError, match=r"people\.csv row 1: .*'high'"):
        read_people(table)
