"""The steps of a training in order: check, prepare, plan, train, measure, postprocess, fit, report, export.

Every step reads its inputs from the working directory and skips finished work, so that an interrupted training
continues when it is started again. With the networks of an existing package, plan and train are left out.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from algorithm.heads.documents import Features
from algorithm.heads.feature_hook import list_feature_hooks
from algorithm.heads.head_hook import HEAD
from algorithm.heads.measure import compute_features_version
from algorithm.network.package import ModelPackage
from baseline.cache import compute_key, load_cached, store_cached
from baseline.export import export_model, export_networks
from baseline.fit import fit_heads
from baseline.network.jobs import list_final_checkpoints, list_package_jobs, resolve_machine, train_jobs
from baseline.network.nnunet import Machine, check_trainer
from baseline.network.planning import compute_plan_key, plan_networks
from baseline.network.plans import NetworkPlan, read_plan
from baseline.network.progress import format_duration
from baseline.package.card import read_description
from baseline.package.existing import check_spacing, describe_networks, load_existing_networks, use_networks
from baseline.postprocessing.record import summarise_postprocessing
from baseline.release.cases import read_cases, read_release
from baseline.release.prepare import check_release, format_problems, prepare_release, summarise_preparation
from baseline.release.splits import read_splits
from baseline.report.report import make_report
from baseline.work import PrepareOptions, WorkFolders, read_preparation, require_phantoms, resolve_spacing
from contract.code import Code

if TYPE_CHECKING:  # imports torch, which only the measurement needs
    from baseline.network.out_of_fold import OutOfFoldRun

_Show = Callable[[str], object]


@dataclass(frozen=True)
class TrainingOptions:
    """Options of a whole training.

    Attributes:
        work: Working directory.
        output: Model package, `*.tar.gz` for an archive, any other name for a folder.
        prepare: Release and options of the preparation.
        plan: Options of the networks; `PRESETS` has complete plans. None is the preset `short`, for phantoms only.
        machine: Device, GPUs and processor cores.
        description: JSON file that describes the model; None for the defaults.
        networks: Model package, folder or `.tar.gz`, whose networks are used; None trains networks by `plan`.
        code: Folders of custom code, whose heads and features compete with the built-in ones.
    """

    work: Path
    output: Path
    prepare: PrepareOptions
    plan: NetworkPlan | None = None
    machine: Machine = field(default_factory=Machine)
    description: Path | None = None
    networks: Path | None = None
    code: tuple[Path, ...] = ()


def train(options: TrainingOptions, show: _Show = lambda _: None) -> Path:
    """Run every step, and return the path of the model package. A summary of each step is passed to `show`.

    Raises:
        HecktorError: The release has errors, or a step failed.
    """
    start = time.monotonic()
    work, code = WorkFolders(options.work.resolve()), Code.from_folders(options.code)
    description = read_description(options.description)
    options, plan = _resolve_options(options, work, code, show)
    machine, jobs = options.machine, options.machine.threads
    show(_describe_plan(options, plan))
    checked = check_release(options.prepare, work, jobs)
    show(format_problems(checked.problems))
    show(summarise_preparation(prepare_release(options.prepare, checked, work, jobs)))
    if options.networks is None:
        plan_networks(work, plan, jobs)
        show(f"plans in {work.plans}")
        train_networks(work, machine)
    measured = measure_out_of_fold(work, machine.device, jobs, code)
    features = postprocess_masks(work, measured, jobs)
    show(summarise_postprocessing(work))
    show(fit_heads(work, features, jobs=jobs, code=code, device=machine.device))
    report = make_report(work, jobs)
    export_model(work, options.output, description, code)
    show(f"done in {format_duration(time.monotonic() - start)}. Next:\n{describe_next_steps(options, report)}")
    return options.output


def describe_next_steps(options: TrainingOptions, report: Path) -> str:
    """Describe the next steps with the package of a training; the upload needs its custom code as well."""
    code = "".join(f" --code {folder}" for folder in options.code)
    upload = f"hecktor submission --package {options.output}{code} --output {options.work.resolve() / 'submission'}"
    return f"  read the report      {report}\n  the model package is {options.output}\n  make the upload      {upload}"


def train_networks(work: WorkFolders, machine: Machine) -> None:
    """Train the networks of all balanced folds; skip finished networks and resume unfinished ones."""
    train_jobs(work, list_package_jobs(work), machine)


def _resolve_options(
    options: TrainingOptions, work: WorkFolders, code: Code, show: _Show
) -> tuple[TrainingOptions, NetworkPlan]:
    """Choose device, spacing and plan; also check options of the last steps, so that they fail at the start."""
    if options.plan is None and options.networks is None:
        require_phantoms(options.prepare.release)
    machine, plan = resolve_machine(options.machine), options.plan or NetworkPlan()
    check_trainer(plan)
    code.find_classes(HEAD)
    list_feature_hooks(code)
    if options.networks is None:  # otherwise the package may name code
        code.check_used()
    spacing_mm = resolve_spacing(work, options.prepare, plan.spacing_mm, show)
    if options.networks is not None:
        use_networks(work, options.networks, spacing_mm)
    prepare = replace(options.prepare, spacing_mm=spacing_mm)
    return replace(options, prepare=prepare, machine=machine), plan.with_options(spacing_mm=spacing_mm)


def _describe_plan(options: TrainingOptions, plan: NetworkPlan) -> str:
    """Describe the steps and the number of patients; no image is read."""
    patients = len(read_release(Path(options.prepare.release), options.prepare.training_edition()).cases)
    if options.networks is not None:
        steps = f"segment with the networks of {options.networks.name} (no plan, no training of networks)"
    else:
        networks = options.prepare.folds * len(plan.backbones)
        steps = f"plan, train {networks} networks of {plan.epochs} epochs (preset {plan.preset})"
    steps = f"check, prepare, {steps}, postprocess, heads, report, export"
    return f"steps for {patients} patients: {steps}; on {options.machine.device}"


def measure_out_of_fold(
    work: WorkFolders, device: str = "auto", jobs: int = 1, code: Code | None = None
) -> dict[str, Features]:
    """Segment each patient with the networks that never saw the patient, and measure the lesions.

    Masks and features are also written below `out_of_fold/unfiltered`. `postprocess_masks` and
    `select_features_for_heads` return the features of the later steps.

    Returns:
        Features by patient ID, before postprocessing.

    Raises:
        HecktorError: A network is not trained, or the networks of a package expect another spacing.
    """
    from baseline.network.out_of_fold import MEASURE_VERSION, is_segmented, segment_out_of_fold

    cases, existing = read_cases(work), load_existing_networks(work)
    run = _make_fold_run(work, device) if existing is None else _make_package_run(work, existing, device, code)
    patients = [case.patient_id for case in cases]
    prepared = read_preparation(work)
    versions = {"version": MEASURE_VERSION, "features": compute_features_version(prepared.smallest_lesions)}
    made_from = {"networks": run.made_from, "patients": patients, "images": prepared.data, **versions}
    key = compute_key(work, [case.dose for case in cases], made_from)
    features: dict[str, Features] | None = load_cached(work.unfiltered_features_json, key)
    complete = all(is_segmented(work, name) for name in patients)
    if features is None or not complete:
        measured = segment_out_of_fold(work, cases, run, jobs)
        if features is None:
            store_cached(work.unfiltered_features_json, key, measured)
        features = measured
    return features


def postprocess_masks(work: WorkFolders, measured: Mapping[str, Features], jobs: int = 1) -> dict[str, Features]:
    """Fit rules on lesions and apply them to the out-of-fold masks; return the features of the new masks."""
    from baseline.postprocessing.step import postprocess

    return postprocess(work, measured, jobs)


def select_features_for_heads(
    work: WorkFolders, measured: Mapping[str, Features], jobs: int = 1
) -> dict[str, Features]:
    """Return the features for the heads: after postprocessing if this step was run, otherwise as measured."""
    from baseline.postprocessing.step import copy_unfiltered, postprocess

    if work.postprocessing_json.is_file():
        return postprocess(work, measured, jobs)
    return copy_unfiltered(work, measured)


def _make_fold_run(work: WorkFolders, device: str) -> OutOfFoldRun:
    """Make the run that segments each patient by the trained networks of the fold that held it out."""
    from baseline.network.out_of_fold import OutOfFoldRun

    finals = list_final_checkpoints(work)
    checkpoints = tuple(itertools.chain.from_iterable(finals.values()))
    # How probabilities are averaged matters only if several networks held the patient out.
    average = {"average": "probabilities"} if len(finals) > 1 else {}
    networks = compute_key(work, checkpoints, {"plan": compute_plan_key(work, read_plan(work)), **average})
    fold_of = {patient: number for number, fold in enumerate(read_splits(work).folds) for patient in fold}
    return OutOfFoldRun(lambda: export_networks(work), fold_of, networks, device)


def _make_package_run(work: WorkFolders, package: ModelPackage, device: str, code: Code | None) -> OutOfFoldRun:
    """Make the run that segments every patient by all networks of a package."""
    from baseline.network.out_of_fold import OutOfFoldRun

    check_spacing(package, read_preparation(work).spacing_mm)
    if code:
        code.use(package.manifest.code)
    return OutOfFoldRun(lambda: package.root, None, describe_networks(package)["sha256"], device, code)
