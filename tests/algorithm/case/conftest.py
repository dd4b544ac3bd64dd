"""Phantoms in two fields of view, which several tests read; `region/test_localise.py` has more of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import coarsen_protocol, make_case
from rehearsal.phantoms.rendering import Rendered, render


@pytest.fixture(scope="session", params=["head_and_neck", "cut"])
def phantom(request: pytest.FixtureRequest) -> Rendered:
    """Render a phantom on coarse grids; do not change its arrays."""
    case = make_case(12, 1, CENTRES, request.param)
    return render(replace(case, protocol=coarsen_protocol(case.protocol, 8)))
