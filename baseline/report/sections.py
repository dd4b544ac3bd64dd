"""Sections of the training report about masks: segmentation, postprocessing and uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from baseline.heads.cohort import Floats
from baseline.postprocessing.record import PostprocessingRecord
from baseline.report import page
from baseline.report.masks import dsc_of
from contract import labels
from contract.packages import PostprocessingRules
from evaluation.metrics.confidence import area, confidence_metrics
from evaluation.page.html import Row, paragraph, table
from evaluation.statistics.bootstrap import Estimate, estimate_unranked

_UNCERTAINTY: Final = (
    "The expected DSC of networks that never saw the patient, from their probabilities, against the DSC of the "
    "evaluation. The risk-coverage curve is the mean of 1 - DSC among the most certain patients; its area (AURC) lies "
    "between that of a perfect order (oracle) and a random one. Inference averages several folds, which cannot be "
    "measured here because all but one have seen the patient."
)
_UNCERTAINTY_TITLES: Final = {
    "spearman": "Spearman's rho with the DSC",
    "mean_error": "Mean difference to the DSC",
    "aurc": "AURC",
    "excess_aurc": "AURC above the oracle's",
    "below_random": "AURC below random order's",
}
_POSTPROCESSING: Final = (
    "Minimum volumes of 26-connected lesions on the network's grid. Masks, features and all figures of this page use "
    "the volumes that were found without the patient's fold; the package uses those found on all patients. The gains "
    "are of volumes found without the patient's fold or centre, with intervals from the paired bootstrap; a volume is "
    "stored only if the lower ends of both intervals are above 0."
)


def segmentation_section(report: Mapping[str, Any], titles: Mapping[str, str], without_mask: int) -> str:
    """The ranked metrics of the out-of-fold masks, over all patients and by centre."""
    scored = report["cases"]["used"]
    about = (
        f"{scored} patients, each segmented by a network that never saw them and scored on the CT's own grid against "
        f"the reference by the evaluation package (edition {report['provenance']['edition']})."
    )
    if without_mask:
        about += f" {without_mask} patients without a reference are not scored."
    everyone = (report["aggregates"][name] for name in titles)
    estimates = [Estimate(one["value"], one.get("ci95_low"), one.get("ci95_high")) for one in everyone]
    by_centre = [
        page.centre_row(centre, [group["cases"], *(group["aggregates"][name]["value"] for name in titles)])
        for centre, group in report["centres"].items()
    ]
    rows = [Row(["everyone", scored, *estimates]), *by_centre]
    caption = "Metrics of all patients with 95% intervals, and of each centre"
    return paragraph(about) + table(caption, ["Centre", "Patients", *titles.values()], rows)


@dataclass(frozen=True)
class LabelUncertainty:
    """Uncertainty of one label over the patients with both a mask and a reference.

    `missed` counts patients whose reference has the label and whose mask has none: their DSC is 0, with no expectation.
    `estimates` are by figure, none without patients.
    """

    true_dsc: Floats
    missed: int
    estimates: Mapping[str, Estimate]

    @property
    def bounds(self) -> dict[str, float | None]:
        """AURC of a perfect order and of a random one; None without patients."""
        if not self.true_dsc.size:
            return {"oracle_aurc": None, "random_aurc": None}
        risk = 1 - self.true_dsc
        return {"oracle_aurc": area(self.true_dsc, risk), "random_aurc": float(risk.mean())}

    def as_json(self) -> dict[str, Any]:
        figures = {what: vars(one) for what, one in self.estimates.items()}
        counts = {"patients": int(self.true_dsc.size), "missed_wholly": self.missed}
        return {**counts, "expected_dsc": figures, **self.bounds}


def estimate_uncertainty(
    label: str,
    records: Mapping[str, Mapping[str, float | None]],
    true_dsc: Mapping[str, float | None],
    draws: int,
    seed: int,
) -> LabelUncertainty:
    """Compare the expected DSC of one label, such as "GTVp", with the true one.

    `records` are expected DSCs by label; they and `true_dsc` are by patient, for patients with a reference; a DSC is
    None if neither mask nor reference has the label. `draws` samples of patients are drawn with `seed`.
    """
    known = {name: record[label] for name, record in records.items() if true_dsc.get(name) is not None}
    expected = {name: value for name, value in known.items() if value is not None}
    truth = np.array([true_dsc[name] for name in expected], dtype=np.float64)
    estimates: Mapping[str, Estimate] = {}
    if expected:
        metrics = confidence_metrics(np.array(list(expected.values()), dtype=np.float64), truth)
        estimates = estimate_unranked(metrics, truth.size, draws, seed).by_metric
    return LabelUncertainty(truth, len(known) - len(expected), estimates)


def uncertainty_section(
    records: Mapping[str, Mapping[str, float | None]], rows: Sequence[Mapping[str, Any]], draws: int, seed: int
) -> tuple[str, dict[str, Any]]:
    """Agreement of the expected with the true DSC, and the same figures as plain data.

    `records` are expected DSCs by patient ID and label, `rows` the evaluation's rows of the same patients; `draws`
    samples of patients are drawn with `seed`.
    """
    if not records:
        return paragraph("No expected DSC for these patients: run `hecktor train heads` first."), {}
    by_label: dict[str, LabelUncertainty] = {}
    for value in labels.FOREGROUND:
        label = labels.NAMES[value]
        dsc = {row["case"]: dsc_of(row, label.lower()) for row in rows}
        by_label[label] = estimate_uncertainty(label, records, dsc, draws, seed)
    parts = [page.listing("Agreement with the DSC", _agreement_table(by_label))]
    parts.append(page.listing("Patients", _patients_table(by_label)))
    return paragraph(_UNCERTAINTY) + page.grid(parts), {label: one.as_json() for label, one in by_label.items()}


def _agreement_table(by_label: Mapping[str, LabelUncertainty]) -> str:
    rows = [Row([label, *(one.estimates.get(key) for key in _UNCERTAINTY_TITLES)]) for label, one in by_label.items()]
    return table("The expected DSC with 95% intervals", ["Label", *_UNCERTAINTY_TITLES.values()], rows)


def _patients_table(by_label: Mapping[str, LabelUncertainty]) -> str:
    rows = [Row([label, one.true_dsc.size, one.missed, *one.bounds.values()]) for label, one in by_label.items()]
    heads = ["Label", "Patients", "Missed", "AURC, oracle", "AURC, random order"]
    return table("Missed: patients whose mask lacks the reference's label, counted separately", heads, rows)


def postprocessing_section(record: PostprocessingRecord) -> str:
    """The content of `postprocessing.json` as HTML."""
    if record.why_not:
        return paragraph(f"No postprocessing rules: {record.why_not}.")
    rules = [f"{PostprocessingRules.words(rule)} {value}" for rule, value in record.rules.as_json().items()]
    rows = []
    for split, figures in record.cross_fitted.items():
        for name, one in figures.items():
            gain = one.difference
            estimate = Estimate(gain.value, gain.ci95_low, gain.ci95_high)
            title = record.titles.get(name, name)
            rows.append(Row([f"{split} left out", title, one.unfiltered, one.filtered, estimate]))
    heads = ["Volumes found with", "Metric", "Unfiltered", "Filtered", "Difference"]
    caption = "Metrics on the network's grid, with 95% intervals of the difference"
    about = paragraph(f"Rules of the package: {', '.join(rules)}. {_POSTPROCESSING}")
    return about + table(caption, heads, rows, header_column=1)
