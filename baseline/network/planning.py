"""Planning and preprocessing with nnU-Net, which are skipped if the working directory already has the same plan."""

from __future__ import annotations

import importlib
import logging
import shutil
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

from algorithm.network.backbones import BACKBONES
from algorithm.network.package import INTENSITIES
from baseline.cache import compute_digest
from baseline.network.jobs import list_package_jobs, select_unfinished_jobs
from baseline.network.nnunet import check_trainer
from baseline.network.patches import replace_process_pools, set_environment
from baseline.network.plans import UNREACHED_SUV, NetworkPlan, describe_differences, load_plan, read_plan, store_plan
from baseline.network.progress import exit_at_interrupt
from baseline.release.cases import read_cases
from baseline.release.splits import make_nnunet_splits, read_splits
from baseline.work import (
    CONFIGURATION,
    CONFIGURATIONS,
    DATASET_ID,
    DEFAULT_SPACING_MM,
    PLANS_NAME,
    WorkFolders,
    format_spacing,
    read_preparation,
)
from contract.errors import HecktorError, InputError
from contract.io.files import read_json, write_json
from contract.packages import CHANNELS, make_file_entry

LOGGER = logging.getLogger("hecktor")
# Number of voxels drawn from all patients' lesions for the statistics of intensities, as in nnU-Net.
FINGERPRINT_VOXELS = 100_000_000
# Exceeds the number of stages of all plans; nnU-Net takes as many entries as it needs.
_MAX_STAGES: Final = 13
_CT_AND_PET_OPTIONS: Final = ("channels", "pet_dropout")
_MODULES: Final = "nnunetv2.experiment_planning.experiment_planners"
_DEFAULT: Final = f"{_MODULES}.default_experiment_planner"
_RESIDUAL: Final = f"{_MODULES}.residual_unets.residual_encoder_unet_planners"
# A single convolution at the finest resolution halves the cost of a step on a CPU.
_SHALLOW: Final = {
    "UNet_blocks_per_stage_encoder": (1, *(2,) * _MAX_STAGES),
    "UNet_blocks_per_stage_decoder": (1,) * _MAX_STAGES,
}
# Module and name of nnU-Net's planner for each network, and the attributes to change.
_PLANNERS: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "shallow": (_DEFAULT, "ExperimentPlanner", _SHALLOW),
    "plain": (_DEFAULT, "ExperimentPlanner", {}),
    "resenc-m": (_RESIDUAL, "nnUNetPlannerResEncM", {}),
    "resenc-l": (_RESIDUAL, "nnUNetPlannerResEncL", {}),
}


def plan_networks(work: WorkFolders, plan: NetworkPlan, jobs: int) -> NetworkPlan:
    """Let nnU-Net plan and preprocess; return the plan with the prepared spacing.

    If the images have the default spacing and the plan has another spacing, a warning is logged.

    Raises:
        HecktorError: A network has a checkpoint of another plan, other images or other splits, or the working directory
            uses the networks of a package.
    """
    if work.networks.is_dir():
        raise HecktorError(work.networks.name, "found the networks of a package", "a new working directory to train")
    check_trainer(plan)
    _check_images(work, plan)
    plan = use_prepared_spacing(work, plan)
    plan = plan.with_options(starting_weights_digest=_digest_starting_weights(work, plan))
    key = compute_plan_key(work, plan)
    if work.plan_json.is_file():
        stored = load_plan(work)
        if stored.key == key:
            if stored.plan != plan:  # the same starting weights under another path
                store_plan(work, key, plan)
            return plan
        if any(work.results.rglob("checkpoint_*.pth")):
            problem = f"a network has been trained with {describe_differences(stored.plan, plan)}"
            raise HecktorError(work.plan_json.name, problem, "the same (or a new working directory)")
        work.plan_json.unlink()
    shutil.rmtree(work.preprocessed, ignore_errors=True)  # files of another plan, or of an interrupted run
    with_mask = [case.patient_id for case in read_cases(work) if case.mask is not None]
    splits = make_nnunet_splits(read_splits(work), with_mask)
    work.plan_log.parent.mkdir(parents=True, exist_ok=True)
    with (
        exit_at_interrupt("the plan will be made again next time"),
        work.plan_log.open("w") as log,
        redirect_stdout(log),
    ):
        plan_and_preprocess(work, plan, splits, jobs)
    store_plan(work, key, plan)
    return plan


