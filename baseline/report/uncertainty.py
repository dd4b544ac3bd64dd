"""Agreement of the uncertainty with the true DSC, with intervals over patients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from baseline.heads.cohort import Floats
from evaluation.statistics.bootstrap import Estimate, estimate_unranked
from evaluation.studies.risk_coverage import area, confidence_metrics

MEASURES: Final = {"expected_dsc": "expected DSC", "pairwise_dsc": "DSC between passes"}


@dataclass(frozen=True)
class LabelUncertainty:
    """Uncertainty of one label over the patients with both a mask and a reference.

    `missed` counts patients whose reference has the label and whose mask has none: their DSC is 0, with no expectation.
    `estimates` are by measure and figure; a measure that some patient lacks is absent.
    """

    true_dsc: Floats
    missed: int
    estimates: Mapping[str, Mapping[str, Estimate]]

    @property
    def bounds(self) -> dict[str, float | None]:
        """AURC of a perfect order and of a random one; None without patients."""
        if not self.true_dsc.size:
            return {"oracle_aurc": None, "random_aurc": None}
        risk = 1 - self.true_dsc
        return {"oracle_aurc": area(self.true_dsc, risk), "random_aurc": float(risk.mean())}

    def as_json(self) -> dict[str, Any]:
        measures = {name: {what: vars(one) for what, one in found.items()} for name, found in self.estimates.items()}
        return {"patients": int(self.true_dsc.size), "missed_wholly": self.missed, **measures, **self.bounds}


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
    estimates = {}
    for measure in MEASURES:
        if expected and all(row[measure] is not None for row in expected.values()):
            values = np.array([row[measure] for row in expected.values()], dtype=np.float64)
            metrics = confidence_metrics(values, truth)
            estimates[measure] = estimate_unranked(metrics, truth.size, draws, seed).by_metric
    return LabelUncertainty(truth, len(known) - len(expected), estimates)
