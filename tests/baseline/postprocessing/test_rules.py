"""Rules gain and hold elsewhere, and their cross-fitted figures use no patient of the group."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

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
from tests.baseline.postprocessing.null_cohorts import count_accepted, splits_of
from tests.baseline.postprocessing.patients import write_patients

EDITION = load_edition("hecktor2025")
# Label, voxels of 1 ml, whether it lies in the reference (wholly or not at all).
Row = tuple[int, int, bool]


def lesion(label: int, voxels: int, true: bool) -> Row:
    return label, voxels, true


def patient(number: int, centre: str, lesions: list[Row]) -> PatientLesions:
    """A patient whose true nodes are the reference's."""
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


def scored(patients: list[PatientLesions]) -> MaskCohort:
    return MaskCohort(patients, make_mask_score(EDITION))


def everyone(cohort: MaskCohort) -> np.ndarray:
    return np.ones(len(cohort.patients))


def ids(cohort: MaskCohort) -> list[str]:
    return [one.patient_id for one in cohort.patients]


def find_volumes(cohort: MaskCohort, members: np.ndarray) -> PostprocessingRules:
    """The minimum volumes of both labels for the members."""
    primary = find_limit(cohort, "gtvp_volume_ml", NO_RULES, members)
    return find_limit(cohort, "gtvn_volume_ml", primary, members)


def separable() -> MaskCohort:
    """40 patients with a primary, a true node of 10 to 12 ml and a false one of 1 ml."""
    nodes = [[lesion(2, 10 + number % 3, True), lesion(2, 1, False)] for number in range(40)]
    return scored([patient(number, f"C{number % 4}", [lesion(1, 20, True), *of]) for number, of in enumerate(nodes)])


def test_the_score_of_2025_weighs_metrics_as_its_nested_borda() -> None:
    """Half GTVp; the other half is that of the nested Borda of GTVn's aggregated DSC and F1."""
    assert make_mask_score(EDITION).weights == {"gtvp_dsc_mean": 0.5, "gtvn_dsc_agg": 0.25, "gtvn_f1_agg": 0.25}


def test_the_score_of_2026_is_that_of_its_masks() -> None:
    """0.25 x half for each mean DSC; stages and the C-index are other answers."""
    weights = make_mask_score(load_edition("hecktor2026")).weights
    assert weights == pytest.approx({"gtvp_dsc_mean": 0.125, "gtvn_dsc_mean": 0.125})


def test_the_score_of_a_ranking_by_cases_is_that_of_its_metric() -> None:
    content = json.loads((files("contract.editions") / "hecktor2025.json").read_text()) | {"name": "own"}
    content["scoring"]["segmentation"]["ranking"]["schemes"]["nested_borda"] = {
        "borda": [{"mean_case_rank": "gtvp_dsc_mean"}, {"significant_wins": "gtvn_f1_agg"}]
    }
    assert make_mask_score(parse_edition(content, "own.json")).weights == {"gtvp_dsc_mean": 0.5, "gtvn_f1_agg": 0.5}


def test_a_volume_that_separates_false_nodes_is_found() -> None:
    """The true nodes have 14 x 10 + 13 x 11 + 13 x 12 = 439 ml, the false ones 40. Unfiltered: DSC of GTVp 1, DSCagg
    2 x 439 / (439 + 479) = 0.9564, F1 2 / (2 + 1) = 0.6667, score 0.5 + (0.9564 + 0.6667) / 4 = 0.9058; filtered all are 1.
    Both 1.5 and 2 ml separate: the smaller one is taken.
    """
    cohort = separable()
    rules = find_volumes(cohort, everyone(cohort))
    assert rules == PostprocessingRules(gtvn_volume_ml=1.5)
    figures = estimate_gains(cohort, cohort.counts(rules), seed=1)[SCORE]
    before = 0.5 + (2 * 439 / 918 + 2 / 3) / 4
    assert (figures.unfiltered, figures.filtered) == (pytest.approx(before), pytest.approx(1))
    assert figures.difference.ci95_low is not None
    assert figures.difference.ci95_high is not None
    assert 0.09 < figures.difference.ci95_low < 1 - before < figures.difference.ci95_high < 0.1


def test_both_labels_have_a_volume_of_their_own() -> None:
    """A false GTVp of 1 ml beside the same nodes."""
    lesions = [lesion(1, 20, True), lesion(1, 1, False), lesion(2, 10, True), lesion(2, 1, False)]
    cohort = scored([patient(number, f"C{number % 4}", lesions) for number in range(40)])
    found = find_volumes(cohort, everyone(cohort))
    assert found == PostprocessingRules(gtvp_volume_ml=1.5, gtvn_volume_ml=1.5)
    assert float(cohort.total(found)(np.ones((1, 40)))[0]) == pytest.approx(1)


def test_without_false_lesions_there_are_no_rules() -> None:
    cohort = scored([patient(n, f"C{n % 3}", [lesion(1, 20, True), lesion(2, 10, True)]) for n in range(30)])
    assert find_volumes(cohort, everyone(cohort)) == NO_RULES


