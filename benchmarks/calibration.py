"""`scripts/bench --calibration`: type I error of the tests and coverage of the intervals in simulated cohorts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import expit, ndtr

from benchmarks.suite import markdown
from contract.options import whole_number
from evaluation.metrics.classification import NO_CLASS, many_classes_metrics
from evaluation.metrics.lesions import f1_agg_metric
from evaluation.metrics.overlap import (
    Floats,
    MeanRecall,
    WeightedMetric,
    WeightedSum,
    dsc_agg_metric,
    mean_metric,
)
from evaluation.metrics.survival import SurvivalCohort, c_index_metric
from evaluation.statistics.bootstrap import leave_one_out
from evaluation.statistics.gains import differing_patients, paired_gains
from evaluation.statistics.intervals import interval, interval_of_recalls
from evaluation.statistics.tests import signed_ranks

VALUE_HEADS: Final = ("balanced accuracy", "n", "Wilson and MOVER", "percentile")
DIFFERENCE_HEADS: Final = (
    "difference",
    "n",
    "p of the first",
    "p of the second",
    "interval",
    "percentile",
    "without p",
    "Wilcoxon",
)
_DRAWS: Final = 1000
_TRUTH_CASES: Final = 200_000
# Correlation of what two teams get right in the same patient.
_SHARED: Final = 0.5
_SKEW: Final = 0.1
Teams = list[WeightedMetric]


@dataclass(frozen=True)
class Scenario:
    """One line of the table of differences: two teams of a metric in cohorts of `cases` patients.

    `simulate` takes a generator, the number of cases and the second team's handicap, 0 for equally good teams.
    """

    title: str
    cases: int
    simulate: Callable[[np.random.Generator, int, float], Teams]
    handicap: float = 0.0
    truth_cases: int = _TRUTH_CASES


def classes(shares: Sequence[float]) -> Callable[[np.random.Generator, int, float], Teams]:
    """Balanced accuracy of classes with fixed numbers of patients; recalls fall from 0.8 by 0.05 a class."""

    def simulate(rng: np.random.Generator, cases: int, handicap: float) -> Teams:
        sizes = np.maximum(1, np.round(np.array(shares) * cases).astype(int))
        actual = np.repeat(np.arange(len(shares)), sizes)[:cases]
        recall = 0.8 - 0.05 * actual
        shared = rng.standard_normal(actual.size)
        teams = []
        for less in (0.0, handicap):
            right = ndtr(_mixed(shared, rng)) < recall - less
            metrics = many_classes_metrics(actual, np.where(right, actual, NO_CLASS), len(shares))
            teams.append(metrics["balanced_accuracy"])
        return teams

    return simulate


def _mixed(shared: Floats, rng: np.random.Generator) -> Floats:
    own = rng.standard_normal(shared.size)
    mixed: Floats = np.sqrt(_SHARED) * shared + np.sqrt(1 - _SHARED) * own
    return mixed


def _dsc(shared: Floats, rng: np.random.Generator, handicap: float) -> Floats:
    """DSCs around 0.8 of which a twentieth is 0."""
    dsc = expit(1.4 - handicap + 0.8 * _mixed(shared, rng))
    missed: Floats = np.where(rng.random(shared.size) < 0.05, 0.0, dsc)
    return missed


def mean_dsc(rng: np.random.Generator, cases: int, handicap: float) -> Teams:
    """The mean of per-case DSCs."""
    shared = rng.standard_normal(cases)
    return [mean_metric(_dsc(shared, rng, less)) for less in (0.0, handicap)]


def skewed_dsc(rng: np.random.Generator, cases: int, _handicap: float) -> Teams:
    """Equal means: the first team is better by 0.02 in nine of ten patients, and worse by 0.18 in the tenth."""
    dsc = 0.6 + 0.05 * rng.standard_normal(cases)
    gap = np.where(rng.random(cases) < _SKEW, -0.18, 0.02) + 0.01 * rng.standard_normal(cases)
    return [mean_metric(dsc + gap), mean_metric(dsc)]


def dsc_agg(rng: np.random.Generator, cases: int, handicap: float) -> Teams:
    """Volumes of which a few are ten times the median."""
    shared, reference = rng.standard_normal(cases), rng.lognormal(1.0, 1.2, cases)
    teams = []
    for less in (0.0, handicap):
        predicted = reference * rng.lognormal(0.0, 0.2, cases)
        teams.append(dsc_agg_metric(_dsc(shared, rng, less) * (reference + predicted) / 2, reference, predicted))
    return teams


def f1_agg(rng: np.random.Generator, cases: int, handicap: float) -> Teams:
    """Two lesions in a patient on average, of which three quarters are found, and half a false one."""
    shared, lesions = rng.standard_normal(cases), rng.poisson(2.0, cases)
    teams = []
    for less in (0.0, handicap):
        found = rng.binomial(lesions, expit(1.2 - less + 0.8 * _mixed(shared, rng))).astype(np.float64)
        false = rng.poisson(0.5, cases).astype(np.float64)
        teams.append(f1_agg_metric(found, false, lesions - found))
    return teams


def c_index(rng: np.random.Generator, cases: int, handicap: float) -> Teams:
    """About a third recurs within the follow-up; both teams know a part of the hazard."""
    hazard = rng.standard_normal(cases)
    times, censored = rng.exponential(np.exp(-0.8 * hazard)), rng.exponential(0.5, cases)
    shared = rng.standard_normal(cases)
    follow_up, events = np.minimum(times, censored), times <= censored
    return [
        c_index_metric(SurvivalCohort(follow_up, events, (0.5 - less) * hazard + _mixed(shared, rng)), "non_concordant")
        for less in (0.0, handicap)
    ]


def score(rng: np.random.Generator, cases: int, handicap: float) -> Teams:
    """0.25 x mean DSC + 0.35 x balanced accuracy with a class of a thirtieth + 0.4 x C-index, as in HECKTOR 2026."""
    parts = [one(rng, cases, handicap) for one in (mean_dsc, classes((0.5, 0.3, 0.17, 0.03)), c_index)]
    return [WeightedSum(list(zip((0.25, 0.35, 0.4), own, strict=True))) for own in zip(*parts, strict=True)]


def scenarios() -> list[Scenario]:
    """Equally good teams, then a better one, then equal means of skewed differences."""
    two, four = classes((0.1, 0.9)), classes((0.4, 0.3, 0.25, 0.05))
    equal = [Scenario("balanced accuracy, 2 classes", n, two) for n in (50, 100, 400)]
    equal += [Scenario("balanced accuracy, 4 classes", n, four) for n in (100, 400)]
    equal += [Scenario("mean DSC", n, mean_dsc) for n in (50, 100, 400)]
    equal += [Scenario("aggregated DSC", n, dsc_agg) for n in (100, 400)]
    equal += [Scenario("aggregated F1", n, f1_agg) for n in (100, 400)]
    equal += [Scenario("C-index", 100, c_index), Scenario("score of 2026", 100, score)]
    better = [
        Scenario("balanced accuracy, 2 classes, second team worse", 100, two, 0.15),
        Scenario("mean DSC, second team worse", 100, mean_dsc, 0.3),
        Scenario("aggregated DSC, second team worse", 100, dsc_agg, 0.3),
    ]
    return [*equal, *better, Scenario("mean DSC, skewed, equal means", 100, skewed_dsc)]


def difference_row(scenario: Scenario, cohorts: int, rng: np.random.Generator) -> list[str]:
    """Title, n, one-sided rejections at 0.05 for the first and the second team, coverages, without p, Wilcoxon.

    Cohorts without a p count as not rejected, and their interval as covering.
    """
    truth = 0.0
    if scenario.handicap:
        whole = scenario.simulate(rng, scenario.truth_cases, scenario.handicap)
        truth = float(np.subtract(*(one(np.ones((1, scenario.truth_cases)))[0] for one in whole)))
    weights = rng.multinomial(scenario.cases, np.full(scenario.cases, 1 / scenario.cases), _DRAWS).astype(np.float64)
    found = np.array([_one_cohort(scenario, weights, truth, rng) for _ in range(cohorts)])
    shares = [f"{share:.3f}" for share in found.mean(axis=0)[:5]]
    ranks = found[:, 5]
    return [scenario.title, str(scenario.cases), *shares, "" if np.isnan(ranks).all() else f"{np.nanmean(ranks):.3f}"]


def _one_cohort(scenario: Scenario, weights: Floats, truth: float, rng: np.random.Generator) -> list[float]:
    teams = scenario.simulate(rng, scenario.cases, scenario.handicap)
    values, drawn = (np.stack([one(by) for one in teams]) for by in (np.ones((1, scenario.cases)), weights))
    left_out = np.stack([leave_one_out(one, scenario.cases) for one in teams])
    gains = paired_gains(values[:, 0], drawn, left_out, differing_patients(teams))
    low, high, p = gains.ci95_low[0, 1], gains.ci95_high[0, 1], gains.p
    percentile = interval(drawn[0] - drawn[1])
    is_mean = scenario.simulate in (mean_dsc, skewed_dsc)
    ranks = signed_ranks(np.stack([one(np.eye(scenario.cases)) for one in teams])).p[0, 1] if is_mean else np.nan
    return [
        p[0, 1] <= 0.05,
        p[1, 0] <= 0.05,
        not (truth < low or truth > high),
        percentile[0] <= truth <= percentile[1],
        np.isnan(p[0, 1]),
        np.nan if np.isnan(ranks) else float(ranks <= 0.05),
    ]


def value_rows(cohorts: int, rng: np.random.Generator) -> Iterator[list[str]]:
    """Coverage of a balanced accuracy's interval and of the percentile one."""
    for title, shares in (("2 classes", (0.1, 0.9)), ("4 classes", (0.4, 0.3, 0.2, 0.1))):
        truth = 0.8 - 0.05 * (len(shares) - 1) / 2
        for cases in (50, 100, 400):
            weights = rng.multinomial(cases, np.full(cases, 1 / cases), _DRAWS).astype(np.float64)
            covered = np.zeros(2)
            for _ in range(cohorts):
                metric = classes(shares)(rng, cases, 0.0)[0]
                ends = [interval_of_recalls(metric)] if isinstance(metric, MeanRecall) else []
                for place, (low, high) in enumerate([*ends, interval(metric(weights))]):
                    covered[place] += low <= truth <= high
            yield [title, str(cases), *(f"{share:.3f}" for share in covered / cohorts)]


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate and print both tables."""
    parser = argparse.ArgumentParser(prog="scripts/bench --calibration", description=__doc__)
    parser.add_argument("--cohorts", type=whole_number(2), default=1000, help="cohorts a line (default: %(default)s)")
    parser.add_argument("--seed", type=whole_number(0), default=2026, help="seed (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="2 cohorts a line, only to see it run")
    options = parser.parse_args(argv)
    cohorts = 2 if options.quick else options.cohorts
    rng = np.random.default_rng(options.seed)
    values = list(value_rows(cohorts, rng))
    differences = [difference_row(one, cohorts, rng) for one in scenarios()]
    for table in ([VALUE_HEADS, *values], [DIFFERENCE_HEADS, *differences]):
        sys.stdout.write("\n".join(markdown(table)) + "\n\n")
    return 0
