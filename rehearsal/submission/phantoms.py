"""The phantoms that every image of a submission must answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

from contract.editions import Edition
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import PhantomCase, make_case
from rehearsal.phantoms.layouts import PlatformWriter
from rehearsal.phantoms.protocol import coarsened
from rehearsal.phantoms.scanner import render

SEED: Final = 2025
# The usual field of view, with a planning CT and dose; the longest; one that is cut at the top.
KINDS: Final = ("head_and_neck", "whole_body", "cut")


def make_phantoms(folder: Path, edition: Edition, kinds: Sequence[str], coarsening: int = 1) -> dict[str, str]:
    """Write a phantom of each field of view in the platform's layout; returns the kind of each by ID.

    Args:
        folder: the cohort's folder.
        edition: declares sockets and clinical variables.
        kinds: names in `rehearsal.phantoms.protocol.HEIGHTS`.
        coarsening: factor by which the CT matrix is smaller in plane; 1 is the real size.
    """
    layout, kind_of = PlatformWriter(edition), {}
    for case, kind in zip(_cases(kinds), kinds, strict=True):
        small = replace(case, protocol=coarsened(case.protocol, coarsening)) if coarsening > 1 else case
        layout.write_case(folder, small, render(small))
        kind_of[case.patient_id] = kind
    return kind_of


def _cases(kinds: Sequence[str]) -> Iterator[PhantomCase]:
    """A different patient for each kind; the first has a planned dose."""
    start = 0
    for number, kind in enumerate(kinds):
        candidates = (make_case(SEED, index, CENTRES, kind) for index in count(start))
        case = next(case for case in candidates if number > 0 or case.protocol.dose is not None)
        start = case.index + 1
        yield case
