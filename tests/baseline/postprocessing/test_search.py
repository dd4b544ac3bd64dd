"""The search takes rules that gain and hold elsewhere, and its cross-fitted figures use no patient of the group."""

from __future__ import annotations

import numpy as np
import pytest

from algorithm.masks.postprocessing import LesionMeasures
from baseline.postprocessing.lesions import THRESHOLDS, LesionTable, PatientLesions
from baseline.postprocessing.record import SCORE
from baseline.postprocessing.search import GRID, MaskCohort, cross_fitted, gains, score_of, search
from baseline.postprocessing.step import search_result
from contract.editions import load_edition
from contract.packages import NO_RULES, PostprocessingRules
from tests.baseline.postprocessing.null_cohorts import null_cohort, splits_of

EDITION = load_edition("hecktor2025")
# Chosen because the search finds rules in them.
NULL_SEEDS = (1, 2, 13)
# Label, voxels of 1 ml, whether it lies in the reference (wholly or not at all), SUVmax.
Row = tuple[int, int, bool, float]


def lesion(label: int, voxels: int, true: bool, suv_max: float = 8.0) -> Row:
    return label, voxels, true, suv_max


def patient(number: int, centre: str, lesions: list[Row]) -> PatientLesions:
    """A patient whose true nodes are the reference's."""
    label, voxels, true, suv = (np.array(column) for column in zip(*lesions, strict=True))
    sizes = voxels[(label == 2) & true]
    common = voxels * true
    pairs = np.zeros((len(lesions), len(sizes)), dtype=np.intp)
    pairs[np.flatnonzero((label == 2) & true), np.arange(len(sizes))] = sizes
    iou = pairs / (voxels[:, None] + sizes - pairs)
    measures = LesionMeasures(
        np.zeros(0, np.int32), label, voxels, voxels * 1.0, np.full(len(lesions), 0.9), suv, np.zeros((len(lesions), 3))
    )
    tables = dict.fromkeys(THRESHOLDS, LesionTable(measures, common, iou))
    primary = int(common[label == 1].sum())
    return PatientLesions(f"{centre}-{number:03d}", centre, 1000.0, primary, int(sizes.sum()), len(sizes), tables)


def scored(patients: list[PatientLesions]) -> MaskCohort:
    return MaskCohort(patients, score_of(EDITION))


def everyone(cohort: MaskCohort) -> np.ndarray:
    return np.ones(len(cohort.patients))


def separable(false_suv: float, true_suv: float, centres: int = 4) -> MaskCohort:
    """40 patients with a primary, a true node of 10 ml and a false one of 3 or 5 ml, which differ in SUVmax."""
    return scored(
        [
            patient(
                number,
                f"C{number % centres}",
                [
                    lesion(1, 20, True),
                    lesion(2, 10, True, true_suv + number % 3),
                    lesion(2, 3 + number % 2 * 2, False, false_suv),
                ],
            )
            for number in range(40)
        ]
    )


def test_the_score_of_2025_weighs_metrics_as_its_nested_borda() -> None:
    """Half GTVp; the other half is that of the nested Borda of GTVn's aggregated DSC and F1."""
    assert score_of(EDITION).weights == {"gtvp_dsc_mean": 0.5, "gtvn_dsc_agg": 0.25, "gtvn_f1_agg": 0.25}


def test_the_score_of_2026_is_that_of_its_masks() -> None:
    """0.25 x half for each mean DSC; stages and the C-index are other answers."""
    weights = score_of(load_edition("hecktor2026")).weights
    assert weights == pytest.approx({"gtvp_dsc_mean": 0.125, "gtvn_dsc_mean": 0.125})


def test_a_gate_that_separates_false_nodes_is_found() -> None:
    """Unfiltered: DSC of GTVp 1, DSCagg 2 x 20 / (20 + 28) = 0.8333, F1 2 / (2 + 1) = 0.6667; filtered all are 1.

    Score 0.5 + (0.8333 + 0.6667) / 4 = 0.875, and 1. SUVmax 3 to 3.5 separates; the volume of 4 ml is beyond the grid.
    """
    cohort = separable(false_suv=2.8, true_suv=3.6)
    rules = search(cohort, everyone(cohort))
    assert rules == PostprocessingRules(gtvn_suv_max=3.0)
    figures = gains(cohort, cohort.counts(rules), seed=1)[SCORE]
    assert (figures.unfiltered, figures.filtered) == (pytest.approx(0.875), pytest.approx(1))
    assert figures.difference.ci95_low is not None
    assert figures.difference.ci95_high is not None
    assert 0.1 < figures.difference.ci95_low < 0.125 < figures.difference.ci95_high < 0.15


