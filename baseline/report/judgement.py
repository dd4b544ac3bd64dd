"""Both kinds of cross-validation of a target side by side, beside the comparators, with intervals over patients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from evaluation.metrics.classification import Answers, classification_metrics
from evaluation.metrics.overlap import WeightedMetric
from evaluation.metrics.survival import Cohort, c_index_metric
from evaluation.statistics.bootstrap import Estimate
from evaluation.statistics.extras import estimate_extras

Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

KINDS: Final = {"nested": "nested cross-validation", "leave_one_centre_out": "leave one centre out"}
GAP: Final = "gap"
BEHIND: Final = "behind"
HEADS: Final = "heads"
TITLES: Final = {
    HEADS: "heads",
    "tumour_volume": "tumour volume alone",
    "suv_max": "SUVmax alone",
    "clinical": "clinical variables alone",
}
METRIC_TITLES: Final = {"c_index": "C-index", "balanced_accuracy": "balanced accuracy"}


@dataclass(frozen=True)
class Judged:
    """One model's metric in each kind of cross-validation; `gap`: how much lower it is with centres left out; and of a
    comparator `behind`: how much lower than the heads' in the nested kind.

    A kind that the cohort does not allow is absent, and with it what needs it.
    """

    title: str
    estimates: Mapping[str, Estimate]


def judge(record: Mapping[str, Any], bootstraps: int, seed: int) -> list[Judged]:
    """The heads and each comparator of one target's record in `cross_validation.json`, the heads first.

    Intervals come from patients drawn again; the scores stay what they are, so that they do not tell how other
    training patients would have changed the heads. All models share the draws.
    """
    done = {kind: record[kind] for kind in KINDS if "why_not" not in record[kind]}
    metrics: dict[tuple[str, str], WeightedMetric] = {}
    for kind, found in done.items():
        for name, answers in {HEADS: found, **found["comparators"]}.items():
            metrics[name, kind] = _metric(record, answers)
    if len(done) == len(KINDS):
        metrics |= {(name, GAP): _less(*(metrics[name, kind] for kind in KINDS)) for name in _names(metrics)}
    if "nested" in done:
        best = metrics[HEADS, "nested"]
        rivals = [name for name in _names(metrics) if name != HEADS]
        metrics |= {(name, BEHIND): _less(best, metrics[name, "nested"]) for name in rivals}
    if not metrics:  # as where the release holds nobody's outcome
        return []
    flat = {f"{name} {what}": metric for (name, what), metric in metrics.items()}
    estimates = estimate_extras(flat, len(record["patients"]), bootstraps, seed).by_metric
    return [
        Judged(TITLES[name], {what: estimates[f"{name} {what}"] for other, what in metrics if other == name})
        for name in _names(metrics)
    ]


def follow_up(record: Mapping[str, Any]) -> tuple[Floats, Flags]:
    """Days and relapse of the patients of the RFS record, in its order."""
    rows = record["patients"]
    days = np.array([row["rfs_days"] for row in rows], dtype=np.float64)
    return days, np.array([row["relapse"] for row in rows], dtype=np.bool_)


def hpv_status(record: Mapping[str, Any]) -> Flags:
    """HPV status of the patients of the HPV record, in its order."""
    return np.array([row["hpv"] for row in record["patients"]], dtype=np.bool_)


def high_risk(kind: Mapping[str, Any]) -> Flags:
    """Who lies above the median score of the own outer fold: scores of different folds come from different models."""
    scores, fold_of = np.asarray(kind["score"]), np.asarray(kind["fold_of_patient"])
    high = np.zeros(len(scores), dtype=np.bool_)
    for fold in np.unique(fold_of):
        inside = fold_of == fold
        high[inside] = scores[inside] > np.median(scores[inside])
    return high


def _names(metrics: Mapping[tuple[str, str], WeightedMetric]) -> Sequence[str]:
    return list(dict.fromkeys(name for name, _ in metrics))


def _metric(record: Mapping[str, Any], answers: Mapping[str, Any]) -> WeightedMetric:
    if record["metric"] == "c_index":
        return c_index_metric(Cohort(*follow_up(record), np.asarray(answers["score"], np.float64)), "non_concordant")
    told = hpv_status(record)
    correct = np.asarray(answers["positive"], np.bool_) == told
    return classification_metrics(Answers(told, correct))["balanced_accuracy"]


def _less(first: WeightedMetric, second: WeightedMetric) -> WeightedMetric:
    return lambda weights: first(weights) - second(weights)
