"""Command line of training: `hecktor train`, `python -m baseline`; one sub-command a step, and `all` in order."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

from baseline.interruption import interruptible
from baseline.network.jobs import check_device, chosen_jobs, remaining, train_apart, train_job
from baseline.network.nnunet import Machine
from baseline.network.plans import CONFIGURATIONS, ENHANCEMENTS, OPTIMISERS, PRESETS, Plan
from baseline.package.description import DEFAULTS, read_description
from baseline.pipeline import export, fit_all_heads, plan_network
from baseline.release.prepare import PrepareOptions, check, prepare_release, summary
from baseline.release.problems import as_text
from baseline.report.report import make_report
from baseline.work import Work
from contract.cpus import usable_cpus
from contract.errors import HecktorError
from contract.options import positive_number, whole_number

# The first backbone is the package's first member; channels follow each other as here.
_ORDER: Final[tuple[str | int, ...]] = (*CONFIGURATIONS, *ENHANCEMENTS, 0, 1, 2)
# NumPy takes seeds below 2**32, and each network adds its own number.
_LARGEST_SEED: Final = 2**31


def main(argv: Sequence[str] | None = None) -> int:
    """Run one step of a training, or all of them; what is done already is not done again.

    Raises:
        HecktorError: a step could not be done, or was interrupted by Ctrl-C.
    """
    arguments = _parser().parse_args(argv)
    work = Work(arguments.work.resolve())
    try:
        status: int = arguments.run(arguments, work)
    except KeyboardInterrupt:
        raise HecktorError("interrupted", "what is done is kept, and the same command goes on from there") from None
    return status


def _prepare(arguments: argparse.Namespace, work: Work) -> int:
    options = PrepareOptions(
        str(arguments.release.resolve()),
        tuple(arguments.spacing_mm),
        arguments.folds,
        arguments.seed,
        arguments.keep_going,
    )
    checked = check(options, work, arguments.jobs)
    print(as_text(checked.problems), flush=True)
    if arguments.check_only:
        return int(any(problem.is_error for problem in checked.problems))
    print(summary(prepare_release(options, checked, work, arguments.jobs)), flush=True)
    return 0


def _plan(arguments: argparse.Namespace, work: Work) -> int:
    plan_network(work, plan_of(arguments), arguments.jobs)
    print(f"plans in {work.folders.plans}", flush=True)
    return 0


def plan_of(arguments: argparse.Namespace) -> Plan:
    """The preset with what was given beside it; lists without doubles and in one order: the same is the same plan."""
    preset = PRESETS[arguments.preset]
    given = {field.name: getattr(arguments, field.name, None) for field in fields(preset)}
    for name, value in given.items():
        if isinstance(value, list):
            given[name] = tuple(sorted(set(value), key=_ORDER.index))
    return replace(preset, **{name: value for name, value in given.items() if value is not None})


def _fold(arguments: argparse.Namespace, work: Work) -> int:
    jobs = chosen_jobs(work, arguments.fold, arguments.backbone)
    machine = Machine(arguments.device, arguments.gpus, arguments.jobs)
    if arguments.list:
        print("".join(f"{job.fold} {job.backbone}\n" for job in remaining(work, jobs)), end="", flush=True)
        return 0
    with interruptible():
        if len(jobs) == 1:
            print(train_job(work, jobs[0], machine), flush=True)
        else:
            train_apart(work, jobs, machine)
    return 0


def _heads(arguments: argparse.Namespace, work: Work) -> int:
    print(fit_all_heads(work, arguments.device), flush=True)
    return 0


def _report(arguments: argparse.Namespace, work: Work) -> int:
    print(f"report: {make_report(work.root, arguments.jobs)}", flush=True)
    return 0


def _export(arguments: argparse.Namespace, work: Work) -> int:
    package = export(work, arguments.output, read_description(arguments.description))
    print(f"model package in {package}", flush=True)
    return 0


def _all(arguments: argparse.Namespace, work: Work) -> int:
    # What would end the last steps ends the first one already.
    check_device(Machine(arguments.device, arguments.gpus, arguments.jobs))
    read_description(arguments.description)
    arguments.fold, arguments.backbone, arguments.list, arguments.check_only = None, None, False, False
    for step in (_prepare, _plan, _fold, _heads, _report, _export):
        step(arguments, work)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hecktor train", description="Make a model package from a cohort.")
    steps = parser.add_subparsers(dest="step", required=True)
    work = argparse.ArgumentParser(add_help=False)
    work.add_argument("--work", type=Path, required=True, help="working directory of this training")
    work.add_argument("--jobs", type=whole_number(1), default=usable_cpus(), help="processes or threads (%(default)s)")
    prepare, plan, device, export = _prepare_options(), _plan_options(), _device_options(), _export_options()
    gpus = argparse.ArgumentParser(add_help=False)
    gpus.add_argument(
        "--gpus", type=whole_number(1), default=1, help="cards that train each network together; default 1"
    )
    everything = [work, prepare, plan, device, gpus, export]
    every = steps.add_parser("all", parents=everything, help="all steps in order, resumed")
    every.set_defaults(run=_all)
    first = steps.add_parser("prepare", parents=[work, prepare], help="check the release and write nnU-Net's data set")
    first.add_argument(
        "--check-only", action="store_true", help="only check; the exit status is 1 where there are errors"
    )
    first.set_defaults(run=_prepare)
    steps.add_parser("plan", parents=[work, plan], help="let nnU-Net plan and preprocess").set_defaults(run=_plan)
    fold = steps.add_parser("fold", parents=[work, device, gpus], help="train one network, or all that are not done")
    fold.add_argument("--fold", type=whole_number(0), help="number; after the balanced folds come the centres left out")
    fold.add_argument("--backbone", choices=tuple(CONFIGURATIONS), help="one of the plan's; default: all of them")
    fold.add_argument("--list", action="store_true", help="only print fold and backbone of those that remain")
    fold.set_defaults(run=_fold)
    heads = steps.add_parser("heads", parents=[work, device], help="measure out-of-fold and fit the heads")
    heads.set_defaults(run=_heads)
    page = steps.add_parser("report", parents=[work], help="make the page that says what to expect, with pictures")
    page.set_defaults(run=_report)
    steps.add_parser("export", parents=[work, export], help="write the model package").set_defaults(run=_export)
    return parser


def _prepare_options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    default = {field.name: field.default for field in fields(PrepareOptions)}
    options.add_argument("--release", "--cohort", type=Path, required=True, help="folder with Task 1, Task 2, Task 3")
    options.add_argument(
        "--spacing-mm", type=positive_number(), nargs=3, default=default["spacing_mm"], metavar=("X", "Y", "Z")
    )
    options.add_argument("--folds", type=whole_number(2), default=default["folds"])
    options.add_argument("--seed", type=whole_number(0, _LARGEST_SEED), default=default["seed"])
    options.add_argument("--keep-going", action="store_true", help="leave out the cases that have errors, by name")
    return options


def _plan_options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--preset", choices=tuple(PRESETS), default="short", help="what the other options default to")
    options.add_argument("--epochs", type=whole_number(1))
    options.add_argument("--iterations", type=whole_number(1), help="training steps an epoch")
    options.add_argument("--memory-gb", type=positive_number(), help="nnU-Net planner's memory target")
    options.add_argument("--base-features", type=whole_number(1))
    options.add_argument("--most-features", type=whole_number(1))
    options.add_argument("--optimiser", choices=OPTIMISERS)
    options.add_argument("--learning-rate", type=positive_number())
    options.add_argument("--batch-size", type=whole_number(1))
    options.add_argument("--mirror-axes", type=int, nargs="*", choices=(0, 1, 2), help="of (z, y, x)")
    options.add_argument("--backbones", nargs="+", choices=tuple(CONFIGURATIONS), help="default unet, the preset's own")
    options.add_argument("--enhance", nargs="*", choices=ENHANCEMENTS, help="channels made of the CT")
    return options


def _device_options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    return options


def _export_options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--output", type=Path, required=True, help="folder of the model package")
    options.add_argument(
        "--description", type=Path, help=f"JSON for manifest and model card: {', '.join(DEFAULTS)} (each has a default)"
    )
    return options
