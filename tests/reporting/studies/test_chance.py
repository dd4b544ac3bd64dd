"""The best of many random predictions: exact moments, a naive oracle, and the published figures."""

from __future__ import annotations

import numpy as np
import pytest

from contract.errors import HecktorError, MetricError
from evaluation.metrics.survival import SurvivalCohort, c_index_metric
from reporting.studies.best_of_k import draw_best_scores, random_balanced_accuracy, random_c_index, summarise_scores
from reporting.studies.cli import main
from tests.evaluation.tables import read_lines
from tests.reporting.studies.runs import run_study


def test_the_best_of_82_random_risks_on_101_patients_with_40_events():
    """HECKTOR 2021 printed 0.617 with a standard deviation of 0.021, on times that it did not print.

    Recurrences by an exponential law of 1.5 years, the others followed for 1 to 7 years. The mean of 1,000 repeats is
    known to 0.021 / sqrt(1000) = 0.0007; how the 40 events lie among the 101 moves it by up to 0.008.
    """
    shares = (np.arange(40) + 0.5) / 40
    years = np.concatenate([-1.5 * np.log(1 - shares), np.linspace(1, 7, 61)])
    scores = random_c_index(years, np.arange(101) < 40)
    summary = summarise_scores(draw_best_scores(scores, 82, 1000, np.random.default_rng(2021)), winner=0.720)
    assert summary["mean"] == pytest.approx(0.617, abs=0.002)
    assert summary["sd"] == pytest.approx(0.021, abs=0.0015)
    assert summary["p"] <= 0.001


@pytest.mark.parametrize("seed", range(3))
def test_random_scores_are_c_indices_of_random_risks(seed):
    """Times fall on few days, so that recurrences and censorings tie."""
    rng = np.random.default_rng(seed)
    days, events = rng.integers(0, 5, 14).astype(float), rng.random(14) < 0.6
    drawn = random_c_index(days, events)(20, np.random.default_rng(seed))
    risks = np.random.default_rng(seed).random((14, 20)).T
    once = np.ones((1, 14))
    assert drawn == pytest.approx(
        [c_index_metric(SurvivalCohort(days, events, risk), "tie")(once)[0] for risk in risks]
    )


def test_balanced_accuracy_of_coins(monkeypatch):
    """Two positive, one negative: sensitivity 0, 1/2, 1 with 1/4, 1/2, 1/4; specificity 0 or 1.

    The best of two is 1 with 1 - (7/8)^2 = 15/64, of which 20,000 draws have a standard error of 0.003.
    """
    monkeypatch.setattr("reporting.studies.best_of_k._MAX_DRAWS_AT_ONCE", 1000)
    scores = random_balanced_accuracy(np.array([True, True, False]))
    best = draw_best_scores(scores, 2, 20_000, np.random.default_rng(5))
    assert best.shape == (20_000,)
    assert (best == 1.0).mean() == pytest.approx(15 / 64, abs=0.012)


def test_the_study(tmp_path):
    table = tmp_path / "rfs.csv"
    table.write_text("PatientID,Relapse,RFS\n" + "".join(f"P{day},{day % 2},{day}\n" for day in range(30)))
    arguments = ["--task", "2", "--ground-truth", str(table), "--tries", "1", "--tries", "82", "--winner", "0.9"]
    content = run_study("best-of-k", tmp_path / "out", *arguments, "--repeats", 200)
    assert (content["cases"], content["recurrences"]) == (30, 15)
    single, many = content["best_of"]
    assert single["ci95_low"] < 0.5 < single["ci95_high"]
    assert many["mean"] > single["ci95_high"]
    assert many["p"] >= 1 / 201
    assert [line["tries"] for line in read_lines(tmp_path / "out" / "best-of-k.csv")] == ["1", "82"]


def test_cohorts_that_are_refused(tmp_path):
    with pytest.raises(MetricError, match="no comparable pair"):
        random_c_index(np.array([1.0, 2.0]), np.array([False, True]))
    with pytest.raises(MetricError, match="one class"):
        random_balanced_accuracy(np.array([True, True]))
    with pytest.raises(HecktorError, match="no answer of kind risk or class"):
        main(["best-of-k", "--task", "1", "--ground-truth", str(tmp_path), "--output", str(tmp_path)])
