"""Custom features, measured on stored masks or fitted to outcomes over the folds, and the images for custom code.

Nothing is segmented again, and an interrupted run is resumed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from tqdm import tqdm

from algorithm.heads.documents import Features, Head
from algorithm.heads.feature_hook import (
    CUBE_CHANNELS,
    FOLDER,
    FeatureHook,
    FeatureImages,
    find_hooks,
    list_fold_folders,
)
from algorithm.heads.measure import clinical_features, clinical_names
from algorithm.region.grids import resample_mask
from baseline.cache import Sources, compute_key, compute_keys, load_cached, map_items, store_cached
from baseline.network.nnunet import explain_failures
from baseline.release.cases import ReleaseCase, image_paths, list_head_specs
from baseline.release.splits import derive_seed, read_splits
from baseline.work import WorkFolders, read_training_edition
from contract.code import Code
from contract.documents import Document, read_document
from contract.errors import HecktorError, ModelPackageError
from contract.images.volumes import read_volume
from contract.io.files import atomic_folder, write_json
from contract.packages import CHANNELS

# Increment when fits to the same images, masks and outcomes give other features.
_FITTED_VERSION: Final = 3
# Increment when the same masks, images and code give other features.
_MEASURED_VERSION: Final = 1
# A network that normalises over batches fails with fewer patients.
_MIN_PATIENTS: Final = 4
_RESULT: Final = "features.json"
_IF_FULL: Final = "a GPU or RAM with more free memory, or smaller cubes or batches in your code"
_IF_LOST: Final = "a working device; the same command continues with the unfinished folds"

_Cubes = npt.NDArray[np.float16]


class FoldFeatures(Document):
    """Out-of-fold features that were fitted over the folds.

    Attributes:
        key: Digest of all inputs.
        code: sha256 of the folder of code.
        features: Features by patient ID.
    """

    key: str
    code: str
    features: Mapping[str, Features]


def fit_over_folds(
    work: WorkFolders, cases: Sequence[ReleaseCase], hook: FeatureHook, device: str = "auto", jobs: int = 1
) -> dict[str, Features]:
    """Fit a hook without each fold in turn, and measure the held-out patients; return features by patient ID.

    Finished folds of the same masks, images, outcomes and code are skipped.

    Raises:
        ModelPackageError: The class has no method or attribute that a fit needs, or its code fails.
        HecktorError: A fold has too few patients, or the device is unavailable, out of memory or lost.
    """
    from algorithm.network.devices import find_device, use_inference_settings

    names, (voxels, spacing_mm) = list(hook.units), hook.hook.cube
    folds, key, root = read_splits(work).folds, _compute_fit_key(work, cases, hook), _hook_folder(work, hook.name)
    if waiting := [fold for fold in range(len(folds)) if not _is_done(root, fold, key)]:
        card = find_device(device)
        margin = getattr(hook.hook, "margin", 0)
        with explain_failures(hook.title, _IF_FULL, _IF_LOST):
            usable_cases, cubes = cut_cubes(work, cases, voxels + 2 * margin, spacing_mm, jobs)
        smallest = min(len({case.patient_id for case in usable_cases} - set(fold)) for fold in folds)
        if smallest < _MIN_PATIENTS:
            problem = f"{smallest} training patients with a tumour and a PET in a fold"
            raise HecktorError(hook.title, problem, f"at least {_MIN_PATIENTS}")
        (root / _RESULT).unlink(missing_ok=True)  # after an interruption, folds may differ in code or inputs
        _remove_extra_folds(work, hook.name, len(folds))
        for fold in tqdm(waiting, desc=hook.title, unit="fold"):
            with explain_failures(f"{hook.title}, fold {fold}", _IF_FULL, _IF_LOST), use_inference_settings(card):
                features = _fit_fold(work, fold, (usable_cases, cubes), hook, str(card))
                store_cached(_record_path(root, fold), key, features)
    features = {case.patient_id: dict.fromkeys(names) for case in cases}
    for fold in range(len(folds)):
        features |= load_cached(_record_path(root, fold), key)
    content = FoldFeatures(key=key, code=hook.code.digest(hook.name), features=features)
    write_json(root / _RESULT, content.model_dump(mode="json"))
    return features


def _fit_fold(
    work: WorkFolders, fold: int, patients: tuple[list[ReleaseCase], Any], hook: FeatureHook, device: str
) -> dict[str, Features]:
    """Fit a hook without a fold, and measure the fold's patients; `patients` are the cases and their cubes."""
    cases, cubes = patients
    splits, edition, root = read_splits(work), read_training_edition(work), _hook_folder(work, hook.name)
    held_out = set(splits.folds[fold])
    train = np.array([number for number, case in enumerate(cases) if case.patient_id not in held_out], dtype=np.int64)
    train_cases = [cases[number] for number in train]
    rows = [clinical_features(case.patient, edition.clinical) for case in cases]
    ids = [case.patient_id for case in train_cases]
    clinical = pd.DataFrame([rows[n] for n in train], ids, list(clinical_names(edition.clinical)), np.float64)
    outcomes = make_outcomes_table(work, train_cases)
    seed = derive_seed(splits.seed, fold, hook.name)
    _record_path(root, fold).unlink(missing_ok=True)  # it describes earlier files
    with atomic_folder(root / f"fold_{fold}") as folder:
        _call_hook(hook, "fit", hook.hook.fit, folder, device, PatientCubes(cubes, train), clinical, outcomes, seed)
        if not any(path.is_file() for path in folder.rglob("*")):  # a package has files, but no empty folders
            expected = "files in the folder that is passed to it"
            raise ModelPackageError(f"features {hook.reference}: fit", "found no file", expected)
    model = _call_hook(hook, "__init__", hook.make_instance, root / f"fold_{fold}", device)
    margin = getattr(hook.hook, "margin", 0)
    inner = slice(margin, cubes.shape[-1] - margin)
    features = {}
    for number, case in enumerate(cases):
        if case.patient_id in held_out:
            cube = cubes[number, :CUBE_CHANNELS, inner, inner, inner].astype(np.float32)
            measure = partial(hook.measure_cube, model, cube, rows[number], device)
            features[case.patient_id] = _call_hook(hook, "measure", measure)
    return features


