"""Options of the networks: presets, and the plan in a working directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, get_args

from baseline.work import WorkFolders
from contract.documents import Document, parse_document
from contract.errors import HecktorError
from contract.io.files import write_json
from contract.patient import format_names

Network = Literal["shallow", "plain", "resenc-m", "resenc-l"]
Optimiser = Literal["sgd", "adamw"]
Channels = Literal["both", "CT", "PET", "mean"]
Dimensions = Literal[2, 3]
PetScale = Literal["fixed", "image"]
Part = Literal["encoder", "decoder", "heads"]
Stem = Literal["repeat", "zero"]
# Clipping limit for a PET that is normalised by nnU-Net's scheme for CT. No SUV reaches it, so that nothing is clipped.
UNREACHED_SUV: Final = 1e6
CHANNELS_SEEN: Final[tuple[str, ...]] = get_args(Channels)
DIMENSIONS: Final[tuple[int, ...]] = get_args(Dimensions)
PARTS: Final[tuple[str, ...]] = get_args(Part)
STEMS: Final[tuple[str, ...]] = get_args(Stem)


class NetworkPlan(Document):
    """Options of a plan; nnU-Net plans everything else. The defaults are the preset `short`.

    Attributes:
        spacing_mm: Spacing (x, y, z) of the prepared images.
        memory_gb: Memory target of nnU-Net's planner, which decides patch, depth and batch.
        base_features: Number of channels at the finest resolution.
        most_features: Number of channels of the U-Net at the coarsest resolution.
        epochs: Number of epochs of one network.
        iterations: Number of training steps per epoch.
        validation_iterations: Number of validation batches per epoch.
        learning_rate: Initial learning rate, which decays to 0 by nnU-Net's polynomial schedule. None for the rate of
            `trainer`, or of the preset if the trainer does not change nnU-Net's rate.
        mirror_axes: Axes of (z, y, x) to mirror, in training and inference.
        network: nnU-Net's planner; `shallow` is a plain U-Net with one convolution at the finest resolution.
        optimiser: `sgd` is nnU-Net's optimiser with Nesterov momentum; `adamw` learns the rare GTVn even in a short
            training.
        batch_size: Number of patches per training step; None for nnU-Net's choice.
        batch_dice: Whether Dice is computed over the batch, which is more stable than Dice per patch if many patches
            have no lesion; None for nnU-Net's choice.
        pet_scale: Mean and standard deviation that normalise the PET: `fixed` takes them from the lesions of all
            patients, `image` from each image, as nnU-Net plans.
        backbones: Networks to train, keys of `BACKBONES`; the first is the network of the preset.
        channels: Images that the networks see: CT and PET, one of them, or their mean after normalisation.
        dimensions: 2 for nnU-Net's 2D configuration, a network that sees one axial slice at a time.
        pet_dropout: Probability that a training patch has no PET.
        trainer: Name of a variant of nnU-Net's trainer, or a user's subclass, `module:Class`.
        starting_weights: Checkpoint of nnU-Net or nnssl, or model package, with the starting weights.
        starting_parts: Parts of the network that start from these weights; the others start at random.
        starting_stem: First layer if the starting weights were trained on fewer images: `repeat` uses a single channel
            for all images, `zero` starts the further images with zeros.
        starting_weights_digest: Digest of the starting weights, which `plan_networks` fills in.
    """

    spacing_mm: tuple[float, float, float] = (3.0, 3.0, 3.0)
    memory_gb: float = 0.3
    base_features: int = 16
    most_features: int = 96
    epochs: int = 45
    iterations: int = 50
    validation_iterations: int = 4
    learning_rate: float | None = 1e-3
    mirror_axes: tuple[int, ...] = (2,)
    network: Network = "shallow"
    optimiser: Optimiser = "adamw"
    batch_size: int | None = None
    batch_dice: bool | None = True
    pet_scale: PetScale = "fixed"
    backbones: tuple[str, ...] = ("unet",)
    channels: Channels = "both"
    dimensions: Dimensions = 3
    pet_dropout: float = 0.0
    trainer: str | None = None
    starting_weights: str | None = None
    starting_parts: tuple[Part, ...] = ("encoder", "decoder")
    starting_stem: Stem = "repeat"
    starting_weights_digest: str | None = None

    def with_options(self, **options: Any) -> NetworkPlan:
        """Return the plan with changed options; a new trainer keeps its learning rate unless the options set a rate."""
        trainer_rate = {"learning_rate": None} if options.get("trainer") else {}
        return NetworkPlan(**{**dict(self), **trainer_rate, **options})

    @property
    def preset(self) -> str:
        """Return the name of the preset with the plan's network."""
        return next(name for name, preset in PRESETS.items() if preset.network == self.network)

    def identity(self) -> dict[str, Any]:
        """Return the options that distinguish plans; starting weights count by the digest of their contents."""
        return self.model_dump(mode="json", exclude={"starting_weights"})

    def to_record(self) -> dict[str, Any]:
        """Return the options for a package: starting weights by name, without the folder on this machine."""
        path = self.starting_weights
        return {**self.model_dump(mode="json"), "starting_weights": None if path is None else Path(path).name}


