"""The examples of docs/python.md: preparing runs on a tiny release, the whole training with stubs for its steps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import baseline
from baseline import Machine, pipeline
from baseline.release.prepare import CheckedRelease

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
SECTION = PAGE.read_text(encoding="utf-8").partition("\n## Train\n")[2].partition("\n## ")[0]
WHOLE, STEPS = re.findall(r"```python\n(.*?)```", SECTION, flags=re.DOTALL)


def test_preparing_a_release(tiny_release: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for patient in ("CHUM-001", "MDA-002"):
        tiny_release.add(patient)
    tiny_release.write_tables()
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(STEPS, str(PAGE), "exec"), names)
    assert names["preparation"].counts["patients"] == 2
    assert (tmp_path / "work" / "splits.json").is_file()


def test_a_head_on_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """432 men with 114 arrests."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Fit a head on a table\n")[2].partition("\n## ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, str(PAGE), "exec"), names)
    assert capsys.readouterr().out.startswith("432 rows, 114 events, 7 features\n")
    assert list(names["predicted"].columns) == ["risk", "mean_time", "median_time"]


def test_a_whole_training_runs_every_step_of_the_table_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[str] = []

    def stub(name: str, result: Any) -> None:
        monkeypatch.setattr(pipeline, name, lambda *_: calls.append(name) or result)

    for name in re.findall(r"^\| \w+ \| `(\w+)\(", SECTION, flags=re.MULTILINE):
        assert name in baseline.__all__
        results = {"check_release": CheckedRelease(None, (), 0.0), "fit_heads": "a summary"}  # type: ignore[arg-type]
        stub(name, results.get(name))
    stub("usable_machine", Machine("cuda"))
    monkeypatch.setattr(pipeline, "postprocessing_lines", lambda _: "no rules")
    monkeypatch.setattr(pipeline, "_intention", lambda *_: "hours and disk")
    monkeypatch.setattr(pipeline.prepare, "summary", lambda _: "prepared")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(WHOLE, str(PAGE), "exec"), names)
    assert calls == [
        "usable_machine", "check_release", "prepare_release", "plan_networks", "train_networks", "measure_out_of_fold",
        "postprocess_masks", "fit_heads", "make_report", "export_model",
    ]  # fmt: skip
    assert names["package"] == Path("package")
    assert capsys.readouterr().out.startswith("hours and disk\n0 errors, 0 warnings\nprepared\n")
