"""A custom network as the passes use it, and its own normalisation.

The class is made from a folder of files and a device, and called with a batch of patches. It is found in code that was
given or built into the image (`contract.code`), never in a package; its attributes are in the package's plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from algorithm.network.devices import is_device_failure
from algorithm.network.package import HOOK, ModelPackage
from contract import labels
from contract.code import describe_failure

_Float = npt.NDArray[np.float32]
# Probabilities of 0 become this logarithm, not minus infinity.
_LEAST: Final = 1e-7


class HookFailedError(Exception):
    """A custom network or normalisation fails on a case; the message is one line."""


def make_custom_normaliser(package: ModelPackage, number: int) -> Callable[[_Float], _Float]:
    """Return the custom normalisation of a channel; what it returns is checked."""
    reference = package.configuration["architecture"][HOOK]
    network = package.code.find(reference, "network")

    def normalise(channel: _Float) -> _Float:
        try:
            normalised = np.asarray(network.channels[number][1](channel.copy()))
        except MemoryError:
            raise
        except (Exception, SystemExit) as problem:
            raise HookFailedError(f"normalisation {number} of {reference}: {describe_failure(problem)}") from problem
        if normalised.shape != channel.shape or normalised.dtype.kind != "f" or not np.isfinite(normalised).all():
            actual = f"{normalised.dtype} of shape {normalised.shape}"
            raise HookFailedError(f"normalisation {number} of {reference}: {actual}, expected finite {channel.shape}")
        return normalised.astype(np.float32, copy=False)

    return normalise


class CustomNetwork(nn.Module):
    """A custom network on a device: its outputs are checked and become logits of background, GTVp and GTVn."""

    def __init__(self, package: ModelPackage, fold: int, device: torch.device) -> None:
        """Make the network from its files. Raises `HookFailedError`, or torch's own error for a failed device."""
        super().__init__()
        architecture: Mapping[str, Any] = package.configuration_of(fold)["architecture"]
        self.reference: str = architecture[HOOK]
        self._names: tuple[str, ...] = tuple(architecture["labels"])
        self._of_probabilities = architecture["returns"] == "probabilities"
        self._half = bool(architecture["half_precision"])
        self.network = self._build(package.code.find(self.reference, "network"), package.fold_files[fold], device)
        self.eval()

    def _build(self, network: Any, folder: Path, device: torch.device) -> Any:
        try:
            return network(folder, str(device))
        except (Exception, SystemExit) as problem:
            if is_device_failure(problem):
                raise
            raise HookFailedError(
                f"network {self.reference}: cannot be constructed: {describe_failure(problem)}"
            ) from problem

    def forward(self, patch: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, label, z, y, x) of a patch (batch, channel, z, y, x). Raises `HookFailedError`."""
        copy = patch.clone()  # a view of the image that all members share, which a network may change in place
        try:
            if self._half:
                outputs = self.network(copy)
            else:
                with torch.autocast(patch.device.type, enabled=False):
                    outputs = self.network(copy)
        except (Exception, SystemExit) as problem:
            if is_device_failure(problem):
                raise
            raise HookFailedError(f"network {self.reference}: {describe_failure(problem)}") from problem
        return self._logits(outputs, (len(patch), len(self._names), *patch.shape[2:]))

    def _logits(self, outputs: Any, shape: tuple[int, ...]) -> torch.Tensor:
        if not isinstance(outputs, torch.Tensor) or tuple(outputs.shape) != shape or not outputs.is_floating_point():
            actual = type(outputs).__name__
            if isinstance(outputs, torch.Tensor):
                actual = f"{str(outputs.dtype).removeprefix('torch.')} of shape {tuple(outputs.shape)}"
            kind = "probabilities" if self._of_probabilities else "logits"
            expected = f"a torch.Tensor of {kind} of shape {shape}"
            raise HookFailedError(f"network {self.reference}: returns {actual}, expected {expected}")
        values = outputs.float()
        if self._of_probabilities:
            if bool(((values < -_LEAST) | (values > 1 + 1e-3)).any()):
                raise HookFailedError(f"network {self.reference}: returns values that are not probabilities")
            values = values.clamp_min(_LEAST).log()
        tumours = [values[:, self._names.index(name)] for name in labels.LESIONS]
        background_numbers = [number for number, name in enumerate(self._names) if name not in labels.LESIONS]
        background = values[:, background_numbers].logsumexp(1)
        return torch.stack([background, *tumours], dim=1)


@torch.inference_mode()
def check_empty_patch(network: nn.Module, package: ModelPackage, fold: int) -> None:
    """Check that a custom network answers an empty patch. Raises `HookFailedError` if it cannot."""
    logits = network(torch.zeros((1, len(package.channel_sources), *package.patch_of(fold))))
    if not bool(torch.isfinite(logits).all()):
        reference = package.configuration_of(fold)["architecture"][HOOK]
        raise HookFailedError(f"network {reference}: returns NaN or infinity for an empty patch")
