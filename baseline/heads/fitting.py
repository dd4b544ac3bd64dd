"""Fit the heads of the model package: select models by cross-validation, and refit them on all patients.

Imputation and scaling are learnt from the training part of each fold and stored with the head. The out-of-fold metric
of this module selects the head; `baseline.heads.cross_validation` estimates performance on unseen patients.
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
from baseline.heads.cohort import (
    HeadCohort,
    Images,
    balanced_accuracy,
    collect_outcomes,
    make_feature_table,
    mark_possible_classes,
)
from baseline.heads.models.ensemble import ExpertRecord, fit_ensemble, select_ensemble
from baseline.heads.models.selection import find_unused_features
from baseline.heads.models.targets import Target, with_families
from baseline.release.cases import ReleaseCase, list_head_specs
from baseline.work import WorkFolders
from contract.documents import Document, parse_document
from contract.editions import Edition
from contract.editions.answers import ClassValue
from contract.errors import MetricError, ModelPackageError
from contract.packages import MinLesionSizes

LOGGER = logging.getLogger("hecktor")
# Suffix of the name of a head that uses only clinical variables.
CLINICAL_SUFFIX: Final = "_clinical"
OUT_OF_FOLD_MASKS, REFERENCE_MASKS, GIVEN_MASKS = "out-of-fold masks", "reference masks", "given masks"
Cohorts = Sequence[tuple[Target, HeadCohort]]
SaveHead = Callable[[Head, HeadCohort], Head]


class FittedHead(Document):
    """A head fitted on all patients, which is the ensemble of `experts`.

    Attributes:
        head: The head.
        model: Name of the ensemble.
        setting: Setting of a single expert; empty for several experts.
        tried: Selection metric of every candidate: C-index, area under the curve, or balanced accuracy of more than two
            classes.
        metric: Name of the target's metric.
        out_of_fold: The metric over the out-of-fold scores of the selection.
        fallback: Answer that replaces a failed prediction: the most frequent class of the training, or the median of
            the out-of-fold answers.
        experts: Experts of the ensemble.
        reason: Reason for a head on clinical variables only, a sentence; empty if the candidates have skill.
        unused_features: Reason for each feature that the models could not use.
    """

    head: Head
    model: str
    setting: Mapping[str, float]
    tried: Mapping[str, float]
    metric: str
    out_of_fold: float
    fallback: float | ClassValue | None
    experts: tuple[ExpertRecord, ...]
    reason: str = ""
    unused_features: Mapping[str, str] = Field(default_factory=dict)


class HeadRecord(FittedHead):
    """A record of `heads.json`.

    Attributes:
        smallest_lesions: Minimum lesion sizes in the measurement of the features.
        masks: Source of the masks: networks that never saw the patient, the reference, or the user.
    """

    smallest_lesions: MinLesionSizes
    masks: str


@dataclass(frozen=True)
class FittedHeads:
    """Heads by name, and the reason for each head that could not be fitted."""

    heads: Mapping[str, FittedHead]
    why_not: Mapping[str, str]


def make_cohort(
    target: Target, cases: Sequence[ReleaseCase], rows: Mapping[str, Features], images: Images | None = None
) -> HeadCohort:
    """Make the cohort of the patients with a known outcome.

    `rows` are image features by patient ID. Clinical variables are added.
    """
    from algorithm.heads.measure import clinical_features
    from algorithm.heads.structure import DOSE  # loads SimpleITK, which a table does not need

    dose_features = tuple(f"_{name}" for name in DOSE)

    def join_features(case: ReleaseCase) -> dict[str, float | None]:
        row = rows[case.patient_id]
        usable = {name: row[name] for name in row if target.with_dose or not name.endswith(dose_features)}
        return usable | clinical_features(case.patient, target.clinical)

    known_cases = [case for case in cases if case.has_outcome(target.answer)]
    return HeadCohort(
        tuple(case.patient_id for case in known_cases),
        tuple(case.centre for case in known_cases),
        make_feature_table([join_features(case) for case in known_cases]),
        collect_outcomes(target.answer, known_cases),
        mark_possible_classes(target.answer, [rows[case.patient_id] for case in known_cases]),
        images,
    )


def fit_target(target: Target, cohort: HeadCohort, rng: np.random.Generator) -> FittedHead:
    """Select the target's experts and refit their ensemble on all patients.

    Raises:
        MetricError: Fewer than two patients have the scarcer outcome.
    """
    target.check(cohort, 2)
    ensemble = select_ensemble(target, cohort, rng)
    if notice := target.find_slope_problem(cohort, ensemble.scores):
        LOGGER.warning("head %s: %s", target.name, notice)
    head = target.complete_head(fit_ensemble(ensemble, cohort, rng, is_shipped=True), cohort, ensemble.scores, rng)
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
        fallback=target.compute_fallback(head, cohort, ensemble.scores),
        experts=ensemble.records,
        reason=ensemble.reason,
        unused_features=find_unused_features(cohort, target.select_families(cohort)),
    )


def fit_clinical_head(target: Target, cohort: HeadCohort, rng: np.random.Generator) -> FittedHead:
    """Fit a head that uses only clinical variables."""
    return fit_target(with_families(target, [target.comparators["clinical"]]), cohort.hide_mask(), rng)


def fit_targets(cohorts: Cohorts, seed: int, jobs: int = 1, save: SaveHead | None = None) -> FittedHeads:
    """Fit two heads for each target, on all features and on only clinical variables, as far as the cohort allows.

    `jobs` is the number of processes. `save` writes the files of custom heads.
    """
    items = [(target, cohort, suffix) for target, cohort in cohorts for suffix in ("", CLINICAL_SUFFIX)]
    results = dict(map_items(partial(_fit_item, seed=seed, save=save), items, jobs, "fit heads", "head"))
    names = [f"{target.name}{suffix}" for target, _, suffix in items]
    heads = {name: head for name in names if isinstance(head := results[name], FittedHead)}
    return FittedHeads(heads, {name: why for name in names if isinstance(why := results[name], str)})


def _fit_item(item: tuple[Target, HeadCohort, str], seed: int, save: SaveHead | None) -> tuple[str, FittedHead | str]:
    target, cohort, suffix = item
    fit = fit_clinical_head if suffix else fit_target
    try:
        fitted = fit(target, cohort, np.random.default_rng(seed))
    except MetricError as problem:
        return f"{target.name}{suffix}", problem.message
    if save is not None:
        fitted = fitted.model_copy(update={"head": save(fitted.head, cohort)})
    return f"{target.name}{suffix}", fitted


def read_heads(work: WorkFolders) -> dict[str, HeadRecord]:
    """Read the records of `heads.json` by name; raise `HecktorError` if the step `heads` has not been run."""
    heads = read_fitted_heads(work.read(work.heads_json), work.heads_json.name)
    return {name: head for name, head in heads.items() if isinstance(head, HeadRecord)}


def read_fitted_heads(content: Mapping[str, Any], name: str) -> dict[str, Head | HeadRecord]:
    """Parse heads by name: the records of `heads.json`, or plain heads as in a package's `heads/`."""
    heads: dict[str, Head | HeadRecord] = {}
    for key, record in content.items():
        place, is_record = f"{name}: {key}", isinstance(record, dict) and "head" in record
        heads[key] = read_head(record["head"] if is_record else record, place)
        if is_record:
            heads[key] = parse_document(record, HeadRecord, place, error=ModelPackageError)
    return heads


