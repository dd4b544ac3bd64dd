"""Nested cross-validation of the heads, within centres and with whole centres left out.

In every outer fold all choices (model, setting, harmonisation, imputation, scaling, threshold, calibration) are made on
the other patients alone, by inner folds of the same kind: stratified in stratified ones, by centre in those by centre.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from algorithm.heads.linear import LinearHead
from baseline.heads.cohort import Flags, Floats, HeadCohort, Numbers, outcome_rows
from baseline.heads.metrics import balanced_accuracy, c_index
from baseline.heads.models.selection import Chosen, centre_folds, choose, refit, scores_of
from baseline.heads.models.targets import Target, only
from contract.errors import MetricError

FORMAT_VERSION: Final = 1
OUTER_FOLDS: Final = 5
# Minimum number of patients with the scarcer outcome; with fewer an inner fold could lack it.
LEAST_SCARCE: Final = 3
# Both kinds of cross-validation by their keys in `cross_validation.json`.
KINDS: Final = {"nested": "nested cross-validation", "leave_one_centre_out": "leave one centre out"}
METRIC_TITLES: Final = {"c_index": "C-index", "balanced_accuracy": "balanced accuracy"}


@dataclass(frozen=True)
class OuterFold:
    """Held-out patients, and the model chosen and head fitted without them."""

    held_out: Numbers
    chosen: Chosen
    head: LinearHead


@dataclass(frozen=True)
class OutOfSample:
    """Scores of every patient by a head that was selected and fitted without that patient.

    `scores` are log partial hazards or logits; `positive` and `probability` are None for a head without a threshold.
    """

    scores: Floats
    positive: Flags | None
    probability: Floats | None
    folds: tuple[OuterFold, ...]

    def fold_of(self) -> npt.NDArray[np.int64]:
        """Number of the outer fold that held out each patient."""
        numbers = np.zeros(len(self.scores), dtype=np.int64)
        for number, fold in enumerate(self.folds):
            numbers[fold.held_out] = number
        return numbers


def nested(target: Target, cohort: HeadCohort, rng: np.random.Generator) -> OutOfSample:
    """Five outer folds balanced by outcome and centre, fewer if the scarcer outcome is rarer.

    Raises:
        MetricError: fewer than three patients with the scarcer outcome.
    """
    target.check(cohort, LEAST_SCARCE)
    return out_of_sample(target, cohort, target.stratified(cohort, OUTER_FOLDS, rng), by_centre=False, rng=rng)


def leave_one_centre_out(target: Target, cohort: HeadCohort, rng: np.random.Generator) -> OutOfSample:
    """One outer fold per centre: its patients are used neither for fitting nor for selection.

    Raises:
        MetricError: a single centre, or too few patients with the scarcer outcome in the others.
    """
    outer = centre_folds(cohort)
    if len(outer) < 2:
        raise MetricError(target.name, f"{len(outer)} centre", "at least 2 to leave one out")
    return out_of_sample(target, cohort, outer, by_centre=True, rng=rng)


def out_of_sample(
    target: Target, cohort: HeadCohort, outer: Sequence[Numbers], by_centre: bool, rng: np.random.Generator
) -> OutOfSample:
    """Select and fit without each outer fold in turn, and score its patients."""
    scores, probability = np.zeros(len(cohort.ids)), np.zeros(len(cohort.ids))
    positive = np.zeros(len(cohort.ids), dtype=bool)
    folds = []
    for held_out in outer:
        train = cohort.pick(np.setdiff1d(np.arange(len(cohort.ids)), held_out))
        target.check(train, 2)
        chosen = choose(train, target.competing(train), target.folds(train, by_centre, rng), target.judge, rng)
        head = target.finish(refit(train, chosen, rng), train, chosen.scores, rng)
        scores[held_out] = scores_of(head, cohort.pick(held_out))
        if head.threshold is not None and head.calibration is not None:
            positive[held_out] = scores[held_out] >= head.threshold
            probability[held_out] = [head.calibration.probability(score) for score in scores[held_out]]
        folds.append(OuterFold(held_out, chosen, head))
    if any(fold.head.threshold is None for fold in folds):
        return OutOfSample(scores, None, None, tuple(folds))
    return OutOfSample(scores, positive, probability, tuple(folds))


def metric(cohort: HeadCohort, scored: OutOfSample, numbers: Numbers | None = None) -> float | None:
    """C-index, or balanced accuracy with a threshold, over all patients or those of `numbers`; None if undefined."""
    chosen = np.arange(len(cohort.ids)) if numbers is None else numbers
    outcomes = cohort.outcomes.pick(chosen)
    if scored.positive is not None:
        value = balanced_accuracy(outcomes, scored.positive[chosen])
        return None if np.isnan(value) else value
    try:
        return c_index(outcomes, scored.scores[chosen])
    except MetricError:
        return None


def cross_validate(target: Target, cohort: HeadCohort, seed: int) -> dict[str, Any]:
    """Both kinds of cross-validation with their comparators, as the record that docs/heads.md describes.

    A kind that the cohort does not allow holds only `why_not`.
    """
    patients = zip(cohort.ids, cohort.centres, outcome_rows(target.answer, cohort.outcomes), strict=True)
    return {
        "metric": target.metric,
        "patients": [{"id": patient, "centre": centre, **row} for patient, centre, row in patients],
        **{kind: _record(target, cohort, kind, seed) for kind in KINDS},
    }


def cross_validation_document(
    cohorts: Sequence[tuple[Target, HeadCohort]], seed: int, why_not: Mapping[str, str]
) -> dict[str, Any]:
    """The content of `cross_validation.json`: a record for each target, and the reasons for missing heads."""
    progress = tqdm(cohorts, desc="cross-validate heads", unit="target")
    return {
        "format_version": FORMAT_VERSION,
        "seed": seed,
        **{target.name: cross_validate(target, cohort, seed) for target, cohort in progress},
        "no_head": dict(why_not),
    }


def _record(target: Target, cohort: HeadCohort, kind: str, seed: int) -> dict[str, Any]:
    """One kind of cross-validation; the comparators use the same outer folds."""
    by_centre = kind == "leave_one_centre_out"
    try:
        scored = (leave_one_centre_out if by_centre else nested)(target, cohort, np.random.default_rng(seed))
    except MetricError as problem:
        return {"why_not": str(problem)}
    outer = [fold.held_out for fold in scored.folds]
    comparators = {
        name: out_of_sample(only(target, [family]), cohort, outer, by_centre, np.random.default_rng(seed))
        for name, family in target.comparators.items()
    }
    return {
        "fold_of_patient": scored.fold_of().tolist(),
        "folds": [_fold_record(target, cohort, scored, fold) for fold in scored.folds],
        **_answers(target, cohort, scored),
        "comparators": {name: _answers(target, cohort, rival) for name, rival in comparators.items()},
    }


def _answers(target: Target, cohort: HeadCohort, scored: OutOfSample) -> dict[str, Any]:
    """The metric over all patients and by centre, and each patient's score, answer and probability."""
    by_centre = {cohort.centres[fold[0]]: metric(cohort, scored, fold) for fold in centre_folds(cohort)}
    record = {target.metric: metric(cohort, scored), "by_centre": by_centre, "score": scored.scores.tolist()}
    if scored.positive is not None and scored.probability is not None:
        record |= {"positive": scored.positive.tolist(), "probability": scored.probability.tolist()}
    return record


