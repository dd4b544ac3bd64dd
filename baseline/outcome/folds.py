"""Fit features to outcomes over the training folds and measure them out-of-fold; an interrupted run is resumed.

Fitted features are the outcome network and features with a `fit` in an entrant's code.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from algorithm.heads.cube import CHANNELS
from algorithm.heads.documents import Features, Head
from algorithm.heads.feature_hook import BUILT_IN, FOLDER, OUTCOME_NETWORK, FeatureHook, folds_in, hooks_in
from algorithm.heads.measure import clinical_features, clinical_names
from baseline.cache import cache, load_cached
from baseline.heads.cubes import CubesOf, cut_cubes, image_paths, mask_path, reference_path
from baseline.network.nnunet import explained_failures
from baseline.network.plans import OUTCOME_PRESETS, RiskLoss
from baseline.release.cases import ReleaseCase, head_answers, read_cases
from baseline.release.keys import key_of
from baseline.release.record import edition_of
from baseline.release.splits import read_splits, seed_of
from baseline.work import WorkFolders
from contract.code import Code
from contract.documents import Document, read_document
from contract.errors import HecktorError, ModelPackageError
from contract.files import whole_folder, write_json

# Increment when the features of the same images and masks change.
_VERSION: Final = 2
# Batch normalisation fails with fewer.
_LEAST_PATIENTS: Final = 4
_RESULT: Final = "features.json"
_IF_FULL: Final = "a GPU or RAM with more free memory, or --size small (`train all`: --outcome-network small)"
_IF_LOST: Final = "a device that answers; the same command goes on with the unfinished folds"
_Show = Callable[[str], object]


class FoldFeatures(Document):
    """Out-of-fold features of the fitted folds; `key` is a digest of everything that they are made from."""

    key: str
    settings: dict[str, Any]
    features: Mapping[str, Features]


class TooFewOutcomesError(HecktorError):
    """The release has too few patients or outcomes to fit features."""


@dataclass(frozen=True)
class OutcomeSettings:
    """Settings of an outcome network: its size, a key of `OUTCOME_PRESETS`, and those of `train_outcome`."""

    size: str
    loss: RiskLoss = "cox"
    joint: bool = False

    def __str__(self) -> str:
        return f"--size {self.size} --loss {self.loss}{' --joint' if self.joint else ''}"

    def changed(self, **given: Any) -> OutcomeSettings:
        """The settings with those that are given; None keeps one."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True)
class Fit:
    """A fitted hook, its `fit`, and the settings that determine its files.

    Cubes have `margin` additional voxels, and `with_reference` the reference mask as additional channels.
    """

    hook: FeatureHook
    fit: Callable[..., object]
    cube: tuple[int, float]
    margin: int
    settings: Mapping[str, Any]
    with_reference: bool = False


def own_fit(hook: FeatureHook) -> Fit:
    """The fit of an entrant's class. Raises `ModelPackageError` for a class whose fit would be in vain."""
    one, _ = hook.hook, hook.units
    return Fit(hook, one.fit, one.cube, getattr(one, "margin", 0), {"code": hook.code.digest(hook.name)})


def trained_outcome(work: WorkFolders) -> OutcomeSettings | None:
    """Settings of the trained outcome network; None without one, or for a size that is no longer known."""
    content = _result(work, OUTCOME_NETWORK)
    if content is None:
        return None
    settings, sizes = content.settings, [(asdict(one), name) for name, one in OUTCOME_PRESETS.items()]
    size = next((name for preset, name in sizes if preset == settings["preset"]), None)
    joint = bool(settings["plan"].get("joint"))
    return None if size is None else OutcomeSettings(size, settings.get("loss", "cox"), joint)


def train_outcome(
    work: WorkFolders,
    settings: OutcomeSettings,
    device: str = "auto",
    threads: int = 1,
    show: _Show = lambda _: None,
) -> dict[str, Features]:
    """Fit the outcome network over all folds and return its out-of-fold features by patient ID.

    Answers that cannot be learnt are left out, with a line to `show`; another line names the settings of a network that
    is replaced. `settings.loss` is the loss of risks; with `settings.joint` the network learns to segment the tumour as
    well.

    Raises:
        TooFewOutcomesError: no answer can be learnt, or a fold has too few patients.
        HecktorError: no mask of a patient, or the device does not answer, is full or is lost.
    """
    from baseline.outcome.cohort import margin_of, plan_outcome
    from baseline.outcome.trainer import OutcomeFit

    cases, size = read_cases(work), OUTCOME_PRESETS[settings.size]
    _check_masks(work, cases)
    plan, why_not = plan_outcome(edition_of(work), cases, read_splits(work), size, joint=settings.joint)
    for name, reason in why_not.items():
        show(f"outcome network without {name}: {reason}")
    if plan is None:
        raise TooFewOutcomesError("outcome network", "no outcome to learn from", "patients with outcomes")
    hook = FeatureHook(Code({}), OUTCOME_NETWORK)
    if (trained := trained_outcome(work)) is not None and trained != settings:
        show(f"outcome network: {settings} replaces the one with {trained}")
    recorded = {"plan": plan.model_dump(mode="json"), "preset": asdict(size), "loss": settings.loss}
    cube, trainer = (plan.voxels, plan.spacing_mm), OutcomeFit(plan, size, threads, settings.loss)
    fit = Fit(hook, trainer, cube, margin_of(plan), recorded, settings.joint)
    return fit_over_folds(work, cases, fit, device, threads, show)


