"""Plans of a pass, the logits around the box of a smaller one, and the backends of a device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from algorithm.network.tiles import Backend, backends, pass_plans, paste_logits

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")
GIB = 2**30


def row(*values: float) -> np.ndarray:
    return np.array(values, np.float32).reshape(1, 1, -1)


@pytest.mark.parametrize("has_lesions", [True, False])
def test_plans_shrink_to_the_images_own_box(has_lesions: bool) -> None:
    """Each plan has fewer tiles: coarser steps first, then the box of the lesions."""
    box = (slice(2, 18), slice(0, 16), slice(4, 20))
    plans = list(pass_plans((40, 24, 24), box if has_lesions else None))
    assert [(plan.step, plan.box[0].stop, len(plan.tiles((16, 16, 16)))) for plan in plans[:3]] == [
        (0.5, 40, 16),
        (0.75, 40, 12),
        (1.0, 40, 12),
    ]
    assert [plan.box for plan in plans[3:]] == ([box] * 3 if has_lesions else [])
    assert len({plan.name for plan in plans}) == (6 if has_lesions else 3)


def test_a_smaller_plan_answers_background_around_its_box() -> None:
    found = paste_logits(np.stack([row(1), row(2), row(3)]), (slice(0, 1), slice(0, 1), slice(1, 2)), (1, 1, 3))
    assert found.tolist() == [[[[20.0, 1.0, 20.0]]], [[[-20.0, 2.0, -20.0]]], [[[-20.0, 3.0, -20.0]]]]


def test_sums_move_to_ram_before_the_card_is_full() -> None:
    """Up to 4 GiB of sums stay on the card; after the card comes the card with sums in RAM, then the CPU."""
    assert backends(CPU, 100 * GIB) == (Backend(CPU, CPU),)
    assert backends(CUDA, 4 * GIB) == (Backend(CUDA, CUDA), Backend(CUDA, CPU), Backend(CPU, CPU))
    assert backends(CUDA, 4 * GIB + 1) == (Backend(CUDA, CPU), Backend(CPU, CPU))
