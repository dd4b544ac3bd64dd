"""Whether the uncertainty finds the bad cases: the figures, those with an interval as functions of case weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from evaluation.metrics.overlap import WeightedMetric
from evaluation.statistics.bootstrap import Estimate
from evaluation.statistics.extras import estimate_extras
from evaluation.studies.failures.risk_coverage import area, confidence_metrics

Floats: TypeAlias = npt.NDArray[np.float64]

MEASURES: Final = {"expected_dsc": "expected DSC", "pairwise_dsc": "DSC between passes"}
# Lesions are told apart by this much of a probability.
_LEVELS: Final = 1000
# What share of patients is kept in the example of the sentences.
KEPT: Final = 0.8


@dataclass(frozen=True)
class Trust:
    """One label's patients that both mask and reference could be judged on, and how the measures did.

    `values` holds each measure of each patient, `true_dsc` what came out, in one order; a measure that some patient has
    not is absent. `missed` counts patients whose reference has the label and whose mask has none of it: their DSC is 0
    and nothing expected it. `estimates` are by measure and figure, `lesions` by count (`all`, `false`) and `auc`.
    """

    true_dsc: Floats
    values: Mapping[str, Floats]
    missed: int
    estimates: Mapping[str, Mapping[str, Estimate]]
    lesions: Mapping[str, int]
    lesion_auc: Estimate

    @property
    def risk(self) -> Floats:
        """1 - DSC of each patient."""
        return 1 - self.true_dsc

    def as_json(self) -> dict[str, Any]:
        """The figures as plain data."""
        plain = {name: {what: vars(one) for what, one in found.items()} for name, found in self.estimates.items()}
        areas: dict[str, float | None] = {"oracle_aurc": None, "random_aurc": None}
        if self.true_dsc.size:
            areas = {"oracle_aurc": area(self.true_dsc, self.risk), "random_aurc": float(self.risk.mean())}
        return {
            "patients": int(self.true_dsc.size),
            "missed_wholly": self.missed,
            **plain,
            **areas,
            "lesions": {**self.lesions, "auc": vars(self.lesion_auc)},
        }


def judge_trust(
    label: str, records: Mapping[str, Mapping[str, Any]], true_dsc: Mapping[str, float | None], draws: int, seed: int
) -> Trust:
    """Judge what the records say of one label.

    Args:
        label: as the records name it, "GTVp".
        records: of each patient with a reference, as the training keeps them.
        true_dsc: of the same patients; None where neither mask nor reference has the label.
        draws: of patients, for the intervals.
        seed: of the draws.
    """
    known = [(name, found) for name in records if (found := true_dsc.get(name)) is not None]
    rows = [(records[name]["labels"][label], found) for name, found in known]
    judged = [(row, found) for row, found in rows if row["expected_dsc"] is not None]
    truth = np.array([found for _, found in judged], dtype=np.float64)
    values = {
        measure: np.array([row[measure] for row, _ in judged], dtype=np.float64)
        for measure in MEASURES
        if judged and all(row[measure] is not None for row, _ in judged)
    }
    lesions = [[row for row in records[name]["lesions"] if row["label"] == label] for name in records]
    counted, auc = _judge_lesions(lesions, draws, seed)
    estimates = {
        name: estimate_extras(confidence_metrics(given, truth), truth.size, draws, seed).by_metric
        for name, given in values.items()
    }
    return Trust(truth, values, len(rows) - len(judged), estimates, counted, auc)


def _judge_lesions(
    lesions: Sequence[Sequence[Mapping[str, Any]]], draws: int, seed: int
) -> tuple[dict[str, int], Estimate]:
    """Counts, and the AUC of the mean probability for telling lesions that touch the reference from others."""
    known = [
        (case, row["reference_overlap"] > 0, row["mean_probability"])
        for case, rows in enumerate(lesions)
        for row in rows
        if row["reference_overlap"] is not None and row["mean_probability"] is not None
    ]
    counted = {"all": len(known), "false": sum(not found for _, found, _ in known)}
    if not known:
        return counted, Estimate(None, None, None)
    case, found, sure = (np.array(column) for column in zip(*known, strict=True))
    auc = lesion_auc_metric(case, found.astype(np.bool_), sure.astype(np.float64), len(lesions))
    return counted, estimate_extras({"auc": auc}, len(lesions), draws, seed).by_metric["auc"]


def lesion_auc_metric(
    case: npt.NDArray[np.intp], found: npt.NDArray[np.bool_], sure: Floats, n_cases: int
) -> WeightedMetric:
    """The chance that a true lesion is surer than a false one (ties a half), as a function of case weights.

    Args:
        case: the patient of each lesion, from 0.
        found: whether the lesion is a true one.
        sure: between 0 and 1; told apart to a thousandth.
        n_cases: patients, those without a lesion too.
    """
    level = np.rint(sure * _LEVELS).astype(np.intp)
    true, false = np.zeros((n_cases, _LEVELS + 1)), np.zeros((n_cases, _LEVELS + 1))
    np.add.at(true, (case[found], level[found]), 1)
    np.add.at(false, (case[~found], level[~found]), 1)

    def weighted(weights: Floats) -> Floats:
        positives, negatives = weights @ true, weights @ false
        below = np.cumsum(negatives, axis=1) - negatives / 2
        pairs = positives.sum(1) * negatives.sum(1)
        concordant = (positives * below).sum(1)
        return np.asarray(np.divide(concordant, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0))

    return weighted
