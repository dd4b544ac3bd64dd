"""The study of false positives: equal teams are equal, and each metric is judged by the tests of `hecktor rank`."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from benchmarks.studies.false_positives import BOOTSTRAP, main, rates, simulate
from benchmarks.studies.simulated_teams import alike, unlike
from evaluation.editions.profile import load_profile


def values_of(teams, patients):
    whole = np.ones((1, patients))
    return {name: [float(metric(whole)[0]) for metric in pair] for name, pair in teams.metrics.items()}


def test_teams_of_one_kind_are_equally_good_and_realistic():
    """In 20,000 patients the teams differ by 0.01 at most, in HD95 by 0.1 mm; a better team gains 0.015 or more."""
    n = 20_000
    found = values_of(alike(n, 0.0, np.random.default_rng(0)), n)
    for name, (a, b) in found.items():
        assert a == pytest.approx(b, abs=0.1 if name == "gtvp_hd95_median_mm" else 0.01), name
    assert found["gtvp_dsc_mean"][0] == pytest.approx(0.78, abs=0.02)
    assert found["c_index"][0] == pytest.approx(0.60, abs=0.02)
    better = values_of(alike(n, 0.2, np.random.default_rng(0)), n)
    gains = {name: a - b for name, (a, b) in better.items()}
    assert gains.pop("gtvp_hd95_median_mm") < -0.2
    assert min(gains.values()) > 0.015


def test_unlike_teams_have_equal_expected_values():
    """Sensitivity 0.90 and specificity 0.50, or 0.75 and 0.65, give a balanced accuracy of 0.70."""
    n = 40_000
    found = values_of(unlike(n, np.random.default_rng(1)), n)
    assert found["balanced_accuracy"] == pytest.approx([0.7, 0.7], abs=0.01)
    assert found["gtvp_dsc_mean"][0] == pytest.approx(found["gtvp_dsc_mean"][1], abs=0.005)


def test_every_metric_of_a_cohort_is_compared():
    """The score of 2026 is a weighted sum of others; p of 12 cohorts lies on both sides of 0.5."""
    records = simulate(partial(alike, 60, 0.0), (12, 60, 60), 5)
    assert {"score", *load_profile("hecktor2026").task(None).metrics["score"].terms} <= records.keys()
    for record in records.values():
        assert min(record[BOOTSTRAP]) < 0.5 < max(record[BOOTSTRAP])
        assert len(record[BOOTSTRAP]) == 12


def test_rates_are_fractions_of_small_p():
    """One of four p is at most 0.05 without, two of four with a difference; the deciding test is bold."""
    equal = {"c_index": {BOOTSTRAP: [0.05, 0.06, 0.5, 1.0], "kang": [0.5] * 4, "covers_0": [1, 1, 1, 0], "gain": [0]}}
    better = {"c_index": {BOOTSTRAP: [0.01, 0.02, 0.5, 1.0], "kang": [0.01] * 4, "covers_0": [1], "gain": [0.1, 0.3]}}
    line = rates(equal, better).splitlines()[-1]
    assert line == "| `c_index` | 0.200 | 0.750 | - | **0.250 / 0.50** | - | 0.000 / 1.00 | - |"


def test_the_command_prints_a_table_for_each_cohort_size(capsys):
    assert main(["--cohorts", "2", "--patients", "40", "--bootstraps", "20"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("40 patients\n")
    assert "unlike teams" in printed
