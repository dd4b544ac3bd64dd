"""Tests of the examples of docs/research.md: preparing runs on a tiny release, and the names of the whole training and
its steps exist.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import baseline

PAGE = Path(__file__).resolve().parents[2] / "docs" / "research.md"
SECTION = PAGE.read_text(encoding="utf-8").partition("\n## Train\n")[2].partition("\n## ")[0]
WHOLE, STEPS = re.findall(r"```python\n(.*?)```", SECTION, flags=re.DOTALL)


def test_preparing_a_release(tiny_release: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Voxels have 6 mm instead of 1 mm."""
    for patient in ("CHUM-001", "MDA-002"):
        tiny_release.add(patient)
    tiny_release.write_tables()
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    assert "(1.0, 1.0, 1.0)" in STEPS
    exec(compile(STEPS.replace("(1.0, 1.0, 1.0)", "(6.0, 6.0, 6.0)"), str(PAGE), "exec"), names)
    assert names["preparation"].counts["patients"] == 2
    assert (tmp_path / "work" / "splits.json").is_file()


@pytest.mark.slow
def test_a_head_on_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """432 men have 114 arrests; `heads/test_table.py` fits the same men."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Fit a head on a table\n")[2].partition("\n## ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, str(PAGE), "exec"), names)
    assert capsys.readouterr().out.startswith("432 rows, 114 events, 7 features\n")
    assert list(names["predicted"].columns) == ["risk", "mean_time", "median_time"]


def test_the_example_of_a_whole_training_names_existing_options() -> None:
    """Options of the example are made unchanged; the test of the command line covers the whole training."""
    options, _, call = WHOLE.partition("package = ")
    names: dict[str, Any] = {}
    exec(compile(options, str(PAGE), "exec"), names)
    inspect.signature(baseline.train).bind(names["options"], show=print)
    assert call == "train(options, show=print)\n"
    assert names["options"].plan == baseline.PRESETS["nnunet"]


def test_the_steps_that_the_page_names_are_public() -> None:
    """`tests/test_docs.py` checks their signatures in docs/functions.md."""
    (steps,) = re.findall(r"The other steps are (.*?), in this order", SECTION, flags=re.DOTALL)
    names = re.findall(r"`(\w+)`", steps)
    assert len(names) == 7
    assert set(names) <= set(baseline.__all__)
