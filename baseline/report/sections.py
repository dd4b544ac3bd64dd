"""Sections of the training report: segmentation, uncertainty, and one for each target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from baseline.heads.cohort import outcomes_in
from baseline.heads.cross_validation import KINDS, METRIC_TITLES
from baseline.heads.models.kinds import Target, direction_in_words, positive_name
from baseline.report import page
from baseline.report.figures import (
    calibration_plot,
    coefficients_plot,
    expected_plot,
    intervals_plot,
    risk_coverage_plot,
    survival_plot,
)
from baseline.report.models import (
    BEHIND,
    DRAWS,
    GAP,
    MOST_SHOWN,
    Coefficient,
    ModelEstimates,
    available,
    best_of_random,
    coefficients,
    estimate_models,
)
from baseline.report.segmentation import dsc_of
from baseline.report.uncertainty import MEASURES, LabelUncertainty, estimate_uncertainty
from contract import labels
from contract.errors import MetricError
from evaluation.metrics.classification import probability_metrics
from evaluation.statistics.bootstrap import Estimate
from evaluation.statistics.extras import estimate_extras
from evaluation.studies.chance import DrawScores, random_balanced_accuracy, random_c_index

Section = tuple[str, dict[str, Any]]
_OUT_OF_FOLD: Final = (
    "Features come from masks of networks that never saw the patient; with centres left out, these networks may have "
    "seen other patients of the centre."
)
_CONFUSION: Final = (
    "Rows are the reference, columns the answers of the heads. Balanced accuracy is the mean of the recalls of the "
    "classes that occur."
)
_UNCERTAINTY: Final = (
    "Uncertainty of the networks that never saw the patient, against the DSC of the evaluation. The expected DSC comes "
    "from the probabilities, the DSC between passes from the disagreement of backbones and mirrored passes. The "
    "risk-coverage curve is the mean of 1 - DSC among the most certain patients; its area (AURC) lies between that of "
    "a perfect order (oracle) and a random one. In inference several folds disagree as well; this cannot be measured "
    "here, since all but one have seen the patient."
)
_UNCERTAINTY_TITLES: Final = {
    "spearman": "Spearman's rho with the DSC",
    "mean_error": "mean difference to the DSC",
    "aurc": "AURC",
    "excess_aurc": "above the oracle",
    "below_random": "below random order",
}
_PROBABILITY_TITLES: Final = {
    "auc": "area under the curve",
    "brier": "Brier score",
    "calibration_in_the_large": "mean probability less share of positives",
}


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
        [centre, group["cases"], *(group["aggregates"][name]["value"] for name in titles)]
        for centre, group in report["centres"].items()
    ]
    rows = [["everyone", scored, *estimates], *by_centre]
    return page.paragraph(about) + page.table(["Centre", "Patients", *titles.values()], rows)


def uncertainty_section(
    records: Mapping[str, Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], draws: int, seed: int
) -> Section:
    """Agreement of the uncertainty with the DSC, and the same figures as plain data.

    `records` are uncertainty records by patient ID, `rows` the evaluation's rows of the same patients; `draws` samples
    of patients are drawn with `seed`.
    """
    if not records:
        return page.paragraph("No uncertainty of these patients, expected `hecktor train heads` before."), {}
    by_label: dict[str, LabelUncertainty] = {}
    for value in labels.FOREGROUND:
        label = labels.NAMES[value]
        dsc = {row["case"]: dsc_of(row, label.lower()) for row in rows}
        by_label[label] = estimate_uncertainty(label, records, dsc, draws, seed)
    parts = [page.paragraph(_UNCERTAINTY), _uncertainty_table(by_label)]
    drawn = {label: one for label, one in by_label.items() if one.values}
    if drawn:
        parts += [
            page.figure("Expected and true DSC of each patient; dotted: equal", expected_plot(drawn)),
            page.figure("Mean of 1 - DSC by the share of most certain patients", risk_coverage_plot(drawn)),
        ]
    parts += [page.heading("Lesions"), _lesion_table(by_label)]
    return "".join(parts), {label: one.as_json() for label, one in by_label.items()}


def _uncertainty_table(by_label: Mapping[str, LabelUncertainty]) -> str:
    rows = []
    for label, one in by_label.items():
        for name, title in MEASURES.items():
            estimates = one.estimates.get(name, {})
            cells = [estimates.get(figure) for figure in _UNCERTAINTY_TITLES]
            rows.append([label, title, one.true_dsc.size, one.missed, *cells, *one.bounds.values()])
    heads = ["Label", "Measure", "Patients", "Missed", *_UNCERTAINTY_TITLES.values(), "AURC: oracle", "AURC: random"]
    return page.table(heads, rows)


def _lesion_table(by_label: Mapping[str, LabelUncertainty]) -> str:
    rows = [
        [label, one.lesions["all"], one.lesions["all"] - one.lesions["false"], one.lesions["false"], one.lesion_auc]
        for label, one in by_label.items()
    ]
    return page.table(["Label", "Lesions found", "true", "false", "AUC of the mean probability"], rows)


def target_section(
    target: Target, record: Mapping[str, Any], shipped: Mapping[str, Any] | None, bootstraps: int, seed: int
) -> Section:
    """Both cross-validations of a target side by side, and the same figures as plain data.

    `record` and `shipped` are the target's parts of `cross_validation.json` and `heads.json` (None without a head);
    `bootstraps` samples of patients are drawn with `seed`.
    """
    models = estimate_models(target, record, bootstraps, seed)
    about = f"{len(record['patients'])} patients. 95% intervals over {bootstraps} bootstrap samples. {_OUT_OF_FOLD}"
    reasons = [f"No {title}: {record[kind]['why_not']}." for kind, title in KINDS.items() if "why_not" in record[kind]]
    parts = [page.paragraph(" ".join([about, *reasons])), _shipped_table(target, shipped), _direction(target, shipped)]
    plain: dict[str, Any] = {"models": {model.name: model.as_json() for model in models}}
    kinds = available(record)
    if kinds:
        metric, chance = METRIC_TITLES[target.metric], 1 / max(2, len(target.answer.classes))
        extra, figures = _section_of(target)(target, record, bootstraps, seed)
        parts += [
            _models_table(models, metric),
            page.figure(f"{metric.capitalize()} of each model", intervals_plot(models, metric, chance)),
            _centres_table(record, kinds),
            *extra,
        ]
        plain |= figures
    head = None if shipped is None else shipped["head"]
    parts.append(_coefficients(coefficients(head, record["nested"].get("folds", []))))
    return "".join(parts), plain


def _shipped_table(target: Target, shipped: Mapping[str, Any] | None) -> str:
    if shipped is None:
        return page.paragraph("No head is shipped for this target.")
    setting = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in shipped["setting"].items())
    heads = ["Shipped head", "Setting", "Candidates", f"{METRIC_TITLES[target.metric]} in selection (optimistic)"]
    return page.table(heads, [[shipped["model"], setting or "-", len(shipped["tried"]), shipped["out_of_fold"]]])


def _direction(target: Target, shipped: Mapping[str, Any] | None) -> str:
    return "" if shipped is None else page.paragraph(direction_in_words(target.answer, shipped["head"]))


def _models_table(models: Sequence[ModelEstimates], metric: str) -> str:
    heads = [metric.capitalize(), *KINDS.values(), "nested less left out", "heads less this, nested"]
    return page.table(heads, [[model.title, *map(model.estimates.get, (*KINDS, GAP, BEHIND))] for model in models])


def _centres_table(record: Mapping[str, Any], kinds: Mapping[str, Mapping[str, Any]]) -> str:
    """The heads' metric within each centre."""
    counts = Counter(row["centre"] for row in record["patients"])
    rows = [
        [centre, count, *(scored["by_centre"].get(centre) for scored in kinds.values())]
        for centre, count in sorted(counts.items())
    ]
    return page.heading("By centre") + page.table(["Centre", "Patients", *(KINDS[kind] for kind in kinds)], rows)


