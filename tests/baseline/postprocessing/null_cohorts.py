"""Cohorts in which no rule gains.

`python -m tests.baseline.postprocessing.null_cohorts 40 100 400` counts the cohorts of 40, 100 and 400 patients in which
a rule is accepted.
"""

from __future__ import annotations

import sys

import numpy as np

from algorithm.masks.postprocessing import LesionMeasures
from baseline.postprocessing.rules import LesionTable, MaskCohort, PatientLesions, fit_rules, make_mask_score
from baseline.release.splits import Splits
from contract.editions import load_edition
from contract.packages import NO_RULES

# Probability that an uncertain node is true. In 2025 a node costs the aggregated F1 as much as it gains if it is true with
# half of the F1's probability, 0.8 / 2 here, and the aggregated DSC with half of the DSC's, 0.95 / 2. With 0.43 no rule
# gains more than 0.0002 in 4,000 patients. In 2026 a node of v voxels beside one of 100 costs 1 - 200 / (200 + v) of the
# patient's DSC if it is false, and its removal costs the same if it is true; a node alone gains or costs 1.
_TRUE = {"hecktor2025": 0.43, "hecktor2026": 0.5}
# Share of the patients of 2026 with one uncertain node and no other.
_ALONE = 0.3
COHORTS = 40


def null_cohort(patients: int, seed: int, edition: str = "hecktor2025") -> MaskCohort:
    """Patients of four centres with a GTVp, a true node and uncertain ones whose measures say nothing of the truth.

    In 2026, which scores patients, some have no true node for sure.
    """
    rng = np.random.default_rng(seed)
    return MaskCohort(
        [_patient(number, rng, edition) for number in range(patients)], make_mask_score(load_edition(edition))
    )


def _patient(number: int, rng: np.random.Generator, edition: str) -> PatientLesions:
    alone = edition == "hecktor2026" and rng.random() < _ALONE
    sure = 1 if alone else 2
    more = 1 if alone else int(rng.poisson(1.5))
    label = np.array([1, *[2] * (more + sure - 1)])
    voxels = np.concatenate([[200, 100][:sure], rng.integers(1, 20, more)])
    true = np.concatenate([[True, True][:sure], rng.random(more) < _TRUE[edition]])
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


def splits_of(cohort: MaskCohort, folds: int = 5, centres: int = 4) -> Splits:
    """Every `folds`-th patient is a fold, every `centres`-th a centre."""
    ids = [one.patient_id for one in cohort.patients]
    of_centre = {f"C{number}": tuple(ids[number::centres]) for number in range(centres)}
    return Splits(seed=1, folds=tuple(tuple(ids[number::folds]) for number in range(folds)), centres=of_centre)


def count_accepted(patients: int, edition: str, cohorts: int = COHORTS) -> int:
    """Count the null cohorts in which at least one rule is accepted."""
    accepted = 0
    for seed in range(cohorts):
        cohort = null_cohort(patients, seed, edition)
        splits = splits_of(cohort)
        folds = {str(number): fold for number, fold in enumerate(splits.folds)}
        accepted += fit_rules(cohort, {"folds": folds, "centres": splits.centres}, seed).rules != NO_RULES
    return accepted


def main(sizes: list[int]) -> None:
    """Print the count for each edition and number of patients."""
    for edition in _TRUE:
        for patients in sizes:
            accepted = count_accepted(patients, edition, 200)
            sys.stdout.write(f"{edition}, {patients} patients: a rule in {accepted} of 200 cohorts\n")


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]])
