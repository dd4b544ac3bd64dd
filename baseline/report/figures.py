"""Figures of the report as data; the page draws them in the browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from baseline.heads.cohort import Flags, Floats
from baseline.heads.cross_validation import KINDS
from baseline.report.models import Coefficient, ModelEstimates, high_risk
from baseline.report.uncertainty import MEASURES, LabelUncertainty
from evaluation.analyses.analysis import Analysis
from evaluation.analyses.classes import confusion_matrices, confusion_row
from evaluation.analyses.masks.detection import wilson_interval
from evaluation.analyses.survival import curve_corners
from evaluation.metrics.classification import calibration_table
from evaluation.metrics.survival import DAYS_A_YEAR, kaplan_meier, log_rank_p
from evaluation.studies.failures.risk_coverage import risk_coverage

Kinds = Mapping[str, Mapping[str, Any]]
# Both kinds of cross-validation as the page names them.
KIND_TITLES: Final = {kind: title.capitalize() for kind, title in KINDS.items()}
_CHANCE: Final = "random answers"
_YEARS: Final = (1, 2, 3, 4, 5)
_INTERVAL: Final = {"ci95_low": "95% interval from", "ci95_high": "to"}


def model_intervals(models: Sequence[ModelEstimates], metric: str, chance: float) -> Analysis:
    """Each model's metric with its 95% interval in both kinds of cross-validation, and the level of chance."""
    rows: list[dict[str, Any]] = []
    for kind, title in KIND_TITLES.items():
        estimates = {model.title: model.estimates[kind] for model in models if kind in model.estimates}
        rows += [
            {"kind": title, "model": name, "value": one.value, "ci95_low": one.ci95_low, "ci95_high": one.ci95_high}
            for name, one in estimates.items()
        ]
        rows += [{"kind": title, "model": _CHANCE, "value": chance}] if estimates else []
    return Analysis(
        name="models",
        title=f"{metric} of each model",
        caption="Values with 95% intervals from resampled patients; the dashed line is the expectation at random.",
        columns={"kind": "Cross-validation", "model": "Model", "value": metric, **_INTERVAL},
        rows=rows,
        chart={
            "kind": "intervals",
            "y": "model",
            "x": "value",
            "low": "ci95_low",
            "high": "ci95_high",
            "facet": "kind",
            "reference": chance,
        },
    )


def survival_curves(days: Floats, event: Flags, kinds: Kinds) -> Analysis:
    """Kaplan-Meier curves of the patients above and up to the median risk of their outer fold."""
    rows: list[dict[str, Any]] = []
    for kind, scored in kinds.items():
        for group, members in _risk_groups(scored).items():
            curve = kaplan_meier(days[members], event[members])
            rows += [
                {"kind": KIND_TITLES[kind], "group": group, "years": time / DAYS_A_YEAR, "free": free}
                for time, free in curve_corners(curve)
            ]
    return Analysis(
        name="survival",
        title="Survival by predicted risk",
        caption="Kaplan-Meier estimate for patients above, and up to, the median risk of their outer fold.",
        columns={"kind": "Cross-validation", "group": "Predicted", "years": "Years", "free": "Event-free"},
        rows=rows,
        chart={
            "kind": "lines",
            "x": "years",
            "y": "free",
            "series": "group",
            "facet": "kind",
            "step": True,
            "domain": [0, 1],
        },
    )


def numbers_at_risk(days: Floats, event: Flags, kinds: Kinds) -> Analysis:
    """Size of both risk groups, patients still followed after each year, and the log-rank test between the groups."""
    rows: list[dict[str, Any]] = []
    for kind, scored in kinds.items():
        p = log_rank_p(days, event, high_risk(scored))
        for group, members in _risk_groups(scored).items():
            counts = {f"at_{year}": int((days[members] >= year * DAYS_A_YEAR).sum()) for year in _YEARS}
            size, events = int(members.sum()), int(event[members].sum())
            shared = {"kind": KIND_TITLES[kind], "group": group, "patients": size, "events": events, "p": p}
            rows.append({**shared, **counts})
    return Analysis(
        name="numbers-at-risk",
        title="Numbers at risk and log-rank test",
        caption="Patients followed for that long without an event, and the two-sided p of the log-rank test.",
        columns={
            "kind": "Cross-validation",
            "group": "Predicted",
            "patients": "Patients",
            "events": "With event",
            "p": "Log-rank p",
            **{f"at_{year}": f"At risk after {year} year{'s' * (year > 1)}" for year in _YEARS},
        },
        rows=rows,
    )


def _risk_groups(scored: Mapping[str, Any]) -> dict[str, Flags]:
    high = high_risk(scored)
    return {"higher risk": high, "lower risk": ~high}


