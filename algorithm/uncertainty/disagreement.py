"""Agreement of the passes of one case, accumulated pass by pass."""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from algorithm.masks.segmentation import softmax
from contract import labels

if TYPE_CHECKING:  # the module imports torch, which runs without a network do not need
    from algorithm.network.windows import Pass

LOGGER = logging.getLogger("hecktor")
# Voxels processed at once, so that temporary arrays stay small.
_AT_ONCE: Final = 1 << 20

_Float = npt.NDArray[np.float32]


class Disagreement:
    """Observer of the passes of one case: `add` is the `on_pass` of `Passes`.

    It holds three float32 numbers per voxel of the network's grid, and two bits per voxel and pass: about the memory
    of the summed logits. An error in here costs the uncertainty and never the answer: `fault` then holds the reason,
    and no pass counts.
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
        """Add a pass with its logits (label, z, y, x); ignored after `close` and after a fault."""
        with self._lock:
            if self._closed or self.fault is not None:
                return
            try:
                self._add(step, logits)
            except Exception as problem:  # noqa: BLE001  the answer does not depend on it
                self.fault = (str(problem) or type(problem).__name__).splitlines()[0]
                self.passes, self._bits = [], []
                self._sum = self._entropy = np.zeros(0, dtype=np.float32)
                LOGGER.warning("the uncertainty is not computed (%s)", self.fault)

    def close(self) -> None:
        """Ignore further passes."""
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
            probabilities = softmax(flat[:, part])
            self._sum[:, part] += probabilities[1:]
            self._entropy[part] += entropy_bits(probabilities)
            winner[part] = flat[:, part].argmax(0)
        self._bits.append(np.stack([np.packbits(winner == label) for label in labels.FOREGROUND]))
        self.passes.append(step)

    def probability(self, label: int) -> _Float:
        """The label's softmax averaged over the passes, (z, y, x). Needs at least one pass, as all methods below."""
        return np.asarray(self._sum[label - 1] / np.float32(len(self.passes))).reshape(self._shape)

    def entropy(self) -> _Float:
        """Entropy of the averaged probabilities in bits (0 to log2 of the number of labels), (z, y, x)."""
        entropy = np.empty(math.prod(self._shape), dtype=np.float32)
        for part in _parts(entropy.size):
            lesions = self._sum[:, part] / np.float32(len(self.passes))
            entropy[part] = entropy_bits(np.concatenate([np.clip(1 - lesions.sum(0, keepdims=True), 0, 1), lesions]))
        return entropy.reshape(self._shape)

    def information(self) -> _Float | None:
        """Mutual information of label and pass in bits, (z, y, x): entropy of the mean less mean of the entropies.

        It is the part of the entropy that comes from disagreement between passes: 0 where all passes give the same
        probabilities, however uncertain. None with a single pass. Source: Houlsby et al. 2011 (arXiv 1112.5745).
        """
        if len(self.passes) < 2:
            return None
        mean = self._entropy.reshape(self._shape) / np.float32(len(self.passes))
        return np.asarray(np.maximum(self.entropy() - mean, np.float32(0)))

    def pairwise_dsc(self, label: int) -> float | None:
        """Mean DSC over all pairs of passes' masks, None if none has the label (Roy et al. 2019, NeuroImage 195:11)."""
        any_pass = np.bitwise_or.reduce([bits[label - 1] for bits in self._bits])
        touched = np.flatnonzero(any_pass)
        masks = [bits[label - 1][touched] for bits in self._bits]
        sizes = [_count(mask) for mask in masks]
        values = [
            2 * _count(masks[one] & masks[other]) / (sizes[one] + sizes[other])
            for one, other in itertools.combinations(range(len(masks)), 2)
            if sizes[one] + sizes[other]
        ]
        return float(np.mean(values)) if values else None

    def overlaps(self, label: int, voxels: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """The share of `voxels` (indices into the flattened grid) that has the label, for each pass."""
        byte, shift = voxels >> 3, (7 - (voxels & 7)).astype(np.uint8)
        return np.array([((bits[label - 1][byte] >> shift) & 1).mean() for bits in self._bits])


def entropy_bits(probabilities: _Float) -> _Float:
    """Entropy in bits over the first axis; 0 log 0 is 0."""
    logarithms = np.log2(probabilities, out=np.zeros_like(probabilities), where=probabilities > 0)
    return np.asarray(-(probabilities * logarithms).sum(0))


def _count(packed: npt.NDArray[np.uint8]) -> int:
    return int(np.bitwise_count(packed).sum(dtype=np.int64))


def _parts(size: int) -> Iterator[slice]:
    return (slice(start, start + _AT_ONCE) for start in range(0, size, _AT_ONCE))
