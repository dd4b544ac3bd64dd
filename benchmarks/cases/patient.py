"""The measured patient as the algorithm sees it: case, network grid and tiles."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np

from algorithm.case.notices import Notices
from algorithm.case.read import Case, read_case
from algorithm.network import segment
from algorithm.network.package import ModelPackage
from algorithm.region.localise import localise
from contract.editions import load_edition
from contract.images.geometry import Geometry


def patient_case(input_dir: Path) -> Case:
    """The patient of an `/input` folder, read as the algorithm reads it."""
    edition = load_edition()
    return read_case(input_dir, edition, edition.algorithms[0], Notices())


def network_grid(case: Case, package: ModelPackage) -> Geometry:
    """The network's grid over the localised region."""
    return segment.network_grid(localise(case), package.spacing_mm, case.ct.geometry)


def tiles_per_pass(grid: Geometry, package: ModelPackage) -> int:
    """Number of tiles that a pass of the network computes on a grid."""
    from nnunetv2.inference.sliding_window_prediction import compute_steps_for_sliding_window

    from algorithm.network.windows import TILE_STEP

    patch = tuple(int(n) for n in package.configuration["patch_size"])
    padded = tuple(np.maximum(grid.array_shape, patch).tolist())
    return prod(len(steps) for steps in compute_steps_for_sliding_window(padded, patch, TILE_STEP))
