"""Answers of two teams for simulated patients: masks, risks and classes, as metrics of case weights.

Team b's answers are drawn like team a's, so that both are equally good, unless an advantage is given to team a. Both
teams share how hard each patient is; their qualities for one patient have a correlation of 0.55.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import expit, ndtri

from evaluation.metrics.classification import binary_metrics, many_classes_metrics
from evaluation.metrics.lesions import f1_agg_metric
from evaluation.metrics.overlap import (
    Booleans,
    Floats,
    Integers,
    WeightedMetric,
    dsc_agg_metric,
    mean_metric,
    median_metric,
)
from evaluation.metrics.survival import SurvivalCohort, c_index_metric
from evaluation.statistics.kang import TeamRisks

TEAMS: Final = 2
_CORRELATION: Final = 0.55
_FAILS_BELOW: Final = -2.0  # quality below which a primary tumour is missed: 2.3% of patients
_HPV_POSITIVE: Final = 0.85
_STAGES: Final = {"t": (0.15, 0.35, 0.25, 0.25), "n": (0.2, 0.1, 0.6, 0.1)}

Metrics = dict[str, tuple[WeightedMetric, ...]]


@dataclass(frozen=True)
class TwoTeams:
    """What both teams answer for one cohort.

    Attributes:
        metrics: of team a and of team b, by name.
        per_case: values behind the means of per-case values, shape (2, patients), by metric.
        correct: whether a class is right, shape (2, patients), by metric.
        counted: patients that count for such a metric, of the same shape.
        risks: of both teams, and the follow-up.
    """

    metrics: Metrics
    per_case: Mapping[str, Floats]
    correct: Mapping[str, Booleans]
    counted: Mapping[str, Booleans]
    risks: TeamRisks | None = None


def alike(patients: int, advantage: float, rng: np.random.Generator) -> TwoTeams:
    """Two teams of one kind; `advantage` raises team a's quality in every answer, in standard deviations."""
    metrics: Metrics = {}
    gtvp = _primary_tumours(metrics, _qualities(patients, advantage, rng), rng)
    gtvn = _nodes(metrics, _qualities(patients, advantage, rng), rng)
    risks = _risks(metrics, patients, advantage, rng)
    positive = rng.random(patients) < _HPV_POSITIVE
    right = _qualities(patients, advantage, rng) > np.where(positive, -1.0, -0.25)
    metrics |= _two_classes(positive, right)
    counted = {
        "balanced_accuracy": np.ones_like(right),
        "sensitivity": np.stack([positive] * TEAMS),
        "specificity": np.stack([~positive] * TEAMS),
    }
    correct = dict.fromkeys(counted, right)
    for name, shares in _STAGES.items():
        stage = rng.choice(len(shares), patients, p=shares)
        right = _qualities(patients, advantage, rng) > -0.1
        key = f"{name}_balanced_accuracy"
        metrics[key] = tuple(_of_four_classes(stage, one) for one in right)
        correct[key], counted[key] = right, np.ones_like(right)
    return TwoTeams(metrics, {"gtvp_dsc_mean": gtvp, "gtvn_dsc_mean": gtvn}, correct, counted, risks)


def unlike(patients: int, rng: np.random.Generator) -> TwoTeams:
    """Two teams with equal expected metrics and unlike answers.

    Team a misses 6% of the primary tumours, and team b has 6% less DSC in all of them. Of HPV, team a has sensitivity
    0.90 and specificity 0.50, team b 0.75 and 0.65.
    """
    quality = _qualities(patients, 0.0, rng)
    share = np.stack([rng.random(patients) >= 0.06, np.full(patients, 0.94)])
    dsc = expit(1.5 + 0.9 * quality) * share
    positive = rng.random(patients) < _HPV_POSITIVE
    thresholds = -ndtri(np.array([[0.9, 0.5], [0.75, 0.65]]))
    right = _qualities(patients, 0.0, rng) > np.where(positive, thresholds[:, :1], thresholds[:, 1:])
    name = "balanced_accuracy"
    metrics: Metrics = {
        "gtvp_dsc_mean": tuple(mean_metric(one) for one in dsc),
        name: _two_classes(positive, right)[name],
    }
    return TwoTeams(metrics, {"gtvp_dsc_mean": dsc}, {name: right}, {name: np.ones_like(right)})


