"""The sections of the page, each from what the steps before it kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from baseline.report import page
from baseline.report.chance import DRAWS, best_of_random
from baseline.report.coefficients import MOST_SHOWN, Coefficient, coefficients
from baseline.report.figures import calibration_plot, coefficients_plot, intervals_plot, survival_plot
from baseline.report.judgement import BEHIND, GAP, KINDS, METRIC_TITLES, Judged, follow_up, hpv_status, judge
from baseline.report.words import chance_in_words, choice_in_words, gap_in_words, rivals_in_words
from contract.errors import MetricError
from evaluation.metrics.classification import probability_metrics
from evaluation.statistics.bootstrap import Estimate
from evaluation.statistics.extras import estimate_extras
from evaluation.studies.chance import DrawScores, random_balanced_accuracy, random_c_index

_LEFT_OUT = (
    "The masks behind the features come from networks that never saw the patient, but with centres left out the "
    "network may have seen other patients of the same centre."
)


def segmentation_section(report: Mapping[str, Any], titles: Mapping[str, str], without_mask: int) -> str:
    """Task 1's ranked metrics over everyone and by centre."""
    scored = report["cases"]["used"]
    about = (
        f"{scored} patients, each segmented by the one network that never saw them and scored on the CT's own grid "
        f"against the reference by the evaluation package (edition {report['provenance']['edition']})."
    )
    if without_mask:
        about += f" {without_mask} patients without a reference are not scored."
    everyone = [page.estimate_cell(page.figures_of(report["aggregates"][name])) for name in titles]
    rows = [["everyone", str(scored), *everyone]]
    for centre, found in report["centres"].items():
        values = [page.estimate_cell(_bare(found["aggregates"][name]["value"])) for name in titles]
        rows.append([escape(centre), str(found["cases"]), *values])
    return page.paragraph(about) + page.table(["Centre", "Patients", *titles.values()], rows)


def target_section(
    record: Mapping[str, Any], shipped: Mapping[str, Any] | None, bootstraps: int, seed: int
) -> tuple[str, dict[str, Any]]:
    """A target's cross-validations side by side with all that belongs to them, and the same figures as plain data.

    Args:
        record: the target's part of `cross_validation.json`.
        shipped: the target's part of `heads.json`, None where there is no head.
        bootstraps: draws of patients.
        seed: of the draws.
    """
    judged = judge(record, bootstraps, seed)
    metric = METRIC_TITLES[record["metric"]]
    gap = gap_in_words(record, judged[0] if judged else None)
    about = f"{len(record['patients'])} patients. Intervals: 95%, patients drawn again {bootstraps} times. {_LEFT_OUT}"
    parts = [
        page.paragraph(text) for text in (about, " ".join([gap, *rivals_in_words(judged)]), choice_in_words(shipped))
    ]
    kinds = {kind: record[kind] for kind in KINDS if "why_not" not in record[kind]}
    plain: dict[str, Any] = {"judged": {model.title: _plain(model) for model in judged}, "gap": gap}
    if kinds:
        parts += [
            _judged_table(judged, metric),
            page.figure(f"{metric.capitalize()} of each model", intervals_plot(judged, metric)),
        ]
        if record["metric"] == "c_index":
            extra, figures = _rfs(record, kinds, judged[0], seed)
        else:
            extra, figures = _hpv(record, kinds, judged[0], bootstraps, seed)
        parts, plain = [*parts, _by_centre(record, kinds), *extra], plain | figures
    head = None if shipped is None else shipped["head"]
    parts.append(_coefficients(coefficients(head, record["nested"].get("folds", []))))
    return "".join(parts), plain


def _judged_table(judged: Sequence[Judged], metric: str) -> str:
    heads = [metric.capitalize(), *KINDS.values(), "nested less left out", "heads less this, nested"]
    rows = [
        [escape(model.title), *(page.estimate_cell(model.estimates.get(what)) for what in (*KINDS, GAP, BEHIND))]
        for model in judged
    ]
    return page.table(heads, rows)


def _by_centre(record: Mapping[str, Any], kinds: Mapping[str, Mapping[str, Any]]) -> str:
    """The heads' metric among each centre's patients alone."""
    counts = Counter(row["centre"] for row in record["patients"])
    rows = [
        [
            escape(centre),
            str(count),
            *(page.estimate_cell(_bare(kinds[kind]["by_centre"].get(centre))) for kind in kinds),
        ]
        for centre, count in sorted(counts.items())
    ]
    return page.heading("By centre") + page.table(["Centre", "Patients", *(KINDS[kind] for kind in kinds)], rows)


