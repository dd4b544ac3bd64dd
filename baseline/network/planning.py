"""Plan and preprocess the prepared patients, unless networks already train by the same plan."""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from baseline.cache import key_of
from baseline.network.interruption import end_at_once
from baseline.network.jobs import package_jobs, unfinished
from baseline.network.nnunet import set_environment
from baseline.network.plans import INPUTS, NetworkPlan, read_plan
from baseline.network.training.inputs import digest_of_inputs, forget_organ_labels, write_plans_and_labels
from baseline.release.cases import read_cases
from baseline.release.prepare import PrepareOptions, check_release, prepare_release
from baseline.release.spacing import DEFAULT_MM, as_text, new_spacing_advice, prepared_spacing
from baseline.release.splits import as_nnunet_splits, read_splits
from baseline.work import CONFIGURATION, DATASET_ID, DEFAULT_PLAN, WorkFolders
from contract.errors import HecktorError
from contract.files import read_json, write_json

LOGGER = logging.getLogger("hecktor")


def plan_networks(work: WorkFolders, plan: NetworkPlan, jobs: int) -> NetworkPlan:
    """Let nnU-Net plan and preprocess; returns the plan with the prepared spacing.

    Images of the default spacing for a plan of another one give a warning.

    Raises:
        HecktorError: a network has a checkpoint of another plan, other images or other splits, or the working directory
            uses the networks of a package.
    """
    if work.networks.is_dir():
        expected = "another --name, or a new working directory, to train"
        raise HecktorError(work.networks.name, "found the networks of a package", expected)
    plan = at_prepared_spacing(work, plan)
    plan = replace(plan, inputs=_inputs(work, plan))
    key = plan_key(work, plan)
    if work.plan_json.is_file():
        if read_json(work.plan_json).get("key") == key:
            if read_plan(work) != plan:  # the same files elsewhere
                write_json(work.plan_json, {"key": key, "options": asdict(plan)})
            return plan
        _check_replaceable(work, "a network has been trained with other options, images or splits")
        work.plan_json.unlink()
    _remove_remains(work)
    with_mask = [case.patient_id for case in read_cases(work) if case.mask is not None]
    splits = as_nnunet_splits(read_splits(work), with_mask)
    with end_at_once("the plan will be made again next time"):
        plan_and_preprocess(work, plan, splits, jobs)
    write_json(work.plan_json, {"key": key, "options": asdict(plan)})
    return plan


def _inputs(work: WorkFolders, plan: NetworkPlan) -> str | None:
    """Digest of the files that the plan names.

    Trained networks no longer need them: if all of the plan's are trained, files of the same paths are not read again,
    and may be absent.
    """
    if work.plan_json.is_file() and not unfinished(work, package_jobs(work)):
        trained = read_plan(work)
        if all(getattr(plan, name) == getattr(trained, name) for name in INPUTS):
            return trained.inputs
    return digest_of_inputs(plan)


def at_prepared_spacing(work: WorkFolders, plan: NetworkPlan) -> NetworkPlan:
    """The plan with the spacing of the prepared images, with a warning if these were prepared without its preset."""
    prepared = prepared_spacing(work)
    if prepared == DEFAULT_MM != plan.spacing_mm:
        found = f"found images of {as_text(prepared)} mm for a plan of {as_text(plan.spacing_mm)} mm"
        LOGGER.warning("*** WARNING *** spacing: %s, expected %s", found, new_spacing_advice(plan.spacing_mm))
    return replace(plan, spacing_mm=prepared)


def with_spacing(work: WorkFolders, spacing_mm: tuple[float, float, float], jobs: int) -> WorkFolders:
    """Prepare the release once more at the spacing (x, y, z) of a named plan; returns the plan's folders.

    Plans of one spacing share the images. The spacing that `prepare` was given needs no images of its own.

    Raises:
        HecktorError: the default plan, whose spacing is that of `prepare`; or the plan has trained networks.
    """
    prepared = WorkFolders(work.shared)
    stored = prepared.read(prepared.prepare_json)["options"]
    options = PrepareOptions(**{**stored, "spacing_mm": tuple(stored["spacing_mm"])})
    has_networks = work.plan_json.is_file() and any(work.results.rglob("checkpoint_*.pth"))
    if has_networks and read_plan(work).spacing_mm != spacing_mm:
        raise HecktorError("--spacing-mm", f"{work.name} has networks of another spacing", "another --name")
    if spacing_mm == options.spacing_mm:
        work.spacing_json.unlink(missing_ok=True)
        return WorkFolders(work.shared, work.name)
    if work.name == DEFAULT_PLAN:
        raise HecktorError("--spacing-mm", "found with the default plan", "a plan with --name, or `prepare`")
    write_json(work.spacing_json, {"spacing_mm": list(spacing_mm)})
    work, options = WorkFolders(work.shared, work.name), replace(options, spacing_mm=spacing_mm)
    prepare_release(options, check_release(options, work, jobs), work, jobs)
    return work


