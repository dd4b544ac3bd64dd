"""Cohorts in which no minimum volume gains: `python -m tests.baseline.postprocessing.null_cohorts` counts those with one."""

from __future__ import annotations

import sys

import numpy as np

from algorithm.masks.postprocessing import LesionMeasures
from baseline.postprocessing.record import SCORE
from baseline.postprocessing.step import fit_volumes
from baseline.postprocessing.volumes import LesionTable, MaskCohort, PatientLesions, find_min_volumes, make_mask_score
from baseline.release.splits import Splits
from contract.editions import load_edition
from contract.packages import NO_RULES

# A node costs the aggregated F1 as much as it gains if it is true with half of the F1's probability, 0.8 / 2 here, and the
# aggregated DSC with half of the DSC's, 0.95 / 2. With 0.43 no rule gains more than 0.0002 in 4,000 patients.
_TRUE = 0.43


def null_cohort(patients: int, seed: int) -> MaskCohort:
    """Patients of four centres with a GTVp, a true node and uncertain ones whose measures say nothing of the truth."""
    rng = np.random.default_rng(seed)
    return MaskCohort(
        [_patient(number, rng) for number in range(patients)], make_mask_score(load_edition("hecktor2025"))
    )


def _patient(number: int, rng: np.random.Generator) -> PatientLesions:
    more = int(rng.poisson(1.5))
    label = np.array([1, *[2] * (more + 1)])
    voxels = np.concatenate([[200, 100], rng.integers(1, 20, more)])
    true = np.concatenate([[True, True], rng.random(more) < _TRUE])
    probability = np.concatenate([[0.95, 0.95], rng.uniform(0.5, 0.95, more)])
    suv_max = np.concatenate([[9.0, 9.0], rng.uniform(1, 9, more)])
    nodes = np.flatnonzero((label == 2) & true)
    pairs = np.zeros((len(label), len(nodes)), dtype=np.intp)
    pairs[nodes, np.arange(len(nodes))] = voxels[nodes]
    iou = pairs / (voxels[:, None] + voxels[nodes] - pairs)
    nothing = np.zeros(0, np.int32)
    measures = LesionMeasures(nothing, label, voxels, voxels * 0.1, probability, suv_max)
    table = LesionTable(measures, voxels * true, iou)
    size, centre = int(voxels[nodes].sum()), f"C{number % 4}"
    return PatientLesions(f"{centre}-{number:03d}", centre, 100.0, 200, size, len(nodes), table)


def splits_of(cohort: MaskCohort, folds: int = 5, centres: int = 4) -> Splits:
    """Every `folds`-th patient is a fold, every `centres`-th a centre."""
    ids = [one.patient_id for one in cohort.patients]
    of_centre = {f"C{number}": tuple(ids[number::centres]) for number in range(centres)}
    return Splits(seed=1, folds=tuple(tuple(ids[number::folds]) for number in range(folds)), centres=of_centre)


def main(cohorts: int, patients: int) -> None:
    """Count the cohorts with volumes of all patients and positive gains, and those that store them."""
    gaining = stored = 0
    for seed in range(cohorts):
        cohort = null_cohort(patients, seed)
        result = fit_volumes(cohort, splits_of(cohort))
        gains = [result["cross_fitted"][split][SCORE].difference.value for split in ("folds", "centres")]
        gaining += find_min_volumes(cohort, np.ones(patients)) != NO_RULES and min(gains) > 0
        stored += result["rules"] != NO_RULES
    sys.stdout.write(
        f"{cohorts} cohorts of {patients}: {gaining} with a volume and both gains above 0, {stored} stored\n"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
