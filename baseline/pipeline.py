"""The training, step by step: check, prepare, plan, train, measure, postprocess, fit, report, export.

Every step reads its inputs from the working directory and skips what is already done, so an interrupted training
continues when it is started again. With the networks of an existing package, plan and train are left out.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from algorithm.heads.documents import Features, Head
from algorithm.heads.feature_hook import FEATURES, FeatureHook, custom_features, folders_of
from algorithm.heads.head_hook import HEAD, folders_of_code
from algorithm.heads.measure import features_version
from algorithm.network.package import ModelPackage
from baseline.cache import cache, load_cached
from baseline.fitted_features import check_fits, code_of_fits, fit_over_folds, fitted_hooks
from baseline.heads.cubes import cube_files
from baseline.heads.custom_features import code_of_features, measure_custom_features
from baseline.heads.document import cross_validation_document, metrics_only, summary
from baseline.heads.fitting import (
    OUT_OF_FOLD,
    FittedHead,
    cohort_of,
    fallbacks_of,
    fit_all,
    masks_of,
    read_fitted_heads,
    smallest_entry,
)
from baseline.heads.models.custom import CustomHeads, with_custom_heads
from baseline.heads.models.targets import targets_of, with_custom_features
from baseline.heads.record import checked_document, code_of_heads, read_cross_validation, stored_cross_validation
from baseline.network.jobs import final_checkpoints, package_jobs, train_jobs, usable_machine
from baseline.network.nnunet import Machine, check_trainer
from baseline.network.planning import plan_key, plan_networks
from baseline.network.plans import NetworkPlan, read_plan
from baseline.network.progress import duration
from baseline.package.card import model_card
from baseline.package.description import DEFAULTS, read_description
from baseline.package.existing import check_spacing, existing_networks, networks_record, use_networks
from baseline.postprocessing.record import postprocessing_lines, rules_in_use
from baseline.release import prepare
from baseline.release.cases import ReleaseCase, read_cases, read_release
from baseline.release.keys import key_of
from baseline.release.prepare import check_release, prepare_release
from baseline.release.record import PrepareOptions, chosen_spacing, edition_of, read_preparation, require_phantoms
from baseline.release.splits import read_splits
from baseline.report.report import check_heads, heads_key, make_report
from baseline.work import WorkFolders
from contract.code import Code
from contract.errors import HecktorError
from contract.files import write_json
from contract.packages import edition_entries
from contract.patient import listed
from contract.release.problems import as_text

if TYPE_CHECKING:  # imports torch, which only the measurement needs
    from baseline.network.out_of_fold import OutOfFoldRun

# Heads of fewer patients take less time than starting processes.
LEAST_FOR_PROCESSES: Final = 40


@dataclass(frozen=True)
class TrainingOptions:
    """Options of a whole training.

    Attributes:
        work: working directory.
        output: the model package, `*.tar.gz` for an archive, any other name for a folder.
        prepare: the release, and how to prepare it.
        plan: options of the networks; `PRESETS` holds complete plans. None is the preset `short`, for phantoms alone.
        machine: device, GPUs and processor cores.
        description: JSON file that describes the model, None for the defaults.
        networks: model package, folder or `.tar.gz`, whose networks are used; None trains networks by `plan`.
        code: folders of your own code, whose heads and features compete with ours.
    """

    work: Path
    output: Path
    prepare: PrepareOptions
    plan: NetworkPlan | None = None
    machine: Machine = field(default_factory=Machine)
    description: Path | None = None
    networks: Path | None = None
    code: tuple[Path, ...] = ()


def train(options: TrainingOptions, show: Callable[[str], object] = lambda _: None) -> Path:
    """Run every step; returns the path of the model package. `show` is called with a summary of each step.

    Raises:
        HecktorError: the release has errors, or a step failed.
    """
    begun = time.monotonic()
    work, jobs = WorkFolders(options.work.resolve()), options.machine.threads
    code = Code.of(options.code)
    # Problems of the last steps end the first one already.
    machine, plan = usable_machine(options.machine), _chosen_plan(options)
    check_trainer(plan)
    description = read_description(options.description)
    code.offered(HEAD)
    check_replaceable_heads(work, code)
    check_fits(work, custom_features(code))
    if options.networks is None:  # otherwise the package may name code
        code.check_used()
    spacing_mm = chosen_spacing(work, options.prepare, plan.spacing_mm, show)
    plan = plan.changed(spacing_mm=spacing_mm)
    options = replace(options, prepare=replace(options.prepare, spacing_mm=spacing_mm), plan=plan, machine=machine)
    if options.networks is not None:
        use_networks(work, options.networks, spacing_mm)
    show(_intention(options, plan))
    checked = check_release(options.prepare, work, jobs)
    show(as_text(checked.problems))
    show(prepare.summary(prepare_release(options.prepare, checked, work, jobs)))
    if options.networks is None:
        plan_networks(work, plan, jobs)
        show(f"plans in {work.plans}")
        train_networks(work, machine)
    features = postprocess_masks(work, measure_out_of_fold(work, machine.device, jobs, code), jobs)
    show(postprocessing_lines(work))
    show(fit_heads(work, features, jobs, code, machine.device))
    report = make_report(work, jobs)
    export_model(work, options.output, description, code)
    show(
        f"done in {duration(time.monotonic() - begun)}. Next:\n"
        f"  read the report      {report}\n"
        f"  the model package is {options.output}\n"
        f"  make the upload      hecktor submission --package {options.output} --output {work.root / 'submission'}"
    )
    return options.output


def check_replaceable_heads(work: WorkFolders, code: Code) -> None:
    """Refuse to replace heads that were fitted with an entrant's heads or features by ones without these."""
    stored = stored_cross_validation(work)
    before = {
        *(() if stored is None else stored.own),
        *(FeatureHook(code, one).reference for one in code_of_features(work)),
    }
    if lost := sorted(before - {*code.offered(HEAD), *code.offered(FEATURES)}):
        expected = "the same --code, or `hecktor train heads` without it before"
        raise HecktorError("--code", f"found no {listed(lost)}, which the heads had before", expected)