def calibration(positive: Flags, kinds: Kinds, name: str) -> Analysis:
    """Fraction of positives by predicted probability of `name` in five bins, with 95% Wilson intervals and counts."""
    rows: list[dict[str, Any]] = []
    for kind, scored in kinds.items():
        for one in calibration_table(positive, np.asarray(scored["probability"], dtype=np.float64)):
            share, patients = one["positive_share"], one["cases"]
            low, high = wilson_interval(round(share * patients), patients)
            values = {"predicted": one["probability_mean"], "share": share, "ci95_low": low, "ci95_high": high}
            rows.append({"kind": KIND_TITLES[kind], "patients": patients, **values})
    return Analysis(
        name="calibration",
        title="Calibration",
        caption=(
            f"Fraction of positives against the mean predicted probability of {name} in five equal bins, with 95% "
            "Wilson intervals; the diagonal is perfect."
        ),
        columns={
            "kind": "Cross-validation",
            "patients": "Patients",
            "predicted": "Mean probability",
            "share": "Fraction of positives",
            **_INTERVAL,
        },
        rows=rows,
        chart={
            "kind": "points",
            "x": "predicted",
            "y": "share",
            "low": "ci95_low",
            "high": "ci95_high",
            "facet": "kind",
            "diagonal": True,
            "domain": [0, 1],
        },
    )


def confusion(classes: Sequence[str], kinds: Kinds) -> Analysis:
    """The heads' answers against the reference, for each kind of cross-validation."""
    rows = [
        {"kind": KIND_TITLES[kind], **cell}
        for kind, scored in kinds.items()
        for actual, counts in zip(classes, scored["confusion"], strict=True)
        for cell in confusion_row(actual, classes, counts)
    ]
    return confusion_matrices(rows, "kind", "Cross-validation")


def weights_by_feature(weights: Sequence[Coefficient]) -> Analysis:
    """Weight of each feature in the shipped head and its mean over the outer folds."""
    rows: list[dict[str, Any]] = []
    for one in weights:
        if one.shipped is not None:
            rows.append({"feature": one.feature, "head": "shipped head", "weight": one.shipped})
        if one.folds:
            rows.append({"feature": one.feature, "head": "mean of outer folds", "weight": float(np.mean(one.folds))})
    return Analysis(
        name="weights",
        title="Weights by feature",
        caption="Weight per standard deviation of the feature.",
        columns={"feature": "Feature", "head": "Head", "weight": "Weight"},
        rows=rows,
        chart={"kind": "bars", "y": "feature", "x": "weight", "series": "head"},
    )


def expected_dsc(by_label: Mapping[str, LabelUncertainty], centres: Mapping[str, str]) -> Analysis:
    """Expected against true DSC of each patient; `centres` are by patient ID."""
    rows = [
        {"label": label, "case": case, "centre": centres.get(case), "expected": expected, "true": true}
        for label, one in by_label.items()
        for case, expected, true in zip(one.cases, one.values["expected_dsc"], one.true_dsc, strict=True)
    ]
    return Analysis(
        name="expected-dsc",
        title="Expected and true DSC",
        caption="One point for each patient; on the diagonal both are equal.",
        columns={
            "label": "Label",
            "case": "Patient",
            "centre": "Centre",
            "expected": "Expected DSC",
            "true": "True DSC",
        },
        rows=rows,
        chart={"kind": "points", "x": "expected", "y": "true", "facet": "label", "diagonal": True, "domain": [0, 1]},
    )


def risk_by_coverage(by_label: Mapping[str, LabelUncertainty]) -> Analysis:
    """Mean of 1 - DSC of the most certain patients by their fraction: each measure, the oracle and random order."""
    rows: list[dict[str, Any]] = []
    for label, one in by_label.items():
        risk = 1 - one.true_dsc
        curves = {MEASURES[name]: risk_coverage(values, risk) for name, values in one.values.items()}
        curves["oracle"] = risk_coverage(one.true_dsc, risk)
        retained = np.arange(1, risk.size + 1) / risk.size
        rows += [
            {"label": label, "order": order, "retained": part, "risk": mean}
            for order, curve in curves.items()
            for part, mean in zip(retained, curve, strict=True)
        ]
        ends = (retained[0], retained[-1])
        rows += [{"label": label, "order": "random order", "retained": x, "risk": risk.mean()} for x in ends]
    return Analysis(
        name="risk-coverage",
        title="Risk by coverage",
        caption="Mean of 1 - DSC among the most certain patients, by the fraction retained.",
        columns={"label": "Label", "order": "Order by", "retained": "Fraction retained", "risk": "Mean of 1 - DSC"},
        rows=rows,
        chart={
            "kind": "lines",
            "x": "retained",
            "y": "risk",
            "series": "order",
            "facet": "label",
            "step": True,
            "domain": [0, 1.05 * max((row["risk"] for row in rows), default=1.0)],
        },
    )
