"""Nested cross-validation of the heads, within centres and with whole centres left out.

In every outer fold all choices (model, setting, imputation, scaling, threshold, calibration) are made on
the other patients alone, by the folds of the shipped selection (`Target.folds`). Features that were fitted to outcomes
are left out, since each of them has learnt from patients who are held out here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.heads.documents import CustomHead, EnsembleHead, Head
from baseline.cache import map_items
from baseline.heads.cohort import (
    Flags,
    Floats,
    HeadCohort,
    Numbers,
    balanced_accuracy,
    c_index,
    class_accuracy,
    outcome_rows,
)
from baseline.heads.models.classes import predicted, trend
from baseline.heads.models.ensemble import CandidateEnsemble, fit_ensemble, make_ensemble, scale_of
from baseline.heads.models.kinds import ClassRule, Target, only
from baseline.heads.models.selection import Family, candidates_of, centre_folds, with_scores
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
# Minimum number of patients with the scarcer outcome; with fewer an inner fold could lack it.
LEAST_SCARCE: Final = 3
_Cohorts = Sequence[tuple[Target, HeadCohort]]


@dataclass(frozen=True)
class OuterFold:
    """Held-out patients, and the ensemble and its head, which are made without them; `notice` on the head's slope."""

    held_out: Numbers
    ensemble: CandidateEnsemble
    head: Head
    notice: str | None


@dataclass(frozen=True)
class OutOfSample:
    """Answers to every patient by a head that was selected and fitted without that patient.

    Attributes:
        scores: standardised risks or logits, shape (patients,), or a score for each class, (patients, classes).
        answers: class numbers, None for a risk.
        probability: of the second of two classes, None for other answers.
        folds: the outer folds.
    """

    scores: Floats
    answers: Numbers | None
    probability: Floats | None
    folds: tuple[OuterFold, ...]

    @property
    def positive(self) -> Flags | None:
        """Patients who are given the second of two classes, None for other answers."""
        return None if self.answers is None or self.probability is None else self.answers == 1

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
    return out_of_sample(target, cohort, target.stratified(cohort, OUTER_FOLDS, rng), rng)


def leave_one_centre_out(target: Target, cohort: HeadCohort, rng: np.random.Generator) -> OutOfSample:
    """One outer fold per centre: its patients are used neither for fitting nor for selection.

    Raises:
        MetricError: a single centre, or too few patients with the scarcer outcome in the others.
    """
    outer = centre_folds(cohort)
    if len(outer) < 2:
        raise MetricError(target.name, f"{len(outer)} centre{'s' * (len(outer) != 1)}", "at least 2 to leave one out")
    return out_of_sample(target, cohort, outer, rng)


def out_of_sample(
    target: Target, cohort: HeadCohort, outer: Sequence[Numbers], rng: np.random.Generator
) -> OutOfSample:
    """Select and fit without each outer fold in turn, and score its patients.

    Each fold has a head with a scale of its own, on which the C-index over all folds would depend. Risks are therefore
    standardised by the out-of-fold scores of the selection, which has not seen the fold's patients.
    """
    patients = len(cohort.ids)
    scores, probability, answers = np.zeros(0), np.zeros(patients), np.zeros(patients, dtype=np.int64)
    folds = []
    for held_out in outer:
        train, rest = _without(cohort, held_out), cohort.pick(held_out)
        target.check(train, 2)
        candidates = candidates_of(
            train, target.competing(train), target.folds(train, rng), target.selection_metric, rng
        )
        ensemble = make_ensemble(target, train, candidates)
        head = target.finish(fit_ensemble(ensemble, train, rng), train, ensemble.scores, rng)
        values = head.scores(rest)
        mean, sd = scale_of(ensemble.scores) if target.answer.kind == "risk" else (0.0, 1.0)
        scores = with_scores(scores, held_out, (values - mean) / sd, patients)
        if head.classes:
            answers[held_out] = predicted(values, rest.possible)
        elif head.threshold is not None and head.calibration is not None:
            answers[held_out] = values >= head.threshold
            probability[held_out] = [head.calibration.probability(score) for score in values]
        folds.append(OuterFold(held_out, ensemble, head, target.slope_notice(train, ensemble.scores)))
    return OutOfSample(
        scores,
        None if target.answer.kind == "risk" else answers,
        probability if target.answer.is_binary else None,
        tuple(folds),
    )


def by_rule(cohort: HeadCohort, outer: Sequence[Numbers], rule: ClassRule) -> Numbers:
    """Class numbers by a rule that may learn from the patients outside each outer fold."""
    answers = np.zeros(len(cohort.ids), dtype=np.int64)
    for held_out in outer:
        answers[held_out] = rule(_without(cohort, held_out), cohort.pick(held_out))
    return answers


def _without(cohort: HeadCohort, held_out: Numbers) -> HeadCohort:
    return cohort.pick(np.setdiff1d(np.arange(len(cohort.ids)), held_out))


def metric(cohort: HeadCohort, scored: OutOfSample, numbers: Numbers | None = None) -> float | None:
    """C-index, or balanced accuracy with a threshold, over all patients or those of `numbers`; None if undefined."""
    chosen = np.arange(len(cohort.ids)) if numbers is None else numbers
    outcomes = cohort.outcomes.pick(chosen)
    if scored.positive is not None:
        return _defined(balanced_accuracy(outcomes, scored.positive[chosen]))
    if scored.answers is not None:
        return _defined(class_accuracy(outcomes, scored.answers[chosen]))
    try:
        return c_index(outcomes, scored.scores[chosen])
    except MetricError:
        return None


def _defined(value: float) -> float | None:
    return None if np.isnan(value) else value