def fit_over_folds(
    work: WorkFolders,
    cases: Sequence[ReleaseCase],
    fit: Fit,
    device: str = "auto",
    jobs: int = 1,
    show: _Show = lambda _: None,
) -> dict[str, Features]:
    """Fit a hook on all folds but one, for each fold, and measure the held-out patients; features by patient ID.

    Finished folds of the same masks, images, outcomes and settings are skipped.

    Raises:
        TooFewOutcomesError: a fold has too few patients.
        HecktorError: the hook fails, or the device does not answer, is full or is lost.
    """
    from algorithm.network.devices import as_inference, device_named

    folds, key, root = read_splits(work).folds, _key(work, cases, fit.settings), _root(work, fit.hook.name)
    waiting = [n for n in range(len(folds)) if not _is_done(root, n, key)]
    if waiting:
        card = device_named(device)
        with explained_failures(fit.hook.title, _IF_FULL, _IF_LOST):
            voxels, spacing_mm = fit.cube[0] + 2 * fit.margin, fit.cube[1]
            known, cubes = cut_cubes(work, cases, voxels, spacing_mm, jobs, with_reference=fit.with_reference)
        least = min(len({case.patient_id for case in known} - set(fold)) for fold in folds)
        if least < _LEAST_PATIENTS:
            found = f"{least} training patients with a tumour and a PET in a fold"
            raise TooFewOutcomesError(fit.hook.title, found, f"at least {_LEAST_PATIENTS}")
        (root / _RESULT).unlink(missing_ok=True)  # after an interruption, folds may differ in size or inputs
        _forget_folds(work, fit.hook.name, len(folds))
        for fold in waiting:
            with explained_failures(f"{fit.hook.title}, fold {fold}", _IF_FULL, _IF_LOST), as_inference(card):
                _fit_fold(work, fold, key, (known, cubes), fit, str(card), show)
    names = replace(fit.hook, folds=folds_in(root.parents[1], fit.hook.name)).units
    features: dict[str, Features] = {case.patient_id: dict.fromkeys(names) for case in cases}
    for fold in range(len(folds)):
        features |= load_cached(_record(root, fold), key)
    content = FoldFeatures(key=key, settings=dict(fit.settings), features=features)
    write_json(root / _RESULT, content.model_dump(mode="json"))
    return features


def _fit_fold(
    work: WorkFolders,
    fold: int,
    key: str,
    patients: tuple[list[ReleaseCase], Any],
    fit: Fit,
    device: str,
    show: _Show,
) -> None:
    (cases, cubes), splits, edition = patients, read_splits(work), edition_of(work)
    begun, held = time.monotonic(), set(splits.folds[fold])
    train = np.array([n for n, case in enumerate(cases) if case.patient_id not in held], dtype=np.int64)
    some, root = [cases[n] for n in train], _root(work, fit.hook.name)
    rows = [clinical_features(case.patient, edition.clinical) for case in cases]
    ids = [case.patient_id for case in some]
    clinical = pd.DataFrame([rows[n] for n in train], ids, list(clinical_names(edition.clinical)), np.float64)
    _record(root, fold).unlink(missing_ok=True)  # it describes earlier files
    with whole_folder(root / f"fold_{fold}") as folder:
        given = CubesOf(cubes, train), clinical, outcomes_table(work, some)
        seed = seed_of(splits.seed, fold, fit.hook.name)
        line = _called(fit.hook, "fit", fit.fit, folder, device, *given, seed)
        if not any(path.is_file() for path in folder.rglob("*")):  # a package keeps files alone
            expected = "files in the folder that it is given"
            raise ModelPackageError(f"features {fit.hook.reference}: fit", "found no file", expected)
    made = _called(fit.hook, "made", fit.hook.made, root / f"fold_{fold}", device)
    inner = slice(fit.margin, fit.margin + fit.cube[0])
    features = {}
    for n, case in enumerate(cases):
        if case.patient_id in held:
            cube = cubes[n, :CHANNELS, inner, inner, inner].astype(np.float32)
            measure = partial(fit.hook.of_cube, made, cube, rows[n], device)
            features[case.patient_id] = _called(fit.hook, "measure", measure)
    cache(_record(root, fold), key, features)
    show(f"{fit.hook.title}, fold {fold}: {f'{line} ' if line else ''}in {time.monotonic() - begun:.0f} s")