def _fold_record(target: Target, cohort: HeadCohort, scored: OutOfSample, fold: OuterFold) -> dict[str, Any]:
    return {
        "held_out": [cohort.ids[number] for number in fold.held_out],
        "model": fold.chosen.name,
        "setting": dict(fold.chosen.setting),
        "tried": dict(fold.chosen.tried),
        "threshold": fold.head.threshold,
        "coefficients": {term.feature: term.weight for term in fold.head.terms},
        target.metric: metric(cohort, scored, fold.held_out),
    }


def summary(heads: Mapping[str, Any], document: Mapping[str, Any], targets: Sequence[Target]) -> str:
    """A few lines for the console: the fitted heads, and their cross-validated metrics."""
    lines = [
        f"{name}: {record['model']}, {record['metric']} {record['out_of_fold']:.3f} over the folds that selected it"
        for name, record in heads.items()
    ]
    lines += [f"{name}: no head ({reason})" for name, reason in document["no_head"].items()]
    for target in targets:
        for kind in KINDS:
            record = document[target.name][kind]
            value = record.get(target.metric)
            shown = record.get("why_not", "undefined") if value is None else f"{target.metric} {value:.3f}"
            lines.append(f"{target.name}, {kind.replace('_', ' ')}: {shown}")
    return "\n".join(lines)


def metrics_only(document: Mapping[str, Any], targets: Sequence[Target]) -> dict[str, Any]:
    """The part of `cross_validation.json` for the package's manifest: metrics over all patients and by centre."""
    return {
        target.name: {
            kind: {
                name: value
                for name, value in document[target.name][kind].items()
                if name in (target.metric, "by_centre", "why_not")
            }
            for kind in KINDS
        }
        for target in targets
    }