def _check_images(work: WorkFolders, plan: NetworkPlan) -> None:
    """Refuse options about the PET for networks of MR images."""
    channels = read_cases(work)[0].channels
    changed = [name for name in _CT_AND_PET_OPTIONS if getattr(plan, name) != getattr(NetworkPlan(), name)]
    if changed and channels != CHANNELS:
        option = f"--{changed[0].replace('_', '-')}"
        raise HecktorError(
            option, f"found for networks that see {', '.join(channels)}", "CT and PET, or no such option"
        )


def _digest_starting_weights(work: WorkFolders, plan: NetworkPlan) -> str | None:
    """Compute the digest of the plan's starting weights.

    Trained networks no longer need starting weights. If all networks of the plan are trained, weights of the same path
    are not read again and may be absent.
    """
    if work.plan_json.is_file() and not select_unfinished_jobs(work, list_package_jobs(work)):
        trained = read_plan(work)
        if plan.starting_weights == trained.starting_weights:
            return trained.starting_weights_digest
    return None if plan.starting_weights is None else digest_contents(Path(plan.starting_weights))


def digest_contents(path: Path) -> str:
    """Compute the digest of a file, or of all files of a folder by their names in the folder.

    The path itself and modification times do not count, so that the files may be moved or copied.

    Raises:
        InputError: The path does not exist.
    """
    if not path.exists():
        raise InputError(str(path), "not found", "the file or folder that the plan names")
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return compute_digest({file.relative_to(path).as_posix(): make_file_entry(file)["sha256"] for file in files})


def use_prepared_spacing(work: WorkFolders, plan: NetworkPlan) -> NetworkPlan:
    """Return the plan with the spacing of the prepared images; warn if they were prepared without the plan's preset."""
    prepared = read_preparation(work).spacing_mm
    if prepared == DEFAULT_SPACING_MM != plan.spacing_mm:
        planned = format_spacing(plan.spacing_mm)
        problem = f"found images of {format_spacing(prepared)} mm for a plan of {planned} mm"
        expected = f"`hecktor train prepare --spacing-mm {planned}` in a new working directory"
        LOGGER.warning("spacing: %s, expected %s", problem, expected)
    return plan.with_options(spacing_mm=prepared)


def plan_and_preprocess(work: WorkFolders, plan: NetworkPlan, splits: list[dict[str, list[str]]], jobs: int) -> None:
    """Fingerprint, plan and preprocess the raw data set; one job runs in this process."""
    set_environment(work, augmentation_workers=1)  # nnU-Net's planner uses this as its number of threads
    from nnunetv2.experiment_planning.dataset_fingerprint.fingerprint_extractor import DatasetFingerprintExtractor
    from nnunetv2.experiment_planning.plan_and_preprocess_api import preprocess_dataset

    with replace_process_pools(jobs):
        extractor = DatasetFingerprintExtractor(DATASET_ID, jobs, verbose=False)
        extractor.num_foreground_voxels_for_intensitystats = FINGERPRINT_VOXELS
        extractor.run(overwrite_existing=False)
        write_plans(plan, work.plans)
        write_json(work.preprocessed / "splits_final.json", splits)
        preprocess_dataset(DATASET_ID, PLANS_NAME, (CONFIGURATION,), (jobs,), verbose=False)


