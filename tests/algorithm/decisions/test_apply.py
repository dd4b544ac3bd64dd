"""Rules on a segmentation: what is dropped, what is relabelled, and what must never change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import ndimage

from algorithm.decisions.apply import _dilated, decide, decided
from algorithm.decisions.lesions import Scans, candidates_of
from algorithm.decisions.rules import NO_DECISIONS, Decisions
from algorithm.masks.decided import DROPPED, RELABELLED
from algorithm.masks.segmentation import Segmentation
from contract import labels
from contract.images.geometry import Geometry
from tests.algorithm.decisions.scene import GRID, box, logits_of, scans

PRIMARY, LARGE, SMALL, FAR = box(20, 20, 25, 4), box(10, 20, 25, 3), box(20, 10, 30), box(35, 35, 5)
# 64, 27, 8 and 8 voxels: 8, 3.375, 1 and 1 ml.
LESIONS = {1: [(PRIMARY, 0.95)], 2: [(LARGE, 0.9), (SMALL, 0.7), (FAR, 0.8)]}


def mask_after(decisions: Decisions, images: Scans | None = None) -> npt.NDArray[np.int64]:
    logits, _ = decide(logits_of(LESIONS), images or scans(), decisions)
    return logits.argmax(0)


def kept_after(decisions: Decisions, images: Scans | None = None) -> list[bool]:
    """Whether primary, large, small and far lesion are still there, whole; none may remain in part."""
    mask = mask_after(decisions, images)
    cubes = [(PRIMARY, 1), (LARGE, 2), (SMALL, 2), (FAR, 2)]
    assert (mask > 0).sum() == sum((mask[cube] > 0).sum() for cube, _ in cubes)
    kept = [bool((mask[cube] == label).all()) for cube, label in cubes]
    assert kept == [bool(mask[cube].any()) for cube, _ in cubes]
    return kept


def test_rules_that_change_nothing_give_the_same_logits() -> None:
    logits = logits_of(LESIONS)
    after, result = decide(logits, scans(), NO_DECISIONS)
    assert after is logits
    assert (result.remaining, result.dropped, result.relabelled) == (4, (), 0)


def test_measures_that_no_rule_needs_can_be_left_out() -> None:
    """All others stay the same. The far node lies on the other side than the primary, with an SUV of 1."""
    logits, images = logits_of(LESIONS), scans({})
    full = candidates_of(logits, images)
    assert [lesion.contralateral for lesion in full] == [False, False, False, True]
    assert [lesion.suv_peak for lesion in full] == pytest.approx([1.0] * 4)
    fast = candidates_of(logits, images, peaks=False, sides=False)
    for one, other in zip(full, fast, strict=True):
        np.testing.assert_array_equal(one.structure.inside, other.structure.inside)
        lean = replace(one, suv_peak=None, offset_mm=None, contralateral=False, structure=other.structure)
        assert other == lean


@settings(deadline=None)
@given(arrays(np.bool_, st.tuples(*[st.integers(1, 6)] * 3)))
def test_the_neighbours_of_relabelled_lesions(inside: npt.NDArray[np.bool_]) -> None:
    np.testing.assert_array_equal(_dilated(inside), ndimage.binary_dilation(inside, structure=np.ones((3, 3, 3))))


def test_only_the_largest_lesions_of_a_mask_full_of_noise_are_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64, 27, 8 and 8 voxels the two largest are; the rule would drop all three nodes."""
    monkeypatch.setattr("algorithm.decisions.apply.MOST_LESIONS", 2)
    assert kept_after(Decisions(gtvn_volume_ml=100)) == [True, False, True, True]


@pytest.mark.parametrize(
    ("decisions", "kept"),
    [
        (Decisions(gtvn_volume_ml=1.1), [True, True, False, False]),
        (Decisions(gtvn_volume_ml=1.0), [True, True, True, True]),
        (Decisions(gtvp_volume_ml=9), [False, True, True, True]),
        # The foreground has the other label's 0.005 as well.
        (Decisions(gtvn_mean_probability=0.75), [True, True, False, True]),
        (Decisions(gtvn_max_probability=0.85), [True, True, False, False]),
        (Decisions(gtvp_mean_probability=0.96), [False, True, True, True]),
        # Centres: (21.5, 21.5, 26.5) of the primary, (11, 21, 26) of the large and (35.5, 35.5, 5.5) of the far node:
        # 5 x sqrt(10.5^2 + 0.5^2 + 0.5^2) = 52.6 mm and 5 x sqrt(14^2 + 14^2 + 21^2) = 144.3 mm.
        (Decisions(gtvn_distance_mm=144.0), [True, True, True, False]),
        (Decisions(gtvn_distance_mm=145.0), [True, True, True, True]),
        # Only the far node lies on the other side of x = 19.5.
        (Decisions(gtvn_contralateral_probability=0.9), [True, True, True, False]),
    ],
)
def test_each_rule_drops_the_lesions_below_its_limit(decisions: Decisions, kept: list[bool]) -> None:
    assert kept_after(decisions) == kept


