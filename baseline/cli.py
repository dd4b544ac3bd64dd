"""Command line of training: `hecktor train`, `python -m baseline`; one sub-command per step, and `all`."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

from algorithm.heads.trees import check_installed
from baseline.decisions.record import decision_lines
from baseline.experiments.listing import as_table, listed
from baseline.network.jobs import chosen_jobs, train_jobs, unfinished
from baseline.network.nnunet import Machine
from baseline.network.planning import plan_networks, with_spacing
from baseline.network.plans import ENHANCEMENTS, OPTIMISERS, PRESETS, NetworkPlan
from baseline.network.training.options import add_training_options
from baseline.outcome.folds import train_outcome
from baseline.outcome.presets import OUTCOME_PRESETS
from baseline.package.description import DEFAULTS, read_description
from baseline.package.existing import use_networks
from baseline.pipeline import (
    TrainingOptions,
    decide_lesions,
    export_model,
    features_for_heads,
    fit_heads,
    measure_masks,
    measure_out_of_fold,
    measure_references,
    train,
)
from baseline.release.prepare import PrepareOptions, check_release, prepare_release, summary
from baseline.release.problems import as_text
from baseline.report.report import make_report
from baseline.work import CONFIGURATIONS, DEFAULT_PLAN, JOINED, WorkFolders
from contract.cpus import usable_cpus
from contract.errors import HecktorError
from contract.options import add_edition_option, positive_number, whole_number

# The first backbone is the package's first member; channels are stacked in this order.
_ORDER: Final[tuple[str | int, ...]] = (*CONFIGURATIONS, *ENHANCEMENTS, 0, 1, 2)
# NumPy takes seeds below 2**32, and each network adds its own number.
_LARGEST_SEED: Final = 2**31
# Value of --masks for the release's own masks.
REFERENCE: Final = "reference"
LOGGER = logging.getLogger("hecktor")
_Step = Callable[[argparse.Namespace, WorkFolders], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one step of a training, or all of them.

    Raises:
        HecktorError: a step failed or was interrupted by Ctrl-C.
    """
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments, WorkFolders(arguments.work.resolve(), arguments.name))
    except KeyboardInterrupt:
        raise HecktorError("interrupted", "finished work is saved; run the same command again to continue") from None
    return status


def _all(arguments: argparse.Namespace, work: WorkFolders) -> int:
    prepare, plan, machine = _prepare_options(arguments), plan_of(arguments), _machine(arguments)
    _require_one_plan(work)
    if work.images != work.shared:
        raise HecktorError("--name", f"found {work.name}, which has a spacing of its own", "the steps one by one")
    description, networks, outcome = arguments.description, arguments.networks, arguments.outcome_network
    options = TrainingOptions(
        work.shared, arguments.output, prepare, plan, machine, description, networks, outcome, arguments.name
    )
    train(options, _show)
    return 0


def _prepare(arguments: argparse.Namespace, work: WorkFolders) -> int:
    if work.name != DEFAULT_PLAN:
        raise HecktorError("--name", f"found {work.name} for prepare", "none: all plans share the prepared data")
    options = _prepare_options(arguments)
    checked = check_release(options, work, arguments.jobs)
    _show(as_text(checked.problems))
    if arguments.check_only:
        return int(checked.has_errors)
    _show(summary(prepare_release(options, checked, work, arguments.jobs)))
    return 0


def _plan(arguments: argparse.Namespace, work: WorkFolders) -> int:
    _require_one_plan(work)
    if arguments.plan_spacing_mm is not None:
        work = with_spacing(work, tuple(arguments.plan_spacing_mm), arguments.jobs)
    plan = plan_networks(work, plan_of(arguments), arguments.jobs)
    _show(f"plans in {work.plans}")
    if arguments.preset != "short" and plan.spacing_mm == PRESETS["short"].spacing_mm:
        expected = f"`hecktor train prepare --preset {arguments.preset}` in a new working directory"
        LOGGER.warning("*** WARNING *** --preset %s: found images of 3 mm, expected %s", arguments.preset, expected)
    return 0


