"""The training, step by step: check, prepare, plan, train, measure, fit, report, export.

Every step reads its inputs from the working directory and skips what is already done, so an interrupted training
continues when it is started again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from algorithm.heads.linear import LinearHead, parse_head
from algorithm.heads.measure import Features
from baseline.cache import cache, key_of, load_cached
from baseline.heads.cohort import centre_aliases
from baseline.heads.cross_validation import FORMAT_VERSION, cross_validation_document, metrics_only, summary
from baseline.heads.fitting import cohort_of, fit_all
from baseline.heads.models.targets import targets_of
from baseline.network.jobs import check_device, final_checkpoints, package_jobs, train_jobs
from baseline.network.nnunet import Machine
from baseline.network.planning import plan_key, plan_networks
from baseline.network.plans import NetworkPlan, read_plan
from baseline.package.card.card import model_card
from baseline.package.description import DEFAULTS, read_description
from baseline.release import prepare
from baseline.release.cases import read_cases
from baseline.release.prepare import PrepareOptions, check_release, edition_of, prepare_release
from baseline.release.problems import as_text
from baseline.release.splits import read_splits
from baseline.report.report import make_report
from baseline.work import WorkFolders
from contract.files import write_json


@dataclass(frozen=True)
class TrainingOptions:
    """Options of a whole training.

    Attributes:
        work: working directory.
        output: folder of the model package.
        prepare: the release, and how to prepare it.
        plan: options of the networks; `PRESETS` holds complete plans.
        machine: device, GPUs and processor cores.
        description: JSON file that describes the model, None for the defaults.
    """

    work: Path
    output: Path
    prepare: PrepareOptions
    plan: NetworkPlan = field(default_factory=NetworkPlan)
    machine: Machine = field(default_factory=Machine)
    description: Path | None = None


def train(options: TrainingOptions, show: Callable[[str], object] = lambda _: None) -> Path:
    """Run every step; returns the folder of the model package. `show` is called with a summary of each step.

    Raises:
        HecktorError: the release has errors, or a step failed.
    """
    work, jobs = WorkFolders(options.work.resolve()), options.machine.threads
    # Problems of the last steps end the first one already.
    check_device(options.machine)
    description = read_description(options.description)

    checked = check_release(options.prepare, work, jobs)
    show(as_text(checked.problems))
    show(prepare.summary(prepare_release(options.prepare, checked, work, jobs)))
    plan_networks(work, options.plan, jobs)
    show(f"plans in {work.plans}")
    train_networks(work, options.machine)
    features = measure_out_of_fold(work, options.machine.device)
    show(fit_heads(work, features))
    show(f"report: {make_report(work, jobs)}")
    export_model(work, options.output, description)
    show(f"model package in {options.output}")
    return options.output


def train_networks(work: WorkFolders, machine: Machine) -> None:
    """Train the networks of all balanced folds; finished ones are skipped, unfinished ones resumed."""
    train_jobs(work, package_jobs(work), machine)


def measure_out_of_fold(work: WorkFolders, device: str = "cpu") -> dict[str, Features]:
    """Segment each patient with the networks that never saw it, and measure the lesions.

    Returns features by patient ID, also written to `features.json`; masks and uncertainties are written beside it.
    """
    from baseline.network.out_of_fold import OutOfFoldRun, segment_out_of_fold

    cases = read_cases(work)
    checkpoints, plan = tuple(itertools.chain.from_iterable(final_checkpoints(work).values())), read_plan(work)
    # The average matters only where several networks held the patient out.
    average = {"average": "probabilities"} if len(plan.backbones) > 1 else {}
    networks = key_of(checkpoints, {"plan": plan_key(work, plan), **average})
    key = key_of([case.dose for case in cases], {"networks": networks, "patients": [c.patient_id for c in cases]})
    features: dict[str, Features] | None = load_cached(work.features_json, key)
    paths = [path(case.patient_id) for case in cases for path in (work.mask, work.uncertainty)]
    if features is None or not all(path.is_file() for path in paths):
        fold_of = {patient: number for number, fold in enumerate(read_splits(work).folds) for patient in fold}
        run = OutOfFoldRun(lambda: _export_networks(work), fold_of, networks, device)
        measured = segment_out_of_fold(work, cases, run)
        if features is None:
            cache(work.features_json, key, measured)
        features = measured
    return features


def fit_heads(work: WorkFolders, features: Mapping[str, Features]) -> str:
    """Fit the heads (`heads.json`) and cross-validate them (`cross_validation.json`); returns a summary.

    Skipped for unchanged features, clinical variables, outcomes and splits.
    """
    cases, seed, targets = read_cases(work), read_splits(work).seed, targets_of(edition_of(work))
    made_from = {"cases": [case.as_json() for case in cases], "seed": seed, "version": FORMAT_VERSION}
    key = key_of((work.features_json,), made_from)
    both = work.heads_json.is_file() and work.cross_validation_json.is_file()
    if not both or work.read(work.cross_validation_json).get("made_from") != key:
        cohorts = [(target, cohort_of(target, cases, features)) for target in targets]
        fitted = fit_all(cohorts, seed).with_centre_aliases(centre_aliases(cases))
        document = cross_validation_document(cohorts, seed, fitted.why_not)
        write_json(work.heads_json, fitted.as_json())
        write_json(work.cross_validation_json, document | {"made_from": key})
    return summary(work.read(work.heads_json), work.read(work.cross_validation_json), targets)


def export_model(work: WorkFolders, output: Path, description: Mapping[str, str] = DEFAULTS) -> Path:
    """Write the model package of the trained networks and fitted heads, with its model card; returns its folder."""
    records = work.read(work.heads_json)
    heads = {name: parse_head(record["head"], f"heads.json, {name}") for name, record in records.items()}
    cases, splits = read_cases(work), read_splits(work)
    training = {
        "patients": len(cases),
        "centres": sorted({case.centre for case in cases}),
        "folds": len(splits.folds),
        "seed": splits.seed,
        "plan": asdict(read_plan(work)),
    }
    out_of_fold = {
        name: {record["metric"]: round(record["out_of_fold"], 4), "penalty": record["penalty"]}
        for name, record in records.items()
    }
    validated = metrics_only(work.read(work.cross_validation_json), targets_of(edition_of(work)))
    manifest = {**description, "training": training, "out_of_fold": out_of_fold, "cross_validation": validated}
    return _export(work, output, heads, manifest, model_card(work, description))


def _export_networks(work: WorkFolders) -> Path:
    """A package without heads, for the measurement."""
    description = {"name": "out-of-fold", "purpose": "measuring features in training"}
    return _export(work, work.root / "bare_package", {}, description, None)


def _export(
    work: WorkFolders, output: Path, heads: Mapping[str, LinearHead], manifest: Mapping[str, Any], card: str | None
) -> Path:
    from baseline.package.export import export_package

    axes = {"mirror_axes": list(read_plan(work).mirror_axes)}
    return export_package(output, work.read(work.plans), final_checkpoints(work), heads, {**manifest, **axes}, card)
