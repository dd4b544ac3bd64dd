"""Postprocessing rules on a segmentation: which lesions they remove, and what they never change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import ndimage

from algorithm.heads.structure import remove_specks
from algorithm.masks.postprocessing import apply_postprocessing, apply_rules, measure_lesions, pet_in_suv
from algorithm.masks.segmentation import REMOVED, PostprocessingResult, Segmentation, argmax
from contract.documents import parse_document
from contract.errors import ModelPackageError
from contract.images.geometry import Geometry
from contract.packages import NO_RULES, MinLesionSizes, PostprocessingRules

Box = tuple[slice, slice, slice]
Logits = npt.NDArray[np.float32]
# 40 x 40 x 40 voxels of 5 mm: 0.125 ml each.
GRID = Geometry((40, 40, 40), (5.0, 5.0, 5.0), (0.0, 0.0, 0.0))
SMALL_GRID = Geometry((8, 7, 6), (5.0, 5.0, 5.0), (0.0, 0.0, 0.0))


def make_box(z: int, y: int, x: int, size: int = 2) -> Box:
    """Return a cube (z, y, x) of `size` voxels a side."""
    return (slice(z, z + size), slice(y, y + size), slice(x, x + size))


PRIMARY, LARGE, SMALL, FAR = make_box(20, 20, 25, 4), make_box(10, 20, 25, 3), make_box(20, 10, 30), make_box(35, 35, 5)
# 64, 27, 8 and 8 voxels: 8, 3.375, 1 and 1 ml.
LESIONS = {1: [(PRIMARY, 0.95)], 2: [(LARGE, 0.9), (SMALL, 0.7), (FAR, 0.8)]}


def make_logits(boxes: Mapping[int, list[tuple[Box, float]]]) -> Logits:
    """Return logits that give each cube of a label its probability and the background the rest; elsewhere 0.98
    background.
    """
    probabilities = np.empty((3, *GRID.array_shape), dtype=np.float32)
    probabilities[0], probabilities[1:] = 0.98, 0.01
    for label, lesions in boxes.items():
        for cube, probability in lesions:
            probabilities[:, *cube] = 0.005
            probabilities[label, *cube] = probability
            probabilities[0, *cube] = 1 - 0.005 - probability
    return np.log(np.maximum(probabilities, np.float32(1e-6)))


def filter_lesions(
    rules: PostprocessingRules, boxes: Mapping[int, list[tuple[Box, float]]] = LESIONS, pet: Logits | None = None
) -> tuple[npt.NDArray[np.int64], PostprocessingResult]:
    logits, result = apply_rules(make_logits(boxes), pet, GRID, rules)
    return logits.argmax(0), result


def find_remaining(rules: PostprocessingRules, pet: Logits | None = None) -> list[bool]:
    """Return whether primary, large, small and far lesion are still there, whole; none may remain in part."""
    mask, _ = filter_lesions(rules, pet=pet)
    cubes = [(PRIMARY, 1), (LARGE, 2), (SMALL, 2), (FAR, 2)]
    assert (mask > 0).sum() == sum((mask[cube] > 0).sum() for cube, _ in cubes)
    remaining = [bool((mask[cube] == label).all()) for cube, label in cubes]
    assert remaining == [bool(mask[cube].any()) for cube, _ in cubes]
    return remaining


def test_rules_that_change_nothing_give_the_same_logits() -> None:
    logits = make_logits(LESIONS)
    same, result = apply_rules(logits, None, GRID, NO_RULES)
    assert same is logits
    assert (result.remaining, result.removed) == (4, ())
    assert NO_RULES.as_json() == {}


@pytest.mark.parametrize(
    ("rules", "remaining"),
    [
        ({"gtvn_volume_ml": 1.1}, [True, True, False, False]),
        ({"gtvn_volume_ml": 1}, [True, True, True, True]),
        ({"gtvp_volume_ml": 9.0}, [False, True, True, True]),
        # The foreground has the other label's 0.005 as well.
        ({"gtvn_mean_probability": 0.75}, [True, True, False, True]),
        # 3.375 + 1 + 1 = 5.375 ml of GTVn; of those above 1.1 ml only 3.375 ml.
        ({"gtvn_total_ml": 5.375}, [True, True, True, True]),
        ({"gtvn_total_ml": 5.4}, [True, False, False, False]),
        ({"gtvn_total_ml": 5.0, "gtvn_volume_ml": 1.1}, [True, False, False, False]),
        ({"gtvn_total_ml": 3.0, "gtvn_volume_ml": 1.1}, [True, True, False, False]),
    ],
)
def test_each_rule_removes_the_lesions_below_its_limit(rules: dict[str, Any], remaining: list[bool]) -> None:
    assert find_remaining(PostprocessingRules(**rules)) == remaining


@pytest.mark.parametrize("spacing_mm", [0.7, float(np.float32(0.7))])
def test_a_lesion_of_exactly_the_minimum_volume_stays(spacing_mm: float) -> None:
    """512 voxels of 0.343 mm3 are 0.175616 ml; single precision, as in NIfTI, stores 0.7 as 0.69999999."""
    grid = Geometry((20, 20, 20), (spacing_mm,) * 3, (0.0, 0.0, 0.0))
    logits = np.zeros((3, 20, 20, 20), dtype=np.float32)
    logits[2, 4:12, 4:12, 4:12], logits[0] = 9.0, 1.0
    for limit_ml, remaining in ((0.175616, 1), (0.1757, 0)):
        _, result = apply_rules(logits, None, grid, PostprocessingRules(gtvn_volume_ml=limit_ml))
        assert result.remaining == remaining
        mask = remove_specks(argmax(logits), grid, MinLesionSizes(gtvn_ml=limit_ml))
        assert bool(mask.any()) == bool(remaining)


def test_nodes_need_uptake_if_there_is_a_pet() -> None:
    pet = np.ones(GRID.array_shape, dtype=np.float32)
    pet[LARGE], pet[SMALL] = 6.0, 2.4
    assert find_remaining(PostprocessingRules(gtvn_suv_max=2.5), pet) == [True, True, False, False]


@pytest.mark.parametrize("highest", [None, 20_000.0, 0.02])
def test_the_gate_of_uptake_is_skipped_without_a_pet_in_suv(highest: float | None) -> None:
    """Without a PET, in Bq/ml (above SUV 500), or in an unknown unit (below SUV 1 everywhere)."""
    pet = None if highest is None else np.full(GRID.array_shape, highest, dtype=np.float32)
    rules = PostprocessingRules(gtvn_suv_max=2.5, gtvn_volume_ml=1.1)
    assert find_remaining(rules, pet_in_suv(pet)) == [True, True, False, False]
    _, result = filter_lesions(rules, pet=pet_in_suv(pet))
    assert result.skipped == ("gtvn_suv_max",)
    assert "gtvn_suv_max not applied without a PET in SUV" in result.summary()


def test_every_lesion_may_be_removed_and_the_log_says_so() -> None:
    mask, result = filter_lesions(PostprocessingRules(gtvp_volume_ml=100.0, gtvn_volume_ml=100.0))
    assert not mask.any()
    reasons = "1 GTVp by gtvp_volume_ml, 3 GTVn by gtvn_volume_ml"
    assert result.summary() == f"4 of 4 lesions removed ({reasons}); no lesion is left"
    mask, result = filter_lesions(PostprocessingRules(gtvn_total_ml=1.0, largest_gtvp_only=True), {})
    assert (mask.any(), result.remaining, result.removed) == (False, 0, ())


def test_a_case_with_too_little_gtvn_has_none() -> None:
    """If a node fails its own rule, that rule is the reason."""
    _, result = filter_lesions(PostprocessingRules(gtvn_volume_ml=1.1, gtvn_total_ml=4.0))
    reasons = "1 GTVn by gtvn_total_ml, 2 GTVn by gtvn_volume_ml"
    assert result.summary() == f"3 of 4 lesions removed ({reasons})"


def test_only_the_largest_primary_that_passes_its_volume_stays() -> None:
    """Of 8, 1 and 1 voxels of 0.125 ml the largest stays; with a minimum of 2 ml none does."""
    largest, second, third = make_box(15, 15, 15), make_box(5, 5, 5, 1), make_box(25, 25, 25, 1)
    boxes = {1: [(largest, 0.9), (second, 0.9), (third, 0.9)]}
    mask, result = filter_lesions(PostprocessingRules(largest_gtvp_only=True), boxes)
    assert ((mask[largest] == 1).all(), mask.sum()) == (True, 8)
    assert {lesion.rule for lesion in result.removed} == {"largest_gtvp_only"}
    mask, result = filter_lesions(PostprocessingRules(largest_gtvp_only=True, gtvp_volume_ml=2.0), boxes)
    assert (mask.any(), {lesion.rule for lesion in result.removed}) == (False, {"gtvp_volume_ml"})


def test_a_lower_threshold_of_the_foreground_finds_a_fainter_lesion() -> None:
    """p = 0.4 is above 0.35 of the foreground and below 0.45: odds 0.4 / 0.595 against 0.54 and 0.82."""
    boxes = {2: [(SMALL, 0.4)]}
    assert (filter_lesions(PostprocessingRules(foreground_threshold=0.35), boxes)[0] == 2).sum() == 8
    assert not filter_lesions(PostprocessingRules(foreground_threshold=0.45), boxes)[0].any()


def test_a_removed_lesion_leaves_nothing_on_a_finer_grid() -> None:
    finer = Geometry((200, 200, 200), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    whole = Segmentation(make_logits(LESIONS), np.zeros(GRID.array_shape, np.float32), None, GRID)
    filtered = apply_postprocessing(whole, PostprocessingRules(gtvn_volume_ml=1.1))
    before_mm, after_mm = whole.mask_on(finer), filtered.mask_on(finer)
    parts, count = ndimage.label(before_mm)
    gone = [number for number in range(1, count + 1) if not after_mm[parts == number].any()]
    assert (count, len(gone)) == (4, 2)
    unchanged = ~np.isin(parts, gone)
    np.testing.assert_array_equal(after_mm[unchanged], before_mm[unchanged])
    assert filtered.postprocessed is not None


NOISE = arrays(np.float32, (3, 6, 7, 8), elements=st.floats(-4, 4, width=32))
RULES = st.builds(
    PostprocessingRules,
    largest_gtvp_only=st.booleans(),
    gtvp_volume_ml=st.floats(0, 2),
    gtvn_volume_ml=st.floats(0, 2),
    gtvn_mean_probability=st.floats(0, 1),
    gtvn_suv_max=st.floats(0, 5),
    gtvn_total_ml=st.floats(0, 5),
)


@settings(deadline=None, max_examples=40)
@given(NOISE, RULES)
def test_rules_without_a_threshold_add_no_lesion(logits: Logits, rules: PostprocessingRules) -> None:
    pet = np.full(SMALL_GRID.array_shape, 3.0, np.float32)
    before = logits.argmax(0)
    filtered, result = apply_rules(logits, pet, SMALL_GRID, rules)
    mask = filtered.argmax(0)
    np.testing.assert_array_equal(mask, np.where(result.lesion_map == REMOVED, 0, before))
    np.testing.assert_array_equal(result.lesion_map > 0, before > 0)


@settings(deadline=None, max_examples=15)
@given(NOISE)
def test_lesions_cover_each_voxel_of_the_mask_once(logits: Logits) -> None:
    """The numbers follow each label's components; means and maxima belong to the components."""
    pet = np.arange(np.prod(SMALL_GRID.array_shape), dtype=np.float32).reshape(SMALL_GRID.array_shape)
    lesions = measure_lesions(logits, pet, SMALL_GRID)
    np.testing.assert_array_equal(np.append(0, lesions.label)[lesions.numbers], logits.argmax(0))
    powers = np.exp(logits.astype(np.float64))
    foreground = (powers[1:] / powers.sum(0)).sum(0)
    for row in range(len(lesions.label)):
        inside = lesions.numbers == row + 1
        assert ndimage.label(inside, structure=np.ones((3, 3, 3)))[1] == 1
        assert lesions.voxels[row] == inside.sum()
        assert lesions.volume_ml[row] == pytest.approx(inside.sum() * 0.125)
        assert lesions.mean_probability[row] == pytest.approx(foreground[inside].mean(), rel=1e-5)
        assert lesions.suv_max[row] == pet[inside].max()


