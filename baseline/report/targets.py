"""Section of the training report about a target of the heads: tables, and figures as data for the browser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any, Final

import numpy as np

from algorithm.heads.documents import Head
from baseline.heads.cohort import Outcomes
from baseline.heads.cross_validation import compute_linear_share
from baseline.heads.fitting import HeadRecord
from baseline.heads.models.targets import Target
from baseline.heads.record import KINDS, METRIC_TITLES, KindRecord, TargetRecord, describe_direction, describe_left_out
from baseline.report.models import (
    BEHIND,
    GAP,
    MASK_KINDS,
    MAX_COEFFICIENTS,
    NOT_INCLUDED,
    TITLES,
    Coefficient,
    TargetEstimates,
    collect_coefficients,
    estimate_on_references,
    find_high_risk,
)
from contract.editions import AnswerSpec
from evaluation.statistics.bootstrap import Estimate
from reporting.analyses.analysis import Analysis
from reporting.analyses.classes import analyse_calibration, analyse_confusion
from reporting.analyses.survival import analyse_survival
from reporting.analyses.tables import AnswerRows
from reporting.page.charts import render_figure
from reporting.page.html import Cell, Row, render_choice, render_paragraph, render_table

Kinds = Mapping[str, KindRecord]
Content = Cell | str | float | Estimate | None
# Both kinds of cross-validation as the page names them.
KIND_TITLES: Final = {kind: title.capitalize() for kind, title in KINDS.items()}
# Captions that replace captions about teams, by the name of the analysis.
_CAPTIONS: Final = {
    "survival": (
        "Kaplan-Meier estimate of being free of recurrence with its 95% interval, for patients with a risk above the "
        "median of their outer fold and for the others."
    ),
    "numbers-at-risk": (
        "Patients still followed and free of recurrence after each number of years, by predicted group; the two-sided "
        "p of the log-rank test between the two groups; and the mean time free of recurrence up to the longest "
        "follow-up that both groups reach."
    ),
}
# Parts of a section, and the same figures as plain data.
Parts = tuple[list[str], dict[str, Any]]
_OUT_OF_FOLD: Final = (
    "Features come from masks of networks that never saw the patient; with centres left out, these networks may have "
    "seen other patients of the centre."
)


def format_target(
    estimates: TargetEstimates,
    shipped: HeadRecord | None,
    bootstraps: int,
    seed: int,
    on_references: TargetRecord | None = None,
) -> tuple[str, dict[str, Any]]:
    """Format both cross-validations of a target next to each other; return HTML, and the same figures as plain data.

    Args:
        estimates: Metrics of the target.
        shipped: Record of the target's head in `heads.json`; None if there is no head.
        bootstraps: Number of bootstrap samples of the patients.
        seed: Seed of the samples.
        on_references: Record of heads that were fitted on reference masks; None if there is no such record.
    """
    target, record, models = estimates.target, estimates.record, estimates.models
    about = f"{len(record.patients)} patients. 95% intervals over {bootstraps} bootstrap samples. {NOT_INCLUDED}"
    about += f" {_OUT_OF_FOLD}"
    reasons = [f"No {KINDS[kind]}: {result.why_not}." for kind, result in record.kinds.items() if result.why_not]
    notes = filter(None, [about, *reasons, describe_left_out(record, shipped)])
    text = render_paragraph(" ".join(notes)) + _format_shipped_head(target, shipped)
    plain: dict[str, Any] = {
        "models": {
            name: {quantity: vars(estimate) for quantity, estimate in model.items()} for name, model in models.items()
        }
    }
    parts: list[str] = []
    if kinds := record.available:
        parts += [
            _format_models(target, models),
            _format_centres(target, record, kinds),
            *_format_charts(target, record, kinds),
        ]
    if on_references is not None:
        costs, figures = _format_reference_masks(target, record, on_references, bootstraps, seed)
        parts, plain = [*parts, *costs], plain | figures
    weights = [fold.coefficients for fold in record.nested.folds]
    head = None if shipped is None else shipped.head
    parts += _format_coefficients(target, collect_coefficients(head, weights), head)
    return text + format_grid(parts), plain


def _format_shipped_head(target: Target, shipped: HeadRecord | None) -> str:
    if shipped is None:
        return render_paragraph("No head is shipped for this target.")
    setting = [f"{name.replace('_', ' ')} {value:g}" for name, value in shipped.setting.items()]
    model = f"Shipped head: {', '.join([shipped.model, *setting])}"
    direction = describe_direction(target.answer, shipped.head)
    if shipped.reason:
        return render_paragraph(f"{model}. {shipped.reason} {direction}")
    verb = "weighted from" if len(shipped.experts) > 1 else "chosen from"
    metric = "" if METRIC_TITLES[target.metric] == target.selection_title else f"{METRIC_TITLES[target.metric]} "
    about = f"{len(shipped.tried)} by {target.selection_title} (in this selection {metric}{shipped.out_of_fold:z.3f}"
    return render_paragraph(f"{model}, {verb} {about}, which is optimistic). {direction}")


def _format_metric_title(target: Target) -> str:
    title = METRIC_TITLES[target.metric]
    return f"{title[0].upper()}{title[1:]}"


def _format_models(target: Target, models: Mapping[str, Mapping[str, Estimate]]) -> str:
    heads = ["Model", *KIND_TITLES.values(), "Nested minus left out", "Heads minus this model, nested"]
    columns = (*KINDS, GAP, BEHIND)
    rows = [Row([TITLES.get(name, name), *map(model.get, columns)]) for name, model in models.items()]
    chance = 1 / max(2, len(target.answer.classes))
    about = f"{_format_metric_title(target)} with 95% intervals; random answers reach {chance:z.3g}."
    return format_listing("Heads and comparators", render_table(about, heads, rows), about)


def _format_centres(target: Target, record: TargetRecord, kinds: Kinds) -> str:
    counts = Counter(row.centre for row in record.patients)
    rows = [
        make_centre_row(centre, [count, *(result.by_centre.get(centre) for result in kinds.values())])
        for centre, count in sorted(counts.items())
    ]
    heads = ["Centre", "Patients", *(KIND_TITLES[kind] for kind in kinds)]
    caption = f"The heads' {METRIC_TITLES[target.metric]} within each centre"
    return format_listing("By centre", render_table(caption, heads, rows))


def _format_charts(target: Target, record: TargetRecord, kinds: Kinds) -> list[str]:
    """Format the evaluation's figures of the answer."""
    analyses = analyse_answer(target.answer, record.outcomes(target.answer), kinds)
    return [render_figure(analysis, f"{target.name}-{analysis.name}") for analysis in analyses]