def _call_hook(hook: FeatureHook, step: str, function: Callable[..., Any], *values: Any) -> Any:
    """Call the hook's code; a `HecktorError` and a failure of the device are raised unchanged."""
    from algorithm.network.devices import is_device_failure

    def should_propagate(problem: BaseException) -> bool:
        return isinstance(problem, HecktorError) or is_device_failure(problem)

    return hook.call(step, function, *values, should_propagate=should_propagate)


def make_outcomes_table(work: WorkFolders, cases: Sequence[ReleaseCase]) -> pd.DataFrame:
    """Make the table of outcomes: `rfs_days` and `rfs_event` of a risk, the number of a class; NaN is missing."""
    columns: dict[str, list[float]] = {}
    for answer in list_head_specs(read_training_edition(work)):
        outcomes = [case.get_outcome(answer) if case.has_outcome(answer) else None for case in cases]
        if answer.kind == "risk":
            days = [case.outcomes.get(answer.columns["time"]) if case.has_outcome(answer) else None for case in cases]
            columns[f"{answer.name}_days"] = [np.nan if value is None else float(str(value)) for value in days]
            columns[f"{answer.name}_event"] = [np.nan if value is None else float(bool(value)) for value in outcomes]
        else:
            numbers = [None if value is None else answer.classes.index(value) for value in outcomes]
            columns[answer.name] = [np.nan if number is None else float(number) for number in numbers]
    return pd.DataFrame(columns, [case.patient_id for case in cases], dtype=np.float64)


def load_fitted_hooks(root: Path, heads: Iterable[Head], code: Code) -> list[FeatureHook]:
    """Load the hooks that measure features of these heads, with the fitted files in the folder `root`."""
    hooks = find_hooks(root, heads, code)
    return [hook for hook in hooks if not hook.folds or (root / FOLDER / hook.name / _RESULT).is_file()]


def make_fits_stamp(work: WorkFolders) -> dict[str, Any]:
    """Make the part of the heads' cache key for fitted features; empty if there are no fitted features."""
    keys = {name: content.key for name, content in _read_results(work).items()}
    return {"fitted": keys} if keys else {}


def read_fit_digests(work: WorkFolders) -> dict[str, str]:
    """Read the sha256 of the code of fitted features, by the code's folder."""
    return {name: content.code for name, content in _read_results(work).items()}


def remove_other_fits(work: WorkFolders, hooks: Sequence[FeatureHook]) -> None:
    """Remove the results of code that is not among these hooks; the fitted files of the folds remain."""
    for name in _read_results(work).keys() - {hook.name for hook in hooks}:
        (_hook_folder(work, name) / _RESULT).unlink()


def _remove_extra_folds(work: WorkFolders, name: str, number: int) -> None:
    """Remove the files of folds beyond the first `number`, which earlier splits had; a package must not have them."""
    current = {f"fold_{fold}" for fold in range(number)}
    for folder in list_fold_folders(work.heads_json.parent, name):
        if folder.name not in current:
            shutil.rmtree(folder)