def collect_fallbacks(edition: Edition, heads: Mapping[str, Head | HeadRecord]) -> dict[str, Any]:
    """Collect the fallbacks of fitted heads by name, for answers that have a fallback in the edition."""
    names = [answer.head for answer in list_head_specs(edition) if answer.fallback is not None]
    records = {name: head for name in names if isinstance(head := heads.get(name), HeadRecord)}
    return {name: record.fallback for name, record in records.items() if record.fallback is not None}


def make_lesion_size_entry(heads: Mapping[str, Head | HeadRecord]) -> dict[str, Any]:
    """Make the manifest's entry of the minimum lesion sizes of the heads' features; empty for plain heads.

    Raises:
        ModelPackageError: The heads have different limits.
    """
    limits = [head.smallest_lesions for head in heads.values() if isinstance(head, HeadRecord)]
    if different := next((limit for limit in limits if limit != limits[0]), None):
        raise ModelPackageError("heads", f"smallest_lesions {limits[0]} and {different}", "the same for all heads")
    return {"smallest_lesions": limits[0].model_dump()} if limits else {}


def describe_masks(heads: Mapping[str, Head | HeadRecord]) -> str:
    """Describe the masks on which the heads were fitted; empty for plain heads."""
    return ", ".join(sorted({head.masks for head in heads.values() if isinstance(head, HeadRecord)}))