def _format_reference_masks(
    target: Target, record: TargetRecord, on_references: TargetRecord, bootstraps: int, seed: int
) -> Parts:
    """Format the comparison of heads on automatic masks and on reference masks, with paired intervals."""
    patients, estimates = estimate_on_references(target, record, on_references, bootstraps, seed)
    if not estimates:
        return [], {}
    rows = [Row([title, *(by_masks[name] for by_masks in estimates.values())]) for name, title in MASK_KINDS.items()]
    caption = f"{METRIC_TITLES[target.metric].capitalize()} of the same {patients} patients, with 95% intervals"
    listing = format_listing(
        "Reference masks", render_table(caption, ["Heads on", *(KINDS[kind] for kind in estimates)], rows)
    )
    values = {
        kind: {
            name: {"value": value.value, "ci95_low": value.ci95_low, "ci95_high": value.ci95_high}
            for name, value in by_masks.items()
        }
        for kind, by_masks in estimates.items()
    }
    return [listing], {"reference_masks": values}


def _format_coefficients(target: Target, weights: Sequence[Coefficient], head: Head | None) -> list[str]:
    """Format the weights of the features; `head` is the shipped head."""
    if not weights:
        return [render_paragraph("No feature has a weight.")]
    largest = weights[:MAX_COEFFICIENTS]
    about = (
        "Weight of each feature per standard deviation, in the shipped head and in the outer folds of the nested "
        "cross-validation. Weights of different models (Cox, signs) are on different scales."
    )
    if len(target.answer.classes) > 2:
        about += " The weight is its change from one class to the next."
    if head is not None and (share := compute_linear_share(head)) < 1:
        about += (
            f" They are the linear part of the shipped head, {share:.0%} of its weight."
            if share > 0
            else " The shipped head has no linear part."
        )
    if len(weights) > len(largest):
        about += f" The {len(largest)} largest of {len(weights)}."
    rows = [
        Row(
            [
                weight.feature,
                format_signed(weight.shipped),
                format_signed(float(np.mean(weight.folds)) if weight.folds else None),
                float(np.std(weight.folds)) if weight.folds else None,
            ]
        )
        for weight in largest
    ]
    heads = ["Feature", "Shipped head", "Mean of folds", "SD of folds"]
    return [
        format_listing(
            "Features", render_table("Weights, and their stability over the outer folds", heads, rows), about
        )
    ]


