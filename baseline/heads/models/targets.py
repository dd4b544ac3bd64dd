"""The two targets: which models compete for each, how they are judged, and what they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from algorithm.heads.linear import LinearHead, Term
from algorithm.heads.measure import clinical_names
from baseline.heads.models.cox import KIND, fit_cox
from baseline.heads.models.logistic import fit_logistic, with_threshold
from baseline.heads.models.selection import INNER_FOLDS, Family, Setting, centre_folds, stratified_folds
from baseline.heads.models.shared import Cohort, Flags, Floats, Numbers, area_under_curve, concordance, weighted
from baseline.heads.models.signs import fit_signs
from contract.editions import load_edition
from contract.errors import MetricError

# feature -> transform; skewed quantities are logarithmised. With a few dozen relapses and a dozen HPV negatives in
# the training patients, the first family of each target is held to a handful of features.
RFS_FEATURES: Final[dict[str, str]] = {
    "total_volume_ml": "log1p",
    "gtvn_count": "identity",
    "age_years": "identity",
    "tobacco": "identity",
    "performance_status": "identity",
}
HPV_FEATURES: Final[dict[str, str]] = {
    "gtvn_cold_share": "identity",
    "total_volume_ml": "log1p",
    "age_years": "identity",
    "gender": "identity",
    "tobacco": "identity",
}
CLINICAL_FEATURES: Final[dict[str, str]] = dict.fromkeys(clinical_names(load_edition().clinical), "identity")
VOLUME: Final[dict[str, str]] = {"total_volume_ml": "log1p"}
SUV_MAX: Final[dict[str, str]] = {"suv_max": "identity"}

# With fewer relapses, or patients of the rarer class, some sixty features are not even tried.
LEAST_FOR_ALL: Final = 20
PENALTIES: Final = (1.0, 0.3, 0.1, 0.03, 0.01)
_RIDGE: Final[tuple[Setting, ...]] = tuple({"penalty": penalty, "l1_ratio": 0.0} for penalty in PENALTIES)
_ELASTIC_NET: Final[tuple[Setting, ...]] = tuple(
    {"penalty": penalty, "l1_ratio": ratio}
    for penalty, ratio in ((0.3, 0.5), (0.3, 0.0), (0.1, 0.5), (0.1, 0.0), (0.03, 0.5))
)
_LOGISTIC: Final[tuple[Setting, ...]] = tuple({"penalty": penalty} for penalty in PENALTIES)
_SIGNS: Final[tuple[Setting, ...]] = tuple({"least_effect": effect} for effect in (0.08, 0.04, 0.0))


@dataclass(frozen=True)
class Target:
    """One thing to predict.

    `needed` names in messages whom folds cannot do without. `families` compete, the first being the one to beat;
    `comparators` are what papers report beside them. `judge` is a metric of scores, higher is better. `stratum` says
    for each patient whether the outcome that folds must share out is there, `both` that no fold can do without
    patients who lack it. `finish` completes a head from out-of-fold scores.
    """

    name: str
    metric: str
    needed: str
    families: tuple[Family, ...]
    comparators: Mapping[str, Family]
    judge: Callable[[Cohort, Floats], float]
    stratum: Callable[[Cohort], Flags]
    both: bool
    finish: Callable[[LinearHead, Cohort, Floats, np.random.Generator], LinearHead]

    def competing(self, cohort: Cohort) -> list[Family]:
        """The families for which the cohort has enough of the scarce outcome; always the first."""
        scarce = self.scarce(cohort)
        return [f for number, f in enumerate(self.families) if number == 0 or scarce >= f.least_scarce]

    def scarce(self, cohort: Cohort) -> int:
        """How many patients have the outcome that no fold can do without: relapses, or the rarer HPV status."""
        return self._scarce(self.stratum(cohort))

    def check(self, cohort: Cohort, least: int) -> None:
        """Refuse a cohort with fewer than `least` such patients.

        Raises:
            MetricError: naming how many there are.
        """
        if self.scarce(cohort) < least:
            found = f"{self.scarce(cohort)} training patients {self.needed}"
            raise MetricError(self.name, f"{found}", f"at least {least}")

    def folds(self, cohort: Cohort, by_centre: bool, rng: np.random.Generator) -> list[Numbers]:
        """Inner folds: one a centre where that is asked for and leaves both outcomes to train on, else stratified."""
        stratum = self.stratum(cohort)
        if by_centre and len(set(cohort.centres)) > 2:
            folds = centre_folds(cohort)
            if all(self._scarce(np.delete(stratum, fold)) > 1 for fold in folds):
                return folds
        return self.stratified(cohort, INNER_FOLDS, rng)

    def stratified(self, cohort: Cohort, folds: int, rng: np.random.Generator) -> list[Numbers]:
        """Folds balanced by outcome and centre, fewer where an outcome is scarcer than that."""
        return stratified_folds(cohort, self.stratum(cohort).tolist(), min(folds, self.scarce(cohort)), rng)

    def _scarce(self, stratum: Flags) -> int:
        there = int(stratum.sum())
        return min(there, len(stratum) - there) if self.both else there


def as_it_is(
    _cohort: Cohort, terms: Sequence[Term], settings: Sequence[Setting], _rng: np.random.Generator
) -> list[LinearHead]:
    """The one feature itself as a risk, higher for earlier recurrence; nothing is fitted but its scale."""
    return [LinearHead(KIND, 0.0, weighted(terms, np.ones(len(terms))), None) for _ in settings]


def _judge_rfs(cohort: Cohort, scores: Floats) -> float:
    return concordance(cohort.outcomes.rfs_days, cohort.outcomes.relapse, scores)


def _judge_hpv(cohort: Cohort, scores: Floats) -> float:
    return area_under_curve(cohort.outcomes.hpv, scores)


def _finish_hpv(head: LinearHead, cohort: Cohort, scores: Floats, rng: np.random.Generator) -> LinearHead:
    return with_threshold(head, cohort.outcomes.hpv, scores, rng)


RFS: Final = Target(
    name="rfs",
    metric="c_index",
    needed="with a relapse",
    families=(
        Family("Cox, few features", fit_cox, _RIDGE, RFS_FEATURES),
        Family("Cox, all features", fit_cox, _ELASTIC_NET, least_scarce=LEAST_FOR_ALL),
        Family("signs, all features", fit_signs, _SIGNS, least_scarce=LEAST_FOR_ALL),
    ),
    comparators={
        "tumour_volume": Family("tumour volume", as_it_is, ({},), VOLUME),
        "suv_max": Family("SUVmax", as_it_is, ({},), SUV_MAX),
        "clinical": Family("clinical variables", fit_cox, _RIDGE, CLINICAL_FEATURES),
    },
    judge=_judge_rfs,
    stratum=lambda cohort: cohort.outcomes.relapse,
    both=False,
    finish=lambda head, _cohort, _scores, _rng: head,
)
HPV: Final = Target(
    name="hpv",
    metric="balanced_accuracy",
    needed="of the rarer class",
    families=(
        Family("logistic, few features", fit_logistic, _LOGISTIC, HPV_FEATURES),
        Family("logistic, all features", fit_logistic, _LOGISTIC, least_scarce=LEAST_FOR_ALL),
    ),
    comparators={
        "tumour_volume": Family("tumour volume", fit_logistic, _LOGISTIC[:1], VOLUME),
        "suv_max": Family("SUVmax", fit_logistic, _LOGISTIC[:1], SUV_MAX),
        "clinical": Family("clinical variables", fit_logistic, _LOGISTIC, CLINICAL_FEATURES),
    },
    judge=_judge_hpv,
    stratum=lambda cohort: ~cohort.outcomes.hpv,
    both=True,
    finish=_finish_hpv,
)
TARGETS: Final = (RFS, HPV)


def only(target: Target, families: Sequence[Family]) -> Target:
    """The target with these families alone in the competition."""
    return replace(target, families=tuple(families))
