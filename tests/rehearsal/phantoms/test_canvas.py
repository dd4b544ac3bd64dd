"""Resampling of a canvas onto another grid."""

from __future__ import annotations

import numpy as np

from rehearsal.phantoms.canvas import Axes, sample


def test_values_reach_half_a_voxel_beyond_the_outer_centres() -> None:
    """Along x the source has 10 and 30 at 0 and 2 mm, so it reaches from -1 to 3 mm; it is constant along z and y.

    Halfway the value is 20, and a quarter of the way 15. Between the outer centres and the ends it stays 10 and 30.
    """
    array = np.tile(np.array([10.0, 30.0], np.float32), (2, 2, 1))
    ends = np.array([0.0, 2.0], np.float32)
    x = np.array([-1.1, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 3.1], np.float32)
    result = sample(array, Axes(ends, ends, ends), Axes(ends, ends, x), outside=-1.0)
    np.testing.assert_allclose(result, np.tile(np.float32([-1, 10, 10, 15, 20, 30, 30, -1]), (2, 2, 1)))
