"""The section that says whether the uncertainty finds the bad cases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from baseline.release.cases import ReleaseCase
from baseline.report import page
from baseline.report.figures import expected_plot, risk_coverage_plot
from baseline.report.segmentation import dsc_of
from baseline.report.trust import KEPT, MEASURES, Trust, judge_trust
from baseline.work import Work
from contract.files import read_json
from evaluation.statistics.bootstrap import Estimate
from evaluation.studies.failures.risk_coverage import risk_coverage

HEADING: Final = "Does the uncertainty find the bad cases?"
LABELS: Final = {"GTVp": "gtvp", "GTVn": "gtvn"}
_TITLES: Final = {
    "spearman": "Spearman's rho with the DSC",
    "mean_error": "mean of it less the DSC",
    "aurc": "AURC",
    "excess_aurc": "above the oracle's",
    "below_random": "below random order's",
}
_ABOUT: Final = (
    "The network that never saw a patient, or several backbones of that fold, says how sure it is of the mask; the DSC "
    "is the evaluation's. The expected DSC comes from the probabilities, the DSC between passes from the disagreement "
    "of the backbones and of the mirrored passes. The "
    "risk-coverage curve is the mean of 1 - DSC among the patients that are kept, the surest first; its area (AURC) "
    "lies between that of an oracle that knows each DSC and that of random order. At inference several folds disagree "
    "as well, which cannot be judged here: all but one have seen the patient."
)


def records_of(work: Work, cases: Sequence[ReleaseCase]) -> dict[str, Mapping[str, Any]]:
    """What is kept of each of these patients' uncertainty, by ID; those of whom nothing could be said are absent."""
    paths = {case.patient_id: work.out_of_fold.uncertainty(case.patient_id) for case in cases}
    records = {name: read_json(path)["result"] for name, path in paths.items() if path.is_file()}
    return {name: record for name, record in records.items() if record["why_not"] is None}


def trust_section(
    records: Mapping[str, Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], draws: int, seed: int
) -> tuple[str, dict[str, Any]]:
    """The section, and the same figures as plain data.

    Args:
        records: by patient.
        rows: the evaluation's rows of the same patients.
        draws: of patients, for the intervals.
        seed: of the draws.
    """
    if not records:
        return page.paragraph("No uncertainty is kept of these patients, expected `hecktor train heads` before."), {}
    found = {
        label: judge_trust(label, records, {row["case"]: dsc_of(row, name) for row in rows}, draws, seed)
        for label, name in LABELS.items()
    }
    words = [sentence for label, trust in found.items() for sentence in in_words(label, trust)]
    parts = [page.paragraph(_ABOUT), *(page.paragraph(sentence) for sentence in words), _table(found)]
    drawn = {label: trust for label, trust in found.items() if trust.values}
    if drawn:
        parts += [
            page.figure("Expected and true DSC of each patient; on the dotted line both agree", expected_plot(drawn)),
            page.figure("Mean of 1 - DSC by the share of patients kept, the surest first", risk_coverage_plot(drawn)),
        ]
    parts += [page.heading("Lesions"), _lesion_table(found)]
    return "".join(parts), {label: trust.as_json() for label, trust in found.items()} | {"in_words": words}


def in_words(label: str, trust: Trust) -> list[str]:
    """What the figures of one label say."""
    said = []
    if "expected_dsc" in trust.estimates:
        found = trust.estimates["expected_dsc"]
        said.append(f"{label}: {_order(found['spearman'], trust)} {_calibration(found['mean_error'])}")
    else:
        said.append(f"{label}: no patient whose expected and true DSC could be compared.")
    if trust.missed:
        patients = "1 patient has" if trust.missed == 1 else f"{trust.missed} patients have"
        said.append(f"{patients} a {label} of which the mask has nothing: DSC 0, with no expected DSC to warn of it.")
    return [*said, _lesions(label, trust)]


def _order(rho: Estimate, trust: Trust) -> str:
    if rho.value is None:
        return "the rank correlation of expected and true DSC does not exist."
    if rho.ci95_low is None or rho.ci95_high is None:
        return f"rho {rho.value:.2f}, from too few patients for an interval."
    figures = f"(Spearman's rho {rho.value:.2f}, 95% interval {rho.ci95_low:.2f} to {rho.ci95_high:.2f})"
    if rho.ci95_high < 0:
        return f"the expected DSC misleads: it is higher where the mask is worse {figures}."
    if rho.ci95_low <= 0:
        return f"that the expected DSC finds the bad cases cannot be said from this many patients {figures}."
    curve = 1 - risk_coverage(trust.values["expected_dsc"], trust.risk)
    kept = curve[math.ceil(KEPT * len(curve)) - 1]
    return (
        f"the expected DSC finds the bad cases {figures}. Setting aside the fifth of patients with the lowest changes "
        f"the mean DSC from {curve[-1]:.3f} to {kept:.3f}."
    )


def _calibration(error: Estimate) -> str:
    if error.value is None:
        return ""
    if error.ci95_low is None or error.ci95_high is None:
        return f"On average it lies {error.value:+.3f} off the true one."
    interval = f"(95% interval {error.ci95_low:+.3f} to {error.ci95_high:+.3f})"
    if error.ci95_low > 0:
        return f"It promises {error.value:.3f} too much on average {interval}."
    if error.ci95_high < 0:
        return f"It promises {-error.value:.3f} too little on average {interval}."
    return f"On average it is neither too high nor too low, {error.value:+.3f} {interval}."


def _lesions(label: str, trust: Trust) -> str:
    count, false, auc = trust.lesions["all"], trust.lesions["false"], trust.lesion_auc
    told = f"{label}: {false} of {count} lesions found do not touch the reference"
    if auc.value is None:
        return f"{told}."
    told += f"; their mean probability tells them from the others with an AUC of {auc.value:.2f}"
    if auc.ci95_low is None or auc.ci95_high is None:
        return f"{told}."
    verdict = "" if auc.ci95_low > 0.5 else ", which may be chance"
    return f"{told} (95% interval {auc.ci95_low:.2f} to {auc.ci95_high:.2f}){verdict}."


def _table(found: Mapping[str, Trust]) -> str:
    rows = []
    for label, trust in found.items():
        plain = trust.as_json()
        for name, title in MEASURES.items():
            estimates = trust.estimates.get(name, {})
            cells = [page.estimate_cell(estimates.get(what)) for what in _TITLES]
            bounds = [page.estimate_cell(Estimate(plain[key], None, None)) for key in ("oracle_aurc", "random_aurc")]
            rows.append([escape(label), escape(title), str(trust.true_dsc.size), *cells, *bounds])
    return page.table(["Label", "Measure", "Patients", *_TITLES.values(), "AURC: oracle", "AURC: random"], rows)


def _lesion_table(found: Mapping[str, Trust]) -> str:
    rows = [
        [
            escape(label),
            str(trust.lesions["all"]),
            str(trust.lesions["all"] - trust.lesions["false"]),
            str(trust.lesions["false"]),
            page.estimate_cell(trust.lesion_auc),
        ]
        for label, trust in found.items()
    ]
    return page.table(["Label", "Lesions found", "touch the reference", "do not", "AUC of the mean probability"], rows)