def test_a_gain_within_its_noise_is_not_taken() -> None:
    """A volume removes the false nodes of two patients and the true node of a third: a gain in two of three only."""
    plain, false, true = [lesion(1, 20, True), lesion(2, 10, True)], lesion(2, 1, False), lesion(2, 1, True)
    more = [[*plain, false], [*plain, false], [*plain, true]]
    cohort = scored([patient(number, f"C{number % 3}", nodes) for number, nodes in enumerate([plain] * 37 + more)])
    gain = estimate_gains(cohort, cohort.counts(PostprocessingRules(gtvn_volume_ml=1.5)), seed=1)[SCORE].difference
    assert 0.001 < gain.value < 0.01
    assert find_volumes(cohort, everyone(cohort)) == NO_RULES


def with_false_nodes(number: int) -> MaskCohort:
    """40 patients: a volume removes the false nodes of this number of patients, and the true node of one other."""
    plain, false, true = [lesion(1, 20, True), lesion(2, 10, True)], lesion(2, 1, False), lesion(2, 1, True)
    more = [*([[*plain, false]] * number), [*plain, true]]
    nodes = [*([plain] * (40 - len(more))), *more]
    return scored([patient(place, f"C{place % 4}", of_patient) for place, of_patient in enumerate(nodes)])


def test_a_gain_of_few_deviations_is_not_accepted() -> None:
    """Five false nodes and a true one: whoever is left out, the others gain at least 4 - 1 nodes, above the standard
    deviation sqrt(4 + 1), so that each group gets the volume. The cross-fitted gain of 5 - 1 nodes is 4 / sqrt(6) = 1.6 of
    its deviations: as much is gained in one null cohort in eight.
    """
    cohort = with_false_nodes(5)
    result = fit_record(cohort, splits_of(cohort))
    assert result["rules"] == NO_RULES
    found = "GTVn, minimum volume in ml: with limits found without the patient's fold, the score changes by +0.0"
    assert found in result["why_not"]
    assert set(result["rules_by_group"]["folds"].values()) == {NO_RULES}


def test_a_gain_of_several_deviations_is_accepted() -> None:
    """Twelve false nodes and a true one: 11 / sqrt(13) = 3.05 deviations."""
    cohort = with_false_nodes(12)
    result = fit_record(cohort, splits_of(cohort))
    assert (result["why_not"], result["rules"]) == ("", PostprocessingRules(gtvn_volume_ml=1.5))
    for split, groups in (("folds", 5), ("centres", 4)):
        assert [rules.gtvn_volume_ml for rules in result["rules_by_group"][split].values()] == [1.5] * groups


def test_a_gain_of_2026_is_not_held_to_the_weights_of_2025() -> None:
    """Of 400 nodes of 10 ml in 400 patients eight have a false one of 1 ml beside them, whose DSC is 20 / 21: the mean
    of the DSC of GTVn gains 8 / 400 / 21 = 0.00095, with weight 0.125 0.00012 and above its deviation. With weights of
    sum 1 that is 0.00048 of them: too little. Forty false ones gain 0.0006, 0.0024 of the weights, which is enough."""
    plain, false = [lesion(1, 20, True), lesion(2, 10, True)], lesion(2, 1, False)
    for number, expected in ((8, NO_RULES), (40, PostprocessingRules(gtvn_volume_ml=1.5))):
        nodes = [[*plain, false]] * number + [plain] * (400 - number)
        patients = [patient(place, f"C{place % 4}", lesions) for place, lesions in enumerate(nodes)]
        cohort = MaskCohort(patients, make_mask_score(load_edition("hecktor2026")))
        assert find_volumes(cohort, everyone(cohort)) == expected


def test_a_fold_without_references_has_the_rules_of_all_patients() -> None:
    """None of them is its own."""
    cohort = separable()
    folds = {"fold 0": ["no reference"], "fold 1": ids(cohort)[:20], "fold 2": ids(cohort)[20:]}
    fitted = fit_rules(cohort, {"folds": folds}, seed=1)
    assert fitted.by_group["folds"]["fold 0"] == find_volumes(cohort, everyone(cohort))


@pytest.mark.slow
@pytest.mark.parametrize("edition", ["hecktor2025", "hecktor2026"])
def test_at_most_one_null_cohort_in_twenty_has_a_rule(edition: str) -> None:
    """Of 40 cohorts in which no rule helps at most two have a rule."""
    assert count_accepted(40, edition) <= 2


def without_nodes(number: int, volume: int) -> PatientLesions:
    """A patient of 2026 whose reference has no node, and whose mask has a false one."""
    return patient(number, f"C{number % 4}", [lesion(1, 20, True), lesion(2, volume, False)])


