"""Rules are accepted only if they gain in other patients too, and cross-fitted figures use no patient of the group."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from algorithm.masks.postprocessing import LesionMeasures, apply_rules
from baseline.postprocessing.record import SCORE
from baseline.postprocessing.rules import (
    LesionTable,
    MaskCohort,
    PatientLesions,
    assemble_counts,
    estimate_gains,
    find_limit,
    fit_rules,
    make_mask_score,
)
from baseline.postprocessing.step import fit_record, measure_patient, read_images, read_logits
from baseline.release.cases import ReleaseCase, label_path
from baseline.work import WorkFolders
from contract import labels
from contract.editions import load_edition, parse_edition
from contract.errors import InputError
from contract.images.volumes import read_volume
from contract.packages import NO_RULES, PostprocessingRules
from evaluation.editions.profile import load_profile
from evaluation.metrics.lesions import compare_lesions
from evaluation.metrics.overlap import count_overlaps
from evaluation.metrics.rules import MaskRules
from tests.baseline.postprocessing.null_cohorts import count_accepted, make_splits
from tests.baseline.postprocessing.patients import write_patients

EDITION = load_edition("hecktor2025")


class Lesion(NamedTuple):
    """A predicted lesion, which is completely inside the reference if it is true and outside otherwise."""

    label: int
    # Voxels of 1 ml.
    voxels: int
    is_true: bool


def make_patient(number: int, centre: str, lesions: list[Lesion]) -> PatientLesions:
    """Return a patient whose reference has the true nodes."""
    label, voxels, true = (np.array(column) for column in zip(*lesions, strict=True))
    sizes = voxels[(label == 2) & true]
    common = voxels * true
    pairs = np.zeros((len(lesions), len(sizes)), dtype=np.intp)
    pairs[np.flatnonzero((label == 2) & true), np.arange(len(sizes))] = sizes
    iou = pairs / (voxels[:, None] + sizes - pairs)
    same = np.full(len(lesions), 0.9)
    measures = LesionMeasures(np.zeros(0, np.int32), label, voxels, voxels * 1.0, same, same)
    primary = int(common[label == 1].sum())
    return PatientLesions(
        f"{centre}-{number:03d}",
        centre,
        1000.0,
        primary,
        int(sizes.sum()),
        len(sizes),
        LesionTable(measures, common, iou),
    )


def make_cohort(patients: list[PatientLesions]) -> MaskCohort:
    return MaskCohort(patients, make_mask_score(EDITION))


def include_all(cohort: MaskCohort) -> np.ndarray:
    return np.ones(len(cohort.patients))


def list_ids(cohort: MaskCohort) -> list[str]:
    return [patient.patient_id for patient in cohort.patients]


def find_volumes(cohort: MaskCohort, members: np.ndarray) -> PostprocessingRules:
    """Find the minimum volumes of both labels for the members."""
    primary = find_limit(cohort, "gtvp_volume_ml", NO_RULES, members)
    return find_limit(cohort, "gtvn_volume_ml", primary, members)


def make_separable_cohort() -> MaskCohort:
    """Return 40 patients with a primary, a true node of 10 to 12 ml and a false node of 1 ml."""
    nodes = [(Lesion(2, 10 + number % 3, True), Lesion(2, 1, False)) for number in range(40)]
    return make_cohort(
        [make_patient(number, f"C{number % 4}", [Lesion(1, 20, True), *pair]) for number, pair in enumerate(nodes)]
    )


def test_the_score_of_2025_weighs_metrics_as_its_nested_borda() -> None:
    """GTVp has half of the weight; the aggregated DSC and F1 of GTVn share the other half, as in the nested Borda."""
    assert make_mask_score(EDITION).weights == {"gtvp_dsc_mean": 0.5, "gtvn_dsc_agg": 0.25, "gtvn_f1_agg": 0.25}


def test_the_score_of_2026_counts_only_masks() -> None:
    """Both mean DSCs have the weight 0.25 / 2; stages and the C-index belong to other answers."""
    weights = make_mask_score(load_edition("hecktor2026")).weights
    assert weights == pytest.approx({"gtvp_dsc_mean": 0.125, "gtvn_dsc_mean": 0.125})


def test_the_score_of_a_ranking_by_cases_uses_its_metric() -> None:
    content = json.loads((files("contract.editions") / "hecktor2025.json").read_text()) | {"name": "own"}
    content["scoring"]["segmentation"]["ranking"]["schemes"]["nested_borda"] = {
        "borda": [{"mean_case_rank": "gtvp_dsc_mean"}, {"significant_wins": "gtvn_f1_agg"}]
    }
    assert make_mask_score(parse_edition(content, "own.json")).weights == {"gtvp_dsc_mean": 0.5, "gtvn_f1_agg": 0.5}


def test_a_volume_that_separates_false_nodes_is_found() -> None:
    """True nodes have 14 x 10 + 13 x 11 + 13 x 12 = 439 ml, false nodes 40 ml.

    Unfiltered: DSC of GTVp 1, DSCagg 2 x 439 / (439 + 479) = 0.9564, F1 2 / (2 + 1) = 0.6667, score
    0.5 + (0.9564 + 0.6667) / 4 = 0.9058. Filtered: all are 1. Both 1.5 and 2 ml separate the nodes; the smaller limit is
    used.
    """
    cohort = make_separable_cohort()
    rules = find_volumes(cohort, include_all(cohort))
    assert rules == PostprocessingRules(gtvn_volume_ml=1.5)
    figures = estimate_gains(cohort, cohort.count(rules), seed=1)[SCORE]
    before = 0.5 + (2 * 439 / 918 + 2 / 3) / 4
    assert (figures.unfiltered, figures.filtered) == (pytest.approx(before), pytest.approx(1))
    assert figures.difference.ci95_low is not None
    assert figures.difference.ci95_high is not None
    assert 0.09 < figures.difference.ci95_low < 1 - before < figures.difference.ci95_high < 0.1


def test_both_labels_have_their_own_volume() -> None:
    """Patients have a false GTVp of 1 ml, too."""
    lesions = [Lesion(1, 20, True), Lesion(1, 1, False), Lesion(2, 10, True), Lesion(2, 1, False)]
    cohort = make_cohort([make_patient(number, f"C{number % 4}", lesions) for number in range(40)])
    rules = find_volumes(cohort, include_all(cohort))
    assert rules == PostprocessingRules(gtvp_volume_ml=1.5, gtvn_volume_ml=1.5)
    assert float(cohort.make_score(rules)(np.ones((1, 40)))[0]) == pytest.approx(1)


def test_a_gain_within_its_noise_is_not_accepted() -> None:
    """Removing the false nodes of two patients and the true node of a third gains in only two of three patients."""
    plain, false, true = [Lesion(1, 20, True), Lesion(2, 10, True)], Lesion(2, 1, False), Lesion(2, 1, True)
    more = [[*plain, false], [*plain, false], [*plain, true]]
    cohort = make_cohort(
        [make_patient(number, f"C{number % 3}", nodes) for number, nodes in enumerate([plain] * 37 + more)]
    )
    gain = estimate_gains(cohort, cohort.count(PostprocessingRules(gtvn_volume_ml=1.5)), seed=1)[SCORE].difference
    assert 0.001 < gain.value < 0.01
    assert find_volumes(cohort, include_all(cohort)) == NO_RULES


def make_cohort_with_false_nodes(number: int) -> MaskCohort:
    """Return 40 patients: `number` with a small false node, and another one with a small true node."""
    plain, false, true = [Lesion(1, 20, True), Lesion(2, 10, True)], Lesion(2, 1, False), Lesion(2, 1, True)
    more = [*([[*plain, false]] * number), [*plain, true]]
    nodes = [*([plain] * (40 - len(more))), *more]
    return make_cohort([make_patient(place, f"C{place % 4}", lesions) for place, lesions in enumerate(nodes)])


def test_a_gain_of_few_deviations_is_not_accepted() -> None:
    """Five false nodes and a true node are too few.

    If a group is left out, the other patients gain at least 4 - 1 nodes, which is above the standard deviation
    sqrt(4 + 1), so that the limit is found for each group. The cross-fitted gain of 5 - 1 nodes is 4 / sqrt(6) = 1.6
    standard deviations, which one null cohort in eight reaches.
    """
    cohort = make_cohort_with_false_nodes(5)
    result = fit_record(cohort, make_splits(cohort))
    assert result["rules"] == NO_RULES
    reason = "GTVn, minimum volume in ml: with limits found without the patient's fold, the score changes by +0.0"
    assert reason in result["why_not"]
    assert set(result["rules_by_group"]["folds"].values()) == {NO_RULES}


def test_a_gain_of_several_deviations_is_accepted() -> None:
    """Twelve false nodes and a true node gain 11 / sqrt(13) = 3.05 standard deviations."""
    cohort = make_cohort_with_false_nodes(12)
    result = fit_record(cohort, make_splits(cohort))
    assert (result["why_not"], result["rules"]) == ("", PostprocessingRules(gtvn_volume_ml=1.5))
    for split, groups in (("folds", 5), ("centres", 4)):
        assert [rules.gtvn_volume_ml for rules in result["rules_by_group"][split].values()] == [1.5] * groups


def test_a_gain_of_2026_is_relative_to_the_weights_of_2026() -> None:
    """Eight false nodes gain too little and forty gain enough.

    All 400 patients have a node of 10 ml, and eight of them a false node of 1 ml and a DSC of GTVn of 20 / 21. The mean
    DSC gains 8 / 400 / 21 = 0.00095, which is above its deviation. With the weight 0.125 the score gains 0.00012, or
    0.00048 of the sum of the weights, which is too little. Forty false nodes gain 0.0006, or 0.0024 of the weights.
    """
    plain, false = [Lesion(1, 20, True), Lesion(2, 10, True)], Lesion(2, 1, False)
    for number, expected in ((8, NO_RULES), (40, PostprocessingRules(gtvn_volume_ml=1.5))):
        nodes = [[*plain, false]] * number + [plain] * (400 - number)
        patients = [make_patient(place, f"C{place % 4}", lesions) for place, lesions in enumerate(nodes)]
        cohort = MaskCohort(patients, make_mask_score(load_edition("hecktor2026")))
        assert find_volumes(cohort, include_all(cohort)) == expected


def test_a_fold_without_references_has_the_rules_of_all_patients() -> None:
    """No patient with a reference belongs to the fold."""
    cohort = make_separable_cohort()
    folds = {"fold 0": ["no reference"], "fold 1": list_ids(cohort)[:20], "fold 2": list_ids(cohort)[20:]}
    fitted = fit_rules(cohort, {"folds": folds}, seed=1)
    assert fitted.by_group["folds"]["fold 0"] == find_volumes(cohort, include_all(cohort))


@pytest.mark.slow
@pytest.mark.parametrize("edition", ["hecktor2025", "hecktor2026"])
def test_at_most_one_null_cohort_in_twenty_has_a_rule(edition: str) -> None:
    """No rule helps in these cohorts, and at most two of 40 have a rule."""
    assert count_accepted(40, edition) <= 2


def make_patient_without_nodes(number: int, volume: int) -> PatientLesions:
    """Return a patient of 2026 whose reference has no node, and whose mask has a false node."""
    return make_patient(number, f"C{number % 4}", [Lesion(1, 20, True), Lesion(2, volume, False)])


def test_a_case_of_2026_with_little_gtvn_loses_its_nodes() -> None:
    """30 patients have a node of 10 ml, and 10 patients only a false node of 3 ml, above every minimum volume.

    Removing the false node raises the patient's DSC of GTVn from 0 to 1, the mean by 10 / 40, and the score by
    0.125 / 4 = 0.03125. Limits of 4, 6 and 10 ml for the total do so; a limit of 15 ml removes true nodes.
    """
    true = [make_patient(n, f"C{n % 4}", [Lesion(1, 20, True), Lesion(2, 10, True)]) for n in range(30)]
    cohort = MaskCohort(
        [*true, *(make_patient_without_nodes(n, 3) for n in range(30, 40))],
        make_mask_score(load_edition("hecktor2026")),
    )
    result = fit_record(cohort, make_splits(cohort))
    assert (result["why_not"], result["rules"]) == ("", PostprocessingRules(gtvn_total_ml=4.0))
    assert result["cross_fitted"]["centres"][SCORE].difference.value == pytest.approx(0.03125)
    assert result["decisions"] == dict.fromkeys(
        ("gtvp_volume_ml", "gtvn_volume_ml", "gtvn_suv_max"), "no limit gains enough"
    ) | {"gtvn_total_ml": ""}


def test_a_limit_of_uptake_is_found_where_volumes_are_equal() -> None:
    """40 patients have a true node of SUV 8 and a false node of SUV 2.2, both of 5 ml; a limit of 2.5 separates them.

    DSCagg and F1 rise from 2 / 3 to 1, and the score by (1 / 3 + 1 / 3) / 4 = 1 / 6.
    """
    nodes = [Lesion(1, 20, True), Lesion(2, 5, True), Lesion(2, 5, False)]
    plain = [make_patient(number, f"C{number % 4}", nodes) for number in range(40)]
    uptake = np.array([12.0, 8.0, 2.2])
    tables = [replace(patient.table, measures=replace(patient.table.measures, suv_max=uptake)) for patient in plain]
    cohort = make_cohort([replace(patient, table=table) for patient, table in zip(plain, tables, strict=True)])
    result = fit_record(cohort, make_splits(cohort))
    assert (result["why_not"], result["rules"]) == ("", PostprocessingRules(gtvn_suv_max=2.5))
    assert result["cross_fitted"]["folds"][SCORE].difference.value == pytest.approx(1 / 6)


def test_cross_fitted_rules_come_from_the_other_patients() -> None:
    """Rules from the other patients are applied even though they remove the true nodes of the outlying group."""
    nodes = [Lesion(1, 20, True), Lesion(2, 10, True), Lesion(2, 1, False)]
    normal = [make_patient(number, f"C{number % 3}", nodes) for number in range(36)]
    odd = [make_patient(100 + n, "C3", [Lesion(1, 20, True), Lesion(2, 1, True)]) for n in range(4)]
    cohort = make_cohort([*normal, *odd])
    inside = np.array([place >= len(normal) for place in range(len(cohort.patients))], dtype=np.float64)
    rules = find_volumes(cohort, 1 - inside)
    assert rules.gtvn_volume_ml == 1.5
    counts = assemble_counts(cohort, {"odd": inside}, {"odd": rules})
    assert counts[36:, 4].tolist() == [0, 0, 0, 0]
    assert counts[:36, 4].tolist() == [2] * 36  # of no group, so unfiltered


MeasuredPatients = tuple[list[ReleaseCase], WorkFolders, list[PatientLesions]]


@pytest.fixture(scope="module")
def cases_and_tables(tmp_path_factory: pytest.TempPathFactory) -> MeasuredPatients:
    cases, work = write_patients(tmp_path_factory.mktemp("work"), ["A", "B", "C", "A", "B"], np.random.default_rng(5))
    return cases, work, [measure_patient(case, work) for case in cases]


def load_mask_rules() -> MaskRules:
    rules = load_profile("hecktor2025").find_task("segmentation").answers["segmentation"].rules
    assert isinstance(rules, MaskRules)
    return rules


def draw_settings(count: int) -> list[PostprocessingRules]:
    """Draw settings of all rules, each with about half of the rules in use."""
    rng = np.random.default_rng(11)

    def pick(*values: float) -> float:
        return float(rng.choice(values))

    return [
        PostprocessingRules(
            largest_gtvp_only=bool(rng.integers(2)),
            gtvp_volume_ml=pick(0, 0.5, 1.5),
            gtvn_volume_ml=pick(0, 0.5, 1.5),
            gtvn_mean_probability=pick(0, 0.6, 0.7),
            gtvn_suv_max=pick(0, 3.0, 4.0),
            gtvn_total_ml=pick(0, 2.0, 5.0),
        )
        for _ in range(count)
    ]


def count_in_images(case: ReleaseCase, work: WorkFolders, rules: PostprocessingRules) -> list[float]:
    """Return voxels and lesions of a mask that is filtered as an image and compared by the evaluation."""
    ct, pet = read_images(work, case)
    mask = apply_rules(read_logits(work, case.patient_id), pet, ct.geometry, rules)[0].argmax(0).astype(np.uint8)
    reference = read_volume(label_path(work.raw, case), np.uint8).array
    _, primary, nodes = count_overlaps(reference, mask, 3)
    lesions = compare_lesions(reference == labels.GTVN, mask == labels.GTVN, load_mask_rules()).counts
    predicted = lesions.true_positives + lesions.false_positives
    sizes = [primary.intersection, primary.predicted, nodes.intersection, nodes.predicted]
    return [*map(float, sizes), float(predicted), float(lesions.true_positives)]


def test_counts_of_tables_equal_those_of_images(cases_and_tables: MeasuredPatients) -> None:
    cases, work, tables = cases_and_tables
    for rules, (number, case) in itertools.product(draw_settings(30), enumerate(cases)):
        assert list(tables[number].count(rules, load_mask_rules())) == count_in_images(case, work, rules), (
            rules,
            case,
        )


def test_probabilities_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    work = WorkFolders(tmp_path)
    path = work.probabilities("MDA-001")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"MDA-001\.npz: unreadable"):
        read_logits(work, "MDA-001")
