"""Masks combined by votes: examples by hand, and properties of any masks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from reporting.studies.votes import METHODS, CompactMask, combine_masks, staple

SPACING_MM = (3.0, 2.0, 1.0)
SHAPE = (5, 6, 7)

masks = arrays(np.uint8, SHAPE, elements=st.integers(0, 2))


def combine(method, *masks_of_raters):
    compact = combine_masks([CompactMask.from_mask(mask) for mask in masks_of_raters], SHAPE, SPACING_MM, method)
    whole = np.zeros(SHAPE, np.uint8)
    whole[compact.box] = compact.inside
    return whole


def make_line(**voxels):
    """Return a mask with labels at places along the first row."""
    mask = np.zeros(SHAPE, np.uint8)
    for place, label in voxels.items():
        mask[2, 2, int(place[1:])] = label
    return mask


def test_average_takes_half_of_the_votes_or_more():
    """One of two votes is 0.5 and enough; one of three votes is not."""
    two = combine("average", make_line(x1=1, x2=1), make_line(x1=1))
    assert np.array_equal(two, make_line(x1=1, x2=1))
    three = combine("average", make_line(x1=1, x2=1), make_line(x1=1), make_line())
    assert np.array_equal(three, make_line(x1=1))


def test_the_more_probable_of_two_labels_wins_and_gtvp_if_equal():
    """At x1 each label has one vote: GTVp. At x2 GTVn has two of four votes and GTVp one: GTVn."""
    assert np.array_equal(combine("average", make_line(x1=1), make_line(x1=2)), make_line(x1=1))
    mask = combine("average", make_line(x2=2), make_line(x2=2), make_line(x2=1), make_line())
    assert np.array_equal(mask, make_line(x2=2))


def test_staple_trusts_the_raters_that_agree():
    """Two equal masks against an empty one: the third's sensitivity falls to 0, and the two are the truth."""
    mask = make_line(x1=1, x2=1, x3=1)
    votes = np.stack([mask == 1, mask == 1, mask == 3])
    assert np.array_equal(staple(votes, SPACING_MM) >= 0.5, mask == 1)
    assert np.array_equal(combine("staple", mask, mask, make_line()), mask)


def test_staple_does_not_depend_on_the_amount_of_air():
    """STAPLE looks at 10 mm around the votes, so that 30 more planes of air (90 mm) change nothing."""
    rng = np.random.default_rng(3)
    votes = np.zeros((4, 20, 12, 12), bool)
    votes[:, 8:12, 4:8, 4:8] = rng.random((4, 4, 4, 4)) < 0.7
    airy = np.pad(votes, ((0, 0), (15, 15), (0, 0), (0, 0)))
    assert np.array_equal(staple(airy, SPACING_MM)[15:-15], staple(votes, SPACING_MM))


def test_staple_of_masks_that_fill_the_image_or_are_empty_is_their_vote():
    for vote in (True, False):
        assert (staple(np.full((3, 2, 2, 2), vote), SPACING_MM) == float(vote)).all()


@pytest.mark.parametrize("method", METHODS)
@given(mask=masks, count=st.integers(1, 4))
def test_identical_masks_give_the_mask(method, mask, count):
    assert np.array_equal(combine(method, *[mask] * count), mask)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=20)
@given(mask=masks, other_masks=st.lists(masks, min_size=1, max_size=3))
def test_voxels_outside_all_masks_are_never_added(method, mask, other_masks):
    result = combine(method, mask, *other_masks)
    for label in (1, 2):
        held = np.any([voted == label for voted in (mask, *other_masks)], axis=0)
        assert not (result == label)[~held].any()
