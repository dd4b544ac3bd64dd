"""Ways to run a network faster on a card. Answers then differ in their last bits, and may differ from run to run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# Names for the command line, and the fields of `Speed` that they set.
SPEED_UPS: Final = {"benchmark": "benchmark", "channels-last": "channels_last", "two-mirrors": "two_mirrors"}


@dataclass(frozen=True)
class Speed:
    """Ways to use; none of them by default, so that one device gives the same bytes for the same input.

    Attributes:
        benchmark: cuDNN measures its algorithms and takes the fastest.
        channels_last: weights and images lie in memory with the channels last.
        two_mirrors: two mirrored passes of one network share each batch.
    """

    benchmark: bool = False
    channels_last: bool = False
    two_mirrors: bool = False

    @classmethod
    def named(cls, names: Iterable[str]) -> Speed:
        """The ways called `names`, keys of `SPEED_UPS`."""
        return cls(**{SPEED_UPS[name]: True for name in names})
