"""Nested cross-validation of the heads, within centres and with whole centres left out.

For every outer fold all choices (model, setting, imputation, scaling, threshold, calibration) are made on the other
patients only, by the same folds as for the shipped head (`Target.make_folds`). Features that were fitted to outcomes
are left out, because each of them has learnt from patients who are held out here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.heads.documents import CustomHead, EnsembleHead, ForestHead, Head, LinearHead
from baseline.cache import map_items
from baseline.heads.cohort import (
    Flags,
    Floats,
    HeadCohort,
    Numbers,
    balanced_accuracy,
    c_index,
    class_accuracy,
    make_outcome_rows,
)
from baseline.heads.models.classes import ClassRule, compute_class_trends, predict_classes
from baseline.heads.models.ensemble import CandidateEnsemble, compute_scale, fit_ensemble, select_ensemble
from baseline.heads.models.selection import Family, fill_scores, make_centre_folds
from baseline.heads.models.targets import Target, with_families
from baseline.heads.record import (
    FORMAT_VERSION,
    KINDS,
    CrossValidation,
    KindRecord,
    ModelAnswers,
    OutcomeRow,
    OuterFoldRecord,
    TargetRecord,
)
from contract.errors import MetricError
from evaluation.metrics.classification import confusion_matrix

OUTER_FOLDS: Final = 5
# Minimum number of patients with the scarcer outcome; with fewer, an inner fold could be without this outcome.
MIN_SCARCE: Final = 3
_Cohorts = Sequence[tuple[Target, HeadCohort]]


@dataclass(frozen=True)
class OuterFold:
    """Ensemble and head of one outer fold.

    Attributes:
        held_out: Numbers of the held-out patients; ensemble and head are made without them.
        ensemble: Selected experts.
        head: The ensemble fitted on the other patients.
        notice: Problem of the head's slope; None if there is no problem.
    """

    held_out: Numbers
    ensemble: CandidateEnsemble
    head: Head
    notice: str | None


@dataclass(frozen=True)
class HeldOutPredictions:
    """Predictions for every patient by a head that was selected and fitted without the patient.

    Attributes:
        scores: Standardised risks or logits, shape (patients,), or a score for each class, (patients, classes).
        answers: Class numbers; None for a risk.
        probability: Probability of the second of two classes; None for other answers.
        folds: Outer folds.
    """

    scores: Floats
    answers: Numbers | None
    probability: Floats | None
    folds: tuple[OuterFold, ...]

    @property
    def positive(self) -> Flags | None:
        """Return whether the second of two classes is predicted; None for other answers."""
        return None if self.answers is None or self.probability is None else self.answers == 1

    def list_folds(self) -> npt.NDArray[np.int64]:
        """List the number of the outer fold that held out each patient."""
        numbers = np.zeros(len(self.scores), dtype=np.int64)
        for number, fold in enumerate(self.folds):
            numbers[fold.held_out] = number
        return numbers


def cross_validate_nested(target: Target, cohort: HeadCohort, rng: np.random.Generator) -> HeldOutPredictions:
    """Cross-validate over five outer folds balanced by outcome and centre.

    There are fewer folds if fewer patients have the scarcer outcome.

    Raises:
        MetricError: Fewer than three patients have the scarcer outcome.
    """
    target.check(cohort, MIN_SCARCE)
    return predict_held_out(target, cohort, target.make_balanced_folds(cohort, OUTER_FOLDS, rng), rng)


def cross_validate_by_centre(target: Target, cohort: HeadCohort, rng: np.random.Generator) -> HeldOutPredictions:
    """Cross-validate with one outer fold per centre, whose patients are used neither for fitting nor for selection.

    Raises:
        MetricError: There is a single centre, or the other centres have too few patients with the scarcer outcome.
    """
    outer = make_centre_folds(cohort)
    if len(outer) < 2:
        raise MetricError(target.name, f"{len(outer)} centre{'s' * (len(outer) != 1)}", "at least 2 to leave one out")
    return predict_held_out(target, cohort, outer, rng)


def predict_held_out(
    target: Target, cohort: HeadCohort, outer: Sequence[Numbers], rng: np.random.Generator
) -> HeldOutPredictions:
    """Select and fit a head without each outer fold in turn, and score the patients of the fold.

    The head of each fold has its own scale, on which the C-index over all folds would depend. Risks are therefore
    standardised by the out-of-fold scores of the selection, which has not seen the fold's patients.
    """
    patients = len(cohort.ids)
    scores, probability, answers = np.zeros(0), np.zeros(patients), np.zeros(patients, dtype=np.int64)
    folds = []
    for held_out in outer:
        train, rest = _drop_patients(cohort, held_out), cohort.pick(held_out)
        target.check(train, 2)
        ensemble = select_ensemble(target, train, rng)
        head = target.complete_head(fit_ensemble(ensemble, train, rng), train, ensemble.scores, rng)
        values = head.scores(rest)
        mean, sd = compute_scale(ensemble.scores) if target.answer.kind == "risk" else (0.0, 1.0)
        scores = fill_scores(scores, held_out, (values - mean) / sd, patients)
        if head.classes:
            answers[held_out] = predict_classes(values, rest.possible)
        elif head.threshold is not None and head.calibration is not None:
            answers[held_out] = values >= head.threshold
            probability[held_out] = [head.calibration.probability(score) for score in values]
        folds.append(OuterFold(held_out, ensemble, head, target.find_slope_problem(train, ensemble.scores)))
    return HeldOutPredictions(
        scores,
        None if target.answer.kind == "risk" else answers,
        probability if target.answer.is_binary else None,
        tuple(folds),
    )


def apply_rule(cohort: HeadCohort, outer: Sequence[Numbers], rule: ClassRule) -> Numbers:
    """Predict class numbers by a rule, which may learn from the patients outside each outer fold."""
    answers = np.zeros(len(cohort.ids), dtype=np.int64)
    for held_out in outer:
        answers[held_out] = rule(_drop_patients(cohort, held_out), cohort.pick(held_out))
    return answers


def _drop_patients(cohort: HeadCohort, held_out: Numbers) -> HeadCohort:
    return cohort.pick(np.setdiff1d(np.arange(len(cohort.ids)), held_out))


def compute_metric(cohort: HeadCohort, predictions: HeldOutPredictions, numbers: Numbers | None = None) -> float | None:
    """Compute the C-index of a risk, or the balanced accuracy of classes; None if the metric is undefined.

    `numbers` selects patients; by default all patients count.
    """
    chosen = np.arange(len(cohort.ids)) if numbers is None else numbers
    outcomes = cohort.outcomes.pick(chosen)
    if predictions.positive is not None:
        return _none_if_nan(balanced_accuracy(outcomes, predictions.positive[chosen]))
    if predictions.answers is not None:
        return _none_if_nan(class_accuracy(outcomes, predictions.answers[chosen]))
    try:
        return c_index(outcomes, predictions.scores[chosen])
    except MetricError:
        return None


def _none_if_nan(value: float) -> float | None:
    return None if np.isnan(value) else value


def cross_validate_targets(cohorts: _Cohorts, seed: int, why_not: Mapping[str, str], jobs: int = 1) -> CrossValidation:
    """Cross-validate each target in both ways, with `jobs` processes.

    `why_not` has the reason for each missing head, which is recorded.
    """
    # The slowest targets are often the last ones. So each kind of cross-validation is started for all targets at once.
    items = [(target, cohort, kind) for kind in KINDS for target, cohort in cohorts]
    results = dict(map_items(partial(_cross_validate_item, seed=seed), items, jobs, "cross-validate heads", "part"))
    records: dict[str, Any] = {}
    for target, cohort in cohorts:
        patients = zip(cohort.ids, cohort.centres, make_outcome_rows(target.answer, cohort.outcomes), strict=True)
        rows = [OutcomeRow(id=patient, centre=centre, **row) for patient, centre, row in patients]
        fields: dict[str, Any] = {kind: results[target.name, kind] for kind in KINDS}
        fields |= {"left_out_features": list(target.fitted)} if target.fitted else {}
        records[target.name] = TargetRecord(metric=target.metric, patients=rows, **fields)
    return CrossValidation(format_version=FORMAT_VERSION, seed=seed, no_head=dict(why_not), **records)


def _cross_validate_item(item: tuple[Target, HeadCohort, str], seed: int) -> tuple[tuple[str, str], KindRecord]:
    target, cohort, kind = item
    return (target.name, kind), cross_validate(target, cohort, kind, seed)


def cross_validate(target: Target, cohort: HeadCohort, kind: str, seed: int) -> KindRecord:
    """Run one kind of cross-validation with its comparators, which use the same outer folds.

    The record has only `why_not` if the cohort does not allow this kind.
    """
    target, cohort = target.drop_fitted_features(cohort)
    estimate = cross_validate_by_centre if kind == "leave_one_centre_out" else cross_validate_nested
    try:
        predictions = estimate(target, cohort, np.random.default_rng(seed))
    except MetricError as problem:
        return KindRecord(why_not=str(problem))
    outer = [fold.held_out for fold in predictions.folds]

    def score_comparator(family: Family) -> ModelAnswers:
        patients = cohort if family.sees_mask else cohort.hide_mask()
        rng = np.random.default_rng(seed)
        predictions = predict_held_out(with_families(target, [family]), patients, outer, rng)
        return ModelAnswers(**_make_answer_fields(target, patients, predictions))

    comparators = {name: score_comparator(family) for name, family in target.comparators.items()}
    for name, rule in target.rules.items():
        comparators[name] = ModelAnswers(**_make_class_fields(target, cohort, apply_rule(cohort, outer, rule)))
    return KindRecord(
        fold_of_patient=predictions.list_folds().tolist(),
        folds=[_make_fold_record(target, cohort, predictions, fold) for fold in predictions.folds],
        comparators=comparators,
        **_make_answer_fields(target, cohort, predictions),
    )


def _make_answer_fields(target: Target, cohort: HeadCohort, predictions: HeldOutPredictions) -> dict[str, Any]:
    """Make the fields of `ModelAnswers`: the metric over all patients and by centre, and each patient's answers."""
    if predictions.answers is not None and predictions.positive is None:
        return _make_class_fields(target, cohort, predictions.answers) | {"score": predictions.scores.tolist()}
    by_centre = {
        cohort.centres[fold[0]]: compute_metric(cohort, predictions, fold) for fold in make_centre_folds(cohort)
    }
    fields = {
        target.metric: compute_metric(cohort, predictions),
        "by_centre": by_centre,
        "score": predictions.scores.tolist(),
    }
    if predictions.positive is not None and predictions.probability is not None:
        fields |= {"positive": predictions.positive.tolist(), "probability": predictions.probability.tolist()}
    return fields