def cross_validations(cohorts: _Cohorts, seed: int, why_not: Mapping[str, str], jobs: int = 1) -> CrossValidation:
    """A record for each target, and the reasons for missing heads. `jobs` is the number of processes."""
    # The slowest targets are often the last, so that one kind is started for all targets at once.
    items = [(target, cohort, kind) for kind in KINDS for target, cohort in cohorts]
    results = dict(map_items(partial(_part, seed=seed), items, jobs, "cross-validate heads", "part"))
    records: dict[str, Any] = {}
    for target, cohort in cohorts:
        patients = zip(cohort.ids, cohort.centres, outcome_rows(target.answer, cohort.outcomes), strict=True)
        rows = [OutcomeRow(id=patient, centre=centre, **row) for patient, centre, row in patients]
        fields: dict[str, Any] = {kind: results[target.name, kind] for kind in KINDS}
        fields |= {"left_out_features": list(target.fitted)} if target.fitted else {}
        records[target.name] = TargetRecord(metric=target.metric, patients=rows, **fields)
    return CrossValidation(format_version=FORMAT_VERSION, seed=seed, no_head=dict(why_not), **records)


def _part(item: tuple[Target, HeadCohort, str], seed: int) -> tuple[tuple[str, str], KindRecord]:
    target, cohort, kind = item
    return (target.name, kind), cross_validated(target, cohort, kind, seed)


def cross_validated(target: Target, cohort: HeadCohort, kind: str, seed: int) -> KindRecord:
    """One kind of cross-validation with its comparators, which use the same outer folds.

    A kind that the cohort does not allow holds only `why_not`.
    """
    target, cohort = target.without_fitted(cohort)
    estimate = leave_one_centre_out if kind == "leave_one_centre_out" else nested
    try:
        scored = estimate(target, cohort, np.random.default_rng(seed))
    except MetricError as problem:
        return KindRecord(why_not=str(problem))
    outer = [fold.held_out for fold in scored.folds]

    def alone(family: Family) -> ModelAnswers:
        patients = cohort if family.sees_mask else cohort.without_mask()
        rng = np.random.default_rng(seed)
        alone = out_of_sample(only(target, [family]), patients, outer, rng)
        return ModelAnswers(**_answers(target, patients, alone))

    comparators = {name: alone(family) for name, family in target.comparators.items()}
    for name, rule in target.rules.items():
        comparators[name] = ModelAnswers(**_class_answers(target, cohort, by_rule(cohort, outer, rule)))
    return KindRecord(
        fold_of_patient=scored.fold_of().tolist(),
        folds=[_fold_record(target, cohort, scored, fold) for fold in scored.folds],
        comparators=comparators,
        **_answers(target, cohort, scored),
    )


def _answers(target: Target, cohort: HeadCohort, scored: OutOfSample) -> dict[str, Any]:
    """Fields of `ModelAnswers`: the metric over all patients and by centre, and each patient's answers."""
    if scored.answers is not None and scored.positive is None:
        return _class_answers(target, cohort, scored.answers) | {"score": scored.scores.tolist()}
    by_centre = {cohort.centres[fold[0]]: metric(cohort, scored, fold) for fold in centre_folds(cohort)}
    fields = {target.metric: metric(cohort, scored), "by_centre": by_centre, "score": scored.scores.tolist()}
    if scored.positive is not None and scored.probability is not None:
        fields |= {"positive": scored.positive.tolist(), "probability": scored.probability.tolist()}
    return fields


def _class_answers(target: Target, cohort: HeadCohort, answers: Numbers) -> dict[str, Any]:
    """Fields of `ModelAnswers`: metric over all patients and by centre, recalls, confusion matrix, and classes."""

    def accuracy(numbers: Numbers) -> float | None:
        return _defined(class_accuracy(cohort.outcomes.pick(numbers), answers[numbers]))

    classes = cohort.outcomes.classes
    matrix = confusion_matrix(cohort.outcomes.values.astype(np.intp), answers.astype(np.intp), len(classes))[:, :-1]
    sizes = matrix.sum(1)
    return {
        target.metric: accuracy(np.arange(len(cohort.ids))),
        "by_centre": {cohort.centres[fold[0]]: accuracy(fold) for fold in centre_folds(cohort)},
        "recall": {
            name: float(matrix[code, code] / sizes[code]) if sizes[code] else None for code, name in enumerate(classes)
        },
        "confusion": matrix.tolist(),
        "class": [target.answer.classes[code] for code in answers],
    }


def _fold_record(target: Target, cohort: HeadCohort, scored: OutOfSample, fold: OuterFold) -> OuterFoldRecord:
    ensemble = fold.ensemble
    fields: dict[str, Any] = {target.metric: metric(cohort, scored, fold.held_out)}
    fields |= {"notice": fold.notice} if fold.notice else {}
    return OuterFoldRecord(
        held_out=[cohort.ids[number] for number in fold.held_out],
        model=ensemble.name,
        setting=ensemble.setting,
        experts=ensemble.records,
        tried=ensemble.tried,
        threshold=fold.head.threshold,
        coefficients=coefficients_of(fold.head),
        **fields,
    )


def coefficients_of(head: Head) -> dict[str, float]:
    """Weight of each feature; of a head of classes the change of the weight from one class to the next.

    Of an ensemble the weights of its linear experts, as they enter the mean; an entrant's head has none.
    """
    if isinstance(head, CustomHead):
        return {}
    weights: dict[str, float] = {}
    if isinstance(head, EnsembleHead):
        for expert in head.experts:
            for feature, weight in coefficients_of(expert.head).items():
                weights[feature] = weights.get(feature, 0.0) + weight / expert.sd / len(head.experts)
    elif head.classes:
        return trend(head)
    else:
        for term in head.terms:
            weights[term.feature] = weights.get(term.feature, 0.0) + term.weights[0]
    return weights