def _called(hook: FeatureHook, step: str, function: Callable[..., Any], *values: Any) -> Any:
    """Call the hook's code; our own errors, those of a built-in hook and of a device are raised as they are."""
    from algorithm.network.devices import is_device_failure

    def passes(problem: BaseException) -> bool:
        return isinstance(problem, HecktorError) or hook.is_built_in or is_device_failure(problem)

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


def outcome_features(work: WorkFolders, cases: Sequence[ReleaseCase]) -> dict[str, Features]:
    """Out-of-fold features of the outcome network by patient ID, empty if none was trained.

    Raises:
        HecktorError: it was trained on other masks, images or outcomes.
    """
    content = _result(work, OUTCOME_NETWORK)
    if content is None:
        return {}
    if content.key != _key(work, cases, content.settings):
        folder = _root(work, OUTCOME_NETWORK)
        expected = f"`hecktor train outcome` again (or remove {folder.parent.name}/{folder.name})"
        raise HecktorError("outcome network", "trained on other masks, images or outcomes", expected)
    return dict(content.features)


def fitted_hooks(root: Path, heads: Iterable[Head], code: Code) -> list[FeatureHook]:
    """The hooks that measure features of these heads, with the fitted files in the folder `root`."""
    hooks = hooks_in(root, heads, code)
    return [hook for hook in hooks if not hook.folds or (root / FOLDER / hook.name / _RESULT).is_file()]


def fits_stamp(work: WorkFolders) -> dict[str, Any]:
    """The fitted features' part of the heads' cache key; empty without any."""
    keys = {name: content.key for name, content in _results(work).items()}
    return {"fitted": keys} if keys else {}


def code_of_fits(work: WorkFolders) -> dict[str, str]:
    """The sha256 of the code of each entrant's fitted features, by its folder."""
    return {name: one.settings["code"] for name, one in _results(work).items() if name not in BUILT_IN}


def check_fits(work: WorkFolders, hooks: Sequence[FeatureHook]) -> None:
    """Refuse to go on without the code of fitted features, which would be lost.

    Raises:
        HecktorError: features of code that is not among these hooks were fitted before.
    """
    for name in sorted(code_of_fits(work).keys() - {hook.name for hook in hooks if hook.is_fitted}):
        folder = _root(work, name)
        expected = f"its folder, or {folder.parent.name}/{folder.name} removed"
        raise HecktorError("--code", f"found no {name}, whose features were fitted before", expected)


def _forget_folds(work: WorkFolders, name: str, number: int) -> None:
    """Remove the files of folds beyond the first `number`: of splits with more folds, which a package must not hold."""
    kept = {f"fold_{fold}" for fold in range(number)}
    for folder in folds_in(work.heads_json.parent, name):
        if folder.name not in kept:
            shutil.rmtree(folder)


def _results(work: WorkFolders) -> dict[str, FoldFeatures]:
    names = sorted(path.parent.name for path in (work.heads_json.parent / FOLDER).glob(f"*/{_RESULT}"))
    return {name: content for name in names if (content := _result(work, name)) is not None}


def _result(work: WorkFolders, name: str) -> FoldFeatures | None:
    path = _root(work, name) / _RESULT
    return read_document(path, FoldFeatures) if path.is_file() else None


def _root(work: WorkFolders, name: str) -> Path:
    """The folder of a hook's files, beside the heads."""
    return work.heads_json.parent / FOLDER / name


def _record(root: Path, fold: int) -> Path:
    """The file with the features of a fold's held-out patients; it is written after the fold's files."""
    return root / f"fold_{fold}.json"


def _is_done(root: Path, fold: int, key: str) -> bool:
    return (root / f"fold_{fold}").is_dir() and load_cached(_record(root, fold), key) is not None


def _check_masks(work: WorkFolders, cases: Sequence[ReleaseCase]) -> None:
    missing = [case.patient_id for case in cases if not work.mask(case.patient_id).is_file()]
    if missing:
        expected = "`hecktor train postprocess` before"
        raise HecktorError("outcome network", f"no out-of-fold mask of {missing[0]}", expected)


def _key(work: WorkFolders, cases: Sequence[ReleaseCase], settings: Mapping[str, Any]) -> str:
    """A digest of all inputs of a fit."""
    files = [path for case in cases for path in (*image_paths(work, case), mask_path(work, case))]
    if settings.get("plan", {}).get("joint"):
        files += [path for case in cases if (path := reference_path(work, case)) is not None]
    columns = [column for answer in head_answers(edition_of(work)) for column in answer.columns.values()]
    patients = [
        [case.patient_id, case.patient.as_json(), *(str(case.outcomes.get(column)) for column in columns)]
        for case in cases
    ]
    splits = read_splits(work)
    made_from = {"settings": dict(settings), "seed": splits.seed, "folds": splits.folds, "patients": patients}
    return key_of(work, files, made_from | {"version": _VERSION})