def _make_class_fields(target: Target, cohort: HeadCohort, answers: Numbers) -> dict[str, Any]:
    """Make the fields of `ModelAnswers`: metric overall and by centre, recalls, confusion matrix, and classes."""

    def accuracy(numbers: Numbers) -> float | None:
        return _none_if_nan(class_accuracy(cohort.outcomes.pick(numbers), answers[numbers]))

    classes = cohort.outcomes.classes
    matrix = confusion_matrix(cohort.outcomes.values.astype(np.intp), answers.astype(np.intp), len(classes))[:, :-1]
    sizes = matrix.sum(1)
    return {
        target.metric: accuracy(np.arange(len(cohort.ids))),
        "by_centre": {cohort.centres[fold[0]]: accuracy(fold) for fold in make_centre_folds(cohort)},
        "recall": {
            name: float(matrix[code, code] / sizes[code]) if sizes[code] else None for code, name in enumerate(classes)
        },
        "confusion": matrix.tolist(),
        "class": [target.answer.classes[code] for code in answers],
    }


def _make_fold_record(
    target: Target, cohort: HeadCohort, predictions: HeldOutPredictions, fold: OuterFold
) -> OuterFoldRecord:
    ensemble = fold.ensemble
    fields: dict[str, Any] = {target.metric: compute_metric(cohort, predictions, fold.held_out)}
    fields |= {"reason": ensemble.reason} if ensemble.reason else {}
    fields |= {"notice": fold.notice} if fold.notice else {}
    return OuterFoldRecord(
        held_out=[cohort.ids[number] for number in fold.held_out],
        model=ensemble.name,
        setting=ensemble.setting,
        experts=ensemble.records,
        tried=ensemble.tried,
        threshold=fold.head.threshold,
        coefficients=compute_coefficients(fold.head),
        **fields,
    )


def compute_linear_share(head: Head) -> float:
    """Compute the share of the linear models in the weight of a head: 1 for a linear head, 0 for a forest."""
    if not isinstance(head, EnsembleHead):
        return float(isinstance(head, LinearHead))
    linear = sum(expert.weight for expert in head.experts if isinstance(expert.head, LinearHead))
    return linear / sum(expert.weight for expert in head.experts)


def compute_coefficients(head: Head) -> dict[str, float]:
    """Compute the weight of each feature.

    For more than two classes it is the change of the weight from one class to the next. For an ensemble it is the
    weight in the mean of the linear experts' scores. Forests and custom heads have no weights.
    """
    if isinstance(head, CustomHead | ForestHead):
        return {}
    weights: dict[str, float] = {}
    if isinstance(head, EnsembleHead):
        total = sum(expert.weight for expert in head.experts)
        for expert in head.experts:
            share = expert.weight / total / expert.sd
            for feature, weight in compute_coefficients(expert.head).items():
                weights[feature] = weights.get(feature, 0.0) + share * weight
    elif head.classes:
        return compute_class_trends(head)
    else:
        for term in head.terms:
            weights[term.feature] = weights.get(term.feature, 0.0) + term.weights[0]
    return weights
