"""The phantoms that the benchmarks measure, made once in the output folder."""

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
from rehearsal.phantoms.cohort import CohortOptions, cohort_cases
from rehearsal.phantoms.layouts import link_or_copy
from rehearsal.phantoms.make import make_cohort

SEED: Final = 1
SIZES: Final = ("head_and_neck", "whole_body")
DISTINCT_PATIENTS: Final = 5
# Small masks of the teams that are ranked: voxels along each axis, and their size (x, y, z).
_EDGE: Final = 16
_SPACING_MM: Final = (2.0, 2.0, 3.0)


@dataclass(frozen=True)
class BenchData:
    """Paths of the measured files; `quick` means coarse images and few cases."""

    root: Path
    quick: bool

    @property
    def cases(self) -> int:
        """Number of cases of the evaluated cohort."""
        return 6 if self.quick else 50

    @property
    def challenge(self) -> tuple[int, int]:
        """Number of teams that are ranked, and of their cases."""
        return (3, 60) if self.quick else (40, 400)

    @property
    def results(self) -> Path:
        """The folder of each team's `metrics.json`."""
        return self.root / "challenge" / "results"

    @property
    def board(self) -> Path:
        """The folder of the ranking."""
        return self.root / "challenge" / "board"

    @property
    def evaluation(self) -> Path:
        """The folder of the evaluated cohort, with `predictions` and `ground_truth`."""
        return self.root / "evaluation"

    def patient(self, size: str) -> str:
        """The patient of this size that goes through the algorithm."""
        return cohort_cases(_options(size, self.quick), 1)[0].patient_id

    def input_dir(self, size: str) -> Path:
        """That patient's `/input`."""
        return self.root / size / self.patient(size) / "input"

    def reference(self, size: str) -> Path:
        """The reference mask of that patient."""
        return self.root / size / "ground_truth" / f"{self.patient(size)}.mha"

    def prediction(self, size: str) -> Path:
        """A mask that differs from the reference."""
        return self.root / size / "predictions" / f"{self.patient(size)}.mha"


def make_data(data: BenchData) -> Iterator[str]:
    """Make missing files; yields a line for each patient and for the evaluated cohort."""
    for size in SIZES:
        for patient in make_cohort(_options(size, data.quick), _patients(size, data.quick), data.root / size, jobs=1):
            yield f"{size} {patient}"
            _make_prediction(data.root / size, patient)
    _make_evaluation(data)
    yield f"{data.cases} cases for the evaluation"
    if not (data.board / "leaderboard.json").is_file():
        _make_challenge(data)
    yield "{} teams with {} cases".format(*data.challenge)


def make_patient(size: str, data: BenchData) -> None:
    """Make the one patient of this size if it is missing."""
    list(make_cohort(_options(size, data.quick), 1, data.root / size, jobs=1))


def _options(size: str, quick: bool) -> CohortOptions:
    return CohortOptions(SEED, tuple(centre.code for centre in CENTRES), "platform", size, 4 if quick else 1)


def _patients(size: str, quick: bool) -> int:
    return (2 if quick else DISTINCT_PATIENTS) if size == "head_and_neck" else 1


def _make_prediction(cohort: Path, patient: str) -> None:
    """Shift the reference by 2 and 3 voxels in plane: overlaps, misses and unmatched lesions."""
    target = cohort / "predictions" / f"{patient}.mha"
    if not target.is_file():
        reference = images.read_volume(cohort / "ground_truth" / f"{patient}.mha")
        images.write_mask(target, np.roll(reference.array, (2, 3), axis=(1, 2)), reference.geometry)


def _make_evaluation(data: BenchData) -> None:
    """Hard-link the distinct masks under many names."""
    cohort = data.root / "head_and_neck"
    options = _options("head_and_neck", data.quick)
    distinct = [case.patient_id for case in cohort_cases(options, _patients("head_and_neck", data.quick))]
    for number in range(data.cases):
        for kind in ("ground_truth", "predictions"):
            source = cohort / kind / f"{distinct[number % len(distinct)]}.mha"
            relink(source, data.evaluation / kind / f"BENCH-{number + 1:03d}.mha")


def _make_challenge(data: BenchData) -> None:
    """Score and rank teams whose masks are small: the reference, shifted by up to one, two or three voxels."""
    rng, (teams, cases), root = np.random.default_rng(SEED), data.challenge, data.root / "challenge"
    grid = Geometry((_EDGE,) * 3, _SPACING_MM, (0.0, 0.0, 0.0))
    for case in (f"CHUM-{number + 1:03d}" for number in range(cases)):
        reference = np.zeros(grid.array_shape, np.uint8)
        for label in (1, 2):
            z, y, x = rng.integers(0, _EDGE - 6, 3)
            reference[z : z + 6, y : y + 6, x : x + 6] = label
        images.write_mask(root / "reference" / f"{case}.mha", reference, grid)
        for team in range(teams):
            shift = tuple(rng.integers(0, 2 + team % 3, 3).tolist())
            predicted = np.roll(reference, shift, (0, 1, 2))
            images.write_mask(root / "teams" / f"team {team + 1}" / f"{case}.mha", predicted, grid)
    given = ("--teams", str(root / "teams"), "--ground-truth", str(root / "reference"))
    for command in (("evaluate", *given, "--output", str(data.results)), rank_command(data, data.board)):
        subprocess.run((sys.executable, "-m", "hecktor", *command, "--task", "1"), check=True, stdout=sys.stderr)


def rank_command(data: BenchData, board: Path) -> tuple[str, ...]:
    """The words of the command that ranks the teams."""
    return ("rank", str(data.results), "--output", str(board))


def relink(source: Path, target: Path) -> None:
    """Link `source` as `target`, which may exist."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    link_or_copy(source, target)
