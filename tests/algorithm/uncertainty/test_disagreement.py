"""What the passes' disagreement is: four voxels by hand, properties, and a naive oracle."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.network.windows import Pass
from algorithm.uncertainty import disagreement as module
from algorithm.uncertainty.disagreement import Disagreement
from contract import labels
from tests.algorithm.uncertainty.two_passes import FIRST, SECOND


def disagreement_of(*passes: np.ndarray) -> Disagreement:
    """The disagreement of these logits, one fold each."""
    found = Disagreement()
    for fold, logits in enumerate(passes):
        found.add(Pass(fold), logits)
    return found


def random_logits(rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    return rng.normal(0, 3, (3, *shape)).astype(np.float32)


def test_four_voxels_by_hand() -> None:
    """Entropies: (1/4, 1/2, 1/4) has 3/2 bits; (3/4, 1/8, 1/8) has 3/4 log2(4/3) + 3/4 = 1.06128 in any order.

    The second voxel's mean is (3/8, 3/8, 1/4): 3/4 log2(8/3) + 1/2 = 1.56128 bits, of which either pass has 3/2. Masks:
    the first pass has two voxels of GTVp, the second these and one more, DSC 2 x 2 / 5; GTVn has none in either.
    """
    both = disagreement_of(FIRST, SECOND)
    np.testing.assert_allclose(both.probability(1).ravel(), [1 / 2, 3 / 8, 3 / 4, 1 / 8], atol=1e-6)
    np.testing.assert_allclose(both.probability(2).ravel(), [1 / 4, 1 / 4, 1 / 8, 1 / 8], atol=1e-6)
    np.testing.assert_allclose(both.entropy().ravel(), [1.5, 1.561278, 1.061278, 1.061278], atol=1e-5)
    information = both.information()
    assert information is not None
    np.testing.assert_allclose(information.ravel(), [0, 0.061278, 0, 0], atol=1e-5)
    assert both.pairwise_dsc(1) == pytest.approx(0.8)
    assert both.pairwise_dsc(2) is None
    assert both.overlaps(1, np.array([1, 2])).tolist() == [0.5, 1.0]


def test_a_single_pass_has_no_disagreement() -> None:
    alone = disagreement_of(FIRST)
    assert alone.information() is None
    assert alone.pairwise_dsc(1) is None
    np.testing.assert_allclose(alone.entropy().ravel()[1], 1.5, atol=1e-5)


@given(st.integers(0, 1000), st.integers(2, 4))
def test_passes_that_say_the_same(seed: int, count: int) -> None:
    """No mutual information, and masks that are the same; probabilities are the one pass's."""
    logits = random_logits(np.random.default_rng(seed), (2, 3, 5))
    same = disagreement_of(*[logits] * count)
    information = same.information()
    assert information is not None
    assert float(information.max()) < 1e-5
    for label in labels.FOREGROUND:
        assert same.pairwise_dsc(label) == (1 if (logits.argmax(0) == label).any() else None)
        np.testing.assert_allclose(same.probability(label), disagreement_of(logits).probability(label), rtol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (4, 4, 4)], ids=lambda shape: "x".join(map(str, shape)))
def test_sums_in_parts_equal_the_sum_at_once(shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Five passes in double precision and in plain steps, on grids that fill no byte and no part."""
    monkeypatch.setattr(module, "_AT_ONCE", 17)
    rng = np.random.default_rng(5)
    passes = [random_logits(rng, shape) for _ in range(5)]
    found = disagreement_of(*passes)
    powers = np.exp(np.stack(passes).astype(np.float64))
    p = powers / powers.sum(1, keepdims=True)
    entropy = -(p.mean(0) * np.log2(p.mean(0))).sum(0)
    within = -(p * np.log2(p)).sum(1).mean(0)
    np.testing.assert_allclose(found.entropy(), entropy, atol=1e-5)
    np.testing.assert_allclose(found.information(), entropy - within, atol=1e-5)
    masks = [logits.argmax(0) for logits in passes]
    for label in labels.FOREGROUND:
        np.testing.assert_allclose(found.probability(label), p.mean(0)[label], atol=1e-6)
        pairs = [(one == label, other == label) for one, other in itertools.combinations(masks, 2)]
        dsc = [2 * (a & b).sum() / (a.sum() + b.sum()) for a, b in pairs if a.sum() + b.sum()]
        assert found.pairwise_dsc(label) == (pytest.approx(np.mean(dsc)) if dsc else None)
        places = np.arange(0, math.prod(shape), 2)
        shares = [(mask.ravel()[places] == label).mean() for mask in masks]
        assert found.overlaps(label, places).tolist() == pytest.approx(shares)


def test_logits_outside_the_plans_box_are_certain() -> None:
    """20 and -20: no overflow, no entropy."""
    logits = np.full((3, 1, 1, 2), -20, dtype=np.float32)
    logits[0] = 20
    assert float(disagreement_of(logits).entropy().max()) < 1e-6
    assert float(disagreement_of(logits * 100).probability(1).max()) == 0


def test_nothing_is_taken_up_after_the_end() -> None:
    closed = disagreement_of(FIRST)
    closed.close()
    closed.add(Pass(1), SECOND)
    assert closed.passes == [Pass(0)]


def test_a_fault_costs_the_uncertainty_alone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What was summed up before may be half of a pass more: none of it counts, and no later pass does."""

    def full(_: np.ndarray) -> np.ndarray:
        raise MemoryError

    found = disagreement_of(FIRST)
    monkeypatch.setattr(module, "softmax", full)
    found.add(Pass(1), SECOND)
    monkeypatch.undo()
    found.add(Pass(2), SECOND)
    assert (found.passes, found.fault) == ([], "MemoryError")
    assert caplog.text.count("the uncertainty is not computed (MemoryError)") == 1
