"""The few phantoms that every image of a submission must answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import PhantomCase, make_case
from rehearsal.phantoms.layouts import LAYOUTS
from rehearsal.phantoms.protocol import coarsened
from rehearsal.phantoms.scanner import render

SEED: Final = 2025
# The usual field of view, with a planning CT and dose for the task that gets them; the longest; one cut at the top.
KINDS: Final = ("head_and_neck", "whole_body", "cut")


def make_phantoms(folder: Path, kinds: Sequence[str], coarsening: int = 1) -> dict[str, str]:
    """Write a phantom of each field of view in the platform's layout; returns each one's kind by ID.

    Args:
        folder: of the cohort.
        kinds: names of `rehearsal.phantoms.protocol.HEIGHTS`.
        coarsening: how many times smaller the CT's matrix is in plane; 1 is the real size.
    """
    made = {}
    for case, kind in zip(_cases(kinds), kinds, strict=True):
        small = replace(case, protocol=coarsened(case.protocol, coarsening)) if coarsening > 1 else case
        LAYOUTS["platform"].write_case(folder, small, render(small))
        made[case.patient_id] = kind
    return made


def _cases(kinds: Sequence[str]) -> Iterator[PhantomCase]:
    """One a kind, each another patient; the first has a planned dose."""
    start = 0
    for number, kind in enumerate(kinds):
        drawn = (make_case(SEED, index, CENTRES, kind) for index in count(start))
        case = next(case for case in drawn if number > 0 or case.protocol.dose is not None)
        start = case.index + 1
        yield case
