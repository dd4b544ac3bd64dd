"""Choose a model family, its setting and harmonisation by cross-validation inside the training patients.

A more complex model is used only if it improves the metric: a later family, and harmonisation by centre, must exceed
the earlier choice by `LEAST_GAIN`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from algorithm.heads.classes import ClassHead
from algorithm.heads.experts import AnyHead, ClassScoreHead, ScoreHead
from algorithm.heads.linear import LinearHead, Term
from algorithm.heads.trees import TreeHead
from baseline.heads.cohort import Floats, HeadCohort, Numbers
from baseline.heads.harmonise import depends_on_scanner
from baseline.heads.models.terms import matrix, scaled_terms, usual_transforms, without_twins

LEAST_GAIN: Final = 0.02
INNER_FOLDS: Final = 5

Setting = Mapping[str, float]
FitPath = Callable[[HeadCohort, Sequence[Term], Sequence[Setting], np.random.Generator], Sequence[AnyHead]]
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

    Raises:
        ValueError: no family.
    """
    return single_best(candidates_of(cohort, families, folds, judge, rng))


def candidates_of(
    cohort: HeadCohort, families: Sequence[Family], folds: Sequence[Numbers], judge: Judge, rng: np.random.Generator
) -> list[Chosen]:
    """Each family with its best setting over `folds` of the cohort, then the harmonised form of the best family.

    Harmonisation is tried with several centres and features that depend on the scanner. Of equally good settings the
    one with the strongest regularisation is used.

    Raises:
        ValueError: no family.
    """

    def best_setting(family: Family, settings: Sequence[Setting], harmonised: bool) -> Chosen:
        scores = [np.zeros(0)] * len(settings)
        for held_out in folds:
            train, rest = cohort.pick(np.setdiff1d(np.arange(len(cohort.ids)), held_out)), cohort.pick(held_out)
            for number, head in enumerate(_path(train, family, settings, harmonised, rng)):
                scores[number] = with_scores(scores[number], held_out, scores_of(head, rest), len(cohort.ids))
        metrics = [judge(cohort, row) for row in scores]
        best = int(np.argmax(metrics))  # the first of equally good ones
        return Chosen(family, settings[best], harmonised, scores[best], metrics[best])

    candidates = [best_setting(family, family.settings, False) for family in families]
    best = single_best(candidates)
    if len(set(cohort.centres)) > 1 and any(map(depends_on_scanner, _transforms(cohort, best.family))):
        candidates.append(best_setting(best.family, [best.setting], True))
    return candidates


def single_best(candidates: Sequence[Chosen]) -> Chosen:
    """The first candidate, or a later one that exceeds the choice so far by `LEAST_GAIN`.

    Raises:
        ValueError: no candidate.
    """
    best: Chosen | None = None
    for candidate in candidates:
        if best is None or candidate.metric >= best.metric + LEAST_GAIN:
            best = candidate
    if best is None:
        raise ValueError("no family to choose from")
    return replace(best, tried={candidate.name: candidate.metric for candidate in candidates})


def refit(cohort: HeadCohort, chosen: Chosen, rng: np.random.Generator) -> AnyHead:
    """The chosen model fitted on the whole cohort."""
    return _path(cohort, chosen.family, [chosen.setting], chosen.harmonised, rng)[0]


def scores_of(head: AnyHead, cohort: HeadCohort) -> Floats:
    """The head's score of every patient, shape (patients,), or of a head of classes (patients, classes)."""
    if isinstance(head, TreeHead):
        return np.asarray(head.scores(cohort.rows), dtype=np.float64)
    if isinstance(head, ClassHead) and any(isinstance(one, TreeHead) for one in head.classes.values()):
        return np.stack([scores_of(one, cohort) for one in head.classes.values()], axis=1)
    if isinstance(head, LinearHead):
        weights = np.array([term.weight for term in head.terms])
        return np.asarray(head.intercept + matrix(head.terms, cohort) @ weights, dtype=np.float64)
    if isinstance(head, ClassHead):
        return _class_scores(head, cohort)
    patients = zip(cohort.rows, cohort.centres, strict=True)
    if isinstance(head, ClassScoreHead):
        rows = [list(head.scores(row, centre).values()) for row, centre in patients]
        return np.array(rows, dtype=np.float64).reshape(len(cohort.ids), len(head.classes))
    if not isinstance(head, ScoreHead):
        raise TypeError(f"{type(head).__name__} has neither a score nor scores")
    return np.array([head.score(row, centre) for row, centre in patients], dtype=np.float64)


def _class_scores(head: ClassHead, cohort: HeadCohort) -> Floats:
    """Scores of a head of classes; a term that classes share is computed once."""
    heads = list(head.classes.values())
    terms: list[Term] = []
    places: dict[str, int] = {}
    table: list[Floats] = []
    for number, one in enumerate(heads):
        for term in one.terms:
            place = places.setdefault(repr(replace(term, weight=0.0)), len(terms))
            if place == len(terms):
                terms.append(term)
                table.append(np.zeros(len(heads)))
            table[place][number] += term.weight
    intercepts = np.array([one.intercept for one in heads])
    weights = np.array(table, dtype=np.float64).reshape(len(terms), len(heads))
    return np.asarray(matrix(terms, cohort) @ weights + intercepts, dtype=np.float64)


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
) -> Sequence[AnyHead]:
    cohort = cohort.undecided()
    terms = scaled_terms(cohort, _transforms(cohort, family), harmonised)
    return family.fit(cohort, without_twins(terms, cohort) if family.transforms is None else terms, settings, rng)


def _transforms(cohort: HeadCohort, family: Family) -> Mapping[str, str]:
    return usual_transforms(cohort) if family.transforms is None else family.transforms
