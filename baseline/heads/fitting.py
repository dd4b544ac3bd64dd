"""Fit the heads of the model package: select by cross-validation, refit on all patients.

Imputation and scaling are learnt from the training part of each fold and stored with the head. The
out-of-fold metric here selected the head; `baseline.heads.cross_validation` estimates performance on unseen patients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from pydantic import Field

from algorithm.heads.documents import Features, Head, read_head
from baseline.cache import map_items
from baseline.heads.cohort import HeadCohort, Images, balanced_accuracy, feature_table, outcomes_of, possible_classes
from baseline.heads.models.ensemble import ExpertRecord, fit_ensemble, make_ensemble
from baseline.heads.models.kinds import Target, only
from baseline.heads.models.selection import candidates_of, unused_features
from baseline.release.cases import ReleaseCase, head_answers
from baseline.work import WorkFolders
from contract.documents import Document, parse_document
from contract.editions import Edition
from contract.editions.answers import ClassValue
from contract.errors import MetricError, ModelPackageError
from contract.packages import MinLesionSizes

LOGGER = logging.getLogger("hecktor")
# Heads on clinical variables alone.
CLINICAL_SUFFIX: Final = "_clinical"
OUT_OF_FOLD, REFERENCE, GIVEN = "out-of-fold masks", "reference masks", "given masks"
Cohorts = Sequence[tuple[Target, HeadCohort]]
SaveOwn = Callable[[Head, HeadCohort], Head]


class FittedHead(Document):
    """A head fitted on all patients, the ensemble of `experts`.

    `setting` is that of a single expert, empty for several. `out_of_fold` is `metric` over the
    out-of-fold scores of the selection; `tried` is the selection metric of every candidate (C-index, area under the
    curve, or balanced accuracy of more than two classes). `fallback` is the answer in place of a failed prediction: the
    most frequent class of the training, or the median of the out-of-fold answers. `unused_features` holds the reason
    for each feature that the models could not use.
    """

    head: Head
    model: str
    setting: Mapping[str, float]
    tried: Mapping[str, float]
    metric: str
    out_of_fold: float
    fallback: float | ClassValue | None
    experts: tuple[ExpertRecord, ...]
    unused_features: Mapping[str, str] = Field(default_factory=dict)


class HeadRecord(FittedHead):
    """A record of `heads.json`.

    `smallest_lesions` are the limits with which the features were measured, `masks` the masks: those of networks that
    never saw the patient, the reference's, or the user's own.
    """

    smallest_lesions: MinLesionSizes
    masks: str


@dataclass(frozen=True)
class FittedHeads:
    """Heads by name, and the reason for each head that could not be fitted."""

    heads: Mapping[str, FittedHead]
    why_not: Mapping[str, str]


def cohort_of(
    target: Target, cases: Sequence[ReleaseCase], rows: Mapping[str, Features], images: Images | None = None
) -> HeadCohort:
    """Patients with a known outcome, with image features (`rows`, by patient ID), clinical variables and `images`."""
    from algorithm.heads.features.intensity import DOSE  # a table needs no images, and these load SimpleITK
    from algorithm.heads.measure import clinical_features

    dose_features = tuple(f"_{name}" for name in DOSE)

    def features_of(case: ReleaseCase) -> dict[str, float | None]:
        row = rows[case.patient_id]
        usable = {name: row[name] for name in row if target.with_dose or not name.endswith(dose_features)}
        return usable | clinical_features(case.patient, target.clinical)

    known = [case for case in cases if case.has(target.answer)]
    return HeadCohort(
        tuple(case.patient_id for case in known),
        tuple(case.centre for case in known),
        feature_table([features_of(case) for case in known]),
        outcomes_of(target.answer, known),
        possible_classes(target.answer, [rows[case.patient_id] for case in known]),
        images,
    )


def fit_target(target: Target, cohort: HeadCohort, rng: np.random.Generator) -> FittedHead:
    """Select the target's experts and refit their ensemble on all patients.

    Raises:
        MetricError: fewer than two patients with the scarcer outcome.
    """
    target.check(cohort, 2)
    folds = target.folds(cohort, rng)
    candidates = candidates_of(cohort, target.competing(cohort), folds, target.selection_metric, rng)
    ensemble = make_ensemble(target, cohort, candidates)
    if notice := target.slope_notice(cohort, ensemble.scores):
        LOGGER.warning("head %s: %s", target.name, notice)
    head = target.finish(fit_ensemble(ensemble, cohort, rng, is_shipped=True), cohort, ensemble.scores, rng)
    metric = ensemble.metric
    if head.threshold is not None:
        metric = balanced_accuracy(cohort.outcomes, ensemble.scores >= head.threshold)
    return FittedHead(
        head=head,
        model=ensemble.name,
        setting=ensemble.setting,
        tried=ensemble.tried,
        metric=target.metric,
        out_of_fold=metric,
        fallback=target.fallback(head, cohort, ensemble.scores),
        experts=ensemble.records,
        unused_features=unused_features(cohort, target.competing(cohort)),
    )


def fit_clinical(target: Target, cohort: HeadCohort, rng: np.random.Generator) -> FittedHead:
    """The head on clinical variables alone."""
    return fit_target(only(target, [target.comparators["clinical"]]), cohort.without_mask(), rng)


def fit_all(cohorts: Cohorts, seed: int, jobs: int = 1, save: SaveOwn | None = None) -> FittedHeads:
    """Fit each target's head and its head on clinical variables alone, as far as the cohort allows.

    `jobs` is the number of processes. `save` writes the files of entrants' heads.
    """
    items = [(target, cohort, suffix) for target, cohort in cohorts for suffix in ("", CLINICAL_SUFFIX)]
    results = dict(map_items(partial(_fit_one, seed=seed, save=save), items, jobs, "fit heads", "head"))
    names = [f"{target.name}{suffix}" for target, _, suffix in items]
    heads = {name: head for name in names if isinstance(head := results[name], FittedHead)}
    return FittedHeads(heads, {name: why for name in names if isinstance(why := results[name], str)})


def _fit_one(item: tuple[Target, HeadCohort, str], seed: int, save: SaveOwn | None) -> tuple[str, FittedHead | str]:
    target, cohort, suffix = item
    fit = fit_clinical if suffix else fit_target
    try:
        fitted = fit(target, cohort, np.random.default_rng(seed))
    except MetricError as problem:
        return f"{target.name}{suffix}", problem.message
    if save is not None:
        fitted = fitted.model_copy(update={"head": save(fitted.head, cohort)})
    return f"{target.name}{suffix}", fitted


def read_heads(work: WorkFolders) -> dict[str, HeadRecord]:
    """The records of `heads.json` by name. Raises HecktorError: the step `heads` has not been run."""
    heads = read_fitted_heads(work.read(work.heads_json), work.heads_json.name)
    return {name: one for name, one in heads.items() if isinstance(one, HeadRecord)}


def read_fitted_heads(content: Mapping[str, Any], name: str) -> dict[str, Head | HeadRecord]:
    """Heads by name from the content of a `heads.json`, or plain heads, as they are in a package's `heads/`."""
    heads: dict[str, Head | HeadRecord] = {}
    for key, record in content.items():
        place, is_record = f"{name}: {key}", isinstance(record, dict) and "head" in record
        heads[key] = read_head(record["head"] if is_record else record, place)
        if is_record:
            heads[key] = parse_document(record, HeadRecord, place, error=ModelPackageError)
    return heads


