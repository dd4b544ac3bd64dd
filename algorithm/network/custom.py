"""An entrant's own network: what its class declares, its normalisation, and the network as the passes use it.

The class is made from a folder of files and a device, and called with a batch of patches. It is found in code that was
given or built into the image (`contract.code`), never in a package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator
from torch import nn

from algorithm.network.devices import is_device_failure
from algorithm.network.package import CUSTOM_FUNCTION, HOOK, INTENSITIES, KNOWN, ModelPackage, is_known
from contract import labels
from contract.code import failure_of
from contract.documents import Document, parse_document
from contract.errors import ModelPackageError

_Float = npt.NDArray[np.float32]
_Size = Annotated[int, Field(gt=0, le=1024)]
_Step = Annotated[float, Field(ge=0.1, le=50)]
# Probabilities of 0 become this logarithm, not minus infinity.
_LEAST: Final = 1e-7


class HookFailedError(Exception):
    """An entrant's network or normalisation fails on a case; the message is one line."""


class CustomChannel(Document):
    """One channel: the name of its image, and its normalisation as plans name it."""

    image: str
    normalisation: Any


class NetworkDeclaration(Document):
    """Attributes that an entrant's class of a network declares.

    Attributes:
        spacing_mm: voxel spacing (x, y, z) of the network's grid.
        patch: voxels (z, y, x) of a patch.
        channels: pairs of one of the edition's channels (CT, PET, or an MR or a structure of a mask) and a
            normalisation: the name of one of nnU-Net's four, a window (low, high) that becomes 0 to 1, or a function
            from an array (z, y, x), CT in HU and PET in SUV, to one of the same shape.
        labels: names of the outputs, in their order; others than background, GTVp and GTVn count as background.
        mirror_axes: axes of (z, y, x) along which a patch may be mirrored.
        returns: logits, or probabilities that sum to 1.
        half_precision: call the network under torch's autocast: float16 on a card, bfloat16 on a CPU that has it.
        intensities: for CTNormalization, by the channel's number: mean, std, percentile_00_5 and percentile_99_5.
    """

    spacing_mm: tuple[_Step, _Step, _Step]
    patch: tuple[_Size, _Size, _Size]
    channels: Annotated[tuple[CustomChannel, ...], Field(min_length=1)]
    labels: tuple[str, ...] = tuple(labels.NAMES.values())
    mirror_axes: tuple[Literal[0, 1, 2], ...] = ()
    returns: Literal["logits", "probabilities"] = "logits"
    half_precision: bool = True
    intensities: dict[str, dict[str, float]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_labels(self) -> NetworkDeclaration:
        if len(set(self.labels)) != len(self.labels) or not set(labels.NAMES.values()) <= set(self.labels):
            raise ValueError(f"labels {', '.join(labels.NAMES.values())}, each once, perhaps with others")
        for number, channel in enumerate(self.channels):
            if not is_known(channel.normalisation):
                raise ValueError(f"a normalisation of channel {number}: {KNOWN}, or a function")
            if channel.normalisation == "CTNormalization" and str(number) not in self.intensities:
                raise ValueError(f"intensities of channel {number}, which CTNormalization needs")
        return self

    def configuration(self, reference: str, channels: Sequence[str]) -> dict[str, Any]:
        """The network as a configuration of nnU-Net's plans; `channels` are those of the edition."""
        outputs = {"labels": list(self.labels), "returns": self.returns, "half_precision": self.half_precision}
        return {
            "spacing": list(self.spacing_mm[::-1]),
            "patch_size": list(self.patch),
            "channels": [channels.index(channel.image) for channel in self.channels],
            "normalization_schemes": [channel.normalisation for channel in self.channels],
            INTENSITIES: self.intensities,
            "architecture": {HOOK: reference, **outputs},
        }


def declaration_of(network: Any, reference: str, channels: Sequence[str]) -> NetworkDeclaration:
    """The declaration of an entrant's class, from its attributes. Raises `ModelPackageError`.

    `channels` are the names of those that the edition has.
    """
    given = {name: getattr(network, name) for name in NetworkDeclaration.model_fields if hasattr(network, name)}
    try:
        pairs = [(image, normalisation) for image, normalisation in given.get("channels", ())]
    except (TypeError, ValueError):
        expected = 'pairs such as ("CT", (-160, 240)) and ("PET", "ZScoreNormalization")'
        raise ModelPackageError(f"network {reference}.channels", f"found {given['channels']!r}", expected) from None
    named = ((image, CUSTOM_FUNCTION if callable(one) else one) for image, one in pairs)
    given["channels"] = [{"image": image, "normalisation": one} for image, one in named]
    declaration = parse_document(given, NetworkDeclaration, f"network {reference}", error=ModelPackageError)
    for number, channel in enumerate(declaration.channels):
        if channel.image not in channels:
            what = f"network {reference}.channels[{number}].image"
            raise ModelPackageError(what, f"found {channel.image!r}", f"one of {', '.join(channels)}")
    return declaration


def custom_normaliser(package: ModelPackage, number: int) -> Callable[[_Float], _Float]:
    """The entrant's own normalisation of a channel; what it returns is checked."""
    reference = package.configuration["architecture"][HOOK]
    network = package.code.find(reference, "network")

    def normalise(channel: _Float) -> _Float:
        try:
            normalised = np.asarray(network.channels[number][1](channel.copy()))
        except MemoryError:
            raise
        except (Exception, SystemExit) as problem:
            raise HookFailedError(f"normalisation {number} of {reference}: {failure_of(problem)}") from problem
        if normalised.shape != channel.shape or normalised.dtype.kind != "f" or not np.isfinite(normalised).all():
            found = f"{normalised.dtype} of shape {normalised.shape}"
            raise HookFailedError(f"normalisation {number} of {reference}: {found}, expected finite {channel.shape}")
        return normalised.astype(np.float32, copy=False)

    return normalise


class CustomNetwork(nn.Module):
    """An entrant's network on a device: its outputs are checked and become logits of background, GTVp and GTVn."""

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
                f"network {self.reference}: cannot be constructed: {failure_of(problem)}"
            ) from problem

    def forward(self, patch: torch.Tensor) -> torch.Tensor:
        """Logits (batch, label, z, y, x) of a patch (batch, channel, z, y, x). Raises `HookFailedError`."""
        given = patch.clone()  # a view of the image that all members share, which a network may change in place
        try:
            if self._half:
                outputs = self.network(given)
            else:
                with torch.autocast(patch.device.type, enabled=False):
                    outputs = self.network(given)
        except (Exception, SystemExit) as problem:
            if is_device_failure(problem):
                raise
            raise HookFailedError(f"network {self.reference}: {failure_of(problem)}") from problem
        return self._logits(outputs, (len(patch), len(self._names), *patch.shape[2:]))

    @torch.inference_mode()
    def answer_empty(self, package: ModelPackage, fold: int) -> None:
        """Answer one empty patch, to see before an upload that it can. Raises `HookFailedError`."""
        channels = len(package.configuration_of(fold)["channels"])
        logits = self(torch.zeros((1, channels, *package.patch_of(fold))))
        if not bool(torch.isfinite(logits).all()):
            raise HookFailedError(f"network {self.reference}: returns NaN or infinity for an empty patch")

    def _logits(self, outputs: Any, shape: tuple[int, ...]) -> torch.Tensor:
        if not isinstance(outputs, torch.Tensor) or tuple(outputs.shape) != shape or not outputs.is_floating_point():
            found = type(outputs).__name__
            if isinstance(outputs, torch.Tensor):
                found = f"{str(outputs.dtype).removeprefix('torch.')} of shape {tuple(outputs.shape)}"
            kind = "probabilities" if self._of_probabilities else "logits"
            expected = f"a torch.Tensor of {kind} of shape {shape}"
            raise HookFailedError(f"network {self.reference}: returns {found}, expected {expected}")
        values = outputs.float()
        if self._of_probabilities:
            if bool(((values < -_LEAST) | (values > 1 + 1e-3)).any()):
                raise HookFailedError(f"network {self.reference}: returns values that are not probabilities")
            values = values.clamp_min(_LEAST).log()
        tumours = [values[:, self._names.index(name)] for name in labels.LESIONS]
        others = [number for number, name in enumerate(self._names) if name not in labels.LESIONS]
        background = values[:, others].logsumexp(1) if len(others) > 1 else values[:, others[0]]
        return torch.stack([background, *tumours], dim=1)