def _chosen_plan(options: TrainingOptions) -> NetworkPlan:
    if options.plan is None and options.networks is None:
        require_phantoms(options.prepare.release)
    return options.plan or NetworkPlan()


def _intention(options: TrainingOptions, plan: NetworkPlan) -> str:
    """The steps and the number of patients; no image is read."""
    patients = len(read_release(Path(options.prepare.release), options.prepare.training_edition()).cases)
    if options.networks is not None:
        steps = f"segment with the networks of {options.networks.name} (no plan, no training of networks)"
    else:
        networks = options.prepare.folds * len(plan.backbones)
        steps = f"plan, train {networks} networks of {plan.epochs} epochs (preset {plan.preset})"
    steps = f"check, prepare, {steps}, postprocess, heads, report, export"
    return f"steps for {patients} patients: {steps}; on {options.machine.device}"


def train_networks(work: WorkFolders, machine: Machine) -> None:
    """Train the networks of all balanced folds; finished ones are skipped, unfinished ones resumed."""
    train_jobs(work, package_jobs(work), machine)


def measure_out_of_fold(
    work: WorkFolders, device: str = "auto", jobs: int = 1, code: Code | None = None
) -> dict[str, Features]:
    """Segment each patient with the networks that never saw it, and measure the lesions.

    Returns features by patient ID, also written below `out_of_fold/unfiltered` with the masks;
    `postprocess_masks` and `features_for_heads` give those of the later steps.

    Raises:
        HecktorError: a network is not trained, or networks of a package expect another spacing.
    """
    from baseline.network.out_of_fold import MEASURE_VERSION, is_segmented, segment_out_of_fold

    cases, existing = read_cases(work), existing_networks(work)
    run = _run_of_folds(work, device) if existing is None else _run_of_package(work, existing, device, code)
    patients = [case.patient_id for case in cases]
    prepared = read_preparation(work)
    versions = {"version": MEASURE_VERSION, "features": features_version(prepared.smallest_lesions)}
    made_from = {"networks": run.made_from, "patients": patients, "images": prepared.data, **versions}
    key = key_of(work, [case.dose for case in cases], made_from)
    features: dict[str, Features] | None = load_cached(work.unfiltered_features_json, key)
    complete = all(is_segmented(work, name) and work.uncertainty(name).is_file() for name in patients)
    if features is None or not complete:
        measured = segment_out_of_fold(work, cases, run, jobs)
        if features is None:
            cache(work.unfiltered_features_json, key, measured)
        features = measured
    return features


