"""Functions of the CT as further channels, computed inside the network; files and augmentation have CT and PET only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import nn

from contract.errors import ModelPackageError
from contract.packages import CHANNELS

_CT: Final = CHANNELS.index("CT")


def _square(ct: torch.Tensor) -> torch.Tensor:
    return ct * ct


def _cube_root(ct: torch.Tensor) -> torch.Tensor:
    return ct.sign() * ct.abs().pow(1 / 3)


_ENHANCEMENTS: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "ct_square": _square,
    "ct_cube_root": _cube_root,
}


class Enhanced(nn.Module):
    """A network that sees functions of the normalised CT behind its channels.

    Args:
        network: takes (batch, channels and `names`, z, y, x).
        names: functions in the order of the channels. `ct_square` spreads values far from the mean CT, `ct_cube_root`
            values near it, such as soft tissue.
    """

    def __init__(self, network: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.network = network
        self._functions = [_ENHANCEMENTS[name] for name in names]

    def forward(self, data: torch.Tensor) -> Any:
        """The network's output for normalised channels (batch, channel, z, y, x), CT first."""
        ct = data[:, _CT : _CT + 1]
        return self.network(torch.cat([data, *(function(ct) for function in self._functions)], dim=1))

    @property
    def decoder(self) -> Any:
        """The network's decoder, on which nnU-Net's trainer turns deep supervision on and off."""
        return self.network.decoder


def enhancements(names: Any) -> tuple[str, ...]:
    """The checked names under an architecture's `enhance`, each at most once. Raises `ModelPackageError`."""
    known = isinstance(names, list) and all(isinstance(name, str) and name in _ENHANCEMENTS for name in names)
    if not known or len(set(names)) < len(names):
        raise ModelPackageError("plans.json", f"enhance {names!r}", f"some of {', '.join(_ENHANCEMENTS)}, each once")
    return tuple(names)
