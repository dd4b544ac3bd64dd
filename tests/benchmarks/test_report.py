"""That the bench measures, divides and writes; how fast anything is, is no test's business."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.cases import Command, Measurement, Setting, Work, all_measurements, measurement_named, run
from benchmarks.data import Data
from benchmarks.machine import machine_facts
from benchmarks.table import heading, report_rows, shown_ratio, shown_seconds, table
from benchmarks.timing import Repeats, Timing, time_calls, time_command
from contract.errors import HecktorError
from contract.files import write_json


def no_work(setting: Setting) -> Work:
    del setting
    return lambda: None


def measurement(name: str, against: str | None = None) -> Measurement:
    return Measurement("group", name, "what it does", no_work, against)


def test_repeats_go_on_until_enough_calls_and_seconds() -> None:
    """At least 2 calls; then on while under 1 s; never a fifth call, since 4 is the most."""
    repeats = Repeats(least=2, least_s=1.0, most=4)
    assert [repeats.go_on(done, 0.1 * done) for done in range(6)] == [True, True, True, True, False, False]
    assert not repeats.go_on(2, 1.5)


def test_statistics_of_a_timing() -> None:
    """Of 1, 2, 3, 4, 10 the median is 3; the 90th percentile lies at position 3.6, 4 + 0.6 x 6 = 7.6."""
    seconds = Timing((10.0, 1.0, 3.0, 2.0, 4.0), 100.0, 50.0).as_json()["seconds"]
    assert (seconds["min"], seconds["median"], seconds["p90"]) == (1.0, 3.0, pytest.approx(7.6))


def test_a_timing_survives_json() -> None:
    timing = Timing((0.25, 0.5), 12.5, 3.0)
    assert Timing.from_json(json.loads(json.dumps(timing.as_json()))) == timing


def test_calls_are_counted_and_their_memory_seen() -> None:
    """100 MB of bytes written in a call must show, whatever the process held before."""
    calls: list[int] = []

    def work() -> None:
        calls.append(len(bytearray(b"\x01") * 100_000_000))

    timing = time_calls(work, Repeats(least=3))
    assert len(calls) == 4
    assert len(timing.seconds) == 3
    assert timing.peak_memory_mib > timing.memory_before_mib + 90


def test_a_command_is_timed_with_its_children() -> None:
    """The child of the command holds 200 MB for a second, the command itself next to nothing."""
    child = "import time; block = bytearray(b'1') * 200_000_000; time.sleep(1)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    timing = time_command((sys.executable, "-c", parent), Repeats(least=1))
    assert timing.seconds[0] > 1
    assert timing.peak_memory_mib > 190


def test_a_command_that_fails_is_an_error() -> None:
    with pytest.raises(HecktorError, match=r"status 3.*why"):
        time_command((sys.executable, "-c", "import sys; print('why'); sys.exit(3)"), Repeats(least=1))


def test_ratio_is_that_of_medians() -> None:
    """Medians 6 and 4: 6 / 4 = 1.5."""
    rows = report_rows(
        [
            (measurement("limit"), Timing((4.0,), 1.0, 1.0)),
            (measurement("ours", "group/limit"), Timing((5.0, 6.0, 9.0), 1.0, 1.0)),
            (measurement("alone", "group/not measured"), Timing((5.0,), 1.0, 1.0)),
        ]
    )
    assert [row["ratio"] for row in rows] == [None, 1.5, None]


def test_table_and_json_hold_every_row(tmp_path: Path) -> None:
    rows = report_rows(
        [
            (measurement("limit"), Timing((0.004,), 150.4, 1.0)),
            (measurement("ours", "group/limit"), Timing((0.006,), 200.0, 1.0)),
        ]
    )
    write_json(tmp_path / "bench.json", {"machine": machine_facts(), "measurements": rows})
    assert len({len(line) for line in table(rows).splitlines() if line.startswith("|")}) == 1
    last = [cell.strip() for cell in table(rows).splitlines()[-1].split("|")[1:-1]]
    assert last == ["ours", "6.00 ms", "6.00 ms", "6.00 ms", "200", "1.50", "limit"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(123.4, "123 s"), (12.34, "12.3 s"), (1.0, "1.00 s"), (0.0456, "45.6 ms"), (2e-7, "0.200 us")]
)
def test_seconds_are_shown_with_three_figures(seconds: float, text: str) -> None:
    assert shown_seconds(seconds) == text


def test_small_ratios_are_said_to_be_small() -> None:
    assert [shown_ratio(ratio) for ratio in (0.0004, 0.25, 3.5, 250.0)] == ["< 0.001", "0.250", "3.50", "250"]


def test_measurements_are_unique_and_come_after_what_they_are_divided_by() -> None:
    keys = [declared.key for declared in all_measurements()]
    assert len(set(keys)) == len(keys)
    for place, declared in enumerate(all_measurements()):
        assert declared.against is None or declared.against in keys[:place]
    assert measurement_named(keys[0]).key == keys[0]
    with pytest.raises(HecktorError, match="no measurement"):
        measurement_named("group/none")


def test_run_takes_calls_and_commands(tmp_path: Path) -> None:
    setting = Setting(Data(tmp_path, quick=True), tmp_path, tmp_path)
    assert len(run(measurement("call"), setting).seconds) == 1
    command = Measurement("group", "command", "", lambda _: Command((sys.executable, "-c", "")))
    assert len(run(command, setting).seconds) == 1


def test_machine_facts_say_what_a_figure_was_measured_on() -> None:
    facts = machine_facts()
    assert facts["usable_cores"] >= 1
    assert facts["memory_gib"] > 0
    assert facts["packages"]["numpy"]


def test_heading_names_machine_model_and_grids() -> None:
    grid = {"size": (512, 512, 190), "spacing_mm": (1.1, 1.1, 2.0)}
    size = {"patient": "CHUB-001", "ct-image": grid, "pet-image": grid}
    report = {
        "machine": machine_facts(),
        "model": {"name": "small", "folds": 2},
        "data": {"evaluation_cases": 50, "head_and_neck": size, "whole_body": size},
    }
    text = heading(report)
    assert "head and neck: CT 512 x 512 x 190 at 1.1 x 1.1 x 2 mm" in text
    assert "Model: small, 2 folds. Cohort of 50 cases." in text
