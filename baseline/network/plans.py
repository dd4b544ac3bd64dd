"""Network plans: presets, nnU-Net's planners with fast resampling, a second backbone on the same data."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from baseline.work import CONFIGURATION, CONFIGURATIONS, DATASET_ID, WorkFolders
from contract import labels
from contract.errors import HecktorError
from contract.files import read_json, write_json
from contract.packages import CHANNELS

ENHANCEMENTS: Final = ("ct_square", "ct_cube_root")
OPTIMISERS: Final = ("sgd", "adamw")
PET_NORMALISATIONS: Final = ("image", "fixed")
RECIPES: Final = ("plan", "monai")
# Options that name files of the user's; their contents count, as `inputs`.
INPUTS: Final = ("starting_weights", "organs")
# Residual blocks of MONAI's SegResNet encoder at each resolution.
_SEGRESNET_BLOCKS: Final = (1, 2, 2, 4)
# More stages than any plan has; nnU-Net takes as many entries as it needs.
_MOST_STAGES: Final = 13
_MODULES: Final = "nnunetv2.experiment_planning.experiment_planners"
_DEFAULT: Final = f"{_MODULES}.default_experiment_planner"
_RESIDUAL: Final = f"{_MODULES}.residual_unets.residual_encoder_unet_planners"
# A single convolution at the finest resolution halves the cost of a step on a CPU.
_SHALLOW: Final = {
    "UNet_blocks_per_stage_encoder": (1, *(2,) * _MOST_STAGES),
    "UNet_blocks_per_stage_decoder": (1,) * _MOST_STAGES,
}
# Network -> module and name of nnU-Net's planner, and the attributes to change.
_PLANNERS: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "shallow": (_DEFAULT, "ExperimentPlanner", _SHALLOW),
    "plain": (_DEFAULT, "ExperimentPlanner", {}),
    "resenc-m": (_RESIDUAL, "nnUNetPlannerResEncM", {}),
    "resenc-l": (_RESIDUAL, "nnUNetPlannerResEncL", {}),
}
# Options of the first version, which every identity holds.
_FIRST_OPTIONS: Final = {
    "spacing_mm", "memory_gb", "base_features", "most_features", "epochs", "iterations", "validation_iterations",
    "learning_rate", "mirror_axes",
}  # fmt: skip


@dataclass(frozen=True)
class NetworkPlan:
    """Options of a plan, from which nnU-Net plans the rest; the defaults are the preset `short`.

    Attributes:
        spacing_mm: (x, y, z) of the prepared images.
        memory_gb: memory target of nnU-Net's planner, which decides patch, depth and batch.
        base_features: channels at the finest resolution.
        most_features: channels of the U-Net at the coarsest resolution.
        epochs: epochs of training for one network.
        iterations: training steps per epoch.
        validation_iterations: validation batches per epoch.
        learning_rate: initial learning rate; it decays to 0 by nnU-Net's polynomial schedule.
        mirror_axes: of (z, y, x), in training and inference.
        network: a key of `_PLANNERS`.
        optimiser: `sgd` is nnU-Net's, with Nesterov momentum; `adamw` learns the rare GTVn even in a short training.
        batch_size: None for nnU-Net's choice.
        batch_dice: Dice over the batch, more stable than Dice per patch if many patches have no lesion; None for
            nnU-Net's choice.
        backbones: networks to train, keys of `CONFIGURATIONS`; `unet` is the preset's own.
        enhance: channels computed from the CT before the first layer, of `ENHANCEMENTS`.
        misalign: probability of turning, and that of shifting, the PET of a training patch against the CT.
        misalign_by: largest rotation about each axis in degrees, and largest shift in plane in voxels.
        pet_dropout: probability that a training patch has no PET.
        pet_normalisation: `image` is nnU-Net's z-score of each image; `fixed` clips and scales by the data set's
            foreground values, as nnU-Net does for CT, so that the field of view changes nothing.
        dice_smoothing: nnU-Net's small constant in numerator and denominator of the Dice loss.
        segresnet_recipe: `monai` trains SegResNet with the optimiser and schedule of MONAI's Auto3DSeg, `plan` with
            those of the U-Net.
        segresnet_memory_gb: memory target that decides SegResNet's patch; None for the U-Net's patch.
        starting_weights: a checkpoint of nnU-Net or a model package, from which training starts.
        organs: folder of organ masks that become further labels of the training.
        inputs: digest of the files that `starting_weights` and `organs` name, filled in by `plan_networks`.
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
    misalign: float = 0.0
    misalign_by: tuple[float, float] = (5.0, 2.0)
    pet_dropout: float = 0.0
    pet_normalisation: str = "image"
    dice_smoothing: bool = True
    segresnet_recipe: str = "plan"
    segresnet_memory_gb: float | None = None
    starting_weights: str | None = None
    organs: str | None = None
    inputs: str | None = None

    def identity(self) -> dict[str, Any]:
        """Options that distinguish plans; of files, the digest of their contents. Options of later versions count only
        if they are set, so that working directories of earlier versions stay valid.
        """
        unset = {field.name for field in fields(self) if getattr(self, field.name) == field.default}
        left_out = (unset - _FIRST_OPTIONS) | {*INPUTS}
        if "segresnet" not in self.backbones:  # the presets set these for a network that is not trained
            left_out |= {"segresnet_recipe", "segresnet_memory_gb"}
        return {name: value for name, value in asdict(self).items() if name not in left_out}

    def record(self) -> dict[str, Any]:
        """The options as a package states them: files by their names, without the folders of the machine."""
        paths = {name: Path(path).name for name in INPUTS if (path := getattr(self, name))}
        return {**asdict(self), **paths}


