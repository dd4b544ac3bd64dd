"""An entrant's own features: measured on stored masks, or fitted to outcomes over the folds and measured out-of-fold.

Nothing is segmented again, and an interrupted run is resumed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from tqdm import tqdm

from algorithm.heads.cube import CHANNELS
from algorithm.heads.documents import Features, Head
from algorithm.heads.feature_hook import FOLDER, FeatureHook, find_hooks, folds_in
from algorithm.heads.measure import clinical_features, clinical_names
from baseline.cache import Sources, cache, key_of, keys_of, load_cached, map_items
from baseline.heads.cubes import PatientCubes, cut_cubes, images_of
from baseline.network.nnunet import explain_failures
from baseline.preparation import edition_of
from baseline.release.cases import ReleaseCase, head_answers, image_paths
from baseline.release.splits import read_splits, seed_of
from baseline.work import WorkFolders
from contract.code import Code
from contract.documents import Document, read_document
from contract.errors import HecktorError, ModelPackageError
from contract.io.files import atomic_folder, write_json

# Increment when fits to the same images, masks and outcomes give other features.
_FITTED_VERSION: Final = 3
# Increment when the same masks, images and code give other features.
_MEASURED_VERSION: Final = 1
# A network that normalises over batches fails with fewer.
_LEAST_PATIENTS: Final = 4
_RESULT: Final = "features.json"
_IF_FULL: Final = "a GPU or RAM with more free memory, or smaller cubes or batches in your code"
_IF_LOST: Final = "a device that answers; the same command goes on with the unfinished folds"


class FoldFeatures(Document):
    """Out-of-fold features of the fitted folds.

    Attributes:
        key: digest of everything that they are made from.
        code: sha256 of the folder of code.
        features: the features by patient ID.
    """

    key: str
    code: str
    features: Mapping[str, Features]


def fit_over_folds(
    work: WorkFolders, cases: Sequence[ReleaseCase], hook: FeatureHook, device: str = "auto", jobs: int = 1
) -> dict[str, Features]:
    """Fit a hook on all folds but one, for each fold, and measure the held-out patients; features by patient ID.

    Finished folds of the same masks, images, outcomes and code are skipped.

    Raises:
        ModelPackageError: the class lacks something that a fit needs, or its code fails.
        HecktorError: a fold has too few patients, or the device does not answer, is full or is lost.
    """
    from algorithm.network.devices import as_inference, device_named

    voxels, spacing_mm = hook.hook.cube
    names, margin = list(hook.units), getattr(hook.hook, "margin", 0)
    folds, key, root = read_splits(work).folds, _key(work, cases, hook), _root(work, hook.name)
    if waiting := [n for n in range(len(folds)) if not _is_done(root, n, key)]:
        card = device_named(device)
        with explain_failures(hook.title, _IF_FULL, _IF_LOST):
            known, cubes = cut_cubes(work, cases, voxels + 2 * margin, spacing_mm, jobs)
        least = min(len({case.patient_id for case in known} - set(fold)) for fold in folds)
        if least < _LEAST_PATIENTS:
            found = f"{least} training patients with a tumour and a PET in a fold"
            raise HecktorError(hook.title, found, f"at least {_LEAST_PATIENTS}")
        (root / _RESULT).unlink(missing_ok=True)  # after an interruption, folds may differ in code or inputs
        _forget_folds(work, hook.name, len(folds))
        for fold in tqdm(waiting, desc=hook.title, unit="fold"):
            with explain_failures(f"{hook.title}, fold {fold}", _IF_FULL, _IF_LOST), as_inference(card):
                _fit_fold(work, fold, key, (known, cubes), hook, str(card))
    features: dict[str, Features] = {case.patient_id: dict.fromkeys(names) for case in cases}
    for fold in range(len(folds)):
        features |= load_cached(_record(root, fold), key)
    content = FoldFeatures(key=key, code=hook.code.digest(hook.name), features=features)
    write_json(root / _RESULT, content.model_dump(mode="json"))
    return features


def _fit_fold(
    work: WorkFolders,
    fold: int,
    key: str,
    patients: tuple[list[ReleaseCase], Any],
    hook: FeatureHook,
    device: str,
) -> None:
    (cases, cubes), splits, edition = patients, read_splits(work), edition_of(work)
    held = set(splits.folds[fold])
    train = np.array([n for n, case in enumerate(cases) if case.patient_id not in held], dtype=np.int64)
    some, root = [cases[n] for n in train], _root(work, hook.name)
    rows = [clinical_features(case.patient, edition.clinical) for case in cases]
    ids = [case.patient_id for case in some]
    clinical = pd.DataFrame([rows[n] for n in train], ids, list(clinical_names(edition.clinical)), np.float64)
    _record(root, fold).unlink(missing_ok=True)  # it describes earlier files
    with atomic_folder(root / f"fold_{fold}") as folder:
        given = PatientCubes(cubes, train), clinical, outcomes_table(work, some)
        _called(hook, "fit", hook.hook.fit, folder, device, *given, seed_of(splits.seed, fold, hook.name))
        if not any(path.is_file() for path in folder.rglob("*")):  # a package keeps files alone
            expected = "files in the folder that it is given"
            raise ModelPackageError(f"features {hook.reference}: fit", "found no file", expected)
    instance = _called(hook, "made", hook.make_instance, root / f"fold_{fold}", device)
    margin = getattr(hook.hook, "margin", 0)
    inner = slice(margin, cubes.shape[-1] - margin)
    features = {}
    for n, case in enumerate(cases):
        if case.patient_id in held:
            cube = cubes[n, :CHANNELS, inner, inner, inner].astype(np.float32)
            measure = partial(hook.measure_cube, instance, cube, rows[n], device)
            features[case.patient_id] = _called(hook, "measure", measure)
    cache(_record(root, fold), key, features)


def _called(hook: FeatureHook, step: str, function: Callable[..., Any], *values: Any) -> Any:
    """Call the hook's code; our own errors and those of a device are raised as they are."""
    from algorithm.network.devices import is_device_failure

    def passes(problem: BaseException) -> bool:
        return isinstance(problem, HecktorError) or is_device_failure(problem)

    return hook.call(step, function, *values, passes=passes)