def postprocess_masks(work: WorkFolders, measured: Mapping[str, Features], jobs: int = 1) -> dict[str, Features]:
    """Find minimum volumes and apply them to the out-of-fold masks; returns the features after them."""
    from baseline.postprocessing.step import postprocess

    return postprocess(work, measured, jobs)


def features_for_heads(work: WorkFolders, measured: Mapping[str, Features], jobs: int = 1) -> dict[str, Features]:
    """The features that heads are fitted on: after postprocessing, if that step was run; else as measured."""
    from baseline.postprocessing.step import keep_all, postprocess

    return postprocess(work, measured, jobs) if work.postprocessing_json.is_file() else keep_all(work, measured)


def _run_of_folds(work: WorkFolders, device: str) -> OutOfFoldRun:
    """Each patient by the trained networks of the fold that held it out."""
    from baseline.network.out_of_fold import OutOfFoldRun

    finals = final_checkpoints(work)
    checkpoints = tuple(itertools.chain.from_iterable(finals.values()))
    # The average matters only where several networks held the patient out.
    average = {"average": "probabilities"} if len(finals) > 1 else {}
    networks = key_of(work, checkpoints, {"plan": plan_key(work, read_plan(work)), **average})
    fold_of = {patient: number for number, fold in enumerate(read_splits(work).folds) for patient in fold}
    return OutOfFoldRun(lambda: _export_networks(work), fold_of, networks, device)


def _run_of_package(work: WorkFolders, package: ModelPackage, device: str, code: Code | None) -> OutOfFoldRun:
    """Every patient by all networks of a package."""
    from baseline.network.out_of_fold import OutOfFoldRun

    check_spacing(package, read_preparation(work).spacing_mm)
    if code:
        code.use(package.manifest.code)
    return OutOfFoldRun(lambda: package.root, None, networks_record(package)["sha256"], device, code)


def fit_heads(
    work: WorkFolders,
    features: Mapping[str, Features],
    jobs: int = 1,
    code: Code | None = None,
    device: str = "auto",
    masks: str = OUT_OF_FOLD,
) -> str:
    """Fit the heads (`heads.json`) and cross-validate them (`cross_validation.json`); returns a summary.

    Skipped for unchanged features, clinical variables, outcomes and splits. The heads of `code` are more candidates;
    their files are written beside `heads.json`. Its features are measured on the masks of `features`; those that are
    fitted to outcomes are fitted on `device`, measured out-of-fold, and left out of the cross-validations. `masks` is
    noted in the heads.
    """
    own, hooks = None, custom_features(code)
    if code:
        own = CustomHeads(code, code.offered(HEAD))
        code.check_used()
    cases = [case for case in read_cases(work) if case.patient_id in features]
    record = {} if own is None else own.record()
    seed, by_hooks = read_splits(work).seed, _features_of_code(work, cases, hooks, jobs, device)
    key = heads_key(work, cases, record)
    for rows in by_hooks:
        features = {name: {**row, **rows.get(name, {})} for name, row in features.items()}
    units = [name for hook in hooks for name in hook.units]
    fitted_units = [name for hook in hooks if hook.is_fitted for name in hook.units]
    targets = [with_custom_features(target, units, fitted_units) for target in targets_of(edition_of(work))]
    targets = targets if own is None else [with_custom_heads(target, own) for target in targets]
    jobs = jobs if len(cases) >= LEAST_FOR_PROCESSES else 1
    stored = stored_cross_validation(work) if work.heads_json.is_file() else None
    if stored is None or stored.made_from != key:
        save = None if own is None else partial(own.saved, folder=work.own_heads)
        with cube_files(work, cases, () if own is None else own.cube_sizes(), jobs) as images:
            cohorts = [(target, cohort_of(target, cases, features, images)) for target in targets]
            fitted = fit_all(cohorts, seed, jobs, save).measured_on(masks, read_preparation(work).smallest_lesions)
            document = cross_validation_document(cohorts, seed, fitted.why_not, jobs)
        write_json(work.heads_json, fitted.as_json())
        document |= {"made_from": key} | ({"own": record} if record else {})
        write_json(work.cross_validation_json, checked_document(document).as_json())
    return summary(work.read(work.heads_json), read_cross_validation(work).as_json(), targets)


