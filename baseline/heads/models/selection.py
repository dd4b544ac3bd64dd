"""Choose a model family, its setting and harmonisation by cross-validation inside the training patients.

A more complex model is used only if it improves the metric: a later family, and harmonisation by centre, must exceed
the earlier choice by `LEAST_GAIN`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from algorithm.heads.classes import ClassHead, Head
from algorithm.heads.linear import Term
from algorithm.heads.trees import TreeHead
from baseline.heads.cohort import Floats, HeadCohort, Numbers
from baseline.heads.harmonise import depends_on_scanner
from baseline.heads.models.terms import matrix, scaled_terms, usual_transforms, without_twins

LEAST_GAIN: Final = 0.02
INNER_FOLDS: Final = 5

Setting = Mapping[str, float]
FitPath = Callable[[HeadCohort, Sequence[Term], Sequence[Setting], np.random.Generator], Sequence[Head]]
Judge = Callable[[HeadCohort, Floats], float]


@dataclass(frozen=True)
class Family:
    """A kind of model: its fitting function, its settings (strongest regularisation first) and its features.

    `fit` returns one head per setting. `transforms` None stands for all features without redundant ones.
    `least_scarce` is the number of patients with the scarcer outcome that the family needs to compete. With `sees_mask`
    the mask may rule out classes.
    """

    name: str
    fit: FitPath
    settings: tuple[Setting, ...]
    transforms: Mapping[str, str] | None = None
    least_scarce: int = 0
    sees_mask: bool = True


@dataclass(frozen=True)
class Chosen:
    """The chosen model, its out-of-fold scores and metric, and the metric of every candidate."""

    family: Family
    setting: Setting
    harmonised: bool
    scores: Floats
    metric: float
    tried: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the family, with a suffix if it is harmonised."""
        return f"{self.family.name}, harmonised" if self.harmonised else self.family.name


def choose(
    cohort: HeadCohort, families: Sequence[Family], folds: Sequence[Numbers], judge: Judge, rng: np.random.Generator
) -> Chosen:
    """The best family and setting over `folds` of the cohort, then its harmonised form if that is better.

    Harmonisation is tried with several centres and features that depend on the scanner. Of equally good settings the
    one with the strongest regularisation is used.

    Raises:
        ValueError: no family.
    """
    best: Chosen | None = None
    tried: dict[str, float] = {}

    def best_setting(family: Family, settings: Sequence[Setting], harmonised: bool) -> Chosen:
        scores = [np.zeros(0)] * len(settings)
        for held_out in folds:
            train, rest = cohort.pick(np.setdiff1d(np.arange(len(cohort.ids)), held_out)), cohort.pick(held_out)
            for number, head in enumerate(_path(train, family, settings, harmonised, rng)):
                scores[number] = with_scores(scores[number], held_out, scores_of(head, rest), len(cohort.ids))
        metrics = [judge(cohort, row) for row in scores]
        best = int(np.argmax(metrics))  # the first of equally good ones
        candidate = Chosen(family, settings[best], harmonised, scores[best], metrics[best])
        tried[candidate.name] = candidate.metric
        return candidate

    for family in families:
        candidate = best_setting(family, family.settings, False)
        if best is None or candidate.metric >= best.metric + LEAST_GAIN:
            best = candidate
    if best is None:
        raise ValueError("no family to choose from")
    if len(set(cohort.centres)) > 1 and any(map(depends_on_scanner, _transforms(cohort, best.family))):
        candidate = best_setting(best.family, [best.setting], True)
        if candidate.metric >= best.metric + LEAST_GAIN:
            best = candidate
    return replace(best, tried=tried)


def refit(cohort: HeadCohort, chosen: Chosen, rng: np.random.Generator) -> Head:
    """The chosen model fitted on the whole cohort."""
    return _path(cohort, chosen.family, [chosen.setting], chosen.harmonised, rng)[0]


def scores_of(head: Head, cohort: HeadCohort) -> Floats:
    """The head's score of every patient, shape (patients,), or of a head of classes (patients, classes)."""
    if isinstance(head, TreeHead):
        return np.asarray(head.scores(cohort.rows), dtype=np.float64)
    if isinstance(head, ClassHead) and any(isinstance(one, TreeHead) for one in head.classes.values()):
        return np.stack([scores_of(one, cohort) for one in head.classes.values()], axis=1)
    if not isinstance(head, ClassHead):
        weights = np.array([term.weight for term in head.terms])
        return np.asarray(head.intercept + matrix(head.terms, cohort) @ weights, dtype=np.float64)
    heads = head.classes.values()
    # The classes of a fitted head share the scaling of their features.
    terms = {term.feature: term for one in heads for term in one.terms}
    by_class = [{term.feature: term.weight for term in one.terms} for one in heads]
    table = np.array([[one.get(feature, 0.0) for one in by_class] for feature in terms]).reshape(-1, len(heads))
    intercepts = np.array([one.intercept for one in heads])
    return np.asarray(matrix([*terms.values()], cohort) @ table + intercepts, dtype=np.float64)


def with_scores(scores: Floats, numbers: Numbers, values: Floats, patients: int) -> Floats:
    """`scores` of all patients with the `values` of some; zeros where `scores` is still empty."""
    scores = scores if scores.size else np.zeros((patients, *values.shape[1:]))
    scores[numbers] = values
    return scores


def stratified_folds(cohort: HeadCohort, stratum: Sequence[int], folds: int, rng: np.random.Generator) -> list[Numbers]:
    """Deal the patients like cards, stratum by stratum and within it centre by centre.

    Every patient is in one fold; the size of a stratum differs by at most one patient between folds.
    """
    order = rng.permutation(len(cohort.ids))
    dealt = sorted(order, key=lambda number: (stratum[number], cohort.centres[number]))
    return [np.array(sorted(dealt[fold::folds]), dtype=np.int64) for fold in range(folds)]


def centre_folds(cohort: HeadCohort) -> list[Numbers]:
    """One fold per centre, sorted by code."""
    codes = np.asarray(cohort.centres)
    return [np.flatnonzero(codes == code) for code in sorted(set(cohort.centres))]


def _path(
    cohort: HeadCohort, family: Family, settings: Sequence[Setting], harmonised: bool, rng: np.random.Generator
) -> Sequence[Head]:
    cohort = cohort.undecided()
    terms = scaled_terms(cohort, _transforms(cohort, family), harmonised)
    return family.fit(cohort, without_twins(terms, cohort) if family.transforms is None else terms, settings, rng)


def _transforms(cohort: HeadCohort, family: Family) -> Mapping[str, str]:
    return usual_transforms(cohort) if family.transforms is None else family.transforms