def test_nodes_need_uptake_where_there_is_a_pet() -> None:
    images = scans({6.0: LARGE, 2.4: SMALL})
    assert kept_after(Decisions(gtvn_suv_max=2.5), images) == [True, True, False, False]
    # SUVpeak of the large node: a sphere of 6.2 mm on 5 mm voxels is 7 voxels, all inside from its centre: 6.
    assert kept_after(Decisions(gtvn_suv_peak=5.9), images) == [True, True, False, False]


@pytest.mark.parametrize("highest", [None, 20_000.0, 0.02])
def test_gates_of_uptake_are_left_out_without_a_pet_in_suv(highest: float | None) -> None:
    """Without a PET, in Bq/ml (above SUV 500), or in an unknown unit (below SUV 1 everywhere)."""
    images = scans()
    if highest is not None:
        pet = np.full(GRID.array_shape, highest / 2, dtype=np.float32)
        pet[LARGE] = highest
        images = Scans.of(images.ct, pet, GRID)
    rules = Decisions(gtvn_suv_max=2.5, gtvn_suv_peak=2.0, gtvn_volume_ml=1.1)
    assert kept_after(rules, images) == [True, True, False, False]
    _, result = decide(logits_of(LESIONS), images, rules)
    assert result.skipped == ("gtvn_suv_max", "gtvn_suv_peak")
    assert "gtvn_suv_max not applied without a PET in SUV" in result.summary()


def test_every_lesion_may_be_dropped_and_the_log_says_so() -> None:
    logits, result = decide(logits_of(LESIONS), scans(), Decisions(gtvp_volume_ml=100, gtvn_volume_ml=100))
    assert not logits.argmax(0).any()
    assert "4 of 4 lesions dropped" in result.summary()
    assert "no lesion is left" in result.summary()


def test_an_empty_mask_stays_empty() -> None:
    _, result = decide(logits_of({}), scans(), Decisions(gtvn_volume_ml=1, largest_gtvp_only=True))
    assert (result.remaining, result.dropped) == (0, ())


def test_only_the_largest_primary_that_passes_the_other_rules_stays() -> None:
    """The largest GTVp (27 voxels) is too uncertain, so that the one of 8 voxels is the largest of the rest."""
    uncertain, first, second = box(5, 5, 5, 3), box(15, 15, 15), box(25, 25, 25, 1)
    logits = logits_of({1: [(uncertain, 0.6), (first, 0.9), (second, 0.9)]})
    after, result = decide(logits, scans(), Decisions(largest_gtvp_only=True, gtvp_mean_probability=0.7))
    mask = after.argmax(0)
    assert (mask[first] == 1).all()
    assert mask.sum() == 8
    assert {lesion.rule for lesion in result.dropped} == {"gtvp_mean_probability", "largest_gtvp_only"}


def test_touching_lesions_get_the_label_of_most_probability() -> None:
    """27 voxels of GTVn beside 8 of GTVp, both with 0.9: GTVp has 8 x 0.9 + 27 x 0.005, a share of about 0.23."""
    node, touching = box(10, 10, 10, 3), box(13, 10, 10)
    logits = logits_of({1: [(touching, 0.9)], 2: [(node, 0.9)]})
    apart, _ = decide(logits, scans(), Decisions(one_label_share=0.2))
    np.testing.assert_array_equal(apart.argmax(0), logits.argmax(0))
    together, result = decide(logits, scans(), Decisions(one_label_share=0.25))
    mask = together.argmax(0)
    assert (mask[node] == labels.GTVN).all()
    assert (mask[touching] == labels.GTVN).all()
    assert (mask > 0).sum() == 35
    assert (result.remaining, result.relabelled) == (1, 1)
    assert set(np.unique(result.places)) == {0, labels.GTVN + RELABELLED}


def test_a_lower_threshold_of_the_foreground_finds_a_fainter_lesion() -> None:
    """p = 0.4 is above 0.35 of the foreground and below 0.45: odds 0.4 / 0.595 against 0.54 and 0.82."""
    logits = logits_of({2: [(SMALL, 0.4)]})
    assert (decide(logits, scans(), Decisions(foreground_threshold=0.35))[0].argmax(0) == 2).sum() == 8
    assert not decide(logits, scans(), Decisions(foreground_threshold=0.45))[0].argmax(0).any()


def test_the_threshold_of_gtvp_moves_the_label_alone() -> None:
    """p(GTVp) = 0.4 of 0.9 is a share of 0.44: GTVp from a threshold of 0.44 downwards."""
    logits = logits_of({2: [(SMALL, 0.5)]})
    logits[1][SMALL] = np.log(np.float32(0.4))
    assert (decide(logits, scans(), Decisions(gtvp_threshold=0.43))[0].argmax(0) == 1).sum() == 8
    assert (decide(logits, scans(), Decisions(gtvp_threshold=0.45))[0].argmax(0) == 2).sum() == 8


