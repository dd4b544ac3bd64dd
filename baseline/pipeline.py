"""The main path: read the release, prepare, plan, train the folds, measure out-of-fold, fit heads, export."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from algorithm.measure import Features, clinical_features
from baseline import heads as fitting
from baseline.export import export_package
from baseline.heads import FittedHead, Outcomes
from baseline.nnunet import Folders, Plan, plan_and_preprocess, train_fold
from baseline.prepare import prepare
from baseline.release import ReleaseCase, read_release
from baseline.splits import as_nnunet_splits, balanced_folds
from contract.errors import HecktorError
from contract.files import read_json, write_json

FEATURES_JSON = "features.json"


@dataclass(frozen=True)
class Settings:
    """Everything that decides what a training makes; kept in the working directory as `settings.json`."""

    cohort: str
    work: str
    folds: int = 2
    seed: int = 0
    device: str = "cpu"
    jobs: int = 2
    plan: Plan = field(default_factory=Plan)

    @property
    def folders(self) -> Folders:
        """nnU-Net's folders inside the working directory."""
        return Folders(Path(self.work) / "nnunet")


def train_all(settings: Settings, output: Path, description: Mapping[str, Any]) -> Path:
    """Make a model package from a cohort; steps that are done are not done again. Returns the package's folder."""
    cases = read_release(Path(settings.cohort))
    write_settings(settings)
    plans, folds = prepare_and_plan(settings, cases)
    train_folds_apart(settings)
    checkpoints = [train_fold_of(settings, fold) for fold in range(settings.folds)]
    rows = out_of_fold_features(settings, cases, plans, folds, checkpoints)
    fitted = fit_heads(cases, rows, settings.seed)
    return export_package(
        output,
        plans,
        checkpoints,
        {name: result.head for name, result in fitted.items()},
        {**description, **_results(settings, cases, fitted)},
    )


def prepare_and_plan(
    settings: Settings, cases: Sequence[ReleaseCase]
) -> tuple[dict[str, Any], tuple[tuple[str, ...], ...]]:
    """Prepare all patients, deal them into folds and let nnU-Net plan; returns plans and folds."""
    prepare(cases, settings.folders.raw, settings.plan.spacing_mm, settings.jobs)
    folds = balanced_folds(cases, settings.folds, np.random.default_rng(settings.seed))
    plans = plan_and_preprocess(settings.folders, settings.plan, as_nnunet_splits(folds), settings.jobs)
    return plans, folds


def train_folds_apart(settings: Settings) -> None:
    """Train all folds, each in a process of its own: at once on a CPU, one after the other on a card."""
    command = [sys.executable, "-m", "baseline", "fold", "--work", settings.work, "--fold"]
    at_once = settings.folds if settings.device == "cpu" else 1
    for first in range(0, settings.folds, at_once):
        numbers = range(first, min(first + at_once, settings.folds))
        running = [subprocess.Popen([*command, str(number)]) for number in numbers]
        try:
            for number, process in zip(numbers, running, strict=True):
                if process.wait() != 0:
                    raise HecktorError(f"training of fold {number} ended with status {process.returncode}, expected 0")
        finally:
            for process in running:
                if process.poll() is None:  # another fold failed, or the user gave up
                    process.terminate()
                    process.wait()


def train_fold_of(settings: Settings, fold: int) -> Path:
    """Train one fold to its end, or take up where it stopped; returns its final checkpoint."""
    threads = max(1, settings.jobs // settings.folds) if settings.device == "cpu" else settings.jobs
    return train_fold(settings.folders, settings.plan, fold, settings.device, threads, settings.seed)


def out_of_fold_features(
    settings: Settings,
    cases: Sequence[ReleaseCase],
    plans: Mapping[str, Any],
    folds: Sequence[Sequence[str]],
    checkpoints: Sequence[Path],
) -> dict[str, Features]:
    """Features of each patient from the mask of the fold that never saw it; kept as `features.json`."""
    from baseline.out_of_fold import measure_out_of_fold

    kept = Path(settings.work) / FEATURES_JSON
    if kept.is_file():
        rows: dict[str, Features] = json.loads(kept.read_text())
        return rows
    bare = export_package(Path(settings.work) / "bare_package", plans, checkpoints, {}, _bare(settings))
    fold_of = {patient: number for number, fold in enumerate(folds) for patient in fold}
    progress = tqdm(cases, desc="measure out-of-fold", unit="patient")
    rows = measure_out_of_fold(progress, fold_of, bare, settings.folders, settings.device)
    write_json(kept, rows)
    return rows


def fit_heads(cases: Sequence[ReleaseCase], rows: Mapping[str, Features], seed: int) -> dict[str, FittedHead]:
    """The two heads and their clinical-only comparators, each judged out-of-fold."""
    with_rfs = [case for case in cases if case.rfs_days is not None and case.relapse is not None]
    with_hpv = [case for case in cases if case.hpv is not None]
    fitted = {}
    rfs, hpv = fitting.RFS_FEATURES, fitting.HPV_FEATURES
    for name, transforms in (("rfs", rfs), ("rfs_clinical", fitting.clinical_only(rfs))):
        features = _rows(with_rfs, rows)
        fitted[name] = fitting.fit_rfs(features, _outcomes(with_rfs), transforms, np.random.default_rng(seed))
    for name, transforms in (("hpv", hpv), ("hpv_clinical", fitting.clinical_only(hpv))):
        features = _rows(with_hpv, rows)
        fitted[name] = fitting.fit_hpv(features, _outcomes(with_hpv), transforms, np.random.default_rng(seed))
    return fitted


def write_settings(settings: Settings) -> None:
    """Keep the settings; a working directory that was begun with others is refused."""
    path = Path(settings.work) / "settings.json"
    content = asdict(settings)
    if path.is_file() and read_json(path) != json.loads(json.dumps(content)):
        raise HecktorError(f"{path.name}: the working directory was begun with other settings, expected the same")
    write_json(path, content)


def read_settings(work: Path) -> Settings:
    """The settings that a working directory was begun with."""
    content = read_json(work / "settings.json")
    plan = content.pop("plan")
    plan = {key: tuple(value) if isinstance(value, list) else value for key, value in plan.items()}
    return Settings(**content, plan=Plan(**plan))


def _rows(cases: Sequence[ReleaseCase], rows: Mapping[str, Features]) -> list[Features]:
    return [{**rows[case.patient_id], **clinical_features(case.patient)} for case in cases]


def _outcomes(cases: Sequence[ReleaseCase]) -> Outcomes:
    return Outcomes(
        np.array([case.rfs_days or 0.0 for case in cases], dtype=np.float64),
        np.array([bool(case.relapse) for case in cases]),
        np.array([bool(case.hpv) for case in cases]),
    )


def _bare(settings: Settings) -> dict[str, Any]:
    axes = list(settings.plan.mirror_axes)
    return {"name": "out-of-fold", "purpose": "measuring features in training", "mirror_axes": axes}


def _results(settings: Settings, cases: Sequence[ReleaseCase], fitted: Mapping[str, FittedHead]) -> dict[str, Any]:
    centres = sorted({case.centre for case in cases})
    return {
        "mirror_axes": list(settings.plan.mirror_axes),
        "training": {
            "patients": len(cases),
            "centres": centres,
            "folds": settings.folds,
            "seed": settings.seed,
            "plan": asdict(settings.plan),
        },
        "out_of_fold": {
            name: {result.metric: round(result.out_of_fold, 4), "penalty": result.penalty}
            for name, result in fitted.items()
        },
    }
