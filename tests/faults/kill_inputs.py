"""Small inputs of all commands, made once in a folder: two coarse phantoms, their results, a package, a study."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rehearsal.phantoms.cohort import CohortOptions
from rehearsal.phantoms.make import make_cohort
from tests.baseline.package import nnunet_results
from tests.conftest import write_tiny_package
from tests.convert.studies import StudyFolder

COARSENING = 8
TRAINING_PATIENTS = 6


@dataclass(frozen=True)
class Inputs:
    """Inputs below a folder, of one seed."""

    root: Path
    seed: int

    @property
    def cohort(self) -> Path:
        return self.root / "cohort"

    @property
    def case(self) -> Path:
        """The folder of the first patient."""
        return min(path.parent for path in self.cohort.glob("*/input"))

    @property
    def reference(self) -> Path:
        return self.cohort / "ground_truth"

    @property
    def teams(self) -> Path:
        return self.root / "teams"

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def release(self) -> Path:
        return self.root / "release"

    @property
    def package(self) -> Path:
        return self.root / "package"

    @property
    def nnunet(self) -> Path:
        return next((self.root / "nnunet" / "results").glob("*/*"))

    @property
    def study(self) -> Path:
        return self.root / "study"


def make_inputs(root: Path, seed: int) -> Inputs:
    """Make the inputs of a seed, unless they exist."""
    inputs = Inputs(root, seed)
    complete = root / "complete"
    if complete.exists():
        return inputs
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for layout, folder, patients in (("platform", inputs.cohort, 2), ("release", inputs.release, TRAINING_PATIENTS)):
        options = CohortOptions(seed, ("CHUM", "MDA"), layout, "head_and_neck", COARSENING, balanced=True)
        list(make_cohort(options, patients, folder, 1))
    for team in ("first", "second"):
        inputs.teams.joinpath(team).mkdir(parents=True)
        for mask in inputs.reference.glob("*.mha"):
            shutil.copy(mask, inputs.teams / team)
    evaluation = ["evaluate", "--task", 1, "--teams", inputs.teams, "--ground-truth", inputs.reference]
    run_hecktor(*evaluation, "--output", inputs.results, "--bootstraps", 50)
    run_hecktor("rank", inputs.results, "--output", inputs.results, "--bootstraps", 50)
    write_tiny_package(inputs.package)
    nnunet_results.train_once(root / "nnunet", nnunet_results.DATASET, nnunet_results.SPACING)
    study = StudyFolder(inputs.study)
    study.add_ct_and_pet()
    complete.touch()
    return inputs


def run_hecktor(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "hecktor", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
