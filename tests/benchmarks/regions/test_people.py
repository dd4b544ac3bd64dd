"""Measures of a region against a person's organs, and their summary."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from algorithm.region.localise import Region
from benchmarks.regions.anatomy import Person
from benchmarks.regions.check import main
from benchmarks.regions.people import BodyCheck, body_table, by_view, check_body
from contract.images.geometry import Geometry
from contract.images.volumes import Volume
from tests.benchmarks.regions.test_anatomy import HEADER, WHOLE

# Glands from (-70, -60, -210) to (70, 20, -120), neck from (-60, -50, -300) to (60, 95, -145).
PERSON = Person(
    row=3,
    field_mm=800.0,
    brain=(40.0, 102.5, 165.0),
    brain_ml=1414.0,
    glands=(120.0, 210.0),
    glands_x_mm=(-70.0, 70.0),
    glands_y_mm=(-60.0, 20.0),
    lungs=(300.0, 500.0),
    heart=None,
    liver=None,
    bladder=None,
    glands_doubtful=False,
)
# From (-250, -200, -800) to (250, 200, 0).
CT = Volume(np.zeros((8, 4, 5), np.int16), Geometry((5, 4, 8), (100.0, 100.0, 100.0), (-200.0, -150.0, -750.0)))
# 200 x 210 x 300 mm are 12.6 litres.
REGION = Region((-100.0, -100.0, -350.0), (100.0, 110.0, -50.0), "test", brain_lower_mm=-100.0, brain_end_is_sure=True)


def test_margins_to_glands_and_neck_and_reach_below_the_apex() -> None:
    """Glands: 30 mm to the sides, 40 to the front. Neck: 40 to the sides, 110 - 95 = 15 to the back. 350 - 300 = 50."""
    assert check_body(PERSON, CT, REGION) == BodyCheck(3, True, True, 30.0, 15.0, 50.0, REGION)


@pytest.mark.parametrize(
    ("region", "glands_mm", "neck_mm"),
    [
        (replace(REGION, upper_mm=(100.0, 90.0, -50.0)), 30.0, -5.0),
        (replace(REGION, upper_mm=(60.0, 110.0, -50.0)), -10.0, 0.0),
        (replace(REGION, lower_mm=(-100.0, -100.0, -290.0)), 30.0, -10.0),
    ],
    ids=["back of the neck", "gland", "apex"],
)
def test_a_region_that_cuts_glands_or_neck_does_not_contain_the_row(
    region: Region, glands_mm: float, neck_mm: float
) -> None:
    check = check_body(PERSON, CT, region)
    assert (check.contained, check.glands_margin_mm, check.neck_margin_mm) == (False, glands_mm, neck_mm)


def test_without_glands_only_the_neck_counts_and_the_fields_top_cuts_nothing() -> None:
    """Without a brain the neck reaches up to the field's top, where the region ends as well."""
    person = replace(PERSON, brain=None, glands=None)
    region = replace(REGION, upper_mm=(100.0, 110.0, 0.0), brain_lower_mm=None)
    check = check_body(person, CT, region)
    assert (check.brain_in_view, check.contained) == (False, True)
    assert (check.glands_margin_mm, check.neck_margin_mm) == (None, 15.0)


def test_a_summary_with_and_without_a_brain_in_view() -> None:
    """Reaches of 50 and 70 mm, margins of 30 and 20 mm, 12.6 litres and with 320 mm of height 13.44."""
    check = check_body(PERSON, CT, REGION)
    lower = replace(REGION, lower_mm=(-100.0, -100.0, -370.0))
    second = replace(check, contained=False, glands_margin_mm=20.0, neck_margin_mm=-2.0, reach_mm=70.0, region=lower)
    third = replace(check, brain_in_view=False, glands_margin_mm=None, region=replace(REGION, brain_lower_mm=None))
    rows = by_view([check, second, third])
    assert list(rows) == ["brain in view", "no brain in view", "all"]
    assert rows["brain in view"] == {
        "rows": 2,
        "contained": 1,
        "smallest_glands_margin_mm": 20.0,
        "median_glands_margin_mm": 25.0,
        "smallest_neck_margin_mm": -2.0,
        "smallest_reach_mm": 50.0,
        "median_reach_mm": 60.0,
        "largest_reach_mm": 70.0,
        "median_litres": pytest.approx(13.02),
        "largest_litres": pytest.approx(13.44),
        "sure_share": 1.0,
    }
    cells = [cell.strip() for cell in body_table(rows).splitlines()[3].split("|")[1:-1]]
    assert cells == ["no brain in view", "1", "1", "", "", "15", "50", "50", "50", "12.6", "12.6", "0%"]


def test_the_study_goes_on_without_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "none.csv"
    assert main(["--patients", "0", "--anatomy", str(missing), "--output", str(tmp_path)]) == 0
    assert f"{missing} not found" in capsys.readouterr().out
    assert json.loads((tmp_path / "localisation-seed-1.json").read_text())["rows"] == []


def test_a_row_that_no_region_can_hold_fails_the_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Glands from x = -180 to 180 in the second row are wider than any region of the localiser."""
    table, wide = tmp_path / "people.csv", WHOLE.replace("-70,90", "-180,180")
    table.write_text(f"{HEADER}\n{WHOLE}\n{wide}\n", encoding="utf-8")
    arguments = ["--patients", "0", "--anatomy", str(table), "--output", str(tmp_path), "--jobs", "1"]
    assert main(arguments) == 1
    assert "1 of 2 rows not contained: 1;" in capsys.readouterr().out
    report = json.loads((tmp_path / "localisation-seed-1.json").read_text())
    assert report["missed_rows"] == [1]
    assert report["bodies"]["all"]["contained"] == 1
