"""Make the phantoms of the benchmarks once in the output folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from contract.images import volumes as images
from contract.images.geometry import Geometry
from rehearsal.phantoms.centres import CENTRES
from rehearsal.phantoms.cohort import CohortOptions, draw_cases
from rehearsal.phantoms.make import link_or_copy, make_cohort

SEED: Final = 1
SIZES: Final = ("head_and_neck", "whole_body")
# Number of cases of the small cohort, whose evaluation takes little more than the start of the program.
FEW_CASES: Final = 2
# Size of the small masks of ranked teams in voxels along each axis, and voxel spacing (x, y, z).
_EDGE: Final = 16
_SPACING_MM: Final = (2.0, 2.0, 3.0)


@dataclass(frozen=True)
class BenchData:
    """Paths of the files that are measured; with `quick` the images are coarse and the cases few."""

    root: Path
    quick: bool

    @property
    def cases(self) -> int:
        """Return the number of cases of the evaluated cohort."""
        return 6 if self.quick else 50

    @property
    def distinct_patients(self) -> int:
        """Return the number of different patients whose masks are evaluated, under many names."""
        return 2 if self.quick else 5

    @property
    def challenge(self) -> tuple[int, int]:
        """Return the number of ranked teams, and the number of their cases."""
        return (3, 20) if self.quick else (40, 400)

    @property
    def results(self) -> Path:
        """Return the folder of each team's `metrics.json`."""
        return self.root / "challenge" / "results"

    @property
    def board(self) -> Path:
        """Return the folder of the ranking."""
        return self.root / "challenge" / "board"

    def evaluation(self, cases: int) -> Path:
        """Return the folder of an evaluated cohort, with `predictions` and `ground_truth`."""
        return self.root / f"evaluation-{cases}"

    def options(self, size: str) -> CohortOptions:
        """Return the options of the cohort of this size."""
        return CohortOptions(SEED, tuple(centre.code for centre in CENTRES), "platform", size, 8 if self.quick else 1)

    def input_dir(self, size: str) -> Path:
        """Return `/input` of the patient of this size that the algorithm answers."""
        return self.root / size / draw_cases(self.options(size), 1)[0].patient_id / "input"


def make_data(data: BenchData) -> Iterator[str]:
    """Make missing files; yield a line for each patient and for each cohort."""
    for size, patients in zip(SIZES, (data.distinct_patients, 1), strict=True):
        yield from (f"{size} {patient}" for patient in make_patients(data, size, patients))
    for cases in (FEW_CASES, data.cases):
        _make_evaluation(data, cases)
        yield f"{cases} cases for the evaluation"
    if not (data.board / "leaderboard.json").is_file():
        _make_challenge(data)
    yield "{} teams with {} cases".format(*data.challenge)


def make_patients(data: BenchData, size: str, patients: int) -> list[str]:
    """Make missing patients among the first patients of this size; return the IDs of all of them."""
    return list(make_cohort(data.options(size), patients, data.root / size, jobs=1))


def _make_evaluation(data: BenchData, cases: int) -> None:
    """Hard-link the reference masks under many names; the predictions are the same masks, shifted in plane.

    The shift by 2 and 3 voxels makes overlaps, missed lesions and unmatched lesions.
    """
    references = sorted((data.root / "head_and_neck" / "ground_truth").glob("*.mha"))
    for number in range(cases):
        reference = references[number % len(references)]
        prediction = data.root / "shifted" / reference.name
        if not prediction.is_file():
            mask = images.read_volume(reference)
            images.write_mask(prediction, np.roll(mask.array, (2, 3), axis=(1, 2)), mask.geometry)
        for kind, source in (("ground_truth", reference), ("predictions", prediction)):
            target = data.evaluation(cases) / kind / f"BENCH-{number + 1:03d}.mha"
            if not target.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(source, target)


def _make_challenge(data: BenchData) -> None:
    """Score and rank teams with small masks: the reference, shifted by up to one, two or three voxels."""
    rng = np.random.default_rng(SEED)
    team_count, case_count = data.challenge
    root = data.root / "challenge"
    grid = Geometry((_EDGE,) * 3, _SPACING_MM, (0.0, 0.0, 0.0))
    for case in (f"CHUM-{number + 1:03d}" for number in range(case_count)):
        reference = np.zeros(grid.array_shape, np.uint8)
        for label in (1, 2):
            z, y, x = rng.integers(0, _EDGE - 6, 3)
            reference[z : z + 6, y : y + 6, x : x + 6] = label
        images.write_mask(root / "reference" / f"{case}.mha", reference, grid)
        for team in range(team_count):
            shift = tuple(rng.integers(0, 2 + team % 3, 3).tolist())
            predicted = np.roll(reference, shift, (0, 1, 2))
            images.write_mask(root / "teams" / f"team {team + 1}" / f"{case}.mha", predicted, grid)
    folders = ("--teams", str(root / "teams"), "--ground-truth", str(root / "reference"))
    for command in (("evaluate", *folders, "--output", str(data.results)), build_rank_command(data, data.board)):
        subprocess.run((sys.executable, "-m", "hecktor", *command, "--task", "1"), check=True, stdout=sys.stderr)


def build_rank_command(data: BenchData, board: Path) -> tuple[str, ...]:
    """Build the arguments of the command that ranks the teams."""
    return ("rank", str(data.results), "--output", str(board))
