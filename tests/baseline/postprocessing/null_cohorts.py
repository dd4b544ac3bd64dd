"""Cohorts without a rule that gains.

`python -m tests.baseline.postprocessing.null_cohorts 40 100 400` counts how often a rule is accepted in cohorts of 40,
100 and 400 patients.
"""

from __future__ import annotations

import sys

import numpy as np

from algorithm.masks.postprocessing import LesionMeasures
from baseline.postprocessing.rules import LesionTable, MaskCohort, PatientLesions, fit_rules, make_mask_score
from baseline.release.splits import Splits
from contract.editions import load_edition
from contract.packages import NO_RULES

# Probability that an uncertain node is true. In 2025 a node changes the expected aggregated F1 by 0 if it is true with half
# of the F1, 0.8 / 2 here, and the expected aggregated DSC if it is true with half of the DSC, 0.95 / 2. With 0.43 no rule
# gains more than 0.0002 in 4,000 patients. In 2026 a false node of v voxels next to a node of 100 voxels costs
# 1 - 200 / (200 + v) of the patient's DSC, and removing a true one costs the same; a single node gains or costs 1.
_TRUE_PROBABILITY = {"hecktor2025": 0.43, "hecktor2026": 0.5}
# Share of the patients of 2026 with a single node, which is uncertain.
_SINGLE_NODE_SHARE = 0.3
COHORTS = 40


def make_null_cohort(patients: int, seed: int, edition: str = "hecktor2025") -> MaskCohort:
    """Return patients of four centres with a GTVp, a true node and uncertain nodes that no measure tells apart.

    In 2026, which scores each patient, some patients have only an uncertain node.
    """
    rng = np.random.default_rng(seed)
    return MaskCohort(
        [_make_patient(number, rng, edition) for number in range(patients)], make_mask_score(load_edition(edition))
    )


def _make_patient(number: int, rng: np.random.Generator, edition: str) -> PatientLesions:
    has_single_node = edition == "hecktor2026" and rng.random() < _SINGLE_NODE_SHARE
    sure = 1 if has_single_node else 2
    more = 1 if has_single_node else int(rng.poisson(1.5))
    label = np.array([1, *[2] * (more + sure - 1)])
    voxels = np.concatenate([[200, 100][:sure], rng.integers(1, 20, more)])
    true = np.concatenate([[True, True][:sure], rng.random(more) < _TRUE_PROBABILITY[edition]])
    probability = np.concatenate([[0.95, 0.95][:sure], rng.uniform(0.5, 0.95, more)])
    suv_max = np.concatenate([[9.0, 9.0][:sure], rng.uniform(1, 9, more)])
    nodes = np.flatnonzero((label == 2) & true)
    pairs = np.zeros((len(label), len(nodes)), dtype=np.intp)
    pairs[nodes, np.arange(len(nodes))] = voxels[nodes]
    iou = pairs / (voxels[:, None] + voxels[nodes] - pairs)
    nothing = np.zeros(0, np.int32)
    measures = LesionMeasures(nothing, label, voxels, voxels * 0.1, probability, suv_max)
    table = LesionTable(measures, voxels * true, iou)
    size, centre = int(voxels[nodes].sum()), f"C{number % 4}"
    return PatientLesions(f"{centre}-{number:03d}", centre, 100.0, 200, size, len(nodes), table)


def make_splits(cohort: MaskCohort, folds: int = 5, centres: int = 4) -> Splits:
    """Split the patients into interleaved folds and centres."""
    ids = [patient.patient_id for patient in cohort.patients]
    by_centre = {f"C{number}": tuple(ids[number::centres]) for number in range(centres)}
    return Splits(seed=1, folds=tuple(tuple(ids[number::folds]) for number in range(folds)), centres=by_centre)


def count_accepted(patients: int, edition: str, cohorts: int = COHORTS) -> int:
    """Count the null cohorts with at least one accepted rule."""
    accepted = 0
    for seed in range(cohorts):
        cohort = make_null_cohort(patients, seed, edition)
        splits = make_splits(cohort)
        folds = {str(number): fold for number, fold in enumerate(splits.folds)}
        accepted += fit_rules(cohort, {"folds": folds, "centres": splits.centres}, seed).rules != NO_RULES
    return accepted


def main(sizes: list[int]) -> None:
    """Print the count for each edition and number of patients."""
    for edition in _TRUE_PROBABILITY:
        for patients in sizes:
            accepted = count_accepted(patients, edition, 200)
            sys.stdout.write(f"{edition}, {patients} patients: a rule in {accepted} of 200 cohorts\n")


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]])
