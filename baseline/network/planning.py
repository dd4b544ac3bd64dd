"""Plan and preprocess the prepared patients, unless networks already train by the same plan."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace

from baseline.cache import key_of
from baseline.network.interruption import end_at_once
from baseline.network.nnunet import set_environment
from baseline.network.plans import NetworkPlan
from baseline.network.training.inputs import digest_of_inputs, forget_organ_labels, write_plans_and_labels
from baseline.release.cases import read_cases
from baseline.release.splits import as_nnunet_splits, read_splits
from baseline.work import CONFIGURATION, DATASET_ID, PLANS_NAME, WorkFolders
from contract.errors import HecktorError
from contract.files import read_json, write_json


def plan_networks(work: WorkFolders, plan: NetworkPlan, jobs: int) -> NetworkPlan:
    """Let nnU-Net plan and preprocess; returns the plan with the prepared spacing.

    Raises:
        HecktorError: a network has a checkpoint of another plan, other images or other splits, or the working directory
            uses the networks of a package.
    """
    if work.networks.is_dir():
        raise HecktorError(work.networks.name, "found the networks of a package", "a new working directory to train")
    plan = replace(plan, spacing_mm=tuple(work.read(work.prepare_json)["options"]["spacing_mm"]))
    plan = replace(plan, inputs=digest_of_inputs(plan))
    key = plan_key(work, plan)
    if work.plan_json.is_file():
        if read_json(work.plan_json).get("key") == key:
            return plan
        if any(work.results.rglob("checkpoint_*.pth")):
            raise HecktorError(
                work.plan_json.name,
                "a network has been trained with other options, images or splits",
                "the same (or a new working directory)",
            )
        work.plan_json.unlink()
    # Remains of an interrupted plan, or of another one without a checkpoint.
    for folder in (work.preprocessed, work.training):
        shutil.rmtree(folder, ignore_errors=True)
    with_mask = [case.patient_id for case in read_cases(work) if case.mask is not None]
    splits = as_nnunet_splits(read_splits(work), with_mask)
    with end_at_once("the plan will be made again next time"):
        plan_and_preprocess(work, plan, splits, jobs)
    write_json(work.plan_json, {"key": key, "options": asdict(plan)})
    return plan


def plan_and_preprocess(work: WorkFolders, plan: NetworkPlan, splits: list[dict[str, list[str]]], jobs: int) -> None:
    """Fingerprint, plan and preprocess the raw data set."""
    set_environment(work, augmentation_workers=1)  # nnU-Net's planner uses this as its number of threads
    from nnunetv2.experiment_planning.dataset_fingerprint.fingerprint_extractor import DatasetFingerprintExtractor
    from nnunetv2.experiment_planning.plan_and_preprocess_api import preprocess_dataset

    if not work.plans.is_file():
        DatasetFingerprintExtractor(DATASET_ID, jobs, verbose=False).run(overwrite_existing=False)
        write_plans_and_labels(work, plan)
    write_json(work.preprocessed / "splits_final.json", splits)
    preprocess_dataset(DATASET_ID, PLANS_NAME, (CONFIGURATION,), (jobs,), verbose=False)
    forget_organ_labels(work)


def plan_key(work: WorkFolders, plan: NetworkPlan) -> str:
    """Digest of the inputs of a plan: its options, the prepared images and the splits."""
    data = work.read(work.prepare_json)["data"]
    return key_of((), {"plan": plan.identity(), "data": data, "splits": read_splits(work).held_out})