def test_without_false_lesions_there_are_no_rules() -> None:
    cohort = scored([patient(n, f"C{n % 3}", [lesion(1, 20, True), lesion(2, 10, True)]) for n in range(30)])
    assert search(cohort, everyone(cohort)) == NO_RULES


def test_a_gain_within_its_noise_is_not_taken() -> None:
    """A gate removes the false nodes of two patients and the true node of a third: a gain in two of three only."""
    plain, false, true = [lesion(1, 20, True), lesion(2, 10, True)], lesion(2, 4, False, 2.0), lesion(2, 4, True, 2.0)
    more = [[*plain, false], [*plain, false], [*plain, true]]
    cohort = scored([patient(number, f"C{number % 3}", nodes) for number, nodes in enumerate([plain] * 37 + more)])
    gain = gains(cohort, cohort.counts(PostprocessingRules(gtvn_suv_max=2.5)), seed=1)[SCORE].difference
    assert 0.001 < gain.value < 0.01
    assert search(cohort, everyone(cohort)) == NO_RULES


def test_a_gain_whose_interval_holds_0_is_not_stored() -> None:
    """A gate removes the false nodes of five patients and the true node of a sixth.

    Whoever is left out, the others have a gain of at least 4 - 1 nodes, above its standard deviation sqrt(4 + 1), so that
    each group gets the gate and the gain is 5 - 1 nodes. About one sample in sixteen has more of the true nodes.
    """
    plain, false, true = [lesion(1, 20, True), lesion(2, 10, True)], lesion(2, 4, False, 2.0), lesion(2, 4, True, 2.0)
    more = [*([[*plain, false]] * 5), [*plain, true]]
    cohort = scored([patient(number, f"C{number % 4}", nodes) for number, nodes in enumerate([plain] * 34 + more)])
    result = search_result(cohort, splits_of(cohort))
    assert search(cohort, everyone(cohort)).gtvn_suv_max > 2
    for split, groups in (("folds", 5), ("centres", 4)):
        gain = result["cross_fitted"][split][SCORE].difference
        assert [rules.gtvn_suv_max > 2 for rules in result["rules_by_group"][split].values()] == [True] * groups
        assert gain.value > 0.001
        assert gain.ci95_low <= 0
    assert result["rules"] == NO_RULES
    assert "with rules found without the patient's fold, the score changes by +0.0" in result["why_not"]
    assert result["why_not"].endswith(", expected a lower end above 0")


def test_a_gain_with_its_interval_above_0_is_stored() -> None:
    """Rules are those of all patients, and each fold's own stand beside them."""
    cohort = separable(false_suv=2.8, true_suv=3.6)
    result = search_result(cohort, splits_of(cohort))
    assert (result["why_not"], result["rules"]) == ("", PostprocessingRules(gtvn_suv_max=3.0))
    assert set(result["rules_by_group"]["folds"]) == {f"fold {number}" for number in range(5)}


def test_a_fold_without_references_has_the_rules_of_all_patients() -> None:
    """None of them is its own."""
    cohort = separable(false_suv=2.8, true_suv=3.6)
    _, rules = cross_fitted(cohort, {"fold 0": ["no reference"]})
    assert rules == {"fold 0": search(cohort, everyone(cohort))}


def test_null_cohorts_store_no_rules() -> None:
    """Cohorts in which the search finds rules that gain on its own patients, and cross-fitted gains are above 0."""
    gaining = 0
    for seed in NULL_SEEDS:
        cohort = null_cohort(40, seed)
        result = search_result(cohort, splits_of(cohort))
        gains_of = [result["cross_fitted"][split][SCORE].difference.value for split in ("folds", "centres")]
        gaining += search(cohort, everyone(cohort)) != NO_RULES and min(gains_of) > 0
        assert result["rules"] == NO_RULES
    assert gaining == len(NULL_SEEDS)


def test_cross_fitted_rules_come_from_the_other_patients() -> None:
    """The outlying group's true nodes are below the gate that the others need: it is applied all the same."""
    nodes = [lesion(1, 20, True), lesion(2, 10, True, 6.0), lesion(2, 4, False, 2.8)]
    normal = [patient(number, f"C{number % 3}", nodes) for number in range(36)]
    odd = [patient(100 + n, "C3", [lesion(1, 20, True), lesion(2, 10, True, 2.9)]) for n in range(4)]
    counts, rules = cross_fitted(scored([*normal, *odd]), {"odd": [one.patient_id for one in odd]})
    assert rules["odd"].gtvn_suv_max >= 3
    assert counts[36:, 4].tolist() == [0, 0, 0, 0]
    assert counts[:36, 4].tolist() == [2] * 36  # of no group, so unfiltered


def test_each_rule_is_searched() -> None:
    assert set(GRID) == set(PostprocessingRules(**{rule: values[0] for rule, values in GRID.items()}).as_json())
