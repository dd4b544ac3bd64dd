"""Lesion detection: connected components, one-to-one matching by IoU, aggregated F1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from evaluation.metrics.overlap import Booleans, Floats, Integers, WeightedMetric, find_foreground_box, ratio_of_sums
from evaluation.metrics.rules import MaskRules

_Numbers: TypeAlias = npt.NDArray[np.int32]

# SciPy's connectivity, the number of coordinates in which neighbours may differ, by the number of a voxel's neighbours.
_SCIPY_CONNECTIVITY: Final = {6: 1, 18: 2, 26: 3}


@dataclass(frozen=True)
class LesionCounts:
    """Detected, false-positive and missed lesions of one case."""

    true_positives: int
    false_positives: int
    false_negatives: int


@dataclass(frozen=True)
class FalseVoxels:
    """Voxels of one label in one case, in connected components that the other mask does not touch.

    Attributes:
        false_positive: Voxels of such components of the prediction.
        false_negative: Voxels of such components of the reference.

    Source: autoPET, whose code joins voxels with a common face or edge.
    """

    false_positive: int = 0
    false_negative: int = 0


@dataclass(frozen=True)
class ComparedLesions:
    """Comparison of the lesions of one case, which are in the order of their first voxels.

    Attributes:
        counts: Detected, false-positive and missed lesions.
        false: Voxels of lesions that the other mask does not touch.
        reference_voxels: Size of each reference lesion.
        predicted_voxels: Size of each predicted lesion.
        dsc: DSC of each reference lesion with its match, None for a missed one.
        iou_of: IoU of every overlapping pair, by the indices (from 0) of its reference lesion and its predicted lesion.
    """

    counts: LesionCounts
    false: FalseVoxels
    reference_voxels: tuple[int, ...] = ()
    predicted_voxels: tuple[int, ...] = ()
    dsc: tuple[float | None, ...] = ()
    iou_of: Mapping[tuple[int, int], float] = field(default_factory=dict)


@dataclass(frozen=True)
class MatchedLesions:
    """Result of the matching of two sets of lesions.

    Attributes:
        dsc: DSC of each detected reference lesion with its match, by the lesion's number.
        predicted: Numbers of the predicted lesions that are true positives.
    """

    dsc: Mapping[int, float]
    predicted: frozenset[int]


def label_components(mask: Booleans, connectivity: int) -> tuple[_Numbers, int]:
    """Assign numbers to the connected components of a (z, y, x) mask from 1, in the order of their first voxels.

    `connectivity` is 6, 18 or 26.
    """
    from scipy import ndimage

    numbers = np.zeros(mask.shape, dtype=np.int32)
    structure = ndimage.generate_binary_structure(3, _SCIPY_CONNECTIVITY[connectivity])
    return numbers, int(ndimage.label(mask, structure, output=numbers))


def compare_lesions(reference: Booleans, predicted: Booleans, rules: MaskRules) -> ComparedLesions:
    """Compare the lesions, connected components, of two masks of the same shape, (z, y, x), by `match_pairs`."""
    references, predictions = _number_components(reference, predicted, rules.connectivity)
    reference_sizes, predicted_sizes = _count_voxels(references), _count_voxels(predictions)
    pairs = find_overlapping_pairs(references, predictions, reference_sizes, predicted_sizes)
    matched = match_pairs(pairs, rules)
    n_reference, n_predicted = reference_sizes.size - 1, predicted_sizes.size - 1
    n_true = len(matched.predicted)
    return ComparedLesions(
        counts=LesionCounts(n_true, n_predicted - n_true, n_reference - len(matched.dsc)),
        false=_count_untouched(references, predictions, reference_sizes, predicted_sizes),
        reference_voxels=tuple(reference_sizes[1:].tolist()),
        predicted_voxels=tuple(predicted_sizes[1:].tolist()),
        dsc=tuple(matched.dsc.get(number) for number in range(1, n_reference + 1)),
        iou_of={
            (reference - 1, prediction - 1): iou
            for reference, prediction, iou in zip(*(part.tolist() for part in pairs), strict=True)
        },
    )


def count_false_voxels(reference: Booleans, predicted: Booleans, connectivity: int) -> FalseVoxels:
    """Count the voxels of components that the other mask of the same shape, (z, y, x), does not touch."""
    references, predictions = _number_components(reference, predicted, connectivity)
    return _count_untouched(references, predictions, _count_voxels(references), _count_voxels(predictions))


def _number_components(reference: Booleans, predicted: Booleans, connectivity: int) -> tuple[_Numbers, _Numbers]:
    """Assign numbers to the components of two masks within the box of their foreground."""
    box = find_foreground_box(reference.view(np.uint8), predicted.view(np.uint8))
    return label_components(reference[box], connectivity)[0], label_components(predicted[box], connectivity)[0]


def _count_voxels(numbers: _Numbers) -> Integers:
    """Count the voxels of each component by its number; the background, number 0, is not counted."""
    return np.bincount(numbers[numbers > 0], minlength=1)


def _count_untouched(
    references: _Numbers, predictions: _Numbers, reference_sizes: Integers, predicted_sizes: Integers
) -> FalseVoxels:
    """Count the voxels of components that the other mask does not touch."""
    is_common = (references > 0) & (predictions > 0)
    missed = reference_sizes[1:].sum() - reference_sizes[np.unique(references[is_common])].sum()
    false = predicted_sizes[1:].sum() - predicted_sizes[np.unique(predictions[is_common])].sum()
    return FalseVoxels(false_positive=int(false), false_negative=int(missed))


# Numbers of the reference and of the predicted lesion of each pair, and its IoU.
LesionPairs: TypeAlias = tuple[Integers, Integers, Floats]


def match_lesions(
    references: _Numbers, predictions: _Numbers, reference_sizes: Integers, predicted_sizes: Integers, rules: MaskRules
) -> MatchedLesions:
    """Match the lesions of two arrays of component numbers as `match_pairs` does.

    Args:
        references: Number of the reference lesion at each voxel, 0 where there is no lesion.
        predictions: Number of the predicted lesion at the same voxels. Voxels that are not in both masks may be left
            out of the two arrays.
        reference_sizes: Voxels of each reference lesion in the whole image, by number.
        predicted_sizes: Voxels of each predicted lesion in the whole image, by number.
        rules: Rules of the matching.
    """
    return match_pairs(find_overlapping_pairs(references, predictions, reference_sizes, predicted_sizes), rules)


def match_pairs(pairs: LesionPairs, rules: MaskRules) -> MatchedLesions:
    """Match lesions by their overlapping pairs.

    A pair may match if its IoU is above `rules.iou_threshold` (or equal, if `iou_strict` is false). `rules.matching`
    decides which of these pairs match:

    - `one_to_one`: the largest set of pairs in which each lesion occurs at most once.
    - `any_overlap`: all pairs, as in the wording of the overview. Every predicted lesion with a partner is a true
      positive, and every reference lesion without a partner is a false negative; a lesion may have several partners.
      The DSC of a reference lesion is then the DSC with its best partner.
    - `greedy`: the pair with the largest IoU, then the next pair whose lesions are both free.

    Source: the HECKTOR 2025 rules and overview.
    """
    references, predictions, iou = pairs
    candidates = iou > rules.iou_threshold if rules.iou_strict else iou >= rules.iou_threshold
    references, predictions, iou = references[candidates], predictions[candidates], iou[candidates]
    iou_of = {
        (reference, prediction): value
        for reference, prediction, value in zip(references.tolist(), predictions.tolist(), iou.tolist(), strict=True)
    }
    if rules.matching == "any_overlap":
        matched = list(iou_of)
    elif rules.matching == "greedy":
        matched = match_greedily(references, predictions, iou)
    else:
        matched = match_one_to_one(references, predictions, iou)
    dsc: dict[int, float] = {}
    for pair in matched:
        dsc[pair[0]] = max(2 * iou_of[pair] / (1 + iou_of[pair]), dsc.get(pair[0], 0.0))
    return MatchedLesions(dsc, frozenset(prediction for _, prediction in matched))


def find_overlapping_pairs(
    references: _Numbers, predictions: _Numbers, reference_sizes: Integers, predicted_sizes: Integers
) -> LesionPairs:
    """Find every pair of a reference and a predicted lesion with a common voxel; arguments as in `match_lesions`."""
    both = (references > 0) & (predictions > 0)
    # Pairs are numbered in 64 bits: 10^5 lesions on either side overflow 32.
    pair = references[both].astype(np.int64) * predicted_sizes.size + predictions[both]
    pairs, intersection = np.unique(pair, return_counts=True)
    reference_index, predicted_index = np.divmod(pairs, predicted_sizes.size)
    iou = intersection / (reference_sizes[reference_index] + predicted_sizes[predicted_index] - intersection)
    return reference_index.astype(np.intp), predicted_index.astype(np.intp), iou


def match_one_to_one(references: Integers, predictions: Integers, iou: Floats) -> list[tuple[int, int]]:
    """Find the one-to-one matching with the most pairs, and among equal numbers the largest total IoU.

    Args:
        references: Number of the reference lesion of each candidate pair.
        predictions: Number of the predicted lesion of each candidate pair.
        iou: IoU of each candidate pair, above 0 and at most 1.

    Returns:
        The matched (reference, prediction) pairs, sorted.
    """
    if np.unique(references).size == np.unique(predictions).size == iou.size:
        # No lesion has a choice.
        return sorted(zip(references.tolist(), predictions.tolist(), strict=True))
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first_column = int(references.max()) + 1
    nodes = first_column + int(predictions.max()) + 1
    graph = coo_array((np.ones(iou.size), (references, predictions + first_column)), shape=(nodes, nodes))
    group = connected_components(graph, directed=False)[1][references]
    matched: list[tuple[int, int]] = []
    # Groups share no lesion, so each group is solved separately, which keeps the cost small with many lesions.
    order = np.argsort(group, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        matched += _match_group(references[members], predictions[members], iou[members])
    return sorted(matched)


def match_greedily(references: Integers, predictions: Integers, iou: Floats) -> list[tuple[int, int]]:
    """Match one-to-one by decreasing IoU, ties by number; arguments and result as in `match_one_to_one`."""
    free_references, free_predictions = set(references.tolist()), set(predictions.tolist())
    matched: list[tuple[int, int]] = []
    for index in np.lexsort((predictions, references, -iou)):
        pair = (int(references[index]), int(predictions[index]))
        if pair[0] in free_references and pair[1] in free_predictions:
            free_references.discard(pair[0])
            free_predictions.discard(pair[1])
            matched.append(pair)
    return sorted(matched)


def _match_group(references: Integers, predictions: Integers, iou: Floats) -> list[tuple[int, int]]:
    from scipy.optimize import linear_sum_assignment

    row_names, row = np.unique(references, return_inverse=True)
    column_names, column = np.unique(predictions, return_inverse=True)
    # A pair weighs more than any total IoU, so the number of pairs decides and the IoU breaks ties.
    pair_worth = min(row_names.size, column_names.size) + 1.0
    worth = np.zeros((row_names.size, column_names.size))
    worth[row, column] = pair_worth + iou
    chosen = zip(*linear_sum_assignment(worth, maximize=True), strict=True)
    return [(int(row_names[i]), int(column_names[j])) for i, j in chosen if worth[i, j] > 0]


def f1_agg_metric(true_positives: Floats, false_positives: Floats, false_negatives: Floats) -> WeightedMetric:
    """Return the aggregated F1, 2 TP / (2 TP + FP + FN) with lesions summed over cases, as a function of weights."""
    twice = 2 * true_positives
    return lambda weights: ratio_of_sums(weights, twice, twice + false_positives + false_negatives)
