"""How sure a mask is by the probabilities of its networks: expected DSC, and the lesions of a label."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from algorithm.masks.segmentation import ANY_CORNER


def expected_dsc(mask: npt.NDArray[np.bool_], probability: npt.NDArray[np.float32]) -> float | None:
    """Twice the expected overlap over the sum of both sizes: 2 sum_A p / (|A| + sum p); None for an empty `mask`.

    With independent voxels it is close to the expected DSC of `mask` against the truth (soft Dice confidence, Borges,
    Pacheco and Silva 2024, arXiv 2402.10665). Both arrays have one shape.
    """
    size = int(np.count_nonzero(mask))
    if size == 0:
        return None
    inside, everywhere = probability[mask].sum(dtype=np.float64), probability.sum(dtype=np.float64)
    return float(2 * inside / (size + everywhere))


def lesions_of(mask: npt.NDArray[np.uint8], label: int) -> list[npt.NDArray[np.intp]]:
    """The voxels of each 26-connected lesion of a label as indices into the flattened mask, largest lesion first."""
    numbered, count = ndimage.label(mask == label, structure=ANY_CORNER)
    if not count:
        return []
    places = np.flatnonzero(numbered)
    number = numbered.ravel()[places]
    order = np.argsort(number, kind="stable")
    return sorted(np.split(places[order], np.flatnonzero(np.diff(number[order])) + 1), key=len, reverse=True)
