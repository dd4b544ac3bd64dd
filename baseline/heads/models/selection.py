"""Selection of the setting of each model family by cross-validation inside the training patients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from algorithm.heads.documents import CustomHead, ForestHead, LinearHead, Term
from baseline.heads.cohort import Floats, HeadCohort, Numbers
from baseline.heads.models.terms import (
    Transforms,
    choose_transforms,
    find_unusable_features,
    fit_scaled_terms,
    remove_correlated_terms,
)

INNER_FOLDS: Final = 5

Setting = Mapping[str, float]
SingleHead = LinearHead | ForestHead | CustomHead
FitSettings = Callable[[HeadCohort, Sequence[Term], Sequence[Setting], np.random.Generator], Sequence[SingleHead]]
SelectionMetric = Callable[[HeadCohort, Floats], float]
# Families of all features, about sixty, need at least this number of patients with the scarcer outcome.
MIN_SCARCE_FOR_ALL: Final = 20
# A forest needs at least this number of patients with the scarcer outcome.
MIN_SCARCE_FOR_FOREST: Final = 40
PENALTIES: Final = (1.0, 0.3, 0.1, 0.03, 0.01)
RIDGE: Final[tuple[Setting, ...]] = tuple({"penalty": penalty} for penalty in PENALTIES)
FOREST: Final[tuple[Setting, ...]] = ({"min_leaf": 15.0},)
SIGNS: Final[tuple[Setting, ...]] = tuple({"least_effect": effect} for effect in (0.08, 0.04, 0.0))


@dataclass(frozen=True)
class Family:
    """A kind of model with its features and settings.

    Attributes:
        name: Name in reports.
        fit: Function that fits one head per setting.
        settings: Settings, the strongest regularisation first.
        transforms: Transform of each feature; None for all features except redundant ones.
        min_scarce: Minimum number of patients with the scarcer outcome for the family to compete.
        sees_mask: Whether the mask may rule out classes.
        fit_shipped: Function that fits the head of the package in place of `fit`.
        needs_slope: Whether the scores are a risk on another scale than the log partial hazard.
    """

    name: str
    fit: FitSettings
    settings: tuple[Setting, ...]
    transforms: Transforms | None = None
    min_scarce: int = 0
    sees_mask: bool = True
    fit_shipped: FitSettings | None = None
    needs_slope: bool = False


@dataclass(frozen=True)
class Candidate:
    """A family with its best setting, and the out-of-fold scores and metric of that setting."""

    family: Family
    setting: Setting
    scores: Floats
    metric: float

    @property
    def name(self) -> str:
        return self.family.name


def select_candidates(
    cohort: HeadCohort,
    families: Sequence[Family],
    folds: Sequence[Numbers],
    metric: SelectionMetric,
    rng: np.random.Generator,
) -> list[Candidate]:
    """Select the best setting of each family over `folds` of the cohort.

    The strongest regularisation of equally good settings is used.
    """

    def select_setting(family: Family) -> Candidate:
        scores = [np.zeros(0)] * len(family.settings)
        for held_out in folds:
            train, rest = cohort.pick(np.setdiff1d(np.arange(len(cohort.ids)), held_out)), cohort.pick(held_out)
            for number, head in enumerate(_fit_settings(train, family, family.settings, rng)):
                scores[number] = fill_scores(scores[number], held_out, head.scores(rest), len(cohort.ids))
        metrics = [metric(cohort, row) for row in scores]
        best = int(np.argmax(metrics))  # the first of equally good settings
        return Candidate(family, family.settings[best], scores[best], metrics[best])

    return [select_setting(family) for family in families]


def refit(
    cohort: HeadCohort, candidate: Candidate, rng: np.random.Generator, *, is_shipped: bool = False
) -> SingleHead:
    """Fit the candidate on the whole cohort."""
    family = candidate.family
    if is_shipped and family.fit_shipped is not None:
        family = replace(family, fit=family.fit_shipped)
    return _fit_settings(cohort, family, [candidate.setting], rng)[0]


def fill_scores(scores: Floats, numbers: Numbers, values: Floats, patients: int) -> Floats:
    """Write the `values` of some patients into the `scores` of all patients; an empty `scores` starts with zeros."""
    scores = scores if scores.size else np.zeros((patients, *values.shape[1:]))
    scores[numbers] = values
    return scores


def make_stratified_folds(
    cohort: HeadCohort, stratum: Sequence[int], folds: int, rng: np.random.Generator
) -> list[Numbers]:
    """Deal the patients like cards, stratum by stratum and centre by centre within a stratum.

    Every patient is in one fold; the size of a stratum differs by at most one patient between folds.
    """
    order = rng.permutation(len(cohort.ids))
    dealt = sorted(order, key=lambda number: (stratum[number], cohort.centres[number]))
    return [np.array(sorted(dealt[fold::folds]), dtype=np.int64) for fold in range(folds)]


def make_centre_folds(cohort: HeadCohort) -> list[Numbers]:
    """Make one fold per centre, sorted by code."""
    codes = np.asarray(cohort.centres)
    return [np.flatnonzero(codes == code) for code in sorted(set(cohort.centres))]


def find_unused_features(cohort: HeadCohort, families: Sequence[Family]) -> dict[str, str]:
    """Find the features of the families that cannot be terms in this cohort, with the reasons."""
    cohort, unused = cohort.select_undecided(), {}
    for family in families:
        transforms = choose_transforms(cohort) if family.transforms is None else family.transforms
        unused.update(find_unusable_features(cohort, transforms))
    return unused


def _fit_settings(
    cohort: HeadCohort, family: Family, settings: Sequence[Setting], rng: np.random.Generator
) -> Sequence[SingleHead]:
    cohort = cohort.select_undecided()
    if family.transforms is not None:
        return family.fit(cohort, fit_scaled_terms(cohort, family.transforms), settings, rng)
    terms = remove_correlated_terms(fit_scaled_terms(cohort, choose_transforms(cohort)), cohort)
    return family.fit(cohort, terms, settings, rng)
