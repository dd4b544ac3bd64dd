"""nnU-Net's trainer with the options of the plan, seeded augmentation workers and dropout of the PET.

The class of a training inherits from `Supervision`, the user's trainer if the plan has one, and `Recipe`, in this
order. A method of the user's class therefore replaces the method of the plan's recipe, and may call it through
`super()`.

Since the workers are seeded, `--seed` reproduces a training, and no two workers draw the same sequence. nnU-Net's own
workers inherit one torch state from the process that starts them, take NumPy's seed from the operating system, and
share one queue, so that the order of the batches depends on their speed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
import torch
from batchgenerators.dataloading.multi_threaded_augmenter import MultiThreadedAugmenter
from batchgeneratorsv2.transforms.base.basic_transform import ImageOnlyTransform
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
from batchgeneratorsv2.transforms.utils.random import RandomTransform
from nnunetv2.preprocessing.normalization import default_normalization_schemes
from nnunetv2.training.lr_scheduler.polylr import PolyLRScheduler
from nnunetv2.training.nnUNetTrainer import variants
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from nnunetv2.utilities.find_class_by_name import recursive_find_python_class
from torch import nn

from algorithm.network.backbones import BACKBONES, build_untrained_network
from baseline.network.checkpoint import load_starting_weights
from baseline.network.patches import end_workers, replace_augmenters
from baseline.network.plans import PRESETS, NetworkPlan
from baseline.network.progress import SAVE_EVERY, format_epoch, read_epoch_seconds
from baseline.work import TRAINER, TRAINING_TIME
from contract.errors import HecktorError
from contract.io.files import atomic_path, check_free_space, write_json
from contract.packages import CHANNELS

_EXPECTED: Final = (
    "a variant of nnU-Net's by name, such as nnUNetTrainerNoDA, or module:Class, a subclass of nnU-Net's nnUNetTrainer "
    "in a folder on PYTHONPATH"
)
# nnU-Net's learning rate, which most of its variants keep.
_NNUNET_RATE: Final = 1e-2

PET: Final = CHANNELS.index("PET")


class Recipe(nnUNetTrainer):  # type: ignore[misc]
    """The plan's network, mirror axes, optimiser and first weights.

    A CPU trains in float32, as nnU-Net does: with bfloat16 the gradients of SegResNet were sometimes not finite.
    """

    plan: NetworkPlan
    backbone: str

    def configure_rotation_dummyDA_mirroring_and_inital_patch_size(self) -> Any:  # noqa: N802
        """Mirror only along the plan's axes."""
        rotation, dummy_2d, patch, axes = super().configure_rotation_dummyDA_mirroring_and_inital_patch_size()
        axes = tuple(axis for axis in axes if axis in self.plan.mirror_axes)
        self.inference_allowed_mirroring_axes = axes
        return rotation, dummy_2d, patch, axes

    def get_training_transforms(self, *args: Any, **options: Any) -> Any:
        """Return nnU-Net's augmentation, with dropout of the PET."""
        transforms = super().get_training_transforms(*args, **options)
        if not self.plan.pet_dropout:
            return transforms
        absent = compute_absent_pet(
            self.configuration_manager.configuration,
            self.plans_manager.foreground_intensity_properties_per_channel,
        )
        return add_pet_dropout(transforms, self.plan.pet_dropout, absent)

    def build_network_architecture(
        self,
        plans_manager: Any,  # noqa: ARG002 - nnU-Net passes it by name
        configuration_manager: Any,
        channels: int,
        classes: int,
        deep_supervision: bool,
    ) -> nn.Module:
        """Build the network as inference does, with nnU-Net's initial weights if it defines them."""
        configuration = configuration_manager.configuration
        network = build_untrained_network(configuration, channels, classes, deep_supervision=deep_supervision)
        if hasattr(network, "initialize"):
            network.apply(network.initialize)  # type: ignore[arg-type]
        return network

    def initialize(self) -> None:
        """Start from the plan's weights, unless a checkpoint is loaded afterwards."""
        super().initialize()
        if self.plan.starting_weights is not None and not Path(self.output_folder, "checkpoint_latest.pth").is_file():
            output_layers = BACKBONES[self.backbone].output_layers
            summary = load_starting_weights(self.network, self.plan, self.fold, output_layers)
            if self.local_rank == 0:
                sys.stdout.write(f"fold {self.fold} ({self.backbone}): {summary}\n")

    def set_deep_supervision_enabled(self, enabled: bool) -> None:
        """Set deep supervision; a network with a single output has no deep supervision."""
        if self.enable_deep_supervision:
            super().set_deep_supervision_enabled(enabled)

    def configure_optimizers(self) -> Any:
        """Make the plan's optimiser with nnU-Net's polynomial schedule."""
        if self.plan.optimiser == "sgd":
            return super().configure_optimizers()
        parameters = self.network.parameters()
        optimiser = torch.optim.AdamW(parameters, lr=self.initial_lr, weight_decay=self.weight_decay)
        return optimiser, PolyLRScheduler(optimiser, self.initial_lr, self.plan.epochs)