def fallbacks_of(edition: Edition, heads: Mapping[str, Head | HeadRecord]) -> dict[str, Any]:
    """The fallbacks of fitted heads for answers whose failure is no error, by the name of the head."""
    names = [answer.head for answer in head_answers(edition) if answer.fallback is not None]
    fitted = {name: one.fallback for name in names if isinstance(one := heads.get(name), HeadRecord)}
    return {name: value for name, value in fitted.items() if value is not None}


def smallest_entry(heads: Mapping[str, Head | HeadRecord]) -> dict[str, Any]:
    """The manifest's entry for the smallest lesions of the heads' features; empty for heads without a note.

    Raises:
        ModelPackageError: heads with different limits.
    """
    limits = [one.smallest_lesions for one in heads.values() if isinstance(one, HeadRecord)]
    if other := next((one for one in limits if one != limits[0]), None):
        raise ModelPackageError("heads", f"smallest_lesions {limits[0]} and {other}", "one for all heads")
    return {"smallest_lesions": limits[0].model_dump()} if limits else {}


def masks_of(heads: Mapping[str, Head | HeadRecord]) -> str:
    """The masks on which the heads were fitted; empty for plain heads."""
    return ", ".join(sorted({one.masks for one in heads.values() if isinstance(one, HeadRecord)}))
