"""Logits of a coarse image arrive on the answer's grid where they belong, background elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from algorithm.network.images import NOT_LOOKED_AT, ReadyImage, resampled_logits
from contract.images.geometry import Geometry

# Two voxels of 4 mm along x from -2 to 6 mm, the same field in voxels of 2 mm, and one voxel more beyond it.
COARSE = Geometry((2, 1, 1), (4.0, 2.0, 2.0), (0.0, 0.0, 0.0))
FINE = Geometry((5, 1, 1), (2.0, 2.0, 2.0), (-1.0, 0.0, 0.0))


def row(*values: float) -> np.ndarray:
    return np.array(values, np.float32).reshape(1, 1, -1)


def test_logits_by_hand() -> None:
    """Fine centres -1, 1, 3, 5 mm lie at 0, 1/4, 3/4 and 1 between the coarse ones at 0 and 4 mm; 7 mm lies outside."""
    logits = np.stack([row(0, 8), row(4, -4), row(-20, -12)])
    found = resampled_logits(logits, COARSE, FINE, of_probabilities=False)
    expected = [row(0, 2, 6, 8, NOT_LOOKED_AT), row(4, 2, -2, -4, -NOT_LOOKED_AT), row(-20, -18, -14, -12, -20)]
    np.testing.assert_allclose(found, np.stack(expected), atol=1e-5)
    assert resampled_logits(logits, COARSE, COARSE, of_probabilities=False) is logits


def test_probabilities_by_hand() -> None:
    """Probabilities (1, 2, 5) / 8 and (6, 1, 1) / 8: a quarter of the way they are (9, 7, 16) / 32, outside (1, 0, 0)."""
    logits = np.log(np.stack([row(1, 6), row(2, 1), row(5, 1)]))
    found = resampled_logits(logits, COARSE, FINE, of_probabilities=True)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(np.exp(found[:, 0, 0, 0]), [1 / 8, 2 / 8, 5 / 8], atol=1e-6)
    np.testing.assert_allclose(np.exp(found[:, 0, 0, 1]), [9 / 32, 7 / 32, 16 / 32], atol=1e-6)
    np.testing.assert_allclose(np.exp(found[:, 0, 0, 4]), [1, 0, 0], atol=1e-6)


@pytest.mark.parametrize("has_lesions", [True, False])
def test_plans_shrink_to_the_images_own_box(monkeypatch: pytest.MonkeyPatch, has_lesions: bool) -> None:
    """Each plan has fewer tiles; the lesions are looked for only if the whole region is too much."""
    box, asked = (slice(2, 18), slice(0, 16), slice(4, 20)), []

    def focus() -> tuple[slice, slice, slice] | None:
        asked.append(True)
        return box if has_lesions else None

    image = ReadyImage(np.zeros((2, 40, 24, 24), np.float32))
    monkeypatch.setattr(image, "focus", focus)
    plans = image.plans((16, 16, 16))
    whole = [next(plans) for _ in range(3)]
    assert not asked
    assert [(plan.step, plan.box[0].stop, len(plan.tiles)) for plan in whole] == [
        (0.5, 40, 16),
        (0.75, 40, 12),
        (1.0, 40, 12),
    ]
    rest = list(plans)
    assert [plan.box for plan in rest] == ([box] * 3 if has_lesions else [])
    assert len({plan.name for plan in (*whole, *rest)}) == (6 if has_lesions else 3)
    list(image.plans((16, 16, 16)))
    assert asked == [True]


def test_a_smaller_plan_answers_background_around_its_box() -> None:
    image = ReadyImage(np.zeros((2, 1, 1, 3), np.float32))
    found = image.answer(np.stack([row(1), row(2), row(3)]), (slice(0, 1), slice(0, 1), slice(1, 2)))
    assert found.tolist() == [[[[20.0, 1.0, 20.0]]], [[[-20.0, 2.0, -20.0]]], [[[-20.0, 3.0, -20.0]]]]