def _risk_section(
    target: Target, record: Mapping[str, Any], _bootstraps: int, seed: int
) -> tuple[list[str], dict[str, Any]]:
    outcomes = outcomes_in(target.answer, record["patients"])
    days, event = outcomes.times_days, outcomes.positive
    caption = f"{target.title} by risk group (above or up to the median of the patient's outer fold)"
    parts, figures = _chance(lambda: random_c_index(days, event), target, seed)
    return [page.figure(caption, survival_plot(days, event, available(record))), *parts], figures


def _class_section(
    target: Target, record: Mapping[str, Any], bootstraps: int, seed: int
) -> tuple[list[str], dict[str, Any]]:
    positive = outcomes_in(target.answer, record["patients"]).positive
    kinds = available(record)
    estimates = {
        kind: estimate_extras(
            probability_metrics(positive, np.asarray(scored["probability"], np.float64)),
            len(positive),
            bootstraps,
            seed,
        ).by_metric
        for kind, scored in kinds.items()
    }
    rows = [[title, *(estimates[kind][name] for kind in kinds)] for name, title in _PROBABILITY_TITLES.items()]
    caption = "Calibration: share of positives in five equal bins, with 95% Wilson intervals and numbers of patients"
    parts = [
        page.heading(f"Probability of {positive_name(target.answer)}"),
        page.table(["", *(KINDS[kind] for kind in kinds)], rows),
        page.figure(caption, calibration_plot(positive, kinds, positive_name(target.answer))),
    ]
    values = {kind: {name: one[name].value for name in _PROBABILITY_TITLES} for kind, one in estimates.items()}
    more, figures = _chance(lambda: random_balanced_accuracy(positive), target, seed)
    return [*parts, *more], {"probability": values, **figures}


