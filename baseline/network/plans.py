"""What nnU-Net is to plan: presets as data, its planners with fast resampling, a second network on the same data."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from baseline.release.data_set import DATASET_ID
from contract.errors import HecktorError
from contract.files import read_json, write_json

PLANS_NAME: Final = "hecktorPlans"
CONFIGURATION: Final = "3d_fullres"
# Backbone -> nnU-Net configuration; all but the first inherit everything but the architecture.
CONFIGURATIONS: Final = {"unet": CONFIGURATION, "segresnet": f"{CONFIGURATION}_segresnet"}
ENHANCEMENTS: Final = ("ct_square", "ct_cube_root")
OPTIMISERS: Final = ("sgd", "adamw")
# Epochs between two checkpoints: what an interruption can lose.
SAVE_EVERY: Final = 5
# Of MONAI's SegResNet: residual blocks at each resolution on the way down.
_SEGRESNET_BLOCKS: Final = (1, 2, 2, 4)
# More stages than any plan has; nnU-Net takes as many entries as it needs.
_MOST_STAGES: Final = 13
_MODULES: Final = "nnunetv2.experiment_planning.experiment_planners"
_DEFAULT: Final = f"{_MODULES}.default_experiment_planner"
_RESIDUAL: Final = f"{_MODULES}.residual_unets.residual_encoder_unet_planners"
# One convolution where the grid is finest halves the cost of a step on a CPU.
_SHALLOW: Final = {
    "UNet_blocks_per_stage_encoder": (1, *(2,) * _MOST_STAGES),
    "UNet_blocks_per_stage_decoder": (1,) * _MOST_STAGES,
}
# Network -> module and name of nnU-Net's planner, and what is changed in it.
_PLANNERS: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "shallow": (_DEFAULT, "ExperimentPlanner", _SHALLOW),
    "plain": (_DEFAULT, "ExperimentPlanner", {}),
    "resenc-m": (_RESIDUAL, "nnUNetPlannerResEncM", {}),
    "resenc-l": (_RESIDUAL, "nnUNetPlannerResEncL", {}),
}


@dataclass(frozen=True)
class Plan:
    """What a plan fixes before nnU-Net plans the rest; the defaults are the preset `short`.

    Attributes:
        spacing_mm: (x, y, z) of the prepared images.
        memory_gb: nnU-Net's target for the planner, which decides patch, depth and batch.
        base_features: channels where the grid is finest.
        most_features: channels of the U-Net where it is coarsest.
        epochs: length of the training of one network.
        iterations: training steps an epoch.
        validation_iterations: patches an epoch is judged on.
        learning_rate: the first one; it falls to 0 by nnU-Net's polynomial.
        mirror_axes: of (z, y, x), in training and inference.
        network: a key of nnU-Net's planners above.
        optimiser: `sgd` is nnU-Net's own, with Nesterov's momentum; `adamw` learns the rare GTVn in a short training,
            where nnU-Net's is still at its start.
        batch_size: None for what nnU-Net plans.
        batch_dice: Dice over the batch, which is steadier than Dice of each patch where lesions are absent from many;
            None for what nnU-Net plans.
        backbones: the networks to be trained, keys of `CONFIGURATIONS`; `unet` is the preset's own.
        enhance: channels made of the CT before the first layer, of `ENHANCEMENTS`.
    """

    spacing_mm: tuple[float, float, float] = (3.0, 3.0, 3.0)
    memory_gb: float = 0.3
    base_features: int = 16
    most_features: int = 96
    epochs: int = 45
    iterations: int = 50
    validation_iterations: int = 4
    learning_rate: float = 1e-3
    mirror_axes: tuple[int, ...] = (2,)
    network: str = "shallow"
    optimiser: str = "adamw"
    batch_size: int | None = None
    batch_dice: bool | None = True
    backbones: tuple[str, ...] = ("unet",)
    enhance: tuple[str, ...] = ()

    def identity(self) -> dict[str, Any]:
        """The options that tell plans apart. Those that came later count only where they are set, so that a working
        directory from before them stays in use.
        """
        later = {"network", "optimiser", "batch_size", "batch_dice", "backbones", "enhance"}
        unset = {field.name for field in fields(self) if getattr(self, field.name) == field.default}
        return {name: value for name, value in asdict(self).items() if name not in later & unset}


_NNUNET: Final = Plan(
    memory_gb=8.0,
    base_features=32,
    most_features=320,
    epochs=1000,
    iterations=250,
    validation_iterations=50,
    learning_rate=1e-2,
    mirror_axes=(0, 1, 2),
    network="plain",
    optimiser="sgd",
    batch_dice=None,
)
PRESETS: Final = {
    "short": Plan(),
    "nnunet": _NNUNET,
    "resenc-m": replace(_NNUNET, network="resenc-m"),
    "resenc-l": replace(_NNUNET, network="resenc-l", memory_gb=24.0),
}


def write_plans(plan: Plan, path: Path) -> dict[str, Any]:
    """Let nnU-Net plan its fingerprinted data set, which it writes to `path`, and add to it what it knows nothing of.

    Raises:
        HecktorError: the planned patch is too odd for a backbone.
    """
    _planner(plan).plan_experiment()
    plans: dict[str, Any] = read_json(path)
    configurations = plans["configurations"]
    own = configurations[CONFIGURATION]
    own |= {name: getattr(plan, name) for name in ("batch_size", "batch_dice") if getattr(plan, name) is not None}
    if "segresnet" in plan.backbones:
        architecture = segresnet(plan.base_features, own["patch_size"])
        configurations[CONFIGURATIONS["segresnet"]] = {"inherits_from": CONFIGURATION, "architecture": architecture}
    for name in CONFIGURATIONS.values():
        if plan.enhance and name in configurations:
            configurations[name]["architecture"]["enhance"] = list(plan.enhance)
    write_json(path, plans)
    return plans


def segresnet(filters: int, patch: Sequence[int]) -> dict[str, Any]:
    """MONAI's SegResNet as an architecture of nnU-Net's plans, as deep as the patch can be halved, four levels at most.

    Raises:
        HecktorError: some edge of the patch (z, y, x) is odd.
    """
    halvings = min((edge & -edge).bit_length() - 1 for edge in map(int, patch))
    if halvings == 0:
        raise HecktorError("--backbones segresnet", f"the planned patch is {list(patch)}", "even edges")
    blocks = _SEGRESNET_BLOCKS[: halvings + 1]
    return {
        "network_class_name": "monai.networks.nets.segresnet.SegResNet",
        "arch_kwargs": {
            "init_filters": filters,
            "blocks_down": list(blocks),
            "blocks_up": [1] * (len(blocks) - 1),
            "norm": ["INSTANCE", {"affine": True}],
        },
        "_kw_requires_import": [],
    }


def _planner(plan: Plan) -> Any:
    from nnunetv2.preprocessing.resampling.resample_torch import resample_torch_fornnunet

    module, name, changes = _PLANNERS[plan.network]
    base: Any = getattr(importlib.import_module(module), name)

    class FastPlanner(base):  # type: ignore[misc]
        """nnU-Net's planner with torch resampling."""

        def determine_resampling(self, *_: Any, **__: Any) -> Any:
            common = {"force_separate_z": False, "memefficient_seg_resampling": False}
            return (
                resample_torch_fornnunet,
                {"is_seg": False, **common},
                resample_torch_fornnunet,
                {"is_seg": True, **common},
            )

        def determine_segmentation_softmax_export_fn(self, *_: Any, **__: Any) -> Any:
            kwargs = {"is_seg": False, "force_separate_z": False, "memefficient_seg_resampling": False}
            return resample_torch_fornnunet, kwargs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of each memory target that is not the planner's own
        planner = FastPlanner(
            DATASET_ID,
            gpu_memory_target_in_gb=plan.memory_gb,
            plans_name=PLANS_NAME,
            overwrite_target_spacing=[float(v) for v in plan.spacing_mm[::-1]],
            suppress_transpose=True,
        )
    planner.UNet_base_num_features = plan.base_features
    planner.UNet_max_features_3d = plan.most_features
    for attribute, value in changes.items():
        setattr(planner, attribute, value)
    return planner