def outcomes_table(work: WorkFolders, cases: Sequence[ReleaseCase]) -> pd.DataFrame:
    """Outcomes of patients, NaN where missing: `rfs_days` and `rfs_event` of a risk, the number of a class."""
    columns: dict[str, list[float]] = {}
    for answer in head_answers(edition_of(work)):
        known = [case.outcome(answer) if case.has(answer) else None for case in cases]
        if answer.kind == "risk":
            days = [case.outcomes.get(answer.columns["time"]) if case.has(answer) else None for case in cases]
            columns[f"{answer.name}_days"] = [np.nan if one is None else float(str(one)) for one in days]
            columns[f"{answer.name}_event"] = [np.nan if one is None else float(bool(one)) for one in known]
        else:
            columns[answer.name] = [np.nan if one is None else float(answer.classes.index(one)) for one in known]
    return pd.DataFrame(columns, [case.patient_id for case in cases], dtype=np.float64)


def load_fitted_hooks(root: Path, heads: Iterable[Head], code: Code) -> list[FeatureHook]:
    """The hooks that measure features of these heads, with the fitted files in the folder `root`."""
    hooks = find_hooks(root, heads, code)
    return [hook for hook in hooks if not hook.folds or (root / FOLDER / hook.name / _RESULT).is_file()]


def fits_stamp(work: WorkFolders) -> dict[str, Any]:
    """The fitted features' part of the heads' cache key; empty without any."""
    keys = {name: content.key for name, content in _results(work).items()}
    return {"fitted": keys} if keys else {}


def code_of_fits(work: WorkFolders) -> dict[str, str]:
    """The sha256 of the code of each entrant's fitted features, by its folder."""
    return {name: content.code for name, content in _results(work).items()}


def forget_other_fits(work: WorkFolders, hooks: Sequence[FeatureHook]) -> None:
    """Remove the results of code that is not among these hooks; the fitted files of its folds stay."""
    for name in _results(work).keys() - {hook.name for hook in hooks}:
        (_root(work, name) / _RESULT).unlink()


def _forget_folds(work: WorkFolders, name: str, number: int) -> None:
    """Remove the files of folds beyond the first `number`: of splits with more folds, which a package must not hold."""
    kept = {f"fold_{fold}" for fold in range(number)}
    for folder in folds_in(work.heads_json.parent, name):
        if folder.name not in kept:
            shutil.rmtree(folder)


def _results(work: WorkFolders) -> dict[str, FoldFeatures]:
    paths = sorted((work.heads_json.parent / FOLDER).glob(f"*/{_RESULT}"))
    return {path.parent.name: read_document(path, FoldFeatures) for path in paths}


def _root(work: WorkFolders, name: str) -> Path:
    """The folder of a hook's files, beside the heads."""
    return work.heads_json.parent / FOLDER / name


