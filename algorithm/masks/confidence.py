"""The expected DSC of a mask, by the probabilities of its networks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from algorithm.masks.segmentation import argmax, softmax
from contract import labels


def expected_dsc(logits: npt.NDArray[np.float32]) -> dict[str, float | None]:
    """The DSC that `logits` (label, z, y, x) predict for each lesion label of their argmax, by the label's name.

    Twice the expected overlap over the sum of both sizes: 2 sum_A p / (|A| + sum p), with p the softmax and A the
    label's voxels; None without any. With independent voxels it is close to the expected DSC of A against the truth
    (soft Dice confidence, Borges, Pacheco and Silva 2024, arXiv 2402.10665).
    """
    size, inside, everywhere = np.zeros((3, len(labels.NAMES)))
    for z in range(logits.shape[1]):  # probabilities of the whole grid at once would be the peak of memory
        probability, mask = softmax(logits[:, z]), argmax(logits[:, z])
        size += np.bincount(mask.ravel(), minlength=size.size)
        everywhere += probability.sum((1, 2), dtype=np.float64)
        for label in labels.FOREGROUND:
            inside[label] += probability[label][mask == label].sum(dtype=np.float64)
    return {
        labels.NAMES[label]: float(2 * inside[label] / (size[label] + everywhere[label])) if size[label] else None
        for label in labels.FOREGROUND
    }