def _read_results(work: WorkFolders) -> dict[str, FoldFeatures]:
    paths = sorted((work.heads_json.parent / FOLDER).glob(f"*/{_RESULT}"))
    return {path.parent.name: read_document(path, FoldFeatures) for path in paths}


def _hook_folder(work: WorkFolders, name: str) -> Path:
    """Return the folder of a hook's files, next to the heads."""
    return work.heads_json.parent / FOLDER / name


def _record_path(root: Path, fold: int) -> Path:
    """Return the path of the features of a fold's held-out patients, which are written after the fold's files."""
    return root / f"fold_{fold}.json"


def _is_done(root: Path, fold: int, key: str) -> bool:
    return (root / f"fold_{fold}").is_dir() and load_cached(_record_path(root, fold), key) is not None


def _compute_fit_key(work: WorkFolders, cases: Sequence[ReleaseCase], hook: FeatureHook) -> str:
    """Compute a digest of all inputs of a fit."""
    files = [path for case in cases for path in (*image_paths(work.raw, case), work.mask(case.patient_id))]
    columns = [column for answer in list_head_specs(read_training_edition(work)) for column in answer.columns.values()]
    patients = [
        [case.patient_id, case.patient.as_json(), *(str(case.outcomes.get(column)) for column in columns)]
        for case in cases
    ]
    splits = read_splits(work)
    made_from = {"code": hook.code.digest(hook.name), "seed": splits.seed, "folds": splits.folds, "patients": patients}
    return compute_key(work, files, made_from | {"version": _FITTED_VERSION})


class CustomFeatureRow(Document):
    """Custom features of one patient, and the digest of their inputs."""

    key: str
    features: dict[str, float | None]


class CustomFeatureTable(Document):
    """Custom features of a cohort, `custom_features.json`.

    Attributes:
        code: sha256 of each folder of code, by its name.
        rows: Features by patient ID.
    """

    code: dict[str, str]
    rows: dict[str, CustomFeatureRow]


def measure_custom_features(
    work: WorkFolders, cases: Sequence[ReleaseCase], hooks: Sequence[FeatureHook], jobs: int = 1
) -> dict[str, Features]:
    """Measure custom features on the masks of the heads; return features by patient ID, empty without hooks.

    Patients with unchanged masks, images and code are not measured again. Without hooks the stored features are
    removed.

    Raises:
        HecktorError: The custom code fails on a patient, or a feature is missing for every patient.
    """
    if not hooks:
        work.custom_features_json.unlink(missing_ok=True)
        return {}
    units = {name: unit for hook in hooks for name, unit in hook.units.items()}
    digests = {hook.name: hook.code.digest(hook.name) for hook in hooks}
    stored = _read_stored(work)
    keys = compute_keys(work, {case.patient_id: _list_sources(work, case, digests) for case in cases})
    rows = {} if stored is None else {name: row for name, row in stored.rows.items() if keys.get(name) == row.key}
    waiting = [case for case in cases if case.patient_id not in rows]
    measure = partial(_measure, work=work, hooks=hooks)
    for name, features in map_items(measure, waiting, jobs, "measure custom features"):
        rows[name] = CustomFeatureRow(key=keys[name], features=features)
    table = CustomFeatureTable(code=digests, rows={name: rows[name] for name in keys})
    for name in units:
        if all(row.features[name] is None for row in table.rows.values()):
            raise HecktorError(f"feature {name}", f"found missing for all {len(cases)} patients", "a value for some")
    if table != stored:
        write_json(work.custom_features_json, table.model_dump(mode="json"))
    return {name: row.features for name, row in table.rows.items()}


def make_custom_features_stamp(work: WorkFolders) -> dict[str, Any]:
    """Make the part of the heads' cache key for custom features; empty if there are no custom features."""
    table = _read_stored(work)
    return {} if table is None else {"custom_features": {name: row.key for name, row in table.rows.items()}}


def read_feature_digests(work: WorkFolders) -> dict[str, str]:
    """Read the sha256 of each folder of code that measured the stored custom features, by its name."""
    table = _read_stored(work)
    return {} if table is None else table.code


def _read_stored(work: WorkFolders) -> CustomFeatureTable | None:
    path = work.custom_features_json
    return read_document(path, CustomFeatureTable) if path.is_file() else None


def _list_sources(work: WorkFolders, case: ReleaseCase, digests: Mapping[str, str]) -> Sources:
    clinical = clinical_features(case.patient, read_training_edition(work).clinical)
    made_from = {"version": _MEASURED_VERSION, "code": dict(digests), "clinical": clinical}
    return (*image_paths(work.raw, case), work.mask(case.patient_id), case.dose), made_from


