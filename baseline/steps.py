"""Steps of `hecktor train`: each function calls the pipeline with the options of a command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from algorithm.heads.documents import Features
from algorithm.network.backbones import BACKBONES
from baseline.export import export_model
from baseline.fit import fit_heads
from baseline.heads.fitting import GIVEN_MASKS, OUT_OF_FOLD_MASKS, REFERENCE_MASKS
from baseline.network.jobs import select_jobs, select_unfinished_jobs, train_jobs
from baseline.network.nnunet import Machine
from baseline.network.planning import plan_networks
from baseline.network.plans import PARTS, PRESETS, NetworkPlan
from baseline.package.card import read_description
from baseline.package.existing import use_networks
from baseline.pipeline import TrainingOptions, measure_out_of_fold, postprocess_masks, select_features_for_heads, train
from baseline.postprocessing.record import summarise_postprocessing
from baseline.release.prepare import check_release, format_problems, prepare_release, summarise_preparation
from baseline.report.held_out import write_answers
from baseline.report.report import make_report
from baseline.work import REFERENCE, PrepareOptions, WorkFolders, read_release_folder, require_phantoms, resolve_spacing
from contract.code import Code
from contract.errors import HecktorError

Step = Callable[[argparse.Namespace, WorkFolders], int]


def make_prepare_options(arguments: argparse.Namespace) -> PrepareOptions:
    """Make the options of `prepare`. The spacing is None if `--spacing-mm` is absent."""
    return PrepareOptions(
        str(arguments.release.resolve()),
        None if arguments.spacing_mm is None else tuple(arguments.spacing_mm),
        arguments.folds,
        arguments.seed,
        arguments.keep_going,
        arguments.edition,
        None if arguments.suv_factors is None else str(arguments.suv_factors.resolve()),
        arguments.estimate_suv,
        tuple(arguments.allow_missing),
        arguments.task,
    )


def make_plan(arguments: argparse.Namespace, release: str) -> NetworkPlan:
    """Make the plan from the preset and the options, for the patients of `release`.

    Lists are sorted without duplicates, so that equal plans compare equal. `plan_networks` fills in the spacing of the
    prepared images.

    Raises:
        HecktorError: A release of patients needs a preset by name, or an option has no effect together with another.
    """
    if arguments.preset is None:
        require_phantoms(release)
    options = _list_plan_options(arguments)
    for name, order in (
        ("backbones", tuple(BACKBONES)),
        ("mirror_axes", (0, 1, 2)),
        ("starting_parts", PARTS),
    ):
        if name in options:
            options[name] = tuple(sorted(set(options[name]), key=order.index))
    _check_effects(options)
    return PRESETS[arguments.preset or "short"].with_options(**options)


def _list_plan_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """List the options of the plan that the command line sets; lists become tuples."""
    values = {name: getattr(arguments, name, None) for name in NetworkPlan.model_fields if name != "spacing_mm"}
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items() if value is not None
    }


# Options that have no effect together with a value of another option.
_WITHOUT_EFFECT: Final[Mapping[tuple[str, Any], tuple[str, ...]]] = {
    ("channels", "CT"): ("pet_dropout",),
    ("channels", "PET"): ("pet_dropout",),
    ("dimensions", 2): ("backbones",),
}


def _check_effects(options: Mapping[str, Any]) -> None:
    for (option, value), useless_options in _WITHOUT_EFFECT.items():
        useless = next((name for name in useless_options if name in options and options.get(option) == value), None)
        if useless is not None:
            raise HecktorError(f"--{useless.replace('_', '-')}", f"found with --{option} {value}", "one of them")
    for name in ("starting_parts", "starting_stem"):
        if name in options and "starting_weights" not in options:
            raise HecktorError(f"--{name.replace('_', '-')}", "found without --starting-weights", "both")


def make_machine(arguments: argparse.Namespace) -> Machine:
    """Make device, GPUs and threads of the training."""
    return Machine(
        arguments.device,
        arguments.gpus,
        arguments.jobs,
        compile=arguments.compile,
        deterministic=arguments.deterministic,
    )


def _run_all(arguments: argparse.Namespace, work: WorkFolders) -> int:
    prepare, machine = make_prepare_options(arguments), make_machine(arguments)
    networks = arguments.networks
    if networks is not None:
        _refuse_plan_options(arguments)
    plan = NetworkPlan() if networks is not None and arguments.preset is None else make_plan(arguments, prepare.release)
    options = TrainingOptions(
        work.root,
        arguments.output,
        prepare,
        plan,
        machine,
        arguments.description,
        networks,
        tuple(arguments.code),
    )
    train(options, _show)
    return 0


def _refuse_plan_options(arguments: argparse.Namespace) -> None:
    """Refuse options that have no effect on the networks of a package."""
    options = [*_list_plan_options(arguments)]
    if options:
        option = f"--{options[0].replace('_', '-')}"
        raise HecktorError(option, "found with --networks", "one of them: nothing is trained")


def _run_prepare(arguments: argparse.Namespace, work: WorkFolders) -> int:
    options = make_prepare_options(arguments)
    if not arguments.check_only:
        preset = None if arguments.preset is None else PRESETS[arguments.preset].spacing_mm
        spacing_mm = resolve_spacing(work, options, preset, _show)
        options = replace(options, spacing_mm=spacing_mm)
    checked = check_release(options, work, arguments.jobs)
    _show(format_problems(checked.problems))
    if not checked.has_image_checks:
        _show("images not checked yet: first correct the errors above that belong to no patient")
    if arguments.check_only:
        return int(checked.has_errors)
    _show(summarise_preparation(prepare_release(options, checked, work, arguments.jobs)))
    return 0


def _run_plan(arguments: argparse.Namespace, work: WorkFolders) -> int:
    plan = make_plan(arguments, str(read_release_folder(work)))
    plan_networks(work, plan, arguments.jobs)
    _show(f"plans in {work.plans}")
    return 0


def _run_fold(arguments: argparse.Namespace, work: WorkFolders) -> int:
    jobs = select_jobs(work, arguments.fold, arguments.backbone)
    waiting = select_unfinished_jobs(work, jobs)
    if arguments.list:
        sys.stdout.write("".join(f"{job.fold} {job.backbone}\n" for job in waiting))
        return 0
    if not waiting:
        _show(f"nothing to train: {', '.join(map(str, jobs))} already finished")
        return 0
    checkpoints = train_jobs(work, jobs, make_machine(arguments))
    if len(checkpoints) == 1:
        _show(f"{jobs[0]}: trained, {checkpoints[0]}")
    return 0


def _run_postprocess(arguments: argparse.Namespace, work: WorkFolders) -> int:
    if arguments.networks is not None:
        use_networks(work, arguments.networks)
    if not (work.networks.exists() or work.plan_json.exists()) and work.features_json.is_file():  # of `heads --masks`
        _show("no postprocessing: there are no networks to compute probabilities")
        return 0
    code = Code.from_folders(arguments.code)
    postprocess_masks(work, measure_out_of_fold(work, arguments.device, arguments.jobs, code), arguments.jobs)
    code.check_used()
    _show(summarise_postprocessing(work))
    return 0


def _run_heads(arguments: argparse.Namespace, work: WorkFolders) -> int:
    _check_masks_options(arguments)
    jobs, target, code = arguments.jobs, work, Code.from_folders(arguments.code)
    origin = OUT_OF_FOLD_MASKS if arguments.masks is arguments.average is None else GIVEN_MASKS
    if arguments.masks == REFERENCE:
        origin = REFERENCE_MASKS
        from baseline.network.out_of_fold import list_reference_masks, measure_masks

        target = work.with_reference_masks()
        features = measure_masks(target, list_reference_masks(work), jobs)
    elif arguments.masks is not None:
        features = _measure_masks(work, Path(arguments.masks), jobs, arguments.labels)
    elif arguments.average is not None:
        from baseline.network.out_of_fold import average_masks

        masks = average_masks(work, [WorkFolders(folder.resolve()) for folder in arguments.average])
        features = _measure_masks(work, masks, jobs, None)
    elif arguments.nnunet is not None:
        from baseline.package.existing import find_fold_masks  # imports torch

        held_out = find_fold_masks(work, arguments.nnunet, arguments.labels)
        _show(held_out.origin)
        features = _measure_masks(work, held_out.paths, jobs, held_out.lesions)
    else:
        if arguments.networks is not None:
            use_networks(work, arguments.networks)
        features = select_features_for_heads(work, measure_out_of_fold(work, arguments.device, jobs, code), jobs)
    _show(fit_heads(target, features, jobs=jobs, code=code, device=arguments.device, masks=origin))
    if target is not work:
        _show(f"written: {target.heads_json}, which `hecktor package --heads` takes")
    return 0


def _check_masks_options(arguments: argparse.Namespace) -> None:
    """Refuse two origins of masks, and `--labels` without an origin that needs it."""
    origins = [name for name in ("masks", "average", "nnunet", "networks") if getattr(arguments, name) is not None]
    if len(origins) > 1:
        raise HecktorError(f"--{origins[0]}", f"found with --{origins[1]}", "one of them")
    if arguments.labels is not None and arguments.masks in (None, REFERENCE) and arguments.nnunet is None:
        raise HecktorError("--labels", "found without masks of your own", "--masks DIR or --nnunet RESULTS")


def _measure_masks(
    work: WorkFolders, masks: Path | Mapping[str, Path], jobs: int, lesions: tuple[int, ...] | None
) -> dict[str, Features]:
    from baseline.network.out_of_fold import measure_masks

    _show("no postprocessing: masks have no probabilities")
    return measure_masks(work, masks, jobs, lesions)


def _run_report(arguments: argparse.Namespace, work: WorkFolders) -> int:
    _show(f"report: {make_report(work, arguments.jobs)}")
    return 0


def _run_answers(arguments: argparse.Namespace, work: WorkFolders) -> int:
    written = write_answers(work, arguments.output, probabilities=arguments.probabilities)
    _show(f"held-out answers in {arguments.output}: {', '.join(written.folders)}")
    for name, reason in written.missing.items():
        _show(f"{name}: no held-out answers, and no outcomes in the reference ({reason})")
    return 0


def _run_export(arguments: argparse.Namespace, work: WorkFolders) -> int:
    code = Code.from_folders(arguments.code)
    package = export_model(work, arguments.output, read_description(arguments.description), code)
    code.check_used()
    _show(f"model package in {package}")
    return 0


def _show(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


STEPS: Final[Mapping[str, Step]] = {
    "all": _run_all,
    "prepare": _run_prepare,
    "plan": _run_plan,
    "fold": _run_fold,
    "postprocess": _run_postprocess,
    "heads": _run_heads,
    "report": _run_report,
    "export": _run_export,
    "answers": _run_answers,
}