def write_plans(plan: NetworkPlan, path: Path) -> dict[str, Any]:
    """Let nnU-Net plan its fingerprinted data set into `path`, and add options and backbones; return the plans.

    Raises:
        HecktorError: The planned patch has odd edges, which a backbone cannot halve, or no patch fits into the memory.
    """
    planner = _make_planner(plan, path.stem)
    with replace_process_pools(1):
        planner.plan_experiment()
    plans: dict[str, Any] = read_json(path)
    if plan.pet_scale == "fixed":
        fix_pet_scale(plans, planner.dataset_json["channel_names"])
    configuration = plans["configurations"][CONFIGURATION]
    if plan.dimensions == 2:
        configuration |= convert_to_one_slice(plans["configurations"]["2d"])
    # As in inference, all voxels determine the scale of an image.
    configuration["use_mask_for_norm"] = [False] * len(configuration["use_mask_for_norm"])
    options = {name: getattr(plan, name) for name in ("batch_size", "batch_dice")}
    configuration |= {name: value for name, value in options.items() if value is not None}
    for name in plan.backbones:
        if (design := BACKBONES[name].design) is not None:
            architecture = design(plan.base_features, configuration["patch_size"])
            plans["configurations"][CONFIGURATIONS[name]] = {
                "inherits_from": CONFIGURATION,
                "architecture": architecture,
            }
    if plan.channels != "both":
        for name in plan.backbones:
            plans["configurations"][CONFIGURATIONS[name]]["architecture"]["sees"] = plan.channels
    write_json(path, plans)
    return plans


def fix_pet_scale(plans: Mapping[str, Any], channel_names: Mapping[str, str]) -> None:
    """Normalise the PET of all configurations by mean and standard deviation of the lesions of all patients.

    A z-score over the image depends on the field of view. nnU-Net has a scheme with fixed constants only for CT, which
    also clips at percentiles of the lesions; without these limits normal uptake stays visible.
    """
    for channel, name in channel_names.items():
        if name == "PET":
            plans[INTENSITIES][channel] |= {"percentile_00_5": -UNREACHED_SUV, "percentile_99_5": UNREACHED_SUV}
            for configuration in plans["configurations"].values():
                if (schemes := configuration.get("normalization_schemes")) is not None:
                    schemes[int(channel)] = "CTNormalization"


def convert_to_one_slice(planned: Mapping[str, Any]) -> dict[str, Any]:
    """Convert nnU-Net's 2D configuration to a 3D network with kernels of one voxel along z, for one-slice patches."""
    architecture = planned["architecture"]
    arguments = {**architecture["arch_kwargs"]}
    for name in ("kernel_sizes", "strides"):
        arguments[name] = [[1, *stage] for stage in arguments[name]]
    for name in ("conv_op", "norm_op"):
        arguments[name] = arguments[name].replace("2d", "3d")
    return {
        "patch_size": [1, *planned["patch_size"]],
        "batch_size": planned["batch_size"],
        "batch_dice": planned["batch_dice"],
        "architecture": {**architecture, "arch_kwargs": arguments},
    }


def _make_planner(plan: NetworkPlan, plans_name: str) -> Any:
    from nnunetv2.preprocessing.resampling.resample_torch import resample_torch_fornnunet

    module, name, changes = _PLANNERS[plan.network]
    base: Any = getattr(importlib.import_module(module), name)

    options = {"is_seg": False, "force_separate_z": False, "memefficient_seg_resampling": False}
    image = resample_torch_fornnunet, options

    class FastPlanner(base):  # type: ignore[misc]
        """nnU-Net's planner with torch resampling."""

        def determine_resampling(self, *_: Any, **__: Any) -> Any:
            return *image, resample_torch_fornnunet, {**image[1], "is_seg": True}

        def determine_segmentation_softmax_export_fn(self, *_: Any, **__: Any) -> Any:
            return image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # raised for every memory target except the planner's default
        planner = FastPlanner(
            DATASET_ID,
            gpu_memory_target_in_gb=plan.memory_gb,
            plans_name=plans_name,
            overwrite_target_spacing=[float(step) for step in plan.spacing_mm[::-1]],
            suppress_transpose=True,
        )
    planner.UNet_base_num_features = plan.base_features
    planner.UNet_max_features_3d = planner.UNet_max_features_2d = plan.most_features
    for attribute, value in changes.items():
        setattr(planner, attribute, value)
    return planner


def compute_plan_key(work: WorkFolders, plan: NetworkPlan) -> str:
    """Compute the digest of the inputs of a plan: its options, the prepared images and the splits."""
    data = read_preparation(work).data
    return compute_digest({"plan": plan.identity(), "data": data, "splits": read_splits(work).held_out})
