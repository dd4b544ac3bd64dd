"""The page of gpu-smoke from made-up measurements of a T4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.bounds import Bound
from benchmarks.harness.machine import machine_facts
from benchmarks.harness.measurement import Measurement
from benchmarks.harness.table import report_rows
from benchmarks.harness.timing import Timing
from benchmarks.smoke.gpu import BOUNDS, CARD_BOUNDS
from benchmarks.smoke.page import smoke_page, verdict
from benchmarks.smoke.patients import CARD_GIB, DRIVER_GIB, LIMIT_S, MARGIN_S, PASSES, PLANNED
from benchmarks.smoke.training import FIRST_EPOCH_S, FITS, HOURS


def made_up(name: str, timing: Timing, bounds: tuple[Bound, ...], against: str = "", group: str = "default") -> Any:
    return Measurement(group, name, lambda _: timing, (against,) if against else (), bounds), timing


def run(name: str, limit_s: float, margin_s: float, memory_gib: float, **more: float) -> Any:
    figures = {LIMIT_S: limit_s, MARGIN_S: margin_s, PASSES: 14, PLANNED: 40, CARD_GIB: memory_gib}
    figures |= {"T4, slow (passes)": 9, "T4, fast (passes)": 15, **more}
    return made_up(name, Timing((limit_s - margin_s,), 4000.0, figures), (*BOUNDS, *CARD_BOUNDS), "default/one tile")


def tile(name: str, seconds: float) -> Any:
    return made_up(name, Timing((seconds,), 900.0, {"TFLOP/s": 0.958 / seconds}), ())


def training(name: str, seconds: float, published_gb: float, gib: float | None) -> Any:
    """`gib` is None for a preset that does not fit."""
    bounds = Bound(FITS, "at least", 1), Bound(CARD_GIB, "at most", published_gb)
    against = "training/nnunet" if "," in name else ""
    if gib is None:
        return made_up(name, Timing((0.0,), 4000.0, {FITS: 0.0}), bounds, against, "training")
    figures = {FITS: 1.0, FIRST_EPOCH_S: 1.4 * seconds, HOURS: seconds / 3.6, CARD_GIB: gib}
    return made_up(name, Timing((seconds,), 4000.0, figures), bounds, against, "training")


@pytest.fixture
def report() -> dict[str, Any]:
    """A run that ends 4 s late, one that takes 14.6 GiB, and a preset that does not fit."""
    measured = [
        tile("one tile", 0.16),
        run("head and neck, segmentation", 600, 61, 4.2, **{DRIVER_GIB: 5.1}),
        run("whole body, rfs", 900, -4, 6.0, **{DRIVER_GIB: 6.9}),
        run("whole body, combined", 1500, 150, 14.6),
        training("nnunet", 180.0, 7.7, 7.2),
        training("nnunet, compile", 135.0, 7.7, 6.9),
        training("resenc-l", 0.0, 22.7, None),
    ]
    card = {"card": "Tesla T4 <15 GiB>", "quick": False, "machine": machine_facts()}
    return {**card, "measurements": report_rows(measured)}


def test_verdicts(report: dict[str, Any]) -> None:
    """Without the driver's count, or without memory, a row is not wholly measured, unless something does not hold."""
    verdicts = {row["name"]: verdict(row) for row in report["measurements"]}
    assert verdicts == {
        "one tile": True,
        "head and neck, segmentation": True,
        "whole body, rfs": False,
        "whole body, combined": False,
        "nnunet": True,
        "nnunet, compile": True,
        "resenc-l": False,
    }


def test_the_page_says_what_holds_and_what_does_not(report: dict[str, Any]) -> None:
    """Bounds: 3 x 5 of runs, 3 x 2 of trainings: 21. Three do not hold: -4 s, 14.6 GiB, and the preset that does not
    fit; two are not measured: the driver's count of a run, and that preset's memory.
    """
    page = smoke_page(report)
    assert "16 of 21 limits hold." in page
    broken = [
        "default, whole body, rfs: margin (s) at least 0: measured -4",
        "default, whole body, combined: peak memory on the card (GiB) at most 14: measured 14.6",
        "training, resenc-l: fits the card at least 1: measured 0",
    ]
    unknown = [
        "default, whole body, combined: with the driver&#x27;s libraries (GiB) at most 15",
        "training, resenc-l: peak memory on the card (GiB) at most 22.7",
    ]
    before, middle, after = (text.partition("</ul>")[0] for text in page.replace("</h3>", "<h3").split("<h3")[::2])
    assert "limits hold" in before
    assert [f"<li>{line}</li>" in middle for line in broken] == [True] * 3
    assert [f"<li>{line}</li>" in after for line in unknown] == [True] * 2
    assert "Tesla T4 &lt;15 GiB&gt;" in page


def test_a_training_is_given_in_hours_and_days(report: dict[str, Any]) -> None:
    """1,000 epochs of 180 s are 50 h, five folds 10.4 days; compiled, 135 s are 0.75 of the time."""
    page = smoke_page(report)
    cells = [row.split("</td><td>") for row in page.split("<tr><td>")]
    rows = {cell[0]: cell[1:] for cell in cells}
    assert rows["nnunet"][:5] == ["252.0 s", "180.0 s", "50.0 h", "10.4 days", "7.2 GiB (nnU-Net: 7.7 GB)"]
    assert rows["nnunet, compile"][5] == "0.75"
    assert rows["resenc-l"][0] == "does not fit this card"


def test_without_any_measurement(tmp_path: Path) -> None:
    page = smoke_page({"card": None, "quick": True, "machine": machine_facts(), "measurements": []})
    assert page.count("Not measured.") == 3
    assert "0 of 0 limits hold." in page
    assert "no card (CPU)" in page