def test_a_dropped_lesion_leaves_nothing_on_a_finer_grid() -> None:
    finer = Geometry((200, 200, 200), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    images = scans()
    whole = Segmentation(logits_of(LESIONS), images.ct, None, GRID)
    after = decided(whole, Decisions(gtvn_volume_ml=1.1))
    before_mm, after_mm = whole.mask_on(finer), after.mask_on(finer)
    parts, count = ndimage.label(before_mm)
    gone = [number for number in range(1, count + 1) if not after_mm[parts == number].any()]
    assert (count, len(gone)) == (4, 2)
    kept = ~np.isin(parts, gone)
    np.testing.assert_array_equal(after_mm[kept], before_mm[kept])
    assert after.decided is not None
    assert decided(whole, None) is whole


def test_the_decisions_apply_to_the_mask_of_a_single_network() -> None:
    """A fold's own mask loses what touches only dropped lesions, and keeps what the ensemble does not have."""
    _, result = decide(logits_of(LESIONS), scans(), Decisions(gtvn_volume_ml=1.1))
    fold = np.zeros(GRID.array_shape, dtype=np.uint8)
    wider, own = box(20, 10, 30, 3), box(2, 2, 2)
    fold[wider] = fold[own] = fold[LARGE] = 2
    after = result.applied_to(fold)
    assert not after[wider].any()
    assert (after[own] == 2).all()
    assert (after[LARGE] == 2).all()
    assert (result.places[SMALL] == DROPPED).all()


def test_a_relabelled_lesion_is_relabelled_in_the_mask_of_a_single_network() -> None:
    node, touching = box(10, 10, 10, 3), box(13, 10, 10)
    _, result = decide(logits_of({1: [(touching, 0.9)], 2: [(node, 0.9)]}), scans(), Decisions(one_label_share=0.25))
    fold = np.zeros(GRID.array_shape, dtype=np.uint8)
    fold[touching] = 1
    assert set(np.unique(result.applied_to(fold)[touching])) == {2}


def test_a_dropped_lesion_is_recorded_with_its_rule() -> None:
    _, result = decide(logits_of(LESIONS), scans(), Decisions(gtvn_mean_probability=0.75))
    (lesion,) = result.as_json()["dropped"]
    # The cube's voxels 20..21, 10..11, 30..31 (z, y, x) of 5 mm: centre (152.5, 52.5, 102.5) mm.
    assert lesion["centroid_mm"] == pytest.approx([152.5, 52.5, 102.5])
    assert (lesion["label"], lesion["volume_ml"], lesion["rule"]) == ("GTVn", 1.0, "gtvn_mean_probability")
    assert (lesion["value"], lesion["limit"]) == (pytest.approx(0.705), 0.75)


NOISE = arrays(np.float32, (3, 6, 7, 8), elements=st.floats(-4, 4, width=32))
COMPONENT_RULES = st.builds(
    Decisions,
    one_label_share=st.sampled_from([0.0, 0.2, 0.5]),
    largest_gtvp_only=st.booleans(),
    gtvp_volume_ml=st.floats(0, 2),
    gtvn_volume_ml=st.floats(0, 2),
    gtvn_max_probability=st.floats(0, 1),
    gtvn_suv_max=st.floats(0, 5),
)


@settings(deadline=None, max_examples=60)
@given(NOISE, COMPONENT_RULES)
def test_rules_without_thresholds_add_no_lesion(logits: npt.NDArray[np.float32], decisions: Decisions) -> None:
    """The decided mask lies within the argmax, and each of its lesions is a candidate as a whole."""
    small = Geometry((8, 7, 6), (5.0, 5.0, 5.0), (0.0, 0.0, 0.0))
    images = Scans.of(np.zeros(small.array_shape, np.float32), np.full(small.array_shape, 3.0, np.float32), small)
    before = logits.argmax(0)
    after, result = decide(logits, images, decisions)
    mask = after.argmax(0)
    assert not mask[before == 0].any()
    np.testing.assert_array_equal(mask > 0, (result.places > 0) & (result.places != DROPPED))
    np.testing.assert_array_equal(mask[mask > 0], result.places[mask > 0] % RELABELLED)
    if not result.dropped and not result.relabelled:
        np.testing.assert_array_equal(mask, before)


@settings(deadline=None, max_examples=30)
@given(NOISE)
def test_candidates_cover_each_voxel_of_the_mask_once(logits: npt.NDArray[np.float32]) -> None:
    small = Geometry((8, 7, 6), (5.0, 5.0, 5.0), (0.0, 0.0, 0.0))
    images = Scans.of(np.zeros(small.array_shape, np.float32), None, small)
    covered = np.zeros(small.array_shape, dtype=int)
    for lesion in candidates_of(logits, images):
        if not lesion.merged:
            covered[lesion.structure.box][lesion.structure.inside] += lesion.label
    np.testing.assert_array_equal(covered, logits.argmax(0))