def _features_of_code(
    work: WorkFolders, cases: Sequence[ReleaseCase], hooks: Sequence[FeatureHook], jobs: int, device: str
) -> list[dict[str, Features]]:
    """The features of an entrant's classes by patient ID: measured once, or fitted over the folds."""
    check_fits(work, hooks)
    plain = measure_custom_features(work, cases, [hook for hook in hooks if not hook.is_fitted], jobs)
    fitted = [fit_over_folds(work, cases, hook, device, jobs) for hook in hooks if hook.is_fitted]
    return [plain, *fitted]


def export_model(
    work: WorkFolders, output: Path, description: Mapping[str, str] = DEFAULTS, code: Code | None = None
) -> Path:
    """Write the model package of networks and fitted heads, with its model card, to `output`, which is returned.

    `code` is for entrants' networks, which are tried before they are packed.

    Raises:
        HecktorError: a step has not been run, or the heads were fitted before another one changed their features.
    """
    records = work.read(work.heads_json)
    check_heads(work)
    fitted = {
        n: one for n, one in read_fitted_heads(records, work.heads_json.name).items() if isinstance(one, FittedHead)
    }
    cases, splits, edition = read_cases(work), read_splits(work), edition_of(work)
    existing = existing_networks(work)
    training = {
        "patients": len(cases),
        "centres": sorted({case.centre for case in cases}),
        "folds": len(splits.folds),
        "seed": splits.seed,
    }
    training |= {} if (masks := masks_of(fitted)) == "" else {"heads_fitted_on": masks}
    training |= {"plan": read_plan(work).record()} if existing is None else {}
    out_of_fold = {
        name: {one.metric: round(one.out_of_fold, 4), "penalty": one.penalty} for name, one in fitted.items()
    }
    rules = rules_in_use(work)
    manifest = {
        **description,
        **edition_entries(edition),
        **({} if rules is None else {"postprocessing": rules}),
        "training": training,
        **({} if existing is None else {"networks_from": networks_record(existing)}),
        "fallbacks": fallbacks_of(edition, fitted),
        **smallest_entry(fitted),
        "out_of_fold": out_of_fold,
        "cross_validation": metrics_only(read_cross_validation(work).targets(), targets_of(edition)),
    }
    heads = {name: one.head for name, one in fitted.items()}
    if own := {*folders_of(heads.values()), *folders_of_code(heads.values())}:
        digests = code_of_features(work) | code_of_fits(work) | code_of_heads(read_cross_validation(work))
        manifest["code"] = {name: digest for name, digest in digests.items() if name in own}
    return _export(work, output, heads, manifest, model_card(work, description), code)


def _export_networks(work: WorkFolders) -> Path:
    """A package without heads, for the measurement."""
    description = {"name": "out-of-fold", "purpose": "measuring features in training"}
    description |= edition_entries(edition_of(work))
    return _export(work, work.root / "bare_package", {}, description, None)


def _export(
    work: WorkFolders,
    output: Path,
    heads: Mapping[str, Head],
    manifest: Mapping[str, Any],
    card: str | None,
    code: Code | None = None,
) -> Path:
    from baseline.package.export import PackageContents, export_contents, export_package

    existing = existing_networks(work)
    if code:
        code.use(folders_of_code(heads.values()))
    features = fitted_hooks(work.heads_json.parent, heads.values(), code or Code({})) if heads else []
    if existing is not None:
        own = work.own_heads
        if code:
            code.use(existing.manifest.code)
        return export_contents(output, PackageContents(existing, heads, manifest, card, features, code, own))
    from baseline.network.checkpoint import read_checkpoint

    channels = list(edition_of(work).algorithms[0].channels)
    plans, final, own = work.read(work.plans), final_checkpoints(work), work.own_heads
    # The plan's, unless its trainer mirrors nothing.
    mirror_axes = read_checkpoint(next(iter(final.values()))[0]).mirror_axes
    described = {**manifest, "channels": channels, "mirror_axes": list(mirror_axes)}
    return export_package(output, plans, final, heads, described, card, features, own)
