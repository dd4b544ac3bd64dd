"""Ratios, tables and the JSON report."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks.cases.data import describe
from benchmarks.harness.bounds import MEDIAN_S, MEMORY_RATIO, PEAK_GB, TIME_RATIO, Bound
from benchmarks.harness.machine import machine_facts, machine_line
from benchmarks.harness.measurement import Measurement, Work
from benchmarks.harness.suite import run_suite, suite_parser
from benchmarks.harness.table import report_rows, shown_ratio, shown_seconds, table
from benchmarks.harness.timing import Timing
from contract.files import read_json


def no_work(_: Path) -> Work:
    return lambda: None


def measurement(name: str, *against: str, bounds: tuple[Bound, ...] = ()) -> Measurement:
    return Measurement("group", name, no_work, against, bounds)


def test_ratios_are_those_of_medians_and_peaks() -> None:
    """Medians 6 and 4: 6 / 4 = 1.5; peaks 10 and 40 MiB: 0.25."""
    rows = report_rows(
        [
            (measurement("limit"), Timing((4.0,), 40.0)),
            (measurement("ours", "group/limit"), Timing((5.0, 6.0, 9.0), 10.0)),
            (measurement("alone", "group/not measured"), Timing((5.0,), 1.0)),
        ]
    )
    assert [row["time_ratio"] for row in rows] == [None, 1.5, None]
    assert [row["memory_ratio"] for row in rows] == [None, 0.25, None]


def test_a_bound_on_seconds_is_one_on_the_median() -> None:
    """2, 3 and 40 s: the median is 3 s."""
    bounds = (Bound(MEDIAN_S, "at most", 3.0), Bound(MEDIAN_S, "at most", 2.9), Bound("pages", "at most", 3.0))
    timing = Timing((2.0, 3.0, 40.0), 1.0, {"pages": 4.0})
    (row,) = report_rows([(measurement("ours", bounds=bounds), timing)])
    assert [bound["held"] for bound in row["bounds"]] == [True, False, False]


def test_of_several_peers_the_best_counts() -> None:
    """Ours 10 s and 1,000 MiB; the peer 40 s and 1,500 MiB, or 35 s and 4,000 MiB: 10 / 35 and 1,000 / 1,500.

    1,000 MiB are 1.049 x 10^9 bytes.
    """
    bounds = (Bound(TIME_RATIO, "at most", 1 / 3), Bound(MEMORY_RATIO, "at most", 0.5), Bound(PEAK_GB, "at most", 1.05))
    rows = report_rows(
        [
            (measurement("one process"), Timing((40.0,), 1500.0)),
            (measurement("many processes"), Timing((35.0,), 4000.0)),
            (
                measurement("ours", "group/one process", "group/many processes", bounds=bounds),
                Timing((9.0, 10.0, 12.0), 1000.0),
            ),
        ]
    )
    assert (rows[2]["time_ratio"], rows[2]["memory_ratio"]) == (pytest.approx(2 / 7), pytest.approx(2 / 3))
    assert (rows[2]["fastest"], rows[2]["leanest"]) == ("group/many processes", "group/one process")
    assert [bound["held"] for bound in rows[2]["bounds"]] == [True, False, True]


def test_the_table_shows_every_row_and_the_notes() -> None:
    bound = Bound(TIME_RATIO, "at most", 1.0)
    rows = report_rows(
        [
            (measurement("limit"), Timing((0.004,), 150.4)),
            (measurement("ours", "group/limit", bounds=(bound,)), Timing((0.006,), 200.0, {"passes": 4.0})),
        ]
    )
    lines = table(rows).splitlines()
    assert len({len(line) for line in lines if line.startswith("|")}) == 1
    cells = [cell.strip() for cell in [line for line in lines if line.startswith("|")][-1].split("|")[1:-1]]
    assert cells == ["ours", "6.00 ms", "6.00 ms", "6.00 ms", "200", "1.50", "1.33", "limit"]
    assert lines[-1] == "- ours: passes 4, time ratio at most 1: **not held**"


def test_a_suite_prints_the_table_and_writes_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--only` leaves one of two measurements."""
    options: argparse.Namespace = suite_parser("bench", "Test.").parse_args(
        ["--quick", "--output", str(tmp_path), "--only", "*/first"]
    )
    run_suite("test", [measurement("first"), measurement("second")], options, {"model": "tiny"}, ["Model: tiny"])
    report = read_json(tmp_path / "test-quick.json")
    assert [row["name"] for row in report["measurements"]] == ["first"]
    assert (report["model"], report["quick"]) == ("tiny", True)
    output = capsys.readouterr().out
    assert "Model: tiny" in output
    assert "| first" in output


@pytest.mark.parametrize(
    ("seconds", "text"), [(123.4, "123 s"), (12.34, "12.3 s"), (1.0, "1.00 s"), (0.0456, "45.6 ms"), (2e-7, "0.200 us")]
)
def test_seconds_have_three_figures(seconds: float, text: str) -> None:
    assert shown_seconds(seconds) == text


def test_small_ratios() -> None:
    assert [shown_ratio(ratio) for ratio in (0.0004, 0.25, 3.5, 250.0)] == ["< 0.001", "0.250", "3.50", "250"]


def test_the_machine_is_described() -> None:
    facts = machine_facts()
    assert facts["usable_cores"] >= 1
    assert facts["memory_gib"] > 0
    assert f"numpy {facts['packages']['numpy']}" in machine_line(facts)


def test_the_inputs_are_described() -> None:
    grid = {"size": (512, 512, 190), "spacing_mm": (1.1, 1.1, 2.0)}
    inputs = {
        "model": {"name": "small", "folds": 2},
        "evaluation_cases": 50,
        "grids": {"head_and_neck": {"ct-image": grid, "pet-image": grid}},
    }
    model, sizes = describe(inputs)
    assert model == "Model: small, 2 folds. Cohort of 50 cases."
    assert sizes.startswith("head and neck: CT 512 x 512 x 190 at 1.1 x 1.1 x 2 mm, PET 512")
