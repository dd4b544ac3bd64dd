"""Fitting and cross-validation of the heads on the complete table of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from algorithm.heads.documents import Features
from algorithm.heads.feature_hook import list_feature_hooks
from algorithm.heads.head_hook import HEAD
from algorithm.heads.measure import compute_features_version
from baseline.cache import compute_key
from baseline.heads.cross_validation import cross_validate_targets
from baseline.heads.fitting import OUT_OF_FOLD_MASKS, FittedHead, HeadRecord, fit_targets, make_cohort, read_heads
from baseline.heads.models.custom import CustomHeads, with_custom_heads
from baseline.heads.models.selection import Family
from baseline.heads.models.targets import make_targets, with_custom_features
from baseline.heads.record import (
    FORMAT_VERSION,
    CrossValidation,
    load_cross_validation,
    read_cross_validation,
    summarise_heads,
)
from baseline.own_features import (
    fit_over_folds,
    make_custom_features_stamp,
    make_fits_stamp,
    measure_custom_features,
    remove_other_fits,
    write_cube_files,
)
from baseline.release.cases import ReleaseCase, read_cases
from baseline.release.splits import read_splits
from baseline.work import WorkFolders, read_min_lesion_sizes, read_training_edition
from contract.code import Code
from contract.errors import HecktorError
from contract.io.files import write_json

# Message about heads that must be fitted again.
OUTDATED: Final = "fitted by another version, or before masks, patients or fitted features changed"
# With fewer patients, fitting the heads takes less time than starting processes.
MIN_PATIENTS_FOR_PROCESSES: Final = 40


def fit_heads(
    work: WorkFolders,
    features: Mapping[str, Features],
    *,
    jobs: int = 1,
    code: Code | None = None,
    device: str = "auto",
    masks: str = OUT_OF_FOLD_MASKS,
) -> str:
    """Fit the heads (`heads.json`) and cross-validate them (`cross_validation.json`).

    Nothing is fitted if features, clinical variables, outcomes and splits have not changed. Custom features are
    measured on the masks of `features`. Custom features that are fitted to outcomes are fitted on `device`, measured
    out-of-fold, and left out of the cross-validations.

    Args:
        work: Working directory.
        features: Features of the masks by patient ID.
        jobs: Number of processes.
        code: Custom code, whose heads are further candidates. Their files are written next to `heads.json`.
        device: Device on which custom features are fitted.
        masks: Source of the masks, which is recorded in the heads.

    Returns:
        A summary of the heads, as several lines of text.
    """
    hooks = list_feature_hooks(code)
    heads = None
    if code:
        heads = CustomHeads(code, code.find_classes(HEAD))
        code.check_used()
    cases = [case for case in read_cases(work) if case.patient_id in features]

    fitted_hooks = [hook for hook in hooks if hook.is_fitted]
    remove_other_fits(work, fitted_hooks)
    tables = [features]
    tables.append(measure_custom_features(work, cases, [hook for hook in hooks if not hook.is_fitted], jobs))
    tables += [fit_over_folds(work, cases, hook, device, jobs) for hook in fitted_hooks]
    rows = {name: {key: value for table in tables for key, value in table.get(name, {}).items()} for name in features}

    custom_names = [name for hook in hooks for name in hook.units]
    fitted_names = [name for hook in fitted_hooks for name in hook.units]
    targets = [
        with_custom_features(target, custom_names, fitted_names) for target in make_targets(read_training_edition(work))
    ]
    targets = targets if heads is None else [with_custom_heads(target, heads) for target in targets]

    digests = heads.compute_digests() if heads else {}
    made_from = compute_heads_key(work, cases, digests)
    stored = load_cross_validation(work) if work.heads_json.is_file() else None
    if stored is None or stored.made_from != made_from:
        jobs = jobs if len(cases) >= MIN_PATIENTS_FOR_PROCESSES else 1
        seed = read_splits(work).seed
        save = None if heads is None else partial(heads.save_heads, folder=work.custom_heads)
        with write_cube_files(work, cases, () if heads is None else heads.list_cube_sizes(), jobs) as images:
            cohorts = [(target, make_cohort(target, cases, rows, images)) for target in targets]
            fitted = fit_targets(cohorts, seed, jobs, save)
            document = cross_validate_targets(cohorts, seed, fitted.why_not, jobs)
        update = {"made_from": made_from} | ({"custom": digests} if digests else {})
        _write_heads(work, fitted.heads, document.model_copy(update=update), masks)
    return summarise_heads(read_heads(work), read_cross_validation(work), targets)


def _write_heads(work: WorkFolders, heads: Mapping[str, FittedHead], document: CrossValidation, masks: str) -> None:
    sizes = read_min_lesion_sizes(work)
    records = {name: HeadRecord(**dict(head), smallest_lesions=sizes, masks=masks) for name, head in heads.items()}
    write_json(work.heads_json, {name: record.model_dump(mode="json") for name, record in records.items()})
    write_json(work.cross_validation_json, document.as_json())


def compute_heads_key(work: WorkFolders, cases: Sequence[ReleaseCase], custom: Mapping[str, str] | None = None) -> str:
    """Compute a digest of the inputs of the heads; `custom` has the sha256 of each custom head's code."""
    families: list[Family] = []
    for target in make_targets(read_training_edition(work)):
        families += [*target.families, *target.comparators.values()]
    models = [[family.name, family.transforms, family.settings, family.min_scarce] for family in families]
    made_from = {"cases": [case.as_json() for case in cases], "seed": read_splits(work).seed, "version": FORMAT_VERSION}
    made_from |= {
        "features": compute_features_version(read_min_lesion_sizes(work)),
        "models": models,
        **make_fits_stamp(work),
    }
    made_from |= {"custom": dict(custom)} if custom else {}
    return compute_key(work, (work.features_json,), made_from | make_custom_features_stamp(work))


def heads_are_current(work: WorkFolders) -> bool:
    """Return whether this version fitted the heads to the present masks, patients and fitted features."""
    document = load_cross_validation(work)
    if document is None or not work.features_json.is_file():
        return False
    return document.made_from == compute_heads_key(work, read_cases(work), document.custom)


def check_heads(work: WorkFolders) -> None:
    """Check that the heads are current; otherwise raise `HecktorError`."""
    for path in (work.heads_json, work.cross_validation_json):
        work.read(path)  # its error names the step that writes the file
    if not heads_are_current(work):
        raise HecktorError(work.heads_json.name, OUTDATED, "`hecktor train heads` again")
