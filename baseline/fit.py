"""Fit and cross-validate the heads on the complete table of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from algorithm.heads.documents import Features
from algorithm.heads.feature_hook import FEATURES, FeatureHook, custom_features
from algorithm.heads.head_hook import HEAD
from baseline.fitted_features import check_fits, fit_over_folds
from baseline.heads.cubes import cube_files
from baseline.heads.custom_features import code_of_features, measure_custom_features
from baseline.heads.document import cross_validation_document, summary
from baseline.heads.fitting import OUT_OF_FOLD, cohort_of, fit_all
from baseline.heads.models.custom import CustomHeads, with_custom_heads
from baseline.heads.models.kinds import Target
from baseline.heads.models.targets import targets_of, with_custom_features
from baseline.heads.record import checked_document, read_cross_validation, stored_cross_validation
from baseline.release.cases import ReleaseCase, read_cases
from baseline.release.record import edition_of, read_preparation
from baseline.release.splits import read_splits
from baseline.report.report import heads_key
from baseline.work import WorkFolders
from contract.code import Code
from contract.errors import HecktorError
from contract.files import write_json
from contract.patient import listed

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
    check_fits(work, hooks)
    plain, fitted = ([hook for hook in hooks if hook.is_fitted is kind] for kind in (False, True))
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
        heads = CustomHeads(code, code.offered(HEAD))
        code.check_used()
    cases = [case for case in read_cases(work) if case.patient_id in features]
    table = complete_features(work, cases, features, hooks, jobs, device)
    targets = [with_custom_features(target, table.custom, table.fitted) for target in targets_of(edition_of(work))]
    targets = targets if heads is None else [with_custom_heads(target, heads) for target in targets]
    stored = stored_cross_validation(work) if work.heads_json.is_file() else None
    if stored is None or stored.made_from != heads_key(work, cases, heads.record() if heads else {}):
        _fit(work, cases, table, targets, heads, jobs if len(cases) >= LEAST_FOR_PROCESSES else 1, masks)
    return summary(work.read(work.heads_json), read_cross_validation(work).as_json(), targets)


def _fit(
    work: WorkFolders,
    cases: Sequence[ReleaseCase],
    table: FeatureTable,
    targets: Sequence[Target],
    heads: CustomHeads | None,
    jobs: int,
    masks: str,
) -> None:
    record, seed = heads.record() if heads else {}, read_splits(work).seed
    save = None if heads is None else partial(heads.saved, folder=work.own_heads)
    with cube_files(work, cases, () if heads is None else heads.cube_sizes(), jobs) as images:
        cohorts = [(target, cohort_of(target, cases, table.rows, images)) for target in targets]
        fitted = fit_all(cohorts, seed, jobs, save).measured_on(masks, read_preparation(work).smallest_lesions)
        document = cross_validation_document(cohorts, seed, fitted.why_not, jobs)
    write_json(work.heads_json, fitted.as_json())
    document |= {"made_from": heads_key(work, cases, record)} | ({"own": record} if record else {})
    write_json(work.cross_validation_json, checked_document(document).as_json())


def check_replaceable_heads(work: WorkFolders, code: Code) -> None:
    """Refuse to replace heads that were fitted with an entrant's heads or features by ones without these."""
    stored = stored_cross_validation(work)
    before = {
        *(() if stored is None else stored.own),
        *(FeatureHook(code, one).reference for one in code_of_features(work)),
    }
    if lost := sorted(before - {*code.offered(HEAD), *code.offered(FEATURES)}):
        expected = "the same --code, or `hecktor train heads` without it before"
        raise HecktorError("--code", f"found no {listed(lost)}, which the heads had before", expected)