class StoredPlan(Document):
    """Content of `plan.json`: a plan with all its options, and the digest of its inputs."""

    key: str
    plan: NetworkPlan


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
    pet_scale="image",
)
# Number of digits of a sha256 in messages.
_SHOWN_DIGITS: Final = 12
# Options that the command line cannot set. A message names only the preset.
_PRESET_OPTIONS: Final = ("network", "optimiser", "validation_iterations")
# Other options that only the preset sets. A message names them, since presets of earlier versions had other values.
_CHANGED_IN_PRESETS: Final = ("batch_dice", "pet_scale")
PRESETS: Final = {
    "short": NetworkPlan(),
    "nnunet": _NNUNET,
    "resenc-m": _NNUNET.with_options(network="resenc-m", pet_scale="fixed"),
    "resenc-l": _NNUNET.with_options(network="resenc-l", memory_gb=24.0, pet_scale="fixed"),
}


def load_plan(work: WorkFolders) -> StoredPlan:
    """Load the plan in `plan.json` with its key; raise `HecktorError` if there is no plan.

    A plan without `pet_scale` was made before this option, when nnU-Net's scale of each image was the only one.
    """
    content = work.read(work.plan_json)
    if isinstance(content, dict) and isinstance(content.get("plan"), dict):
        content = {**content, "plan": {"pet_scale": "image", **content["plan"]}}
    return parse_document(content, StoredPlan, work.plan_json.name, error=HecktorError)


def read_plan(work: WorkFolders) -> NetworkPlan:
    """Read the options of the plan in `plan.json`."""
    return load_plan(work).plan


def store_plan(work: WorkFolders, key: str, plan: NetworkPlan) -> None:
    """Write `plan.json`."""
    write_json(work.plan_json, {"key": key, "plan": plan.model_dump(mode="json")})


def describe_differences(trained: NetworkPlan, plan: NetworkPlan) -> str:
    """Describe the options that differ from the plan of trained networks, with both values."""
    before, now = _list_options(trained), _list_options(plan)
    changed = [f"{name} {before[name]}, now {now[name]}" for name in before if before[name] != now[name]]
    return format_names(changed) or "other images or splits"


def _list_options(plan: NetworkPlan) -> dict[str, str]:
    """List the options that distinguish plans, with their values as text."""
    values = {name: value for name, value in plan.identity().items() if name not in _PRESET_OPTIONS}
    weights = values.pop("starting_weights_digest")
    values["starting_weights"] = "none" if weights is None else weights[:_SHOWN_DIGITS]
    texts = {
        name if name in _CHANGED_IN_PRESETS else f"--{name.replace('_', '-')}": (
            " ".join(map(str, value)) if isinstance(value, list) else str(value)
        )
        for name, value in values.items()
    }
    return {"--preset": plan.preset, **texts}