def _many_classes_section(
    target: Target, record: Mapping[str, Any], _bootstraps: int, seed: int
) -> tuple[list[str], dict[str, Any]]:
    classes = [str(value) for value in target.answer.classes]
    kinds = available(record)
    parts = [page.heading("By class"), page.paragraph(_CONFUSION)]
    for kind, scored in kinds.items():
        rows = [
            [name, sum(counts), *counts, scored["recall"][name]]
            for name, counts in zip(classes, scored["confusion"], strict=True)
        ]
        heads = ["Reference", "Patients", *(f"given {name}" for name in classes), "Recall"]
        parts.append(page.figure(KINDS[kind].capitalize(), page.table(heads, rows)))
    reference = outcomes_in(target.answer, record["patients"]).values
    more, figures = _chance(lambda: random_balanced_accuracy(reference, len(classes)), target, seed)
    values = {kind: {"recall": one["recall"], "confusion": one["confusion"]} for kind, one in kinds.items()}
    return [*parts, *more], {"by_class": values, **figures}


def _section_of(target: Target) -> Callable[..., tuple[list[str], dict[str, Any]]]:
    if target.answer.kind == "risk":
        return _risk_section
    return _class_section if target.answer.is_binary else _many_classes_section


def _chance(scores: Callable[[], DrawScores], target: Target, seed: int) -> tuple[list[str], dict[str, Any]]:
    """The expected best of several random answers, or the reason why the cohort allows none."""
    try:
        chance = best_of_random(scores(), np.random.default_rng(seed))
    except MetricError as problem:
        return [page.paragraph(problem.message)], {}
    parts = [
        page.heading("Chance"),
        page.paragraph(f"From {DRAWS} random answers to these patients; their standard deviation is {chance.sd:.3f}."),
        page.table(
            ["Random answers tried", f"Expected best {METRIC_TITLES[target.metric]}"],
            [[k, f"{best:.3f}"] for k, best in chance.best_of.items()],
        ),
    ]
    return parts, {"best_of_random": {str(k): best for k, best in chance.best_of.items()}, "random_sd": chance.sd}


def _coefficients(weights: Sequence[Coefficient]) -> str:
    if not weights:
        return page.paragraph("No feature has a weight.")
    shown = weights[:MOST_SHOWN]
    folds = len(shown[0].folds)
    about = (
        "Weight of each feature per standard deviation, in the shipped head and in the outer folds of the nested "
        "cross-validation. Weights of different models (Cox, signs) are on different scales. For more than two "
        "classes, the change of the weight from one class to the next."
    )
    if len(weights) > len(shown):
        about += f" The {len(shown)} largest of {len(weights)}."
    rows = [
        [
            one.feature,
            "-" if one.shipped is None else f"{one.shipped:+.3f}",
            f"{np.mean(one.folds):+.3f}" if one.folds else "-",
            f"{np.std(one.folds):.3f}" if one.folds else "-",
            f"{one.used_in} of {folds}",
            f"{one.same_sign} of {folds}",
        ]
        for one in shown
    ]
    heads = ["Feature", "Shipped head", "Mean of folds", "Standard deviation", "Used in", "Same sign in"]
    plot = page.figure("Weights by feature", coefficients_plot(shown))
    return f"{page.heading('Features')}{page.paragraph(about)}{page.table(heads, rows)}{plot}"
