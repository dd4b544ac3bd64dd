"""What to expect of unseen patients: nested cross-validation, within the centres and with whole centres left out.

In every outer fold everything (families, settings, harmonisation, filling, scaling, threshold, calibration) is chosen
on the other patients alone, by inner folds of the same kind: stratified inside stratified, by centre inside by centre.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from algorithm.heads.linear import LinearHead
from baseline.heads.models.selection import Chosen, centre_folds, choose, refit, scores_of
from baseline.heads.models.shared import Cohort, Flags, Floats, Numbers, balanced_accuracy, concordance
from baseline.heads.models.targets import Target, only
from contract.errors import MetricError

FORMAT_VERSION: Final = 1
OUTER_FOLDS: Final = 5
# With fewer relapses, or of the rarer HPV status, an inner fold could lack one.
LEAST_SCARCE: Final = 3


@dataclass(frozen=True)
class OuterFold:
    """One outer fold: who was held out, what was chosen without them, and the head fitted without them."""

    held_out: Numbers
    chosen: Chosen
    head: LinearHead


@dataclass(frozen=True)
class OutOfSample:
    """Scores of every patient by a head that was chosen and fitted without that patient.

    `scores` are log partial hazards or logits; `positive` and `probability` only for a head with a threshold.
    """

    scores: Floats
    positive: Flags | None
    probability: Floats | None
    folds: tuple[OuterFold, ...]

    def fold_of(self) -> npt.NDArray[np.int64]:
        """The number of the outer fold that held each patient out."""
        numbers = np.zeros(len(self.scores), dtype=np.int64)
        for number, fold in enumerate(self.folds):
            numbers[fold.held_out] = number
        return numbers


Kind = Callable[[Target, Cohort, np.random.Generator], OutOfSample]


def nested(target: Target, cohort: Cohort, rng: np.random.Generator) -> OutOfSample:
    """Five outer folds, balanced by outcome and centre; fewer where there are fewer relapses, or of the rarer class.

    Raises:
        MetricError: fewer than three relapses, or patients of either HPV status.
    """
    target.check(cohort, LEAST_SCARCE)
    return out_of_sample(target, cohort, target.stratified(cohort, OUTER_FOLDS, rng), by_centre=False, rng=rng)


def leave_one_centre_out(target: Target, cohort: Cohort, rng: np.random.Generator) -> OutOfSample:
    """One outer fold a centre: nobody of the centre is learnt from, nor used to choose.

    Raises:
        MetricError: fewer than two centres, or the others hold fewer than two of those.
    """
    if len(set(cohort.centres)) < 2:
        raise MetricError(target.name, f"{len(set(cohort.centres))} centre", "at least 2 to leave one out")
    return out_of_sample(target, cohort, centre_folds(cohort), by_centre=True, rng=rng)


def out_of_sample(
    target: Target, cohort: Cohort, outer: Sequence[Numbers], by_centre: bool, rng: np.random.Generator
) -> OutOfSample:
    """Choose and fit without each outer fold in turn, and score it."""
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


def metric(cohort: Cohort, found: OutOfSample, numbers: Numbers | None = None) -> float | None:
    """C-index, or balanced accuracy where there is a threshold; of `numbers` or of everyone. None where undefined."""
    chosen = np.arange(len(cohort.ids)) if numbers is None else numbers
    told = cohort.pick(chosen).outcomes
    try:
        if found.positive is None:
            return concordance(told.rfs_days, told.relapse, found.scores[chosen])
    except MetricError:
        return None
    both = told.hpv.any() and not told.hpv.all()
    return balanced_accuracy(told.hpv, found.positive[chosen]) if both else None


def cross_validate(target: Target, cohort: Cohort, seed: int) -> dict[str, Any]:
    """Both kinds of cross-validation with their comparators, as the record that docs/heads.md describes.

    Of a kind that the cohort does not allow, the record holds only `why_not`.
    """
    return {
        "metric": target.metric,
        "patients": _patients(target, cohort),
        "nested": _kind(target, cohort, nested, seed),
        "leave_one_centre_out": _kind(target, cohort, leave_one_centre_out, seed),
    }


def cross_validation_document(cohorts: Sequence[tuple[Target, Cohort]], seed: int) -> dict[str, Any]:
    """`cross_validation.json`: one record a target."""
    return {
        "format_version": FORMAT_VERSION,
        "seed": seed,
        **{target.name: cross_validate(target, cohort, seed) for target, cohort in cohorts},
    }


def _patients(target: Target, cohort: Cohort) -> list[dict[str, Any]]:
    told = cohort.outcomes
    rows: list[dict[str, Any]] = []
    for number, (patient, centre) in enumerate(zip(cohort.ids, cohort.centres, strict=True)):
        row: dict[str, Any] = {"id": patient, "centre": centre}
        if target.name == "rfs":
            row |= {"rfs_days": float(told.rfs_days[number]), "relapse": bool(told.relapse[number])}
        else:
            row["hpv"] = bool(told.hpv[number])
        rows.append(row)
    return rows


def _kind(target: Target, cohort: Cohort, kind: Kind, seed: int) -> dict[str, Any]:
    """One kind of cross-validation; the comparators run over the same outer folds."""
    try:
        found = kind(target, cohort, np.random.default_rng(seed))
    except MetricError as problem:
        return {"why_not": str(problem)}
    outer, by_centre = [fold.held_out for fold in found.folds], kind is leave_one_centre_out
    comparators = {}
    for name, family in target.comparators.items():
        rival = only(target, [family])
        comparators[name] = out_of_sample(rival, cohort, outer, by_centre, np.random.default_rng(seed))
    return {
        "fold_of_patient": found.fold_of().tolist(),
        "folds": [_fold(target, cohort, found, fold) for fold in found.folds],
        **_told(target, cohort, found),
        "comparators": {name: _told(target, cohort, rival) for name, rival in comparators.items()},
    }


def _told(target: Target, cohort: Cohort, found: OutOfSample) -> dict[str, Any]:
    """The metric over everyone and by centre, and each patient's answer."""
    by_centre = {cohort.centres[fold[0]]: metric(cohort, found, fold) for fold in centre_folds(cohort)}
    told: dict[str, Any] = {target.metric: metric(cohort, found), "by_centre": by_centre}
    told["score"] = found.scores.tolist()
    if found.positive is not None and found.probability is not None:
        told |= {"positive": found.positive.tolist(), "probability": found.probability.tolist()}
    return told


def _fold(target: Target, cohort: Cohort, found: OutOfSample, fold: OuterFold) -> dict[str, Any]:
    return {
        "held_out": [cohort.ids[number] for number in fold.held_out],
        "model": fold.chosen.name,
        "setting": dict(fold.chosen.setting),
        "tried": dict(fold.chosen.tried),
        "threshold": fold.head.threshold,
        "coefficients": {term.feature: term.weight for term in fold.head.terms},
        target.metric: metric(cohort, found, fold.held_out),
    }
