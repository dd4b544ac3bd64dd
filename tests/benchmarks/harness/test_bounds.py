"""Bounds hold or not, and the table shows it."""

from __future__ import annotations

import math

import pytest

from benchmarks.harness.bounds import Bound, gigabytes


@pytest.mark.parametrize(
    ("measured", "kind", "held"),
    [
        (2.9, "at least", False),
        (3.0, "at least", True),
        (3.1, "at most", False),
        (3.0, "at most", True),
        (math.nan, "at most", False),
        (math.nan, "at least", False),
        (None, "at least", None),
    ],
)
def test_a_bound_of_three(measured: float | None, kind: str, held: bool | None) -> None:
    """The limit itself holds, NaN does not, and a missing figure decides nothing."""
    bound = Bound("passes", kind, 3.0)  # type: ignore[arg-type]
    verdict = {True: "held", False: "**not held**", None: "not measured"}[held]
    assert bound.held({"passes": measured}) is held
    assert bound.text({"passes": measured}) == f"passes {kind} 3: {verdict}"


def test_gigabytes_are_decimal() -> None:
    """1,430.51 MiB are 1.5 x 10^9 bytes."""
    assert gigabytes(1430.51) == pytest.approx(1.5, abs=1e-5)