def _check_replaceable(work: WorkFolders, found: str) -> None:
    if any(work.results.rglob("checkpoint_*.pth")):
        raise HecktorError(work.plan_json.name, found, "the same (or another --name, or a new working directory)")


def _remove_remains(work: WorkFolders) -> None:
    """Remove files of an interrupted plan, or of another one without a checkpoint, but nothing that other plans use."""
    shutil.rmtree(work.training, ignore_errors=True)
    others = sharing_images(work)
    for other in others:
        if read_json(other.plan_json).get("key") != plan_key(other, read_plan(other)):
            _check_replaceable(other, f"images or splits have changed since its networks (plan {other.name})")
            other.plan_json.unlink()
    work.plans.unlink(missing_ok=True)
    used = {data_identifier(other) for other in others if other.plan_json.is_file()}
    if not used:
        shutil.rmtree(work.preprocessed, ignore_errors=True)
        return
    for folder in work.preprocessed.glob(f"{work.plans_name}_{CONFIGURATION}*"):
        if folder.name not in used:
            shutil.rmtree(folder)


def plan_and_preprocess(work: WorkFolders, plan: NetworkPlan, splits: list[dict[str, list[str]]], jobs: int) -> None:
    """Fingerprint, plan and preprocess the raw data set; images that another plan has preprocessed alike are reused."""
    set_environment(work, augmentation_workers=1)  # nnU-Net's planner uses this as its number of threads
    from nnunetv2.experiment_planning.dataset_fingerprint.fingerprint_extractor import DatasetFingerprintExtractor
    from nnunetv2.experiment_planning.plan_and_preprocess_api import preprocess_dataset

    if not work.plans.is_file():
        DatasetFingerprintExtractor(DATASET_ID, jobs, verbose=False).run(overwrite_existing=False)
        write_plans_and_labels(work, plan)
    write_json(work.preprocessed / "splits_final.json", splits)
    if not share_preprocessed(work):
        preprocess_dataset(DATASET_ID, work.plans_name, (CONFIGURATION,), (jobs,), verbose=False)
    forget_organ_labels(work)


def sharing_images(work: WorkFolders) -> list[WorkFolders]:
    """The other plans on the same prepared images."""
    return [other for other in work.others() if other.images == work.images]


def data_identifier(work: WorkFolders) -> str:
    """The folder of nnU-Net's preprocessed images, as the plans name it."""
    return str(read_json(work.plans)["configurations"][CONFIGURATION]["data_identifier"])


def share_preprocessed(work: WorkFolders) -> bool:
    """Use the images of another plan if it preprocesses alike; returns whether there is one.

    The `data_identifier` of the plans becomes that plan's; otherwise a name that no other plan uses.
    """
    plans = read_json(work.plans)
    others = {data_identifier(other): _preprocessing(read_json(other.plans)) for other in sharing_images(work)}
    shared = next((name for name, other in others.items() if other == _preprocessing(plans)), None)
    own = f"{work.plans_name}_{CONFIGURATION}"
    candidates = itertools.chain([own], (f"{own}_{number}" for number in itertools.count(2)))
    name = shared or next(one for one in candidates if one not in others)
    plans["configurations"][CONFIGURATION]["data_identifier"] = name
    write_json(work.plans, plans)
    return shared is not None


def _preprocessing(plans: Mapping[str, Any]) -> dict[str, Any]:
    """Everything in nnU-Net's plans that decides the values of preprocessed images."""
    own = plans["configurations"][CONFIGURATION]
    of_configuration = {
        key: own.get(key)
        for key in own
        if key in ("spacing", "preprocessor_name", "normalization_schemes", "use_mask_for_norm")
        or key.startswith(("resampling_fn_data", "resampling_fn_seg"))
    }
    keys = ("transpose_forward", "foreground_intensity_properties_per_channel", "organ_masks")
    return of_configuration | {key: plans.get(key) for key in keys}


def plan_key(work: WorkFolders, plan: NetworkPlan) -> str:
    """Digest of the inputs of a plan: its options, the prepared images and the splits."""
    data = work.read(work.prepare_json)["data"]
    return key_of((), {"plan": plan.identity(), "data": data, "splits": read_splits(work).held_out})