class Supervision(nnUNetTrainer):  # type: ignore[misc]
    """Course of a training: seeds, length, checkpoints, one line for each epoch, and the end of its processes."""

    plan: NetworkPlan
    backbone: str
    enable_deep_supervision: bool
    initial_lr: float
    augmenters: Sequence[MultiThreadedAugmenter] = ()

    def use_plan(self, plan: NetworkPlan, backbone: str, device: torch.device) -> None:
        """Apply the options of the plan; call it before anything is initialised."""
        self.plan, self.backbone = plan, backbone
        self.num_epochs, self.num_iterations_per_epoch = plan.epochs, plan.iterations
        self.num_val_iterations_per_epoch, self.save_every = plan.validation_iterations, SAVE_EVERY
        rate = plan.learning_rate
        if rate is None and self.initial_lr == _NNUNET_RATE:  # the trainer does not change nnU-Net's rate
            rate = PRESETS[plan.preset].learning_rate
        self.initial_lr = rate or self.initial_lr
        self.enable_deep_supervision = self.enable_deep_supervision and BACKBONES[backbone].deep_supervision
        if device.type == "cpu":  # with DDP nnU-Net expects a GPU for each process
            self.device, self.grad_scaler = device, None

    def get_dataloaders(self) -> Any:
        """Make nnU-Net's loaders, with a separate seed for each augmentation worker."""
        with seed_workers(self.current_epoch) as self.augmenters:
            return super().get_dataloaders()

    def run_training(self) -> None:
        """Train all epochs, and end all augmentation processes even if the training fails."""
        try:
            super().run_training()
        finally:
            end_workers(self.augmenters)

    def save_checkpoint(self, filename: str) -> None:
        """Write the checkpoint completely or not at all."""
        if self.local_rank == 0:
            with atomic_path(Path(filename)) as partial:
                try:
                    super().save_checkpoint(str(partial))
                except RuntimeError:  # torch hides a full disk
                    check_free_space(partial.parent)
                    raise

    def on_epoch_end(self) -> None:
        """End the epoch, then print one line about it and store the time of all epochs."""
        with mpl.rc_context():  # nnU-Net sets seaborn's style for the whole process
            super().on_epoch_end()
        if self.local_rank == 0:
            seconds = read_epoch_seconds(self.logger)
            write_json(Path(self.output_folder) / TRAINING_TIME, {"seconds": sum(seconds)})
            job = f"fold {self.fold} ({self.backbone})"
            sys.stdout.write(format_epoch(job, self.num_epochs, self.logger, seconds) + "\n")
            sys.stdout.flush()

    def print_to_log_file(self, *args: Any, also_print_to_console: bool = True, add_timestamp: bool = True) -> None:
        """Write only to the training log; the console has one line for each epoch."""
        del also_print_to_console
        super().print_to_log_file(*args, also_print_to_console=False, add_timestamp=add_timestamp)

    def plot_network_architecture(self) -> None:
        """Do nothing, because nnU-Net's plot needs a package that is not installed."""


class HecktorTrainer(Supervision, Recipe):
    """nnU-Net's trainer for all backbones. Its name is part of nnU-Net's results folder."""


