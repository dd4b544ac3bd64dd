"""A custom network in a model package: what its class declares, and the files of each fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from algorithm.network.package import CUSTOM_FUNCTION, HOOK, INTENSITIES, KNOWN, is_known
from contract import labels
from contract.code import Code, split_reference
from contract.documents import Document, parse_document
from contract.errors import HecktorError, ModelPackageError
from contract.packages import CHANNEL_NUMBERS

# Kind of the reference, for messages.
_KIND = "network"
# Default name of the class in a folder of code.
_DEFAULT_CLASS = "Network"

_Size = Annotated[int, Field(gt=0, le=1024)]
_Step = Annotated[float, Field(ge=0.1, le=50)]


class CustomChannel(Document):
    """One channel: the name of its image, and its normalisation as plans name it."""

    image: str
    normalisation: Any


class NetworkDeclaration(Document):
    """Attributes that the class of a custom network declares.

    Attributes:
        spacing_mm: Voxel spacing (x, y, z) of the network's grid.
        patch: Voxels (z, y, x) of a patch.
        channels: Pairs of one of the edition's channels (CT, PET, or an MR or a structure of a mask) and a
            normalisation: the name of one of nnU-Net's four, a window (low, high) that becomes 0 to 1, or a function
            from an array (z, y, x), CT in HU and PET in SUV, to one of the same shape.
        labels: Names of the outputs, in their order; all except GTVp and GTVn are background.
        mirror_axes: Axes of (z, y, x) along which a patch may be mirrored.
        returns: Logits, or probabilities that sum to 1.
        half_precision: Call the network under torch's autocast: float16 on a GPU, bfloat16 on a CPU that has it.
        intensities: For CTNormalization, by the channel's number: mean, std, percentile_00_5 and percentile_99_5.
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
    def _check_labels_and_channels(self) -> NetworkDeclaration:
        if len(set(self.labels)) != len(self.labels) or not set(labels.NAMES.values()) <= set(self.labels):
            raise ValueError(f"labels {', '.join(labels.NAMES.values())}, each once, possibly with others")
        for number, channel in enumerate(self.channels):
            if not is_known(channel.normalisation):
                raise ValueError(f"a normalisation of channel {number}: {KNOWN}, or a function")
            if channel.normalisation == "CTNormalization" and str(number) not in self.intensities:
                raise ValueError(f"intensities of channel {number}, which CTNormalization needs")
        return self

    def to_configuration(self, reference: str, channels: Sequence[str]) -> dict[str, Any]:
        """Return the network as a configuration of nnU-Net's plans; `channels` names the edition's channels."""
        outputs = {"labels": list(self.labels), "returns": self.returns, "half_precision": self.half_precision}
        return {
            "spacing": list(self.spacing_mm[::-1]),
            "patch_size": list(self.patch),
            CHANNEL_NUMBERS: [channels.index(channel.image) for channel in self.channels],
            "normalization_schemes": [channel.normalisation for channel in self.channels],
            INTENSITIES: self.intensities,
            "architecture": {HOOK: reference, **outputs},
        }


@dataclass(frozen=True)
class CustomMember:
    """Networks of one custom class: one folder of files for each fold.

    Attributes:
        reference: The class, such as `my_model:Network`.
        declaration: What the class declares.
        folders: The files of each fold, which are copied unchanged.
        digest: sha256 of the code.
        channels: Names of the edition's channels.
    """

    reference: str
    declaration: NetworkDeclaration
    folders: tuple[Path, ...]
    digest: str
    channels: tuple[str, ...]

    @property
    def code(self) -> dict[str, str]:
        """Return the manifest's entry: the folder of code and its checksum."""
        return {split_reference(self.reference, _KIND)[0]: self.digest}

    @property
    def configuration(self) -> dict[str, Any]:
        """Return the network as a configuration of nnU-Net's plans."""
        return self.declaration.to_configuration(self.reference, self.channels)


def load_custom_member(
    code: Code, reference: str | None, weights: Sequence[Path], channels: tuple[str, ...]
) -> CustomMember:
    """Load the custom network of `--code`, `--network` and `--weights`.

    Args:
        code: Folders of custom code.
        reference: Class of the network; None takes `Network` of the only folder of code.
        weights: Folder of files of each fold.
        channels: Names of the edition's channels.

    Raises:
        HecktorError: --code is not a single folder, or a folder of weights does not exist or is empty.
        ModelPackageError: The code cannot be imported, does not contain the class, or its declaration is invalid.
    """
    if reference is None:
        if len(code.folders) != 1:
            actual = f"found {len(code.folders)} of them with --weights"
            raise HecktorError("--code", actual, "one folder of code, or --network folder:Name")
        reference = f"{next(iter(code.folders))}:{_DEFAULT_CLASS}"
    for folder in weights:
        if not folder.is_dir() or not any(path.is_file() for path in folder.rglob("*")):
            expected = "the folder that the network is made from"
            raise HecktorError(f"--weights {folder.name}", "found no files", expected)
    declaration = _read_declaration(code.find(reference, _KIND), reference, channels)
    digest = code.digest(split_reference(reference, _KIND)[0])
    return CustomMember(reference, declaration, tuple(weights), digest, channels)


def _read_declaration(network: Any, reference: str, channels: Sequence[str]) -> NetworkDeclaration:
    """Read the attributes of a custom class; raise `ModelPackageError` if one of them is invalid.

    `channels` are the names of the edition's channels.
    """
    attributes = {name: getattr(network, name) for name in NetworkDeclaration.model_fields if hasattr(network, name)}
    try:
        pairs = [(image, normalisation) for image, normalisation in attributes.get("channels", ())]
    except (TypeError, ValueError):
        actual = f"found {attributes['channels']!r}"
        expected = 'pairs such as ("CT", (-160, 240)) and ("PET", "ZScoreNormalization")'
        raise ModelPackageError(f"network {reference}.channels", actual, expected) from None
    attributes["channels"] = [
        {"image": image, "normalisation": CUSTOM_FUNCTION if callable(normalisation) else normalisation}
        for image, normalisation in pairs
    ]
    declaration = parse_document(attributes, NetworkDeclaration, f"network {reference}", error=ModelPackageError)
    for number, channel in enumerate(declaration.channels):
        if channel.image not in channels:
            what = f"network {reference}.channels[{number}].image"
            raise ModelPackageError(what, f"found {channel.image!r}", f"one of {', '.join(channels)}")
    return declaration
