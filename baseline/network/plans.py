"""Options of the networks: presets, and the plan that a working directory stores."""

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
CHANNELS_SEEN: Final[tuple[str, ...]] = get_args(Channels)
DIMENSIONS: Final[tuple[int, ...]] = get_args(Dimensions)


class NetworkPlan(Document):
    """Options of a plan, from which nnU-Net plans the rest; the defaults are the preset `short`.

    Attributes:
        spacing_mm: (x, y, z) of the prepared images.
        memory_gb: memory target of nnU-Net's planner, which decides patch, depth and batch.
        base_features: channels at the finest resolution.
        most_features: channels of the U-Net at the coarsest resolution.
        epochs: epochs of training for one network.
        iterations: training steps per epoch.
        validation_iterations: validation batches per epoch.
        learning_rate: initial learning rate; it decays to 0 by nnU-Net's polynomial schedule. None for that of
            `trainer`, or the preset's if it has none of its own.
        mirror_axes: of (z, y, x), in training and inference.
        network: nnU-Net's planner; `shallow` is a plain U-Net with one convolution at the finest resolution.
        optimiser: `sgd` is nnU-Net's, with Nesterov momentum; `adamw` learns the rare GTVn even in a short training.
        batch_size: None for nnU-Net's choice.
        batch_dice: Dice over the batch, more stable than Dice per patch if many patches have no lesion; None for
            nnU-Net's choice.
        backbones: networks to train, keys of `BACKBONES`; the first is the preset's own.
        channels: images that the networks see: CT and PET, one of them, or their mean after normalisation.
        dimensions: 2 for nnU-Net's 2D configuration, a network that sees one axial slice at a time.
        pet_dropout: probability that a training patch has no PET.
        trainer: the name of a variant of nnU-Net's trainer, or a user's subclass of it, `module:Class`.
        starting_weights: a checkpoint of nnU-Net or a model package, from which training starts.
        starting_weights_digest: digest of their contents, filled in by `plan_networks`.
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
    backbones: tuple[str, ...] = ("unet",)
    channels: Channels = "both"
    dimensions: Dimensions = 3
    pet_dropout: float = 0.0
    trainer: str | None = None
    starting_weights: str | None = None
    starting_weights_digest: str | None = None

    def changed(self, **options: Any) -> NetworkPlan:
        """The plan with other values for some options; a trainer's own learning rate holds unless one is given."""
        own_rate = {"learning_rate": None} if options.get("trainer") else {}
        return NetworkPlan(**{**dict(self), **own_rate, **options})

    @property
    def preset(self) -> str:
        """The name of the preset with the plan's network."""
        return next(name for name, one in PRESETS.items() if one.network == self.network)

    def identity(self) -> dict[str, Any]:
        """Options that distinguish plans; of starting weights, the digest of their contents."""
        return self.model_dump(mode="json", exclude={"starting_weights"})

    def record(self) -> dict[str, Any]:
        """The options as a package states them: starting weights by their name, without the folder on this machine."""
        path = self.starting_weights
        return {**self.model_dump(mode="json"), "starting_weights": None if path is None else Path(path).name}


class StoredPlan(Document):
    """`plan.json`: a plan with all its options, and the digest of its inputs."""

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
    batch_dice=None,
)
# Of a sha256.
_SHOWN_DIGITS: Final = 12
# Options without one on the command line: they follow the preset.
_OF_PRESET: Final = ("network", "optimiser", "validation_iterations", "batch_dice")
PRESETS: Final = {
    "short": NetworkPlan(),
    "nnunet": _NNUNET,
    "resenc-m": _NNUNET.changed(network="resenc-m"),
    "resenc-l": _NNUNET.changed(network="resenc-l", memory_gb=24.0),
}


def load_plan(work: WorkFolders) -> StoredPlan:
    """The plan in `plan.json` with its key. Raises `HecktorError` if there is none."""
    return parse_document(work.read(work.plan_json), StoredPlan, work.plan_json.name, error=HecktorError)


def read_plan(work: WorkFolders) -> NetworkPlan:
    """The options of the plan in `plan.json`."""
    return load_plan(work).plan


def store_plan(work: WorkFolders, key: str, plan: NetworkPlan) -> None:
    """Write `plan.json`."""
    write_json(work.plan_json, {"key": key, "plan": plan.model_dump(mode="json")})


def differences(trained: NetworkPlan, plan: NetworkPlan) -> str:
    """The options that differ from those of a plan by which networks were trained, each with both values."""
    before, now = _options(trained), _options(plan)
    changed = [f"{name} {before[name]}, now {now[name]}" for name in before if before[name] != now[name]]
    return format_names(changed) or "other images or splits"


def _options(plan: NetworkPlan) -> dict[str, str]:
    """The options that chose a plan, with their values."""
    values = {name: value for name, value in plan.identity().items() if name not in _OF_PRESET}
    weights = values.pop("starting_weights_digest")
    values["starting_weights"] = "none" if weights is None else weights[:_SHOWN_DIGITS]
    return {"--preset": plan.preset} | {
        f"--{name.replace('_', '-')}": " ".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in values.items()
    }
