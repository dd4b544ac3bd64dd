"""Command line of training: `hecktor train`, `python -m baseline`; one sub-command per step, and `all`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from algorithm.heads.trees import check_installed
from baseline.arguments import REFERENCE, Step, machine_of, parser, plan_of, prepare_options
from baseline.decisions.record import decision_lines
from baseline.experiments.listing import as_table, listed
from baseline.network.jobs import chosen_jobs, train_jobs, unfinished
from baseline.network.planning import plan_networks, with_spacing
from baseline.network.plans import PRESETS
from baseline.outcome.folds import train_outcome
from baseline.outcome.presets import default_size
from baseline.package.description import read_description
from baseline.package.existing import use_networks
from baseline.pipeline import (
    TrainingOptions,
    decide_lesions,
    estimate_of_prepared,
    export_model,
    features_for_heads,
    fit_heads,
    measure_masks,
    measure_out_of_fold,
    measure_references,
    train,
)
from baseline.release.prepare import check_release, prepare_release, summary
from baseline.release.problems import as_text
from baseline.release.spacing import chosen_spacing
from baseline.report.report import make_report
from baseline.work import DEFAULT_PLAN, JOINED, WorkFolders
from contract.errors import HecktorError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one step of a training, or all of them.

    Raises:
        HecktorError: a step failed or was interrupted by Ctrl-C.
    """
    arguments = parser(_STEPS).parse_args(argv)
    try:
        name = getattr(arguments, "name", DEFAULT_PLAN)  # the list and the comparison concern every plan
        status: int = arguments.run(arguments, WorkFolders(arguments.work.resolve(), name))
    except KeyboardInterrupt:
        raise HecktorError("interrupted", "finished work is saved; run the same command again to continue") from None
    return status


def _all(arguments: argparse.Namespace, work: WorkFolders) -> int:
    prepare, plan, machine = prepare_options(arguments), plan_of(arguments), machine_of(arguments)
    _require_one_plan(work)
    description, networks, outcome = arguments.description, arguments.networks, arguments.outcome_network
    if outcome is True:  # without a size
        outcome = default_size(arguments.device)
    options = TrainingOptions(
        work.shared, arguments.output, prepare, plan, machine, description, networks, outcome, arguments.name
    )
    train(options, _show)
    return 0


def _prepare(arguments: argparse.Namespace, work: WorkFolders) -> int:
    if work.name != DEFAULT_PLAN:
        raise HecktorError("--name", f"found {work.name} for prepare", "none: all plans share the prepared data")
    options = prepare_options(arguments)
    if not arguments.check_only:
        spacing_mm = chosen_spacing(work, options.spacing_mm, PRESETS[arguments.preset].spacing_mm, _show)
        options = replace(options, spacing_mm=spacing_mm)
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
    plan = plan_of(arguments)
    if arguments.plan_spacing_mm is not None:
        plan = replace(plan, spacing_mm=tuple(arguments.plan_spacing_mm))
    _show(estimate_of_prepared(work, plan, arguments.jobs))
    plan_networks(work, plan, arguments.jobs)
    _show(f"plans in {work.plans}")
    return 0


def _fold(arguments: argparse.Namespace, work: WorkFolders) -> int:
    _require_one_plan(work)
    jobs = chosen_jobs(work, arguments.fold, arguments.backbone)
    if arguments.list:
        print("".join(f"{job.fold} {job.backbone}\n" for job in unfinished(work, jobs)), end="", flush=True)
        return 0
    checkpoints = train_jobs(work, jobs, machine_of(arguments))
    if len(checkpoints) == 1:
        _show(str(checkpoints[0]))
    return 0


def _decide(arguments: argparse.Namespace, work: WorkFolders) -> int:
    if arguments.networks is not None:
        _require_one_plan(work)
        use_networks(work, arguments.networks)
    has_networks = any(path.exists() for one in work.members for path in (one.networks, one.plan_json))
    if not has_networks and work.features_json.is_file():  # of `heads --masks`
        _show("no decisions on lesions: there are no networks to compute probabilities")
        return 0
    decide_lesions(work, measure_out_of_fold(work, arguments.device), arguments.jobs)
    _show(decision_lines(work))
    return 0


def _outcome(arguments: argparse.Namespace, work: WorkFolders) -> int:
    train_outcome(work, arguments.size or default_size(arguments.device), arguments.device, arguments.jobs, _show)
    return 0


def _heads(arguments: argparse.Namespace, work: WorkFolders) -> int:
    if arguments.trees:
        check_installed("--trees")
    if arguments.masks is not None and arguments.networks is not None:
        raise HecktorError("--masks", "found with --networks", "one of them")
    if arguments.labels is not None and arguments.masks in (None, REFERENCE):
        raise HecktorError("--labels", "found without masks of your own", "--masks DIR")
    if arguments.networks is not None:
        _require_one_plan(work)
    jobs, target = arguments.jobs, work
    if arguments.masks == REFERENCE:
        target, features = work.of_reference_masks(), measure_references(work, jobs)
    elif arguments.masks is not None:
        _show("no decisions on lesions: masks of your own have no probabilities")
        features = measure_masks(work, Path(arguments.masks), jobs, arguments.labels)
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
    _require_folder(work)
    _show(as_table(listed(work.shared)))
    return 0


def _compare(arguments: argparse.Namespace, work: WorkFolders) -> int:
    from baseline.experiments.compare import compare

    _require_folder(work)
    summary, page = compare(work, arguments.experiments, arguments.output, arguments.jobs)
    _show(f"{summary}\nwritten: {page}")
    return 0


def _require_folder(work: WorkFolders) -> None:
    if not work.shared.is_dir():
        raise HecktorError("--work", f"no folder {work.shared.name}")


def _require_one_plan(work: WorkFolders) -> None:
    if work.is_ensemble:
        expected = "one plan: an ensemble has no networks of its own"
        raise HecktorError("--name", f"found {work.name}", expected)


def _export(arguments: argparse.Namespace, work: WorkFolders) -> int:
    if arguments.plans is not None:
        if work.name != DEFAULT_PLAN:
            raise HecktorError("--plans", "found with --name", "one of them")
        work = WorkFolders(work.shared, JOINED.join(arguments.plans.split(",")))
        # Unchanged steps are skipped; networks trained since then are measured again.
        features = decide_lesions(work, measure_out_of_fold(work, arguments.device), arguments.jobs)
        _show(decision_lines(work))
        _show(fit_heads(work, features, arguments.jobs))
    package = export_model(work, arguments.output, read_description(arguments.description))
    _show(f"model package in {package}")
    return 0


def _show(text: str) -> None:
    print(text, flush=True)


_STEPS: Final[dict[str, Step]] = {
    "all": _all,
    "prepare": _prepare,
    "plan": _plan,
    "fold": _fold,
    "decide": _decide,
    "outcome": _outcome,
    "heads": _heads,
    "report": _report,
    "export": _export,
    "list": _list,
    "compare": _compare,
}
