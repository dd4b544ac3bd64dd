"""Components, matching and the aggregated F1, against naive oracles."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from evaluation.editions.profile import load_profile
from evaluation.metrics.lesions import LesionCounts, compare_lesions, f1_agg_metric, label_components, match_one_to_one
from evaluation.metrics.rules import MaskRules
from tests.evaluation.tasks import SEGMENTATION

masks = hnp.arrays(np.bool_, (4, 5, 5), elements=st.sampled_from([True, False, False]))


def fill_components(mask, connectivity):
    """Return the components as sets of voxels in the order of their first voxels, filled voxel by voxel."""
    differing = {6: 1, 18: 2, 26: 3}[connectivity]
    steps = [step for step in product((-1, 0, 1), repeat=3) if 0 < sum(map(abs, step)) <= differing]
    left = set(map(tuple, np.argwhere(mask).tolist()))
    components = []
    for first in map(tuple, np.argwhere(mask).tolist()):
        if first not in left:
            continue
        left.remove(first)
        component, front = {first}, [first]
        while front:
            voxel = front.pop()
            touching = {tuple(map(sum, zip(voxel, step, strict=True))) for step in steps} & left
            left -= touching
            component |= touching
            front += touching
        components.append(component)
    return components


def make_iou_table(reference, predicted, connectivity=26):
    references, predictions = fill_components(reference, connectivity), fill_components(predicted, connectivity)
    return [[len(r & p) / len(r | p) for p in predictions] for r in references], len(references), len(predictions)


def find_best_assignment(table, n_rows, n_columns, threshold):
    """Return (pairs, total IoU) of the best one-to-one matching, by trying every assignment."""
    if n_rows > n_columns:
        table, n_rows, n_columns = [list(row) for row in zip(*table, strict=True)], n_columns, n_rows
    best = (0, 0.0)
    for columns in permutations(range(n_columns), n_rows):
        chosen = [table[row][column] for row, column in enumerate(columns) if table[row][column] > threshold]
        best = max(best, (len(chosen), sum(chosen)))
    return best


@pytest.mark.parametrize("connectivity", [6, 18, 26])
@settings(max_examples=40)
@given(
    mask=hnp.arrays(np.bool_, hnp.array_shapes(min_dims=3, max_dims=3, min_side=0, max_side=6)),
    axes=st.permutations(range(3)),
)
def test_components_are_numbered_in_the_order_of_their_first_voxels(mask, connectivity, axes):
    mask = mask.transpose(axes)  # also of arrays that are not contiguous
    expected = fill_components(mask, connectivity)
    numbered, count = label_components(mask, connectivity)
    assert (numbered.shape, numbered.dtype, count) == (mask.shape, np.int32, len(expected))
    components = [set(map(tuple, np.argwhere(numbered == number).tolist())) for number in range(1, count + 1)]
    assert components == expected
    np.testing.assert_array_equal(numbered > 0, mask)


def make_line(length, *stretches):
    mask = np.zeros((1, 1, length), np.bool_)
    for start, stop in stretches:
        mask[0, 0, start:stop] = True
    return mask


def test_iou_of_exactly_the_threshold_is_no_match(rules):
    """3 shared of 10 in the union: IoU = 0.3, not above 0.30."""
    reference, predicted = make_line(12, (0, 6)), make_line(12, (3, 10))
    assert compare_lesions(reference, predicted, rules()).counts == LesionCounts(0, 1, 1)
    assert compare_lesions(reference, predicted, rules(iou_strict=False)).counts == LesionCounts(1, 0, 0)


def test_a_lesion_has_only_one_partner(rules):
    """Predictions of 5 and 6 lie in a reference of 12: IoU 5/12 and 6/12, above 0.3 for both, DSC 10/17 and 12/18.

    Lesions of 4 and 2 voxels are exact and missed.
    """
    reference, predicted = make_line(30, (0, 12), (14, 16), (20, 24)), make_line(30, (0, 5), (6, 12), (20, 24))
    expected = {"one_to_one": LesionCounts(2, 1, 1), "any_overlap": LesionCounts(3, 0, 1)}
    for matching, counts in expected.items():
        lesions = compare_lesions(reference, predicted, rules(matching=matching))
        assert lesions.counts == counts
        assert lesions.reference_voxels == (12, 2, 4)
        assert lesions.dsc == (pytest.approx(12 / 18), None, 1.0)


def test_cardinality_comes_before_iou():
    """Pairs (0,0) 0.9, (0,1) 0.4, (1,0) 0.4: greedy takes only the first, the largest matching the other two."""
    pairs = match_one_to_one(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([0.9, 0.4, 0.4]))
    assert pairs == [(0, 1), (1, 0)]


@settings(max_examples=40)
@given(masks, masks)
def test_matching_equals_the_best_of_all_assignments(a, b):
    rules = load_profile("hecktor2025").find_task(SEGMENTATION.name).answers["segmentation"].rules
    assert isinstance(rules, MaskRules)
    rules = rules.model_copy(update={"iou_threshold": 0.1})
    table, n_references, n_predictions = make_iou_table(a, b)
    counts = compare_lesions(a, b, rules).counts
    if min(n_references, n_predictions) <= 4 and max(n_references, n_predictions) <= 5:
        pairs, _ = find_best_assignment(table, n_references, n_predictions, 0.1)
        assert counts == LesionCounts(pairs, n_predictions - pairs, n_references - pairs)
    literal = compare_lesions(a, b, rules.model_copy(update={"matching": "any_overlap"})).counts
    assert counts.true_positives <= literal.true_positives
    greedy = compare_lesions(a, b, rules.model_copy(update={"matching": "greedy"})).counts
    assert greedy.true_positives <= counts.true_positives
    mirrored = compare_lesions(b, a, rules).counts
    assert mirrored == LesionCounts(counts.true_positives, counts.false_negatives, counts.false_positives)


@settings(max_examples=40)
@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_total_iou_is_the_largest_among_equal_cardinalities(n_rows, n_columns, data):
    table = [[data.draw(st.sampled_from([0.0, 0.31, 0.4, 0.55, 0.9])) for _ in range(n_columns)] for _ in range(n_rows)]
    cells = [(i, j) for i in range(n_rows) for j in range(n_columns) if table[i][j] > 0]
    rows, columns = np.array([i for i, _ in cells], dtype=np.intp), np.array([j for _, j in cells], dtype=np.intp)
    pairs = match_one_to_one(rows, columns, np.array([table[i][j] for i, j in cells]))
    count, total = find_best_assignment(table, n_rows, n_columns, 0.0)
    assert len(pairs) == count
    assert sum(table[i][j] for i, j in pairs) == pytest.approx(total)


def test_a_mask_of_many_components_is_matched(rules):
    """Single voxels two apart form 32 768 lesions, which all match themselves."""
    mask = np.zeros((64, 64, 64), np.bool_)
    mask[::2, ::2, ::2] = True
    assert compare_lesions(mask, mask, rules()).counts == LesionCounts(32768, 0, 0)


def test_f1_is_a_ratio_of_sums():
    """TP 3 and 0, FP 0 and 1, FN 0 and 2: 6 / (6 + 1 + 2) = 2/3, while the mean of case values is 0.5."""
    metric = f1_agg_metric(np.array([3.0, 0]), np.array([0.0, 1]), np.array([0.0, 2]))
    assert metric(np.ones((1, 2)))[0] == pytest.approx(2 / 3)
    assert np.isnan(f1_agg_metric(*np.zeros((3, 2)))(np.ones((1, 2)))[0])