_NNUNET: Final = NetworkPlan(
    spacing_mm=(1.0, 1.0, 1.0),
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
    segresnet_recipe="monai",
    segresnet_memory_gb=8.0,
)
PRESETS: Final = {
    "short": NetworkPlan(),
    "nnunet": _NNUNET,
    "resenc-m": replace(_NNUNET, network="resenc-m"),
    "resenc-l": replace(_NNUNET, network="resenc-l", memory_gb=24.0, segresnet_memory_gb=24.0),
}


def read_plan(work: WorkFolders) -> NetworkPlan:
    """The options of the plan in `plan.json`."""
    options: dict[str, Any] = work.read(work.plan_json)["options"]
    tuples: dict[str, Any] = {name: tuple(value) for name, value in options.items() if isinstance(value, list)}
    return NetworkPlan(**{**options, **tuples})


def write_plans(plan: NetworkPlan, path: Path, organs: Sequence[str] = ()) -> dict[str, Any]:
    """Let nnU-Net plan its fingerprinted data set into `path`, then add our options, backbones, channels and organs.

    Raises:
        HecktorError: the planned patch has odd edges, which a backbone cannot halve, or no patch meets the memory.
    """
    planner = _planner(plan, path.stem)
    # Each label takes memory, which nnU-Net counts.
    planner.dataset_json["labels"] |= {name: len(labels.NAMES) + number for number, name in enumerate(organs)}
    planner.plan_experiment()
    plans: dict[str, Any] = read_json(path)
    configurations = plans["configurations"]
    own = configurations[CONFIGURATION]
    own |= {name: getattr(plan, name) for name in ("batch_size", "batch_dice") if getattr(plan, name) is not None}
    if plan.pet_normalisation == "fixed":
        own["normalization_schemes"][CHANNELS.index("PET")] = "CTNormalization"
    if "segresnet" in plan.backbones:
        configurations[CONFIGURATIONS["segresnet"]] = _segresnet_configuration(plan, own)
    more = {"enhance": list(plan.enhance), "organs": list(organs)}
    for name in CONFIGURATIONS.values():
        if name in configurations:
            configurations[name]["architecture"] |= {key: value for key, value in more.items() if value}
    if organs:
        plans["organ_masks"] = plan.inputs  # preprocessed masks of other files are not the same
    write_json(path, plans)
    return plans


def _segresnet_configuration(plan: NetworkPlan, own: Mapping[str, Any]) -> dict[str, Any]:
    """SegResNet beside the U-Net `own`, with a smaller patch if it would exceed its memory target."""
    architecture = segresnet(plan.base_features, own["patch_size"])
    configuration: dict[str, Any] = {"inherits_from": CONFIGURATION, "architecture": architecture}
    if plan.segresnet_memory_gb is not None:
        from baseline.network.training.segresnet import fitting_patch

        patch, memory_gb = own["patch_size"], plan.segresnet_memory_gb
        fitting = fitting_patch(architecture, patch, own["batch_size"], len(CHANNELS), memory_gb)
        configuration |= {"patch_size": fitting} if fitting != list(patch) else {}
    return configuration


def segresnet(filters: int, patch: Sequence[int]) -> dict[str, Any]:
    """MONAI's SegResNet as an architecture in nnU-Net's plans, with up to four levels while the patch can be halved.

    Raises:
        HecktorError: an edge of the patch (z, y, x) is odd.
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


def _planner(plan: NetworkPlan, plans_name: str) -> Any:
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
        warnings.simplefilter("ignore", UserWarning)  # raised for every memory target but the planner's default
        planner = FastPlanner(
            DATASET_ID,
            gpu_memory_target_in_gb=plan.memory_gb,
            plans_name=plans_name,
            overwrite_target_spacing=[float(v) for v in plan.spacing_mm[::-1]],
            suppress_transpose=True,
        )
    planner.UNet_base_num_features = plan.base_features
    planner.UNet_max_features_3d = plan.most_features
    for attribute, value in changes.items():
        setattr(planner, attribute, value)
    return planner