def _qualities(patients: int, advantage: float, rng: np.random.Generator) -> Floats:
    """Standard normal qualities of both teams, shape (2, patients)."""
    shared, own = rng.normal(size=patients), rng.normal(size=(TEAMS, patients))
    quality: Floats = np.sqrt(_CORRELATION) * shared + np.sqrt(1 - _CORRELATION) * own
    quality[0] += advantage
    return quality


def _primary_tumours(metrics: Metrics, quality: Floats, rng: np.random.Generator) -> Floats:
    """Mean DSC about 0.78 and median HD95 about 3.65 mm; of a missed tumour 0 and infinite."""
    missed = quality < _FAILS_BELOW
    dsc = np.where(missed, 0.0, expit(1.5 + 0.9 * quality))
    hd95 = np.where(missed, np.inf, np.exp(1.3 - 0.6 * quality + 0.3 * rng.normal(size=quality.shape)))
    metrics["gtvp_dsc_mean"] = tuple(mean_metric(one) for one in dsc)
    metrics["gtvp_hd95_median_mm"] = tuple(median_metric(one) for one in hd95)
    return dsc


def _nodes(metrics: Metrics, quality: Floats, rng: np.random.Generator) -> Floats:
    """Nodes in 80% of patients, about 10 ml with a log-normal spread of 1; a quarter of the others gets a false one."""
    patients = quality.shape[1]
    has_nodes = rng.random(patients) < 0.8
    reference = np.where(has_nodes, rng.lognormal(2.3, 1.0, patients), 0.0)
    false = np.where(rng.random(quality.shape) < 0.25, rng.lognormal(0.0, 0.7, quality.shape), 0.0)
    predicted = np.where(has_nodes, reference * np.exp(0.25 * rng.normal(size=quality.shape)), false)
    smaller = np.minimum(reference, predicted)
    shared = np.minimum(expit(1.2 + 0.9 * quality) * (reference + predicted) / 2, smaller)
    metrics["gtvn_dsc_agg"] = tuple(
        dsc_agg_metric(*one) for one in zip(shared, [reference] * TEAMS, predicted, strict=True)
    )
    lesions = np.where(has_nodes, 1 + rng.poisson(1.0, patients), 0)
    hits = rng.binomial(np.broadcast_to(lesions, quality.shape), expit(1.0 + quality)).astype(float)
    extra = rng.poisson(0.3 * np.exp(-0.3 * quality)).astype(float)
    metrics["gtvn_f1_agg"] = tuple(
        f1_agg_metric(hit, more, lesions - hit) for hit, more in zip(hits, extra, strict=True)
    )
    total = reference + predicted
    dsc = np.where(total > 0, 2 * shared / np.where(total > 0, total, 1.0), 1.0)
    metrics["gtvn_dsc_mean"] = tuple(mean_metric(one) for one in dsc)
    return dsc


def _risks(metrics: Metrics, patients: int, advantage: float, rng: np.random.Generator) -> TeamRisks:
    """Of ten patients three recur; C-index about 0.60."""
    hazard = rng.normal(size=patients)
    recurrence, end = rng.exponential(4 * np.exp(-0.8 * hazard)), rng.uniform(0.3, 2.2, patients)
    times, events = np.minimum(recurrence, end), recurrence <= end
    shared, own = rng.normal(size=patients), rng.normal(size=(TEAMS, patients))
    risks = 0.5 * hazard + 0.6 * shared + 0.7 * own
    risks[0] += 0.8 * advantage * hazard
    cohorts = [SurvivalCohort(times, events, one) for one in risks]
    metrics["c_index"] = tuple(c_index_metric(one, "non_concordant") for one in cohorts)
    return TeamRisks(times, events, risks, 0.0)


def _two_classes(positive: Booleans, right: Booleans) -> Metrics:
    measured = [binary_metrics(positive, one) for one in right]
    return {name: tuple(one[name] for one in measured) for name in measured[0]}


def _of_four_classes(stage: Integers, right: Booleans) -> WeightedMetric:
    """Balanced accuracy; a wrong answer is the next class."""
    return many_classes_metrics(stage, np.where(right, stage, (stage + 1) % 4), 4)["balanced_accuracy"]
