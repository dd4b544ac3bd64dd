"""Comparison of heads with other models: its cohorts, its order of work and its table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import heads
from benchmarks.heads import IMAGE_FEATURES, Item, draw_cohorts, format_results, list_items, load_tables


def test_cohorts_are_drawn_again_and_have_the_shares_that_they_claim() -> None:
    """One quarter of the patients has an event, one tenth is HPV negative; new centres are not in the training."""
    cohorts = draw_cohorts("rfs", "mixed", 3)
    pd.testing.assert_frame_equal(cohorts["new"].features, draw_cohorts("rfs", "mixed", 3)["new"].features)
    assert cohorts["training"].outcomes.positive.mean() == pytest.approx(0.25, abs=0.06)
    assert draw_cohorts("hpv", "strong", 3)["training"].outcomes.positive.mean() == pytest.approx(0.9, abs=0.04)
    assert not set(cohorts["new"].centres) & set(cohorts["training"].centres)
    assert cohorts["known"].features[list(IMAGE_FEATURES)].shape == (1000, 51)
    assert cohorts["training"].features["age_years"].notna().all()


def test_every_scenario_comes_before_the_second_repetition() -> None:
    items = [item for item in list_items(2) if item.kind != "table"]
    assert [item.repetition for item in items] == [0] * 8 + [1] * 8
    assert {item.scenario for item in list_items(1) if item.kind == "table"} == set(load_tables())


def test_table_by_hand() -> None:
    """Heads 0.7 and 0.8 against the usual model, 0.6 and 0.72: +0.09 with the standard error 0.01."""
    results = {
        "rfs/weak/0": {"known/heads": 0.7, "known/usual model": 0.6, "known/forest": 0.5},
        "rfs/weak/1": {"known/heads": 0.8, "known/usual model": 0.72, "known/forest": 0.5},
    }
    rows = format_results(results).splitlines()
    assert rows[2] == "| rfs weak | known | 2 | 0.750 | 0.660 | 0.500 | +0.090 (0.010) |"
    assert rows[-1].endswith("+0.0900")


def test_finished_cohorts_are_kept_and_a_cohort_that_fails_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first cohort is not measured again. The process of the other fails, because its kind is unknown."""
    output = tmp_path / "heads.jsonl"
    output.write_text(json.dumps(["rfs/weak/0", {"known/heads": 0.7, "known/forest": 0.5}]) + "\n")
    before = output.read_text()
    for items, status in (([Item("rfs", "weak")], 0), ([Item("rfs", "weak"), Item("none", "weak")], 1)):
        monkeypatch.setattr(heads, "list_items", lambda _, items=items: items)
        assert heads.main(["--output", str(output), "--jobs", "1"]) == status
        assert output.read_text() == before
    printed = capsys.readouterr()
    assert printed.err.startswith("none/weak/0: ")
    assert "| rfs weak | known | 1 |" in printed.out


def test_events_do_not_depend_on_the_features_without_effect() -> None:
    """Null: with the effect 0 no feature orders the follow-up better than by chance in the mean."""
    rng = np.random.default_rng(0)
    outcomes = heads.draw_times(np.zeros(4000), 2000.0, rng)
    values = rng.normal(size=4000)
    assert abs(np.corrcoef(values, outcomes.times_days)[0, 1]) < 0.05