def _fold(arguments: argparse.Namespace, work: WorkFolders) -> int:
    _require_one_plan(work)
    jobs = chosen_jobs(work, arguments.fold, arguments.backbone)
    if arguments.list:
        print("".join(f"{job.fold} {job.backbone}\n" for job in unfinished(work, jobs)), end="", flush=True)
        return 0
    checkpoints = train_jobs(work, jobs, _machine(arguments))
    if len(checkpoints) == 1:
        _show(str(checkpoints[0]))
    return 0


def _decide(arguments: argparse.Namespace, work: WorkFolders) -> int:
    if arguments.networks is not None:
        use_networks(work, arguments.networks)
    if not work.networks.is_dir() and not work.plan_json.is_file():
        _show("no decisions on lesions: there are no networks whose probabilities could be measured")
        return 0
    decide_lesions(work, measure_out_of_fold(work, arguments.device), arguments.jobs)
    _show(decision_lines(work))
    return 0


def _outcome(arguments: argparse.Namespace, work: WorkFolders) -> int:
    train_outcome(work, arguments.size, arguments.device, arguments.jobs, _show)
    return 0


def _heads(arguments: argparse.Namespace, work: WorkFolders) -> int:
    if arguments.trees:
        check_installed("--trees")
    if arguments.masks is not None and arguments.networks is not None:
        raise HecktorError("--masks", "found with --networks", "one of them")
    jobs, target = arguments.jobs, work
    if arguments.masks == REFERENCE:
        target, features = work.of_reference_masks(), measure_references(work, jobs)
    elif arguments.masks is not None:
        _show("no decisions on lesions: masks of your own have no probabilities")
        features = measure_masks(work, Path(arguments.masks), jobs)
    else:
        if arguments.networks is not None:
            use_networks(work, arguments.networks)
        features = features_for_heads(work, measure_out_of_fold(work, arguments.device), jobs)
    _show(fit_heads(target, features, jobs, arguments.trees))
    return 0


def _report(arguments: argparse.Namespace, work: WorkFolders) -> int:
    _show(f"report: {make_report(work, arguments.jobs)}")
    return 0


def _list(_: argparse.Namespace, work: WorkFolders) -> int:
    _show(as_table(listed(work.shared)))
    return 0


def _compare(arguments: argparse.Namespace, work: WorkFolders) -> int:
    from baseline.experiments.compare import compare

    summary, page = compare(work, arguments.experiments, arguments.output, arguments.jobs, arguments.device)
    _show(f"{summary}\nwritten: {page}")
    return 0


def _require_one_plan(work: WorkFolders) -> None:
    if work.is_ensemble:
        expected = "one plan: an ensemble has no networks of its own"
        raise HecktorError("--name", f"found {work.name}", expected)


def _export(arguments: argparse.Namespace, work: WorkFolders) -> int:
    if arguments.plans is not None:
        if work.name != DEFAULT_PLAN:
            raise HecktorError("--plans", "found with --name", "one of them")
        work = WorkFolders(work.shared, JOINED.join(arguments.plans.split(",")))
        if not work.heads_json.is_file():
            _show(fit_heads(work, measure_out_of_fold(work, arguments.device)))
    package = export_model(work, arguments.output, read_description(arguments.description))
    _show(f"model package in {package}")
    return 0


def _show(text: str) -> None:
    print(text, flush=True)


def _prepare_options(arguments: argparse.Namespace) -> PrepareOptions:
    return PrepareOptions(
        str(arguments.release.resolve()),
        tuple(arguments.spacing_mm or PRESETS[arguments.preset].spacing_mm),
        arguments.folds,
        arguments.seed,
        arguments.keep_going,
        arguments.edition,
        None if arguments.suv_factors is None else str(arguments.suv_factors.resolve()),
        arguments.estimate_suv,
    )


