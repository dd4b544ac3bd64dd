"""Cross-fitted gains of the search: rules are found without a group of patients and applied to that group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from algorithm.decisions.rules import NO_DECISIONS, Decisions
from baseline.decisions.cohort import Counts
from baseline.decisions.record import SCORE
from baseline.decisions.score import Evaluations
from baseline.decisions.search import assembled, everyone, search
from evaluation.metrics.overlap import WeightedMetric
from evaluation.statistics import DEFAULT_BOOTSTRAPS
from evaluation.statistics.bootstrap import estimate

Groups = Mapping[str, Sequence[str]]


def cross_fitted(evaluations: Evaluations, groups: Groups) -> tuple[Counts, dict[str, Decisions]]:
    """Counts of one row in which each group has the rules that were found without it, and these rules by group.

    `groups` holds patient IDs by name; patients of no group stay undecided.
    """
    names = np.array([patient.patient_id for patient in evaluations.cohort.patients])
    parts, rules = [], {}
    for group, members in groups.items():
        inside = np.isin(names, list(members))
        if inside.any():
            rules[group] = search(evaluations, everyone(evaluations.cohort) * ~inside)
            parts.append((inside, rules[group]))
    return assembled(evaluations, parts), rules


def gains(evaluations: Evaluations, counts: Counts, seed: int) -> dict[str, dict[str, Any]]:
    """The score and each metric of counts of one row, undecided and decided, and the difference with its 95% interval.

    The interval is that of the paired bootstrap of patients.
    """
    score, cohort = evaluations.score, evaluations.cohort
    before, after = (
        {SCORE: score.total(metrics), **metrics}
        for metrics in (
            score.metrics(cohort, evaluations.of(NO_DECISIONS)),
            score.metrics(cohort, counts),
        )
    )
    one = everyone(cohort)[None]
    differences = {name: _difference(after[name], before[name]) for name in before}
    patients = len(cohort.patients)
    known = {name: metric for name, metric in differences.items() if np.isfinite(metric(one)[0])}
    drawn = estimate(known, patients, DEFAULT_BOOTSTRAPS, np.random.default_rng(seed)).by_metric
    return {
        name: {
            "undecided": _value(before[name], one),
            "decided": _value(after[name], one),
            "difference": asdict(drawn[name]),
        }
        for name in known
    }


def _difference(after: WeightedMetric, before: WeightedMetric) -> WeightedMetric:
    return lambda weights: after(weights) - before(weights)


def _value(metric: WeightedMetric, weights: Any) -> float:
    return float(metric(weights)[0])
