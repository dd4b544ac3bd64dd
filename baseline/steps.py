"""Steps of `hecktor train`, each from its command line to the functions of the pipeline."""

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
from baseline.heads.fitting import GIVEN, OUT_OF_FOLD
from baseline.heads.fitting import REFERENCE as REFERENCE_MASKS
from baseline.measure import features_for_heads, measure_out_of_fold, postprocess_masks
from baseline.network.jobs import select_jobs, train_jobs, unfinished
from baseline.network.nnunet import Machine
from baseline.network.planning import plan_networks
from baseline.network.plans import PRESETS, NetworkPlan
from baseline.package.card import read_description
from baseline.package.existing import use_networks
from baseline.pipeline import TrainingOptions, train
from baseline.postprocessing.record import postprocessing_lines
from baseline.preparation import PrepareOptions, release_of, require_phantoms, resolve_spacing
from baseline.release.prepare import check_release, prepare_release, summary
from baseline.release.problems import as_text
from baseline.report.answers import write_answers
from baseline.report.report import make_report
from baseline.work import REFERENCE, WorkFolders
from contract.code import Code
from contract.errors import HecktorError

Step = Callable[[argparse.Namespace, WorkFolders], int]


def prepare_options(arguments: argparse.Namespace) -> PrepareOptions:
    """The options of `prepare`; a spacing that is not given is None."""
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


def plan_of(arguments: argparse.Namespace, release: str) -> NetworkPlan:
    """The preset with the given options, for the patients of `release`.

    Lists are sorted without duplicates, so that equal plans compare equal. `plan_networks` fills in the spacing of the
    prepared images.

    Raises:
        HecktorError: no preset for a release of patients; an option without effect beside another one.
    """
    if arguments.preset is None:
        require_phantoms(release)
    options = {name: getattr(arguments, name, None) for name in NetworkPlan.model_fields if name != "spacing_mm"}
    given = {name: tuple(one) if isinstance(one, list) else one for name, one in options.items() if one is not None}
    for name, order in (("backbones", tuple(BACKBONES)), ("mirror_axes", (0, 1, 2))):
        if name in given:
            given[name] = tuple(sorted(set(given[name]), key=order.index))
    _check_effects(given)
    return PRESETS[arguments.preset or "short"].changed(**given)


# Options that have no effect together with an option's value.
_WITHOUT_EFFECT: Final[Mapping[tuple[str, Any], tuple[str, ...]]] = {
    ("channels", "CT"): ("pet_dropout",),
    ("channels", "PET"): ("pet_dropout",),
    ("dimensions", 2): ("backbones",),
}


def _check_effects(given: Mapping[str, Any]) -> None:
    for (option, value), others in _WITHOUT_EFFECT.items():
        found = next((one for one in others if one in given and given.get(option) == value), None)
        if found is not None:
            raise HecktorError(f"--{found.replace('_', '-')}", f"found with --{option} {value}", "one of them")


def machine_of(arguments: argparse.Namespace) -> Machine:
    """Device, GPUs and threads of the training."""
    return Machine(
        arguments.device,
        arguments.gpus,
        arguments.jobs,
        compile=arguments.compile,
        deterministic=arguments.deterministic,
    )


def _all(arguments: argparse.Namespace, work: WorkFolders) -> int:
    prepare, machine = prepare_options(arguments), machine_of(arguments)
    networks = arguments.networks
    if networks is not None:
        _refuse_plan_options(arguments)
    plan = NetworkPlan() if networks is not None and arguments.preset is None else plan_of(arguments, prepare.release)
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
    """Refuse options that have no effect on networks of a package."""
    options = (name for name in NetworkPlan.model_fields if name != "spacing_mm")
    given = [name for name in options if getattr(arguments, name, None) is not None]
    if given:
        raise HecktorError(
            f"--{given[0].replace('_', '-')}", "found with --networks", "one of them: nothing is trained"
        )


def _prepare(arguments: argparse.Namespace, work: WorkFolders) -> int:
    options = prepare_options(arguments)
    if not arguments.check_only:
        preset = None if arguments.preset is None else PRESETS[arguments.preset].spacing_mm
        spacing_mm = resolve_spacing(work, options, preset, _show)
        options = replace(options, spacing_mm=spacing_mm)
    checked = check_release(options, work, arguments.jobs)
    _show(as_text(checked.problems))
    if not checked.has_image_checks:
        _show("images not checked yet: first correct the errors above that belong to no patient")
    if arguments.check_only:
        return int(checked.has_errors)
    _show(summary(prepare_release(options, checked, work, arguments.jobs)))
    return 0


def _plan(arguments: argparse.Namespace, work: WorkFolders) -> int:
    plan = plan_of(arguments, str(release_of(work)))
    plan_networks(work, plan, arguments.jobs)
    _show(f"plans in {work.plans}")
    return 0


