"""Agreement of the uncertainty with the true DSC, with intervals over patients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from baseline.heads.cohort import Floats
from evaluation.metrics.overlap import WeightedMetric
from evaluation.statistics.bootstrap import Estimate, estimate_unranked
from evaluation.studies.risk_coverage import area, confidence_metrics

MEASURES: Final = {"expected_dsc": "expected DSC", "pairwise_dsc": "DSC between passes"}
# Resolution of the lesions' probabilities.
_LEVELS: Final = 1000


@dataclass(frozen=True)
class LabelUncertainty:
    """Uncertainty of one label over the patients with both a mask and a reference.

    `cases` are the patients' IDs in the order of `true_dsc`, and `values` each measure of theirs; a measure that some
    patient lacks is absent.
    `missed` counts patients whose reference has the label and whose mask has none: their DSC is 0, with no expectation.
    `estimates` are by measure and figure; `lesions` counts `all` and `false` ones.
    """

    cases: tuple[str, ...]
    true_dsc: Floats
    values: Mapping[str, Floats]
    missed: int
    estimates: Mapping[str, Mapping[str, Estimate]]
    lesions: Mapping[str, int]
    lesion_auc: Estimate

    @property
    def bounds(self) -> dict[str, float | None]:
        """AURC of a perfect order and of a random one; None without patients."""
        if not self.true_dsc.size:
            return {"oracle_aurc": None, "random_aurc": None}
        risk = 1 - self.true_dsc
        return {"oracle_aurc": area(self.true_dsc, risk), "random_aurc": float(risk.mean())}

    def as_json(self) -> dict[str, Any]:
        measures = {name: {what: vars(one) for what, one in found.items()} for name, found in self.estimates.items()}
        return {
            "patients": int(self.true_dsc.size),
            "missed_wholly": self.missed,
            **measures,
            **self.bounds,
            "lesions": {**self.lesions, "auc": vars(self.lesion_auc)},
        }


def estimate_uncertainty(
    label: str, records: Mapping[str, Mapping[str, Any]], true_dsc: Mapping[str, float | None], draws: int, seed: int
) -> LabelUncertainty:
    """Compare the uncertainty records of one label, such as "GTVp", with the true DSC.

    `records` and `true_dsc` are by patient, for patients with a reference; a DSC is None if neither mask nor reference
    has the label. `draws` samples of patients are drawn with `seed`.
    """
    known = {name: record["labels"][label] for name, record in records.items() if true_dsc.get(name) is not None}
    expected = {name: row for name, row in known.items() if row["expected_dsc"] is not None}
    truth = np.array([true_dsc[name] for name in expected], dtype=np.float64)
    values = {
        measure: np.array([row[measure] for row in expected.values()], dtype=np.float64)
        for measure in MEASURES
        if expected and all(row[measure] is not None for row in expected.values())
    }
    lesions = [[row for row in records[name]["lesions"] if row["label"] == label] for name in records]
    counts, auc = _estimate_lesions(lesions, draws, seed)
    estimates = {
        name: estimate_unranked(confidence_metrics(given, truth), truth.size, draws, seed).by_metric
        for name, given in values.items()
    }
    return LabelUncertainty(tuple(expected), truth, values, len(known) - len(expected), estimates, counts, auc)


def _estimate_lesions(
    lesions: Sequence[Sequence[Mapping[str, Any]]], draws: int, seed: int
) -> tuple[dict[str, int], Estimate]:
    """Counts, and the AUC of the mean probability for lesions that touch the reference against others."""
    known = [
        (case, row["reference_overlap"] > 0, row["mean_probability"])
        for case, rows in enumerate(lesions)
        for row in rows
        if row["reference_overlap"] is not None and row["mean_probability"] is not None
    ]
    counts = {"all": len(known), "false": sum(not true for _, true, _ in known)}
    if not known:
        return counts, Estimate(None, None, None)
    case, true, probability = (np.array(column) for column in zip(*known, strict=True))
    auc = lesion_auc_metric(case, true.astype(np.bool_), probability.astype(np.float64), len(lesions))
    return counts, estimate_unranked({"auc": auc}, len(lesions), draws, seed).by_metric["auc"]


def lesion_auc_metric(
    case: npt.NDArray[np.intp], true: npt.NDArray[np.bool_], probability: Floats, n_cases: int
) -> WeightedMetric:
    """Probability that a true lesion has a higher probability than a false one (ties 0.5), by case weights.

    `case` is the index of each lesion's patient, of `n_cases` with those without lesions; `true` lesions touch the
    reference; `probability` in [0, 1] is rounded to a thousandth.
    """
    level = np.rint(probability * _LEVELS).astype(np.intp)
    counts = np.zeros((2, n_cases, _LEVELS + 1))
    np.add.at(counts, (true.astype(np.intp), case, level), 1)

    def weighted(weights: Floats) -> Floats:
        negatives, positives = weights @ counts[0], weights @ counts[1]
        below = np.cumsum(negatives, axis=1) - negatives / 2
        pairs = positives.sum(1) * negatives.sum(1)
        concordant = (positives * below).sum(1)
        return np.asarray(np.divide(concordant, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0))

    return weighted