def plan_of(arguments: argparse.Namespace) -> NetworkPlan:
    """The preset with the given options; lists are sorted without duplicates, so that equal plans compare equal.

    The spacing is that of the prepared images, which `plan_networks` fills in.
    """
    preset = PRESETS[arguments.preset]
    names = [field.name for field in fields(preset) if field.name != "spacing_mm"]
    given = {name: getattr(arguments, name, None) for name in names}
    for name, value in given.items():
        if isinstance(value, list):
            given[name] = tuple(value if name == "misalign_by" else sorted(set(value), key=_ORDER.index))
    return replace(preset, **{name: value for name, value in given.items() if value is not None})


def _machine(arguments: argparse.Namespace) -> Machine:
    return Machine(
        arguments.device,
        arguments.gpus,
        arguments.jobs,
        compile=arguments.compile,
        deterministic=arguments.deterministic,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hecktor train", description="Train a model package on a cohort.")
    steps = parser.add_subparsers(dest="step", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--work", type=Path, required=True, help="working directory of the training")
    common.add_argument(
        "--name", default=DEFAULT_PLAN, help="name of the plan, or A+B for an ensemble of plans (default: %(default)s)"
    )
    common.add_argument(
        "--jobs",
        type=whole_number(1),
        default=usable_cpus(),
        help="number of processes or threads (default: %(default)s)",
    )
    prepare, plan, export = _prepare_arguments(), _plan_arguments(), _export_arguments()
    preset = argparse.ArgumentParser(add_help=False)
    preset.add_argument(
        "--preset",
        choices=tuple(PRESETS),
        default="short",
        help="defaults of the spacing and of the plan's other options (default: short)",
    )
    device = argparse.ArgumentParser(add_help=False)
    device.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="device of the networks (default: %(default)s)"
    )
    gpus = argparse.ArgumentParser(add_help=False)
    gpus.add_argument(
        "--gpus", type=whole_number(1), default=1, help="GPUs that share the training of each network (default: 1)"
    )
    gpus.add_argument("--compile", action="store_true", help="train through torch.compile, on a GPU")
    gpus.add_argument(
        "--deterministic", action="store_true", help="reproducible GPU algorithms instead of the fastest ones"
    )

    def step(name: str, run: _Step, parents: list[argparse.ArgumentParser], about: str) -> argparse.ArgumentParser:
        added = steps.add_parser(
            name, parents=[common, *parents], help=about, description=f"{about[0].upper()}{about[1:]}."
        )
        added.set_defaults(run=run)
        return added

    networks = argparse.ArgumentParser(add_help=False)
    networks.add_argument(
        "--networks",
        type=Path,
        metavar="PACKAGE",
        help="use the networks of a model package (folder or .tar.gz) that none of these patients has trained",
    )
    everything = step(
        "all",
        _all,
        [preset, prepare, plan, device, gpus, networks, export],
        "run all steps in order; continues an interrupted run",
    )
    everything.add_argument(
        "--outcome-network",
        nargs="?",
        const="full",
        choices=tuple(OUTCOME_PRESETS),
        help="also train the outcome network, of this size (default: full, for a GPU); off without this option",
    )
    first = step("prepare", _prepare, [preset, prepare], "check the release and write the data set")
    first.add_argument("--check-only", action="store_true", help="only check; exit status 1 if there are errors")
    of_plan = step("plan", _plan, [preset, plan], "plan and preprocess with nnU-Net")
    of_plan.add_argument(
        "--spacing-mm",
        dest="plan_spacing_mm",
        type=positive_number(),
        nargs=3,
        metavar=("X", "Y", "Z"),
        help="voxel size in mm of a named plan, whose images are then prepared (default: that of prepare)",
    )
    fold = step("fold", _fold, [device, gpus], "train one network, or all unfinished ones")
    fold.add_argument(
        "--fold", type=whole_number(0), help="number of a fold: first the balanced folds, then the left-out centres"
    )
    fold.add_argument("--backbone", choices=tuple(CONFIGURATIONS), help="one backbone of the plan (default: all)")
    fold.add_argument("--list", action="store_true", help="only print fold and backbone of unfinished networks")
    step("decide", _decide, [device, networks], "find rules that keep or drop lesions of the out-of-fold masks")
    outcome = step("outcome", _outcome, [device], "train the outcome network on images around the tumour (optional)")
    outcome.add_argument(
        "--size",
        choices=tuple(OUTCOME_PRESETS),
        default="full",
        help="size of cube and network: full for a GPU, small for a CPU (default: %(default)s)",
    )
    heads = step("heads", _heads, [device, networks], "measure out-of-fold masks and fit the heads")
    heads.add_argument(
        "--masks",
        metavar=f"DIR|{REFERENCE}",
        help="measure your own out-of-fold masks, ID.nii.gz or ID.mha on the CT's grid; or the release's reference "
        "masks, whose heads are written to reference_masks/ beside the others; needs no networks",
    )
    heads.add_argument("--trees", action="store_true", help="also try gradient-boosted trees (needs xgboost)")
    step("report", _report, [], "write the training report")
    last = step("export", _export, [export, device], "write the model package")
    last.add_argument("--plans", metavar="A,B", help="write the networks of several plans into one package")
    step("list", _list, [], "list the plans with their folds, hours and out-of-fold figures")
    against = step("compare", _compare, [device], "compare plans, decisions and packages on the out-of-fold patients")
    against.add_argument(
        "experiments",
        nargs="+",
        metavar="EXPERIMENT",
        help="name of a plan, NAME:undecided for its masks before `decide`, or a model package",
    )
    against.add_argument("--output", type=Path, help="HTML file to write (default: comparisons/... in --work)")
    return parser


def _prepare_arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    add = parser.add_argument
    default = {field.name: field.default for field in fields(PrepareOptions)}
    add("--release", "--cohort", type=Path, required=True, help="folder of the release")
    add(
        "--spacing-mm",
        type=positive_number(),
        nargs=3,
        metavar=("X", "Y", "Z"),
        help="voxel size of the prepared images in mm (default: 3 3 3 for the preset short, 1 1 1 for the others)",
    )
    add(
        "--folds",
        type=whole_number(2),
        default=default["folds"],
        help="number of balanced folds (default: %(default)s)",
    )
    add(
        "--seed",
        type=whole_number(0, _LARGEST_SEED),
        default=default["seed"],
        help="seed of the splits (default: %(default)s)",
    )
    add("--keep-going", action="store_true", help="exclude cases with errors instead of stopping")
    add("--suv-factors", type=Path, metavar="TABLE", help="CSV with the factor from Bq/ml to SUV of each patient")
    add("--estimate-suv", action="store_true", help="scale a PET in Bq/ml without a factor by its muscle and fat")
    add_edition_option(parser)
    return parser


def _plan_arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    add = parser.add_argument
    add("--epochs", type=whole_number(1), help="number of epochs of each network")
    add("--iterations", type=whole_number(1), help="training steps per epoch")
    add("--memory-gb", type=positive_number(), help="memory target of nnU-Net's planner in GB")
    add("--base-features", type=whole_number(1), help="channels at the finest resolution")
    add("--most-features", type=whole_number(1), help="channels at the coarsest resolution")
    add("--optimiser", choices=OPTIMISERS, help="optimiser of the training")
    add("--learning-rate", type=positive_number(), help="initial learning rate")
    add("--batch-size", type=whole_number(1), help="patches per training step")
    add("--mirror-axes", type=int, nargs="*", choices=(0, 1, 2), help="axes of (z, y, x) that are mirrored")
    add("--backbones", nargs="+", choices=tuple(CONFIGURATIONS), help="networks to train (default: unet)")
    add("--enhance", nargs="*", choices=ENHANCEMENTS, help="additional channels computed from the CT")
    add_training_options(parser)
    return parser


def _export_arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    add = parser.add_argument
    add("--output", type=Path, required=True, help="model.tar.gz for upload, or a folder")
    add("--description", type=Path, help=f"JSON for manifest and model card: {', '.join(DEFAULTS)} (all optional)")
    return parser
