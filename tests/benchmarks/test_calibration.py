"""The simulated cohorts have the properties that the tables of tests and intervals presuppose."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.calibration import (
    DIFFERENCE_HEADS,
    VALUE_HEADS,
    Scenario,
    classes,
    difference_row,
    main,
    mean_dsc,
    scenarios,
    skewed_dsc,
    value_rows,
)
from evaluation.metrics.overlap import weighted_groups


def recalls(metric) -> np.ndarray:
    groups = weighted_groups(metric)
    return (groups.members * groups.values).sum(axis=1) / groups.members.sum(axis=1)


def test_recalls_fall_from_class_to_class_and_by_the_handicap() -> None:
    """0.8 less 0.05 a class, for equally good teams; 200,000 patients leave a deviation of 0.004 in a class of 10,000."""
    shares = (0.5, 0.3, 0.15, 0.05)
    equal = classes(shares)(np.random.default_rng(1), 200_000, 0.0)
    for team in equal:
        np.testing.assert_allclose(recalls(team), [0.8, 0.75, 0.7, 0.65], atol=0.02)
    first, second = classes(shares)(np.random.default_rng(2), 200_000, 0.15)
    np.testing.assert_allclose(recalls(first) - recalls(second), 0.15, atol=0.02)


def test_skewed_gains_have_a_mean_of_0() -> None:
    """0.9 x 0.02 - 0.1 x 0.18 = 0, with a deviation of 0.0608 over the square root of 200,000 patients."""
    whole = np.ones((1, 200_000))
    first, second = skewed_dsc(np.random.default_rng(3), 200_000, 0.0)
    assert first(whole)[0] - second(whole)[0] == pytest.approx(0, abs=5 * 0.0608 / np.sqrt(200_000))


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: f"{scenario.title}, {scenario.cases}")
def test_every_team_has_a_value_and_every_patient_a_weight(scenario: Scenario) -> None:
    """A metric of other patients would not take weights of this shape."""
    for metric in scenario.simulate(np.random.default_rng(4), scenario.cases, scenario.handicap):
        assert 0 < metric(np.ones((1, scenario.cases)))[0] < 1


def test_wilcoxon_asks_another_question_than_the_mean() -> None:
    """In 60 cohorts of equal means Wilcoxon's test rejects nearly always; the interval of the mean holds 0."""
    row = difference_row(Scenario("skewed", 100, skewed_dsc), 60, np.random.default_rng(5))
    shown = dict(zip(DIFFERENCE_HEADS, row, strict=True))
    assert float(shown["Wilcoxon"]) > 0.9
    assert float(shown["interval"]) > 0.85
    assert float(shown["exchange"]) == 0


def test_the_truth_of_unequal_teams_is_their_own_difference() -> None:
    """An interval that covered 0 in place of the difference would miss: the power is near 1 at 400 patients."""
    row = difference_row(Scenario("unequal", 400, mean_dsc, 0.5, 50_000), 40, np.random.default_rng(6))
    shown = dict(zip(DIFFERENCE_HEADS, row, strict=True))
    assert float(shown["p of the first"]) > 0.9
    assert float(shown["p of the second"]) == 0
    assert float(shown["interval"]) > 0.8


def test_coverage_of_values() -> None:
    rows = list(value_rows(40, np.random.default_rng(7)))
    assert [len(row) for row in rows] == [len(VALUE_HEADS)] * 6
    assert all(float(row[2]) > 0.8 for row in rows)


def test_the_command_prints_both_tables(capsys) -> None:
    assert main(["--cohorts", "2", "--seed", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("| ")]) == 2 + 6 + len(scenarios())