def _measure(case: ReleaseCase, work: WorkFolders, hooks: Sequence[FeatureHook]) -> tuple[str, dict[str, float | None]]:
    images = read_feature_images(case, work)
    try:
        return case.patient_id, {name: value for hook in hooks for name, value in hook.measure_features(images).items()}
    except HecktorError as problem:
        raise HecktorError(f"patient {case.patient_id}, {problem.what}", problem.found, problem.expected) from problem


@dataclass(frozen=True)
class PatientCubes:
    """Cubes of some patients, shape (patients, channels, z, y, x); an index copies only the selected patients."""

    cubes: _Cubes
    rows: npt.NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.rows), *self.cubes.shape[1:])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, patients: Any) -> Any:
        return self.cubes[self.rows[patients]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.cubes[self.rows], dtype)


@dataclass(frozen=True)
class CubeFiles:
    """Cubes of patients by voxels and spacing, in files that all processes memory-map."""

    files: Mapping[tuple[int, float], tuple[Path, Mapping[str, int]]]

    def __call__(self, ids: Sequence[str], voxels: int, spacing_mm: float) -> npt.NDArray[np.float32]:
        """Read the cubes of these patients; NaN for a patient without a PET or a tumour."""
        path, rows = self.files[voxels, float(spacing_mm)]
        stored = np.load(path, mmap_mode="r")
        cubes = np.full((len(ids), *stored.shape[1:]), np.nan, np.float32)
        for number, name in enumerate(ids):
            if name in rows:
                cubes[number] = stored[rows[name]]
        return cubes


@contextmanager
def write_cube_files(
    work: WorkFolders, cases: Sequence[ReleaseCase], sizes: Iterable[tuple[int, float]], jobs: int
) -> Iterator[CubeFiles]:
    """Write the cubes of the patients to temporary files of the working directory."""
    with tempfile.TemporaryDirectory(prefix=".cubes-", dir=work.root) as folder:
        files = {}
        for number, size in enumerate(sizes):
            known, cubes = cut_cubes(work, cases, *size, jobs)
            np.save(path := Path(folder) / f"{number}.npy", cubes)
            files[size] = path, {case.patient_id: row for row, case in enumerate(known)}
        yield CubeFiles(files)


def read_feature_images(case: ReleaseCase, work: WorkFolders, *, with_dose: bool = True) -> FeatureImages:
    """Read the images of a training patient on the prepared grid."""
    from baseline.release.data_set import read_dose  # imports torch

    ct, pet = (read_volume(path, "float32") for path in image_paths(work.raw, case)[: len(CHANNELS)])
    stored = read_volume(work.mask(case.patient_id), np.uint8)
    mask = stored.array if stored.geometry == ct.geometry else resample_mask(stored, ct.geometry)
    clinical = clinical_features(case.patient, read_training_edition(work).clinical)
    dose = read_dose(case) if with_dose else None
    return FeatureImages(mask, ct.array, pet.array if pet.array.any() else None, ct.geometry, dose, clinical)


def cut_cubes(
    work: WorkFolders, cases: Sequence[ReleaseCase], voxels: int, spacing_mm: float, jobs: int
) -> tuple[list[ReleaseCase], _Cubes]:
    """Cut the cubes around the tumours, in `jobs` processes.

    The array is filled in place to save memory.

    Returns:
        The patients with a PET and a tumour in the order of `cases`, and their cubes in one array.
    """
    rows = {case.patient_id: row for row, case in enumerate(cases)}
    cubes, filled = np.zeros((0, CUBE_CHANNELS, voxels, voxels, voxels), np.float16), set[int]()
    cut = partial(_cut_cube, work=work, voxels=voxels, spacing_mm=spacing_mm)
    for name, cube in map_items(cut, cases, jobs, "cut cubes"):
        if cube is not None:
            if not filled:
                cubes = np.empty((len(cases), *cube.shape), np.float16)
            cubes[rows[name]] = cube
            filled.add(rows[name])
    for target, row in enumerate(sorted(filled)):
        if target != row:
            cubes[target] = cubes[row]
    return [cases[row] for row in sorted(filled)], cubes[: len(filled)]


def _cut_cube(case: ReleaseCase, work: WorkFolders, voxels: int, spacing_mm: float) -> tuple[str, _Cubes | None]:
    cube = read_feature_images(case, work, with_dose=False).cube(voxels, spacing_mm)
    return case.patient_id, None if cube is None else cube.astype(np.float16)
