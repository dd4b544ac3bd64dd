"""The search takes rules that gain and hold elsewhere, and its cross-fitted figures use no patient of the group."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from algorithm.decisions.rules import NO_DECISIONS, Decisions
from baseline.decisions.cohort import Cohort
from baseline.decisions.cross_fit import cross_fitted, gains
from baseline.decisions.record import SCORE
from baseline.decisions.score import Evaluations, score_of
from baseline.decisions.search import GRID, assembled, everyone, search
from baseline.decisions.tables import ALL_THRESHOLDS, COLUMNS, LesionTable, PatientTables
from baseline.release.cases import ReleaseCase
from contract.editions import load_edition
from contract.patient import Patient

Row = dict[str, float]
EDITION = load_edition("hecktor2025")


def lesion(label: int, voxels: int, true: bool, **values: float) -> Row:
    """A lesion of 1 ml voxels that lies in the reference wholly or not at all."""
    row = dict.fromkeys(COLUMNS, 0.0) | {"label": label, "volume_ml": voxels, "voxels": voxels}
    row |= {"mean_probability": 0.9, "max_probability": 1.0, "suv_max": 8.0, "suv_peak": 7.0, "distance_mm": 10.0}
    row["in_gtvp" if label == 1 else "in_gtvn"] = voxels if true else 0
    return row | values | {"diameter_mm": np.nan, "bone_contact": np.nan}


def patient(number: int, centre: str, lesions: list[Row], missed: int = 0) -> PatientTables:
    """A patient whose true nodes are the reference's, besides `missed` voxels of another node."""
    values = np.array([[row[name] for name in COLUMNS] for row in lesions])
    true = [place for place, row in enumerate(lesions) if row["in_gtvn"]]
    sizes = [int(lesions[place]["voxels"]) for place in true] + [missed] * (missed > 0)
    overlaps = np.array([(place, node, sizes[node]) for node, place in enumerate(true)], dtype=np.intp)
    table = LesionTable(values, overlaps.reshape(-1, 3), np.zeros((len(lesions), 3)))
    primary = int(sum(row["in_gtvp"] for row in lesions))
    tables = dict.fromkeys(ALL_THRESHOLDS, table)
    return PatientTables(
        f"{centre}-{number:03d}", centre, 1000.0, primary, sum(sizes), np.array(sizes, dtype=np.intp), tables
    )


def cohort(false_suv: float, true_suv: float, centres: int = 4) -> Evaluations:
    """40 patients with a primary, a true node of 10 ml and a false one of 4 ml, which differ in SUVmax."""
    patients = [
        patient(
            number,
            f"C{number % centres}",
            [
                lesion(1, 20, true=True),
                lesion(2, 10, true=True, suv_max=true_suv + number % 3),
                lesion(2, 4, true=False, suv_max=false_suv),
            ],
        )
        for number in range(40)
    ]
    score = score_of(EDITION, [])
    return Evaluations(Cohort(patients, score.rules), score)


def test_the_score_of_2025_weighs_metrics_as_its_nested_borda() -> None:
    """Half GTVp; the other half is that of the nested Borda of GTVn's aggregated DSC and F1."""
    assert score_of(EDITION, []).weights == {"gtvp_dsc_mean": 0.5, "gtvn_dsc_agg": 0.25, "gtvn_f1_agg": 0.25}


def test_the_score_of_2026_leaves_the_c_index_out() -> None:
    """0.25 x half for each mean DSC, and 0.35 x half for each stage that has classes; 0.4 for the C-index."""
    edition = load_edition("hecktor2026")
    assert score_of(edition, []).weights == pytest.approx({"gtvp_dsc_mean": 0.125, "gtvn_dsc_mean": 0.125})
    answers = {answer.name: answer for algorithm in edition.algorithms for answer in algorithm.heads}
    column = answers["n_stage"].columns["class"]
    path = Path("CT.nii.gz")
    cases = [ReleaseCase("A", "A", path, path, path, Patient(), outcomes={column: n}) for n in ("N0", "N2")]
    weights = score_of(edition, cases).weights
    assert weights == pytest.approx({"gtvp_dsc_mean": 0.125, "gtvn_dsc_mean": 0.125, "n_balanced_accuracy": 0.175})