def test_a_case_of_2026_with_little_gtvn_has_none() -> None:
    """30 patients with a node of 10 ml, and 10 without one whose mask has a false node of 3 ml, more
    than a minimum volume may be. Removing it raises the patient's DSC of GTVn from 0 to 1, the mean by 10 / 40, and the
    score by 0.125 / 4 = 0.03125. Totals of 4, 6 and 10 ml do so, but a total of 15 ml removes true nodes.
    """
    true = [patient(n, f"C{n % 4}", [lesion(1, 20, True), lesion(2, 10, True)]) for n in range(30)]
    cohort = MaskCohort(
        [*true, *(without_nodes(n, 3) for n in range(30, 40))], make_mask_score(load_edition("hecktor2026"))
    )
    result = fit_record(cohort, splits_of(cohort))
    assert (result["why_not"], result["rules"]) == ("", PostprocessingRules(gtvn_total_ml=4.0))
    assert result["cross_fitted"]["centres"][SCORE].difference.value == pytest.approx(0.03125)
    assert result["decisions"] == dict.fromkeys(
        ("gtvp_volume_ml", "gtvn_volume_ml", "gtvn_suv_max"), "no limit gains enough"
    ) | {"gtvn_total_ml": ""}


def test_a_gate_of_uptake_is_found_where_volumes_tell_nothing() -> None:
    """40 patients with a true and a false node of 5 ml, of SUV 8 and 2.2: from 2.5 on only the true one stays. DSCagg
    rises from 2 / 3 to 1 and F1 from 2 / 3 to 1, the score by (1 / 3 + 1 / 3) / 4 = 1 / 6.
    """
    nodes = [lesion(1, 20, True), lesion(2, 5, True), lesion(2, 5, False)]
    plain = [patient(number, f"C{number % 4}", nodes) for number in range(40)]
    uptake = np.array([12.0, 8.0, 2.2])
    measures = [replace(one.table.measures, suv_max=uptake) for one in plain]
    cohort = scored(
        [replace(one, table=replace(one.table, measures=of_one)) for one, of_one in zip(plain, measures, strict=True)]
    )
    result = fit_record(cohort, splits_of(cohort))
    assert (result["why_not"], result["rules"]) == ("", PostprocessingRules(gtvn_suv_max=2.5))
    assert result["cross_fitted"]["folds"][SCORE].difference.value == pytest.approx(1 / 6)


def test_cross_fitted_rules_come_from_the_other_patients() -> None:
    """The outlying group's true nodes are below the volume that the others need: it is applied all the same."""
    nodes = [lesion(1, 20, True), lesion(2, 10, True), lesion(2, 1, False)]
    normal = [patient(number, f"C{number % 3}", nodes) for number in range(36)]
    odd = [patient(100 + n, "C3", [lesion(1, 20, True), lesion(2, 1, True)]) for n in range(4)]
    cohort = scored([*normal, *odd])
    inside = np.array([place >= len(normal) for place in range(len(cohort.patients))], dtype=np.float64)
    rules = find_volumes(cohort, 1 - inside)
    assert rules.gtvn_volume_ml == 1.5
    counts = assemble_counts(cohort, {"odd": inside}, {"odd": rules})
    assert counts[36:, 4].tolist() == [0, 0, 0, 0]
    assert counts[:36, 4].tolist() == [2] * 36  # of no group, so unfiltered


Prepared = tuple[list[ReleaseCase], WorkFolders, list[PatientLesions]]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    cases, work = write_patients(tmp_path_factory.mktemp("work"), 5, np.random.default_rng(5))
    return cases, work, [measure_patient(case, work) for case in cases]


def mask_rules() -> MaskRules:
    rules = load_profile("hecktor2025").task("segmentation").answers["segmentation"].rules
    assert isinstance(rules, MaskRules)
    return rules


def random_settings(count: int) -> list[PostprocessingRules]:
    """Settings of all rules, each with about half of them in use."""
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


def naive_counts(case: ReleaseCase, work: WorkFolders, rules: PostprocessingRules) -> list[float]:
    """Voxels and lesions of a mask that is filtered as an image and compared by the evaluation."""
    ct, pet = read_images(work, case)
    mask = apply_rules(read_logits(work, case.patient_id), pet, ct.geometry, rules)[0].argmax(0).astype(np.uint8)
    reference = read_volume(label_path(work.raw, case), np.uint8).array
    _, primary, nodes = count_overlaps(reference, mask, 3)
    lesions = compare_lesions(reference == labels.GTVN, mask == labels.GTVN, mask_rules()).counts
    found = lesions.true_positives + lesions.false_positives
    sizes = [primary.intersection, primary.predicted, nodes.intersection, nodes.predicted]
    return [*map(float, sizes), float(found), float(lesions.true_positives)]


def test_counts_of_tables_equal_those_of_images(prepared: Prepared) -> None:
    cases, work, tables = prepared
    for rules, (number, case) in itertools.product(random_settings(30), enumerate(cases)):
        assert list(tables[number].counts(rules, mask_rules())) == naive_counts(case, work, rules), (rules, case)


def test_probabilities_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    work = WorkFolders(tmp_path)
    path = work.probabilities("MDA-001")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"MDA-001\.npz: unreadable"):
        read_logits(work, "MDA-001")
