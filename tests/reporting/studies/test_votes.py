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


def combined(method, *found):
    compact = combine_masks([CompactMask.from_mask(mask) for mask in found], SHAPE, SPACING_MM, method)
    whole = np.zeros(SHAPE, np.uint8)
    whole[compact.box] = compact.inside
    return whole


def line(**voxels):
    """A mask with labels at places along the first row."""
    mask = np.zeros(SHAPE, np.uint8)
    for place, label in voxels.items():
        mask[2, 2, int(place[1:])] = label
    return mask


def test_average_takes_half_of_the_votes_or_more():
    """Votes for GTVp of two masks: both, one, none. One of two is 0.5 and enough; of three masks one is not."""
    two = combined("average", line(x1=1, x2=1), line(x1=1))
    assert np.array_equal(two, line(x1=1, x2=1))
    three = combined("average", line(x1=1, x2=1), line(x1=1), line())
    assert np.array_equal(three, line(x1=1))


def test_of_two_labels_above_half_the_more_probable_wins_and_gtvp_if_equal():
    """At x1 one vote each: GTVp. At x2 two of four for GTVn, one for GTVp: GTVn. Neither label sees the other's."""
    assert np.array_equal(combined("average", line(x1=1), line(x1=2)), line(x1=1))
    found = combined("average", line(x2=2), line(x2=2), line(x2=1), line())
    assert np.array_equal(found, line(x2=2))


def test_staple_trusts_the_raters_that_agree():
    """Two equal masks against an empty one: the third's sensitivity falls to 0, and the two are the truth."""
    mask = line(x1=1, x2=1, x3=1)
    votes = np.stack([mask == 1, mask == 1, mask == 3])
    assert np.array_equal(staple(votes, SPACING_MM) >= 0.5, mask == 1)
    assert np.array_equal(combined("staple", mask, mask, line()), mask)


def test_staple_does_not_depend_on_how_much_air_lies_around():
    """10 mm around the votes are looked at, so 30 more planes of air (90 mm) change nothing."""
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
    assert np.array_equal(combined(method, *[mask] * count), mask)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=20)
@given(mask=masks, others=st.lists(masks, min_size=1, max_size=3))
def test_voxels_outside_all_masks_are_never_added(method, mask, others):
    found = combined(method, mask, *others)
    for label in (1, 2):
        held = np.any([one == label for one in (mask, *others)], axis=0)
        assert not (found == label)[~held].any()


@given(mask=masks, other=masks, third=masks)
def test_average_does_not_depend_on_the_order_of_masks(mask, other, third):
    assert np.array_equal(combined("average", mask, other, third), combined("average", third, mask, other))