def test_a_gate_that_separates_false_nodes_is_found() -> None:
    """Undecided: DSC of GTVp 1, DSCagg 2 x 10 / (10 + 14) = 0.8333, F1 2 / (2 + 1) = 0.6667; decided all are 1.

    Score 0.5 + (0.8333 + 0.6667) / 4 = 0.875, and 1. SUVmax 3 to 3.5 separates; the volume of 4 ml is beyond the grid.
    """
    evaluations = cohort(false_suv=2.8, true_suv=3.6)
    rules = search(evaluations, everyone(evaluations.cohort))
    assert rules == Decisions(gtvn_suv_max=3.0)
    figures = gains(evaluations, evaluations.of(rules), seed=1)[SCORE]
    assert figures["undecided"] == pytest.approx(0.875)
    assert figures["decided"] == pytest.approx(1)
    low, high = figures["difference"]["ci95_low"], figures["difference"]["ci95_high"]
    assert low == pytest.approx(0.125)
    assert high == pytest.approx(0.125)


def test_without_false_lesions_there_are_no_rules() -> None:
    patients = [patient(number, f"C{number % 3}", [lesion(1, 20, True), lesion(2, 10, True)]) for number in range(30)]
    score = score_of(EDITION, [])
    evaluations = Evaluations(Cohort(patients, score.rules), score)
    assert search(evaluations, everyone(evaluations.cohort)) == NO_DECISIONS


def test_a_rule_of_a_single_centre_is_not_taken() -> None:
    """False nodes of SUVmax 2 in one centre of two; in the other, true nodes have it too, so that no gate holds."""
    patients = []
    for number in range(40):
        first = number % 2 == 0
        nodes = [lesion(2, 10, True, suv_max=2.0 if not first else 9.0)]
        nodes += [lesion(2, 4, False, suv_max=2.0)] if first else []
        patients.append(patient(number, f"C{number % 2}", [lesion(1, 20, True), *nodes]))
    score = score_of(EDITION, [])
    evaluations = Evaluations(Cohort(patients, score.rules), score)
    assert search(evaluations, everyone(evaluations.cohort)).gtvn_suv_max == 0


def test_one_centre_gives_no_rules() -> None:
    evaluations = cohort(2.8, 3.6, centres=1)
    assert search(evaluations, everyone(evaluations.cohort)) == NO_DECISIONS


def test_cross_fitted_rules_come_from_the_other_patients() -> None:
    """The outlying group's true nodes are below the gate that the others need: it is applied all the same."""
    normal = [
        patient(
            number,
            f"C{number % 3}",
            [lesion(1, 20, True), lesion(2, 10, True, suv_max=6), lesion(2, 4, False, suv_max=2.8)],
        )
        for number in range(36)
    ]
    odd = [patient(100 + n, "C3", [lesion(1, 20, True), lesion(2, 10, True, suv_max=2.9)]) for n in range(4)]
    score = score_of(EDITION, [])
    evaluations = Evaluations(Cohort([*normal, *odd], score.rules), score)
    group = {"odd": [one.patient_id for one in odd]}
    counts, rules = cross_fitted(evaluations, group)
    assert rules["odd"].gtvn_suv_max >= 3
    assert counts.nodes[0, 36:].tolist() == [0, 0, 0, 0]
    assert counts.nodes[0, :36].tolist() == [2] * 36  # of no group, so undecided


def test_assembled_counts_take_each_group_from_its_setting() -> None:
    evaluations = cohort(2.8, 3.6)
    first = np.arange(40) < 10
    counts = assembled(evaluations, [(first, Decisions(gtvn_suv_max=3.0))])
    assert counts.nodes[0].tolist() == [1] * 10 + [2] * 30


def test_each_rule_is_searched() -> None:
    assert set(GRID) == set(Decisions(**{rule: values[0] for rule, values in GRID.items()}).as_json())