def _record(root: Path, fold: int) -> Path:
    """The file with the features of a fold's held-out patients; it is written after the fold's files."""
    return root / f"fold_{fold}.json"


def _is_done(root: Path, fold: int, key: str) -> bool:
    return (root / f"fold_{fold}").is_dir() and load_cached(_record(root, fold), key) is not None


def _key(work: WorkFolders, cases: Sequence[ReleaseCase], hook: FeatureHook) -> str:
    """A digest of all inputs of a fit."""
    files = [path for case in cases for path in (*image_paths(work.raw, case), work.mask(case.patient_id))]
    columns = [column for answer in head_answers(edition_of(work)) for column in answer.columns.values()]
    patients = [
        [case.patient_id, case.patient.as_json(), *(str(case.outcomes.get(column)) for column in columns)]
        for case in cases
    ]
    splits = read_splits(work)
    made_from = {"code": hook.code.digest(hook.name), "seed": splits.seed, "folds": splits.folds, "patients": patients}
    return key_of(work, files, made_from | {"version": _FITTED_VERSION})


class CustomFeatureRow(Document):
    """One patient's own features, and the digest of the inputs that they were measured on."""

    key: str
    features: dict[str, float | None]


class CustomFeatureTable(Document):
    """The own features of a cohort, `custom_features.json`.

    Attributes:
        code: sha256 of each folder of code, by its name.
        rows: features by patient ID.
    """

    code: dict[str, str]
    rows: dict[str, CustomFeatureRow]


def measure_custom_features(
    work: WorkFolders, cases: Sequence[ReleaseCase], hooks: Sequence[FeatureHook], jobs: int = 1
) -> dict[str, Features]:
    """The features of the entrant's classes by patient ID; empty without one.

    They are measured on the masks that the heads are fitted on, after postprocessing. Patients with unchanged masks,
    images and code are not measured again. Without a class the stored features are removed.

    Raises:
        HecktorError: the entrant's code fails on a patient, or a feature is missing for every patient.
    """
    if not hooks:
        work.custom_features_json.unlink(missing_ok=True)
        return {}
    units = {name: unit for hook in hooks for name, unit in hook.units.items()}
    digests = {hook.name: hook.code.digest(hook.name) for hook in hooks}
    stored, keys = _stored(work), keys_of(work, {case.patient_id: _sources(work, case, digests) for case in cases})
    rows = {} if stored is None else {name: row for name, row in stored.rows.items() if keys.get(name) == row.key}
    waiting = [case for case in cases if case.patient_id not in rows]
    for name, features in map_items(partial(_measure, work=work, hooks=hooks), waiting, jobs, "measure own features"):
        rows[name] = CustomFeatureRow(key=keys[name], features=features)
    table = CustomFeatureTable(code=digests, rows={name: rows[name] for name in keys})
    for name in units:
        if all(row.features[name] is None for row in table.rows.values()):
            raise HecktorError(f"feature {name}", f"found missing for all {len(cases)} patients", "a value for some")
    if table != stored:
        write_json(work.custom_features_json, table.model_dump(mode="json"))
    return {name: row.features for name, row in table.rows.items()}


def custom_features_stamp(work: WorkFolders) -> dict[str, Any]:
    """The own features' part of the heads' key; empty if there are none."""
    table = _stored(work)
    return {} if table is None else {"custom_features": {name: row.key for name, row in table.rows.items()}}


def code_of_features(work: WorkFolders) -> dict[str, str]:
    """The sha256 of each folder of code that measured the stored own features, by its name."""
    table = _stored(work)
    return {} if table is None else table.code


def _stored(work: WorkFolders) -> CustomFeatureTable | None:
    path = work.custom_features_json
    return read_document(path, CustomFeatureTable) if path.is_file() else None


def _sources(work: WorkFolders, case: ReleaseCase, digests: Mapping[str, str]) -> Sources:
    clinical = clinical_features(case.patient, edition_of(work).clinical)
    made_from = {"version": _MEASURED_VERSION, "code": dict(digests), "clinical": clinical}
    return (*image_paths(work.raw, case), work.mask(case.patient_id), case.dose), made_from


def _measure(case: ReleaseCase, work: WorkFolders, hooks: Sequence[FeatureHook]) -> tuple[str, dict[str, float | None]]:
    images = images_of(case, work)
    try:
        return case.patient_id, {name: value for hook in hooks for name, value in hook.measure_features(images).items()}
    except HecktorError as problem:
        raise HecktorError(f"patient {case.patient_id}, {problem.what}", problem.found, problem.expected) from problem
