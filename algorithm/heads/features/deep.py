"""Names of the deep features: `encoder_017` is the network's channel 17. `algorithm.encoder` measures them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from algorithm.heads.features.region import Feature

PREFIX: Final = "encoder_"


def is_deep(feature: str) -> bool:
    """Whether a feature is a channel of the network's encoder."""
    return feature.startswith(PREFIX)


def named(values: Iterable[float]) -> dict[str, Feature]:
    """Each channel's value under its name."""
    return {f"{PREFIX}{channel:03d}": float(value) for channel, value in enumerate(values)}