def test_a_mask_full_of_noise_takes_seconds() -> None:
    """Mark each eighth voxel of 48 x 48 x 48 as a lesion: 13,824, all below the minimum volume."""
    grid = Geometry((48, 48, 48), (2.0, 2.0, 2.0), (0.0, 0.0, 0.0))
    logits = np.zeros((3, *grid.array_shape), dtype=np.float32)
    logits[2, ::2, ::2, ::2] = 1.0
    logits, result = apply_rules(logits, None, grid, PostprocessingRules(gtvn_volume_ml=0.1))
    assert not logits.argmax(0).any()
    assert len(result.removed) == 13_824


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"gtvn_volume_ml": -1}, "m.json.gtvn_volume_ml: found -1, expected a number of at least 0.0"),
        ({"gtvn_mean_probability": 1.5}, "m.json.gtvn_mean_probability: found 1.5, expected a number of at most 1.0"),
        ({"foreground_threshold": 0}, "m.json.foreground_threshold: found 0, expected a number above 0.0"),
    ],
)
def test_damaged_rules_are_refused_in_one_line(content: Any, message: str) -> None:
    with pytest.raises(ModelPackageError) as problem:
        parse_document(content, PostprocessingRules, "m.json", error=ModelPackageError)
    assert str(problem.value) == message
