"""A segmentation: logits on the segmenter's own grid, with the images they were computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from algorithm.case.read import Case
from algorithm.masks.removed import Postprocessed
from algorithm.region import grids
from algorithm.region.interpolation import Restoration, restored_labels
from algorithm.region.localise import Region
from contract import labels
from contract.images.geometry import Geometry

_Float = npt.NDArray[np.float32]
_SMALLEST_PROBABILITY: Final = np.finfo(np.float32).tiny


@dataclass(frozen=True)
class Segmentation:
    """Logits (label, z, y, x) on `grid`, with CT (HU) and PET (SUV, or None) on the same grid.

    `plan` and `device` describe the passes of the network; both are empty for a threshold. `restoration` is nnU-Net's
    way back to the scan, None for linear interpolation. `postprocessed` holds the removed lesions, None for a
    package without rules; the logits are those of the postprocessed mask.
    """

    logits: _Float
    ct: _Float
    pet: _Float | None
    grid: Geometry
    passes_done: int = 1
    passes_planned: int = 1
    plan: str = ""
    device: str = ""
    restoration: Restoration | None = None
    postprocessed: Postprocessed | None = None

    @property
    def by_network(self) -> bool:
        """True for passes of a network, False for a threshold."""
        return bool(self.plan)

    @property
    def how(self) -> str:
        """Plan and device in one line, empty for a threshold."""
        return f"{self.plan} on {self.device}" if self.device else self.plan

    @classmethod
    def from_mask(cls, mask: npt.NDArray[np.uint8], ct: _Float, pet: _Float | None, grid: Geometry) -> Segmentation:
        """A segmentation that is certain of `mask`."""
        logits = np.stack([np.where(mask == label, 1.0, -1.0).astype(np.float32) for label in sorted(labels.NAMES)])
        return cls(logits, ct, pet, grid)

    def mask(self) -> npt.NDArray[np.uint8]:
        """The label of each voxel of `grid`, (z, y, x)."""
        return argmax(self.logits)

    def mask_on(self, ct: Geometry) -> npt.NDArray[np.uint8]:
        """The label of each voxel of the CT's grid, (z, y, x); background beyond the segmenter's grid."""
        if self.restoration is not None:
            return restored_labels(self.logits, self.restoration, ct)
        return grids.restore_labels(self.logits, self.grid, ct)


@dataclass(frozen=True)
class Segmented:
    """A case with its segmentation and region, both None for a method that uses clinical variables alone.

    `why_threshold` is the reason for the PET threshold in place of the network; `by_contours` is True for contours that
    came with the case.
    """

    case: Case
    segmentation: Segmentation | None
    region: Region | None = None
    why_threshold: str = "no pass of the network"
    by_contours: bool = False

    @property
    def by_network(self) -> bool:
        """True if passes of a network made the segmentation."""
        return self.segmentation is not None and self.segmentation.by_network

    @property
    def without_body(self) -> bool:
        """True if the scan shows neither a body nor uptake; nothing was segmented then."""
        return self.region is not None and self.region.is_empty


def argmax(logits: _Float) -> npt.NDArray[np.uint8]:
    """The label with the highest logit, the lower one of equals; three times as fast as NumPy's along the first axis.

    Logits are numbers, (label, ...).
    """
    highest, winner = logits[0], np.zeros(logits.shape[1:], dtype=np.uint8)
    for label, own in enumerate(logits[1:], start=1):
        winner[own > highest] = label
        highest = np.maximum(highest, own)
    return winner


def softmax(logits: _Float) -> _Float:
    """Probabilities over the first axis."""
    powers = np.exp(logits - logits.max(0))
    return np.asarray(powers / powers.sum(0))


def log_probabilities(probabilities: _Float) -> _Float:
    """Logarithms of probabilities, finite for a probability of 0."""
    return np.log(np.maximum(probabilities, _SMALLEST_PROBABILITY))