def make_trainer_class(name: str | None) -> type[Supervision]:
    """Return `HecktorTrainer`, or make its subclass with a variant of nnU-Net or the user's `module:Class`.

    Raises:
        HecktorError: The module or class is not found, or is not a subclass of nnU-Net's trainer.
    """
    if name is None:
        return HecktorTrainer
    module, colon, attribute = name.partition(":")
    try:
        user = getattr(import_module(module), attribute) if colon else _find_variant(name)
    except (ImportError, AttributeError, ValueError) as problem:
        raise HecktorError("--trainer", f"found {name} ({problem})", _EXPECTED) from None
    if not isinstance(user, type) or not issubclass(user, nnUNetTrainer) or user is nnUNetTrainer:
        raise HecktorError("--trainer", f"found {name}, which is not a trainer", _EXPECTED)
    bases = (user,) if issubclass(user, HecktorTrainer) else (Supervision, user, Recipe)
    return type(TRAINER, bases, {})


def _find_variant(name: str) -> Any:
    """Find the class of this name among nnU-Net's variants of its trainer; None if there is no such class."""
    return recursive_find_python_class(variants.__path__[0], name, variants.__name__)


class AbsentPet(ImageOnlyTransform):  # type: ignore[misc]
    """Transform that fills the PET channel with `value`, as inference does for a case without a PET."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def _apply_to_image(self, img: torch.Tensor, **_: Any) -> torch.Tensor:
        img[PET] = self.value
        return img


def compute_absent_pet(configuration: Mapping[str, Any], intensities: Mapping[str, Mapping[str, float]]) -> float:
    """Compute the normalised value of an absent PET, which inference replaces by SUV 0 everywhere.

    Args:
        configuration: Configuration of nnU-Net's plans, with the normalisation of each channel.
        intensities: Foreground values of each channel in the data set.
    """
    scheme = getattr(default_normalization_schemes, configuration["normalization_schemes"][PET])
    normaliser = scheme(use_mask_for_norm=False, intensityproperties=intensities[str(PET)])
    return float(normaliser.run(np.zeros((1, 1, 1), dtype=np.float32), None).item())


def add_pet_dropout(transforms: ComposeTransforms, probability: float, absent: float) -> ComposeTransforms:
    """Add dropout of the PET to nnU-Net's training transforms, with this probability for each patch.

    The dropout comes last, so that the channel has no noise. `absent` is the value of an absent PET.
    """
    dropout = RandomTransform(AbsentPet(absent), apply_probability=probability)
    return ComposeTransforms([*transforms.transforms, dropout])


def seed_process(seed: int) -> None:
    """Seed the global generators of this process; nnU-Net's loader and transforms draw from them."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - nnU-Net's loaders draw from the global state


class SeededLoader:
    """A loader of batches that seeds each worker process with its own number of `seeds` when the worker begins."""

    def __init__(self, loader: Any, seeds: Sequence[int]) -> None:
        self.loader, self.seeds = loader, seeds

    def set_thread_id(self, number: int) -> None:
        """Seed the worker; batchgenerators calls this method first in each worker."""
        torch.set_num_threads(1)
        seed_process(self.seeds[number])
        self.loader.set_thread_id(number)

    def __next__(self) -> Any:
        return next(self.loader)


@contextmanager
def seed_workers(epoch: int) -> Iterator[list[MultiThreadedAugmenter]]:
    """Seed the workers of the loaders that nnU-Net makes in the block; yield the list of these loaders.

    The workers take turns, independent of their speed. All seeds derive from torch's seed of this process and from
    `epoch`, at which the training resumes. The process itself, which draws the batches if there are no workers, is
    seeded again only after a resumption.
    """
    sequence = np.random.SeedSequence((torch.initial_seed(), epoch))
    if epoch:
        seed_process(int(sequence.generate_state(1)[0]))

    augmenters: list[MultiThreadedAugmenter] = []

    def make_ordered_augmenter(
        data_loader: Any, num_processes: int, pin_memory: bool, wait_time: float, **_: Any
    ) -> Any:
        seeds = [int(seed) for seed in sequence.spawn(1)[0].generate_state(num_processes)]
        loader = SeededLoader(data_loader, seeds)
        # The queue of each worker has one batch, because more batches of sixteen workers would take gigabytes.
        options = {"pin_memory": pin_memory, "wait_time": wait_time}
        augmenters.append(MultiThreadedAugmenter(loader, None, num_processes, 1, **options))
        return augmenters[-1]

    with replace_augmenters(make_ordered_augmenter):
        yield augmenters