def analyse_answer(answer: AnswerSpec, outcomes: Outcomes, kinds: Kinds) -> list[Analysis]:
    """Make the evaluation's figures of an answer; a kind of cross-validation takes the place of a team.

    The figures are the survival of the patients above and up to the median risk of their outer fold, the calibration of
    two classes, or the confusion matrices of more classes.
    """
    rows = {KIND_TITLES[kind]: _make_rows(answer, outcomes, result) for kind, result in kinds.items()}
    cases = tuple(str(number) for number in range(len(outcomes.values)))
    table = AnswerRows(answer, "", tuple(rows), cases, tuple(map(tuple, rows.values())), {})
    if answer.kind == "risk":
        analyses = analyse_survival(table)
    else:
        analyses = analyse_calibration(table) if answer.is_binary else analyse_confusion(table)
    return [_name_kinds(analysis) for analysis in analyses]


def _make_rows(answer: AnswerSpec, outcomes: Outcomes, result: KindRecord) -> list[dict[str, Any]]:
    """Make rows like the evaluation's rows; a risk is 1 above the median of the outer fold, otherwise 0."""
    if answer.kind == "risk":
        sign = -1.0 if answer.direction == "time" else 1.0
        groups = zip(outcomes.times_days, outcomes.positive, find_high_risk(result), strict=True)
        return [{"rfs_days": days, "relapse": event, "risk": sign * high} for days, event, high in groups]
    truth = [{answer.row_key: answer.classes[value]} for value in outcomes.values]
    if answer.is_binary:
        predictions: list[dict[str, Any]] = [{"predicted_probability": value} for value in result.probability or ()]
    else:
        predictions = [{f"predicted_{answer.row_key}": value} for value in result.predicted_classes or ()]
    return [row | prediction for row, prediction in zip(truth, predictions, strict=True)]


def _name_kinds(analysis: Analysis) -> Analysis:
    """Replace the team by the kind of cross-validation in the names of an analysis."""
    columns = {("kind" if key == "team" else key): title for key, title in analysis.columns.items()}
    rows = [{("kind" if key == "team" else key): value for key, value in row.items()} for row in analysis.rows]
    chart = {key: "kind" if value == "team" else value for key, value in analysis.chart.items()}
    caption = _CAPTIONS.get(analysis.name, analysis.caption)
    columns |= {"kind": "Cross-validation"}
    return replace(analysis, caption=caption, columns=columns, rows=rows, chart=chart, source="", notes=())


def format_grid(parts: Sequence[str]) -> str:
    """Format tables and figures below each other."""
    content = "\n".join(parts)
    return f'<div class="figures">\n{content}\n</div>'


def format_listing(title: str, table: str, about: str = "") -> str:
    """Format a table with a heading, and a paragraph between them."""
    return f'<section class="listing"><h3>{escape(title)}</h3>{render_paragraph(about, "about")}{table}</section>'


def make_centre_row(centre: str, cells: Sequence[Content]) -> Row:
    """Make a table's row about one centre; a click on the name selects the centre."""
    return Row([Cell(render_choice("centre", centre)), *cells], {"centre": centre})


def format_signed(value: float | None) -> Cell:
    """Format a number with its sign."""
    return Cell("-") if value is None else Cell(f"{value:+z.3f}", value)
