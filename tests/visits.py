"""Phantoms of HNTS-MRG 2024 for the tests: two visits in a coarse MR, of one centre."""

from __future__ import annotations

from pathlib import Path

from rehearsal.phantoms.cohort import CohortOptions
from rehearsal.phantoms.make import make_cohort

EDITION = "hntsmrg2024"


def make_visits(folder: Path, *, count: int = 1, seed: int = 3, layout: str = "platform") -> Path:
    """Make head-and-neck phantoms `MDA-001`, ... in a folder and return it."""
    options = CohortOptions(seed, ("MDA",), layout, "head_and_neck", ct_coarsening=4, edition=EDITION)
    assert list(make_cohort(options, count, folder, jobs=1)) == [f"MDA-{number:03}" for number in range(1, count + 1)]
    return folder
