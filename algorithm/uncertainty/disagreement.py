"""What the passes of one case say and how far they disagree, summed up while they are made."""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from contract import labels

if TYPE_CHECKING:  # its module imports torch, which runs without a network do without
    from algorithm.network.windows import Pass

LOGGER = logging.getLogger("hecktor")
# Voxels whose probabilities are worked out at once: what lies beside the sums stays small.
_AT_ONCE: Final = 1 << 20

_Float = npt.NDArray[np.float32]
_Mask = npt.NDArray[np.bool_]


class Disagreement:
    """Told every pass of one case, by `Passes.seen`; asked once no more are made.

    It holds three float32 numbers a voxel of the network's grid, whatever the number of passes, and two bits more a
    pass: about what the sum of the logits takes. A fault in here costs the uncertainty and never the answer: `fault`
    then says why, and no pass counts.
    """

    def __init__(self) -> None:
        self.passes: list[Pass] = []
        self.fault: str | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._sum = self._entropy = np.zeros(0, dtype=np.float32)
        self._shape: tuple[int, ...] = ()
        self._bits: list[npt.NDArray[np.uint8]] = []

    def add(self, step: Pass, logits: _Float) -> None:
        """Take up a pass's logits (label, z, y, x); after `close`, or a fault, nothing is taken up."""
        with self._lock:
            if self._closed or self.fault is not None:
                return
            try:
                self._add(step, logits)
            except Exception as problem:  # noqa: BLE001  the answer does not hang on it
                self.fault = (str(problem) or type(problem).__name__).splitlines()[0]
                self.passes, self._bits = [], []
                self._sum = self._entropy = np.zeros(0, dtype=np.float32)
                LOGGER.warning("*** WARNING *** the uncertainty is given up (%s)", self.fault)

    def close(self) -> None:
        """Take up no further pass; what is asked from now on does not change."""
        with self._lock:
            self._closed = True

    def _add(self, step: Pass, logits: _Float) -> None:
        if not self.passes:
            self._shape = logits.shape[1:]
            self._sum = np.zeros((len(labels.FOREGROUND), math.prod(self._shape)), dtype=np.float32)
            self._entropy = np.zeros(math.prod(self._shape), dtype=np.float32)
        flat = logits.reshape(len(logits), -1)
        winner = np.empty(flat.shape[1], dtype=np.uint8)
        for part in _parts(winner.size):
            probabilities = _softmax(flat[:, part])
            self._sum[:, part] += probabilities[1:]
            self._entropy[part] += entropy_bits(probabilities)
            winner[part] = flat[:, part].argmax(0)
        self._bits.append(np.stack([np.packbits(winner == label) for label in labels.FOREGROUND]))
        self.passes.append(step)

    def probability(self, label: int) -> _Float:
        """The label's softmax averaged over the passes, (z, y, x); a pass must have been made, as for all below."""
        return np.asarray(self._sum[label - 1] / np.float32(len(self.passes))).reshape(self._shape)

    def entropy(self) -> _Float:
        """Entropy of the averaged probabilities in bits (0 to log2 of the number of labels), (z, y, x)."""
        found = np.empty(math.prod(self._shape), dtype=np.float32)
        for part in _parts(found.size):
            lesions = self._sum[:, part] / np.float32(len(self.passes))
            found[part] = entropy_bits(np.concatenate([np.clip(1 - lesions.sum(0, keepdims=True), 0, 1), lesions]))
        return found.reshape(self._shape)

    def information(self) -> _Float | None:
        """Mutual information of label and pass in bits, (z, y, x): entropy of the mean less mean of the entropies.

        It is the part of the entropy that comes from the passes' disagreement: 0 where all say the same, however
        unsure each is. None with a single pass. Source: Houlsby et al. 2011 (arXiv 1112.5745).
        """
        if len(self.passes) < 2:
            return None
        mean = self._entropy.reshape(self._shape) / np.float32(len(self.passes))
        return np.asarray(np.maximum(self.entropy() - mean, np.float32(0)))

    def pairwise_dsc(self, label: int) -> float | None:
        """Mean DSC over all pairs of passes' masks; None with no pair in which either has the label.

        Source: Roy et al. 2019 (NeuroImage 195:11-22).
        """
        any_pass = np.bitwise_or.reduce([bits[label - 1] for bits in self._bits])
        touched = np.flatnonzero(any_pass)
        masks = [bits[label - 1][touched] for bits in self._bits]
        sizes = [_count(mask) for mask in masks]
        found = [
            2 * _count(masks[one] & masks[other]) / (sizes[one] + sizes[other])
            for one, other in itertools.combinations(range(len(masks)), 2)
            if sizes[one] + sizes[other]
        ]
        return float(np.mean(found)) if found else None

    def mask(self, number: int) -> npt.NDArray[np.uint8]:
        """The labels of the pass with that place in `passes`, (z, y, x)."""
        found = np.zeros(math.prod(self._shape), dtype=np.uint8)
        for label in labels.FOREGROUND:
            found[np.unpackbits(self._bits[number][label - 1], count=found.size).view(np.bool_)] = label
        return found.reshape(self._shape)

    def overlaps(self, label: int, voxels: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """The share of `voxels`, places in the flattened grid, that has the label in each pass's mask."""
        byte, shift = voxels >> 3, (7 - (voxels & 7)).astype(np.uint8)
        return np.array([((bits[label - 1][byte] >> shift) & 1).mean() for bits in self._bits])


def entropy_bits(probabilities: _Float) -> _Float:
    """Entropy in bits over the first axis; 0 log 0 is 0."""
    logarithms = np.log2(probabilities, out=np.zeros_like(probabilities), where=probabilities > 0)
    return np.asarray(-(probabilities * logarithms).sum(0))


def _softmax(logits: _Float) -> _Float:
    powers = np.exp(logits - logits.max(0))
    return np.asarray(powers / powers.sum(0))


def _count(packed: npt.NDArray[np.uint8]) -> int:
    return int(np.bitwise_count(packed).sum(dtype=np.int64))


def _parts(size: int) -> Iterator[slice]:
    return (slice(start, start + _AT_ONCE) for start in range(0, size, _AT_ONCE))
