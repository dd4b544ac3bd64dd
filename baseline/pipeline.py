"""The main path: plan, train the folds, measure out-of-fold, fit the heads, report, export; `preparing` comes before.

Each step takes what it needs from the working directory and is not done again where it is done.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from algorithm.heads.linear import LinearHead, parse_head
from algorithm.heads.measure import Features
from baseline.cache import keep, key_of, read_kept
from baseline.heads.cross_validation import FORMAT_VERSION
from baseline.heads.fitting import cohort_of, expected, fit_heads, judged, names_in_tables, said
from baseline.heads.models.targets import TARGETS
from baseline.interruption import ended_at_once
from baseline.network.jobs import remaining, shipped_jobs
from baseline.network.nnunet import plan_and_preprocess
from baseline.network.plans import CONFIGURATIONS, Plan
from baseline.package.card.card import model_card
from baseline.package.export import export_package
from baseline.release.cases import ReleaseCase
from baseline.release.data_set import DATASET_NAME
from baseline.release.splits import as_nnunet_splits
from baseline.work import Work
from contract.errors import HecktorError
from contract.files import read_json, write_json


def plan_network(work: Work, plan: Plan, jobs: int) -> Plan:
    """Let nnU-Net plan and preprocess the prepared patients; returns the plan with the prepared spacing.

    Raises:
        HecktorError: a fold was begun with another plan, other images or other splits.
    """
    plan = replace(plan, spacing_mm=tuple(work.prepared()["options"]["spacing_mm"]))
    key = work.plan_key(plan)
    if work.plan_json.is_file():
        if read_json(work.plan_json).get("key") == key:
            return plan
        if work.folders.results.is_dir() and any(work.folders.results.rglob("checkpoint_*.pth")):
            raise HecktorError(
                work.plan_json.name,
                "a fold was begun with other options, images or splits",
                "the same (or a new working directory)",
            )
        work.plan_json.unlink()
    # Of half a plan, or of another one, by which no network has come as far as a checkpoint.
    for folder in (work.folders.preprocessed / DATASET_NAME, work.training):
        shutil.rmtree(folder, ignore_errors=True)
    with_mask = [case.patient_id for case in work.cases() if case.mask is not None]
    with ended_at_once("the plan is made anew next time"):
        plan_and_preprocess(work.folders, plan, as_nnunet_splits(work.splits(), with_mask), jobs)
    write_json(work.plan_json, {"key": key, "options": asdict(plan)})
    return plan


def fit_all_heads(work: Work, device: str) -> str:
    """Measure every patient out-of-fold, fit the heads (`heads.json`) and judge them (`cross_validation.json`).

    Nothing is done again for the same features, clinical variables, outcomes and splits. Returns what to tell the user.
    """
    cases, seed = work.cases(), work.splits().seed
    rows = out_of_fold_features(work, cases, device)
    told = {"cases": [case.as_json() for case in cases], "seed": seed, "version": FORMAT_VERSION}
    key = key_of((work.features_json,), told)
    both = work.heads_json.is_file() and work.cross_validation_json.is_file()
    if not both or work.judged().get("made_from") != key:
        cohorts = [(target, cohort_of(target, cases, rows)) for target in TARGETS]
        fitted = fit_heads(cohorts, seed).also_known_as(names_in_tables(cases))
        write_json(work.heads_json, fitted.records())
        write_json(work.cross_validation_json, judged(cohorts, fitted, seed) | {"made_from": key})
    return said(work.heads(), work.judged())


def export(work: Work, output: Path, description: Mapping[str, str]) -> Path:
    """Write the model package of the trained folds and fitted heads, with its model card; returns its folder."""
    records = work.heads()
    heads = {name: parse_head(record["head"], f"heads.json, {name}") for name, record in records.items()}
    results = {
        "out_of_fold": {
            name: {record["metric"]: round(record["out_of_fold"], 4), "penalty": record["penalty"]}
            for name, record in records.items()
        },
        "cross_validation": expected(work.judged()),
    }
    card = model_card(work, description)
    return _export(work, output, heads, {**description, "training": _training(work), **results}, card)


def out_of_fold_features(work: Work, cases: Sequence[ReleaseCase], device: str) -> dict[str, Features]:
    """Features of each patient from the mask of the fold that never saw it; kept as `features.json`.

    Where a mask or its uncertainty is not there, it is made; what is kept stays what it is.
    """
    from baseline.network.out_of_fold import measure_out_of_fold

    networks = _networks_key(work)
    doses = [case.dose for case in cases]
    key = key_of(doses, {"networks": networks, "patients": [case.patient_id for case in cases]})
    kept: dict[str, Features] | None = read_kept(work.features_json, key)
    beside = [name(case.patient_id) for case in cases for name in (work.out_of_fold.mask, work.out_of_fold.uncertainty)]
    if kept is not None and all(path.is_file() for path in beside):
        return kept
    bare = partial(_bare_package, work)
    rows = measure_out_of_fold(cases, _fold_of(work), bare, work.folders, work.out_of_fold, networks, device)
    if rows != kept:
        keep(work.features_json, key, rows)
    return rows


def _bare_package(work: Work) -> Path:
    """The trained folds without heads, for measuring."""
    description = {"name": "out-of-fold", "purpose": "measuring features in training"}
    return _export(work, work.root / "bare_package", {}, description)


def _fold_of(work: Work) -> dict[str, int]:
    return {patient: number for number, fold in enumerate(work.splits().folds) for patient in fold}


def _networks_key(work: Work) -> str:
    finals = itertools.chain.from_iterable(_checkpoints(work).values())
    return key_of(tuple(finals), {"plan": work.plan_key(work.plan())})


def _export(
    work: Work,
    output: Path,
    heads: Mapping[str, LinearHead],
    description: Mapping[str, Any],
    card: str | None = None,
) -> Path:
    axes = {"mirror_axes": list(work.plan().mirror_axes)}
    return export_package(output, work.plans(), _checkpoints(work), heads, {**description, **axes}, card)


def _checkpoints(work: Work) -> dict[str, list[Path]]:
    """The final checkpoints of each configuration, fold 0 first."""
    jobs = shipped_jobs(work)
    missing = remaining(work, jobs)
    if missing:
        command = f"hecktor train fold --fold {missing[0].fold} --backbone {missing[0].backbone}"
        raise HecktorError(f"{missing[0]} has no final checkpoint, expected `{command}` before")
    finals: dict[str, list[Path]] = {}
    for job in jobs:
        finals.setdefault(CONFIGURATIONS[job.backbone], []).append(work.folders.final(job.fold, job.backbone))
    return finals


def _training(work: Work) -> dict[str, Any]:
    cases, splits = work.cases(), work.splits()
    return {
        "patients": len(cases),
        "centres": sorted({case.centre for case in cases}),
        "folds": len(splits.folds),
        "seed": splits.seed,
        "plan": asdict(work.plan()),
    }