def _fold(arguments: argparse.Namespace, work: WorkFolders) -> int:
    jobs = select_jobs(work, arguments.fold, arguments.backbone)
    waiting = unfinished(work, jobs)
    if arguments.list:
        sys.stdout.write("".join(f"{job.fold} {job.backbone}\n" for job in waiting))
        return 0
    if not waiting:
        _show(f"nothing to train: {', '.join(map(str, jobs))} finished before")
        return 0
    checkpoints = train_jobs(work, jobs, machine_of(arguments))
    if len(checkpoints) == 1:
        _show(f"{jobs[0]}: trained, {checkpoints[0]}")
    return 0


def _postprocess(arguments: argparse.Namespace, work: WorkFolders) -> int:
    if arguments.networks is not None:
        use_networks(work, arguments.networks)
    if not (work.networks.exists() or work.plan_json.exists()) and work.features_json.is_file():  # of `heads --masks`
        _show("no postprocessing: there are no networks to compute probabilities")
        return 0
    code = Code.from_folders(arguments.code)
    postprocess_masks(work, measure_out_of_fold(work, arguments.device, arguments.jobs, code), arguments.jobs)
    code.check_used()
    _show(postprocessing_lines(work))
    return 0


def _heads(arguments: argparse.Namespace, work: WorkFolders) -> int:
    _check_masks_options(arguments)
    jobs, target, code = arguments.jobs, work, Code.from_folders(arguments.code)
    origin = OUT_OF_FOLD if arguments.masks is arguments.average is None else GIVEN
    if arguments.masks == REFERENCE:
        origin = REFERENCE_MASKS
        from baseline.network.given_masks import measure_masks, reference_masks

        target = work.for_reference_masks()
        features = measure_masks(target, reference_masks(work), jobs)
    elif arguments.masks is not None:
        features = _measure_masks(work, Path(arguments.masks), jobs, arguments.labels)
    elif arguments.average is not None:
        from baseline.network.given_masks import average_masks

        masks = average_masks(work, [WorkFolders(one.resolve()) for one in arguments.average])
        features = _measure_masks(work, masks, jobs, None)
    elif arguments.nnunet is not None:
        from baseline.package.nnunet_results import fold_masks  # imports torch

        held_out = fold_masks(work, arguments.nnunet, arguments.labels)
        _show(held_out.origin)
        features = _measure_masks(work, held_out.paths, jobs, held_out.lesions)
    else:
        if arguments.networks is not None:
            use_networks(work, arguments.networks)
        features = features_for_heads(work, measure_out_of_fold(work, arguments.device, jobs, code), jobs)
    _show(fit_heads(target, features, jobs, code, arguments.device, origin))
    if target is not work:
        _show(f"written: {target.heads_json}, which `hecktor package --heads` takes")
    return 0


def _check_masks_options(arguments: argparse.Namespace) -> None:
    """Refuse two origins of masks, and options of an origin that is not given."""
    origins = [name for name in ("masks", "average", "nnunet", "networks") if getattr(arguments, name) is not None]
    if len(origins) > 1:
        raise HecktorError(f"--{origins[0]}", f"found with --{origins[1]}", "one of them")
    if arguments.labels is not None and arguments.masks in (None, REFERENCE) and arguments.nnunet is None:
        raise HecktorError("--labels", "found without masks of your own", "--masks DIR or --nnunet RESULTS")


def _measure_masks(
    work: WorkFolders, masks: Path | Mapping[str, Path], jobs: int, lesions: tuple[int, ...] | None
) -> dict[str, Features]:
    from baseline.network.given_masks import measure_masks

    _show("no postprocessing: masks have no probabilities")
    return measure_masks(work, masks, jobs, lesions)


def _report(arguments: argparse.Namespace, work: WorkFolders) -> int:
    _show(f"report: {make_report(work, arguments.jobs)}")
    return 0


def _answers(arguments: argparse.Namespace, work: WorkFolders) -> int:
    folders = write_answers(work, arguments.output, probabilities=arguments.probabilities)
    _show(f"held-out answers in {arguments.output}: {', '.join(folders)}")
    return 0


def _export(arguments: argparse.Namespace, work: WorkFolders) -> int:
    code = Code.from_folders(arguments.code)
    package = export_model(work, arguments.output, read_description(arguments.description), code)
    code.check_used()
    _show(f"model package in {package}")
    return 0


def _show(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


STEPS: Final[Mapping[str, Step]] = {
    "all": _all,
    "prepare": _prepare,
    "plan": _plan,
    "fold": _fold,
    "postprocess": _postprocess,
    "heads": _heads,
    "report": _report,
    "export": _export,
    "answers": _answers,
}
