"""The steps of a training in order: check, prepare, plan, train, measure, postprocess, fit, report, export.

Every step reads its inputs from the working directory and skips finished work, so that an interrupted training
continues when it is started again. With the networks of an existing package, plan and train are left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from algorithm.heads.feature_hook import custom_features
from algorithm.heads.head_hook import HEAD
from baseline.export import export_model
from baseline.fit import fit_heads
from baseline.measure import measure_out_of_fold, postprocess_masks
from baseline.network.jobs import list_package_jobs, resolve_machine, train_jobs
from baseline.network.nnunet import Machine, check_trainer
from baseline.network.planning import plan_networks
from baseline.network.plans import NetworkPlan
from baseline.network.progress import format_duration
from baseline.package.card import read_description
from baseline.package.existing import use_networks
from baseline.postprocessing.record import summarise_postprocessing
from baseline.preparation import PrepareOptions, require_phantoms, resolve_spacing
from baseline.release.cases import read_release
from baseline.release.prepare import check_release, format_problems, prepare_release, summarise_preparation
from baseline.report.report import make_report
from baseline.work import WorkFolders
from contract.code import Code

_Show = Callable[[str], object]


@dataclass(frozen=True)
class TrainingOptions:
    """Options of a whole training.

    Attributes:
        work: Working directory.
        output: Model package, `*.tar.gz` for an archive, any other name for a folder.
        prepare: Release and options of the preparation.
        plan: Options of the networks; `PRESETS` holds complete plans. None is the preset `short`, for phantoms only.
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
    """Run every step, and return the path of the model package; `show` is called with a summary of each step.

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
    """Train the networks of all balanced folds; finished ones are skipped, unfinished ones resumed."""
    train_jobs(work, list_package_jobs(work), machine)


def _resolve_options(
    options: TrainingOptions, work: WorkFolders, code: Code, show: _Show
) -> tuple[TrainingOptions, NetworkPlan]:
    """Choose device, spacing and plan; also check options of the last steps, so that errors come before the work."""
    if options.plan is None and options.networks is None:
        require_phantoms(options.prepare.release)
    machine, plan = resolve_machine(options.machine), options.plan or NetworkPlan()
    check_trainer(plan)
    code.find_classes(HEAD)
    custom_features(code)
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
