"""The attributes of an entrant's own network, which become a configuration of a package's plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from algorithm.network.package import CUSTOM_FUNCTION, HOOK, INTENSITIES, KNOWN, is_known
from contract import labels
from contract.documents import Document, parse_document
from contract.errors import ModelPackageError

_Size = Annotated[int, Field(gt=0, le=1024)]
_Step = Annotated[float, Field(ge=0.1, le=50)]


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
