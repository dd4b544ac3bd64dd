"""Fit and cross-validate the heads on the complete table of features, unless those that stand there are current."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from algorithm.heads.documents import Features
from algorithm.heads.feature_hook import FeatureHook, custom_features
from algorithm.heads.head_hook import HEAD
from algorithm.heads.measure import features_version
from baseline.cache import key_of
from baseline.heads.cross_validation import cross_validations
from baseline.heads.cubes import cube_files
from baseline.heads.fitting import OUT_OF_FOLD, HeadRecord, cohort_of, fit_all, read_heads
from baseline.heads.models.custom import CustomHeads, with_custom_heads
from baseline.heads.models.kinds import Target
from baseline.heads.models.targets import targets_of, with_custom_features
from baseline.heads.record import (
    FORMAT_VERSION,
    load_cross_validation,
    read_cross_validation,
    summary,
)
from baseline.own_features import (
    custom_features_stamp,
    fit_over_folds,
    fits_stamp,
    forget_other_fits,
    measure_custom_features,
)
from baseline.preparation import edition_of, smallest_lesions_of
from baseline.release.cases import ReleaseCase, read_cases
from baseline.release.splits import read_splits
from baseline.work import WorkFolders
from contract.code import Code
from contract.errors import HecktorError
from contract.io.files import write_json

# What is said of heads that are not current.
OUTDATED: Final = "fitted by another version, or before masks, patients or fitted features changed"
# Heads of fewer patients take less time than starting processes.
LEAST_FOR_PROCESSES: Final = 40


@dataclass(frozen=True)
class FeatureTable:
    """The complete features of the patients whom heads are fitted on; clinical variables are in the cases.

    Attributes:
        rows: features by patient ID: those of the masks, then an entrant's.
        custom: names of the entrant's features.
        fitted: those of them that are fitted to outcomes.
    """

    rows: Mapping[str, Features]
    custom: tuple[str, ...] = ()
    fitted: tuple[str, ...] = ()


def complete_features(
    work: WorkFolders,
    cases: Sequence[ReleaseCase],
    measured: Mapping[str, Features],
    hooks: Sequence[FeatureHook],
    jobs: int,
    device: str,
) -> FeatureTable:
    """The features of the masks with those of an entrant's classes: measured once, or fitted over the folds."""
    plain, fitted = ([hook for hook in hooks if hook.is_fitted is kind] for kind in (False, True))
    forget_other_fits(work, fitted)
    tables = [measured, measure_custom_features(work, cases, plain, jobs)]
    tables += [fit_over_folds(work, cases, hook, device, jobs) for hook in fitted]
    rows: dict[str, Features] = {name: {} for name in measured}
    for table in tables:
        rows = {name: {**row, **table.get(name, {})} for name, row in rows.items()}
    custom, of_outcomes = (tuple(name for hook in some for name in hook.units) for some in (hooks, fitted))
    return FeatureTable(rows, custom, of_outcomes)


def fit_heads(
    work: WorkFolders,
    features: Mapping[str, Features],
    jobs: int = 1,
    code: Code | None = None,
    device: str = "auto",
    masks: str = OUT_OF_FOLD,
) -> str:
    """Fit the heads (`heads.json`) and cross-validate them (`cross_validation.json`); returns a summary.

    Skipped for unchanged features, clinical variables, outcomes and splits. The heads of `code` are more candidates;
    their files are written beside `heads.json`. Its features are measured on the masks of `features`; those that are
    fitted to outcomes are fitted on `device`, measured out-of-fold, and left out of the cross-validations. `masks` is
    noted in the heads.
    """
    heads, hooks = None, custom_features(code)
    if code:
        heads = CustomHeads(code, code.find_classes(HEAD))
        code.check_used()
    cases = [case for case in read_cases(work) if case.patient_id in features]
    table = complete_features(work, cases, features, hooks, jobs, device)
    targets = [with_custom_features(target, table.custom, table.fitted) for target in targets_of(edition_of(work))]
    targets = targets if heads is None else [with_custom_heads(target, heads) for target in targets]
    stored = load_cross_validation(work) if work.heads_json.is_file() else None
    if stored is None or stored.made_from != heads_key(work, cases, heads.record() if heads else {}):
        _fit(work, cases, table, targets, heads, jobs if len(cases) >= LEAST_FOR_PROCESSES else 1, masks)
    return summary(read_heads(work), read_cross_validation(work), targets)


def _fit(
    work: WorkFolders,
    cases: Sequence[ReleaseCase],
    table: FeatureTable,
    targets: Sequence[Target],
    heads: CustomHeads | None,
    jobs: int,
    masks: str,
) -> None:
    code, seed = heads.record() if heads else {}, read_splits(work).seed
    save = None if heads is None else partial(heads.saved, folder=work.custom_heads)
    with cube_files(work, cases, () if heads is None else heads.cube_sizes(), jobs) as images:
        cohorts = [(target, cohort_of(target, cases, table.rows, images)) for target in targets]
        fitted = fit_all(cohorts, seed, jobs, save)
        document = cross_validations(cohorts, seed, fitted.why_not, jobs)
    smallest = smallest_lesions_of(work)
    records = {n: HeadRecord(**dict(one), smallest_lesions=smallest, masks=masks) for n, one in fitted.heads.items()}
    write_json(work.heads_json, {name: record.model_dump(mode="json") for name, record in records.items()})
    made_from = {"made_from": heads_key(work, cases, code)} | ({"custom": code} if code else {})
    write_json(work.cross_validation_json, document.model_copy(update=made_from).as_json())


def heads_key(work: WorkFolders, cases: Sequence[ReleaseCase], custom: Mapping[str, str] | None = None) -> str:
    """Digest of the inputs of the heads; `custom` holds the sha256 of the code of each entrant's head."""
    families = [
        one for target in targets_of(edition_of(work)) for one in (*target.families, *target.comparators.values())
    ]
    models = [[one.name, one.transforms, one.settings, one.least_scarce] for one in families]
    made_from = {"cases": [case.as_json() for case in cases], "seed": read_splits(work).seed, "version": FORMAT_VERSION}
    made_from |= {"features": features_version(smallest_lesions_of(work)), "models": models, **fits_stamp(work)}
    made_from |= {"custom": dict(custom)} if custom else {}
    return key_of(work, (work.features_json,), made_from | custom_features_stamp(work))


def heads_are_current(work: WorkFolders) -> bool:
    """False if another version fitted the heads, or masks, patients or fitted features have changed since."""
    document = load_cross_validation(work)
    if document is None or not work.features_json.is_file():
        return False
    return document.made_from == heads_key(work, read_cases(work), document.custom)


def check_heads(work: WorkFolders) -> None:
    """Raise HecktorError unless the heads are current."""
    for path in (work.heads_json, work.cross_validation_json):
        work.read(path)  # names the step without which there is none
    if not heads_are_current(work):
        raise HecktorError(work.heads_json.name, OUTDATED, "`hecktor train heads` again")