def _bare(value: float | None) -> Estimate:
    return Estimate(value, None, None)


def _rfs(
    record: Mapping[str, Any], kinds: Mapping[str, Any], heads: Judged, seed: int
) -> tuple[list[str], dict[str, Any]]:
    days, relapse = follow_up(record)
    caption = "Recurrence-free survival by risk group (above or up to the median of the patient's outer fold)"
    told, figures = _luck(lambda: random_c_index(days, relapse), "c_index", heads, seed)
    return [page.figure(caption, survival_plot(days, relapse, kinds)), *told], figures


def _luck(scores: Callable[[], DrawScores], metric: str, heads: Judged, seed: int) -> tuple[list[str], dict[str, Any]]:
    """What trying often could explain; only why not where the cohort's outcomes allow no score."""
    try:
        chance = best_of_random(scores(), np.random.default_rng(seed))
    except MetricError as problem:
        return [page.paragraph(problem.message)], {}
    rows = [[str(k), f"{best:.3f}"] for k, best in chance.best_of.items()]
    told = chance_in_words(chance, heads.estimates.get("nested"), metric)
    parts = [
        page.heading("Could it be luck?"),
        page.paragraph(f"{told} From {DRAWS} random answers."),
        page.table(["Random answers tried", f"Expected best {METRIC_TITLES[metric]}"], rows),
    ]
    return parts, {"best_of_random": {str(k): best for k, best in chance.best_of.items()}, "random_sd": chance.sd}


def _hpv(
    record: Mapping[str, Any], kinds: Mapping[str, Any], heads: Judged, bootstraps: int, seed: int
) -> tuple[list[str], dict[str, Any]]:
    positive = hpv_status(record)
    metrics = {
        kind: probability_metrics(positive, np.asarray(found["probability"], np.float64))
        for kind, found in kinds.items()
    }
    estimates = {
        kind: estimate_extras(found, len(positive), bootstraps, seed).by_metric for kind, found in metrics.items()
    }
    titles = {
        "auc": "area under the curve",
        "brier": "Brier score",
        "calibration_in_the_large": "mean probability less share of positives",
    }
    rows = [
        [escape(title), *(page.estimate_cell(estimates[kind][name]) for kind in kinds)]
        for name, title in titles.items()
    ]
    caption = (
        "Calibration: share of positives by predicted probability in five equal bins, with 95% Wilson intervals and "
        "the number of patients"
    )
    parts = [
        page.heading("Probability of HPV positive"),
        page.table(["", *(KINDS[kind] for kind in kinds)], rows),
        page.figure(caption, calibration_plot(positive, kinds)),
    ]
    found = {kind: {name: one[name].value for name in titles} for kind, one in estimates.items()}
    told, figures = _luck(lambda: random_balanced_accuracy(positive), "balanced_accuracy", heads, seed)
    return [*parts, *told], {"probability": found, **figures}


def _coefficients(found: Sequence[Coefficient]) -> str:
    if not found:
        return page.paragraph("No feature has a weight.")
    shown = found[:MOST_SHOWN]
    folds = len(shown[0].folds)
    about = (
        "Weight of each feature a standard deviation, in the shipped head and over the outer folds of the nested "
        "cross-validation. Weights of different models (Cox, signs) are not on one scale."
    )
    if len(found) > len(shown):
        about += f" The {len(shown)} weightiest of {len(found)}."
    rows = [
        [
            escape(one.feature),
            "-" if one.shipped is None else f"{one.shipped:+.3f}",
            f"{np.mean(one.folds):+.3f}" if one.folds else "-",
            f"{np.std(one.folds):.3f}" if one.folds else "-",
            f"{one.used_in} of {folds}",
            f"{one.same_sign} of {folds}",
        ]
        for one in shown
    ]
    heads = ["Feature", "Shipped head", "Mean of folds", "Spread", "Used in", "Same sign in"]
    plot = page.figure("Weights by feature", coefficients_plot(shown))
    return f"{page.heading('Features')}{page.paragraph(about)}{page.table(heads, rows)}{plot}"


def _plain(model: Judged) -> dict[str, Any]:
    return {what: vars(found) for what, found in model.estimates.items()}
