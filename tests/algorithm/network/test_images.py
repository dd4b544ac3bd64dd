"""Plans of a pass, and the logits around the box of a smaller one."""

from __future__ import annotations

import numpy as np
import pytest

from algorithm.network.tiles import NetworkImage


def row(*values: float) -> np.ndarray:
    return np.array(values, np.float32).reshape(1, 1, -1)


@pytest.mark.parametrize("has_lesions", [True, False])
def test_plans_shrink_to_the_images_own_box(monkeypatch: pytest.MonkeyPatch, has_lesions: bool) -> None:
    """Each plan has fewer tiles; the lesions are looked for only if the whole region is too much."""
    box, asked = (slice(2, 18), slice(0, 16), slice(4, 20)), []

    def focus() -> tuple[slice, slice, slice] | None:
        asked.append(True)
        return box if has_lesions else None

    image = NetworkImage.of(np.zeros((2, 40, 24, 24), np.float32))
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
    image = NetworkImage.of(np.zeros((2, 1, 1, 3), np.float32))
    found = image.answer(np.stack([row(1), row(2), row(3)]), (slice(0, 1), slice(0, 1), slice(1, 2)))
    assert found.tolist() == [[[[20.0, 1.0, 20.0]]], [[[-20.0, 2.0, -20.0]]], [[[-20.0, 3.0, -20.0]]]]
