"""The counts of the fast search equal those of masks that are decided and evaluated one by one."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from algorithm.decisions.apply import decide
from algorithm.decisions.rules import NO_DECISIONS, Decisions
from algorithm.heads.measure import image_features
from baseline.decisions.cohort import Cohort
from baseline.decisions.tables import ALL_THRESHOLDS, PatientTables, read_logits, read_scans, tables_of
from baseline.release.cases import ReleaseCase
from baseline.release.data_set import label_path
from baseline.work import WorkFolders
from contract import labels
from contract.errors import InputError
from contract.images.volumes import read_volume
from evaluation.editions.profile import load_profile
from evaluation.metrics.lesions import compare_lesions
from evaluation.metrics.overlap import count_overlaps
from evaluation.metrics.rules import MaskRules
from tests.baseline.decisions.patients import write_patients

Prepared = tuple[list[ReleaseCase], WorkFolders, list[PatientTables]]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    cases, work = write_patients(tmp_path_factory.mktemp("work"), 5, np.random.default_rng(5))
    return cases, work, [tables_of(case, work, with_stages=True) for case in cases]


def mask_rules() -> MaskRules:
    rules = load_profile("hecktor2025").task("segmentation").answers["segmentation"].rules
    assert isinstance(rules, MaskRules)
    return rules


def random_settings(count: int) -> list[Decisions]:
    """Settings of all rules, each with about half of them in use."""
    rng = np.random.default_rng(11)

    def pick(*values: float) -> float:
        return float(rng.choice(values))

    result = []
    for number in range(count):
        foreground, gtvp = ALL_THRESHOLDS[number % len(ALL_THRESHOLDS)]
        result.append(
            Decisions(
                foreground_threshold=foreground,
                gtvp_threshold=gtvp,
                one_label_share=pick(0, 0.2, 0.5),
                largest_gtvp_only=bool(rng.integers(2)),
                gtvp_volume_ml=pick(0, 0.5, 1.5),
                gtvp_mean_probability=pick(0, 0.6, 0.8),
                gtvp_max_probability=pick(0, 0.9),
                gtvn_volume_ml=pick(0, 0.5, 1.5),
                gtvn_mean_probability=pick(0, 0.6, 0.7),
                gtvn_max_probability=pick(0, 0.8, 0.95),
                gtvn_suv_max=pick(0, 3.0, 4.0),
                gtvn_suv_peak=pick(0, 3.0),
                gtvn_distance_mm=None if rng.integers(2) else 40.0,
                gtvn_contralateral_probability=pick(0, 0.7),
            )
        )
    return result


def naive_counts(case: ReleaseCase, work: WorkFolders, setting: Decisions) -> list[float]:
    """Voxels and lesions of a mask that is decided as an image and compared by the evaluation."""
    scans = read_scans(work, case)
    mask = decide(read_logits(work, case.patient_id), scans, setting)[0].argmax(0).astype(np.uint8)
    reference = read_volume(label_path(work.raw, case), np.uint8).array
    _, primary, nodes = count_overlaps(reference, mask, 3)
    lesions = compare_lesions(reference == labels.GTVN, mask == labels.GTVN, mask_rules()).counts
    found = lesions.true_positives + lesions.false_positives
    sizes = [primary.intersection, primary.predicted, nodes.intersection, nodes.predicted]
    return [*map(float, sizes), float(found), float(lesions.true_positives)]


def test_counts_of_tables_equal_those_of_images(prepared: Prepared) -> None:
    cases, work, tables = prepared
    cohort, checked = Cohort(tables, mask_rules()), random_settings(28)
    assert {setting.thresholds for setting in checked} == set(ALL_THRESHOLDS)
    for setting, (number, case) in itertools.product(checked, enumerate(cases)):
        counts = cohort.counts([setting])
        names = ("gtvp_common", "gtvp_predicted", "gtvn_common", "gtvn_predicted", "nodes", "true_nodes")
        fast = [float(getattr(counts, name)[0, number]) for name in names]
        assert fast == naive_counts(case, work, setting), (setting, case.patient_id)


def test_settings_counted_together_or_alone_give_the_same(prepared: Prepared) -> None:
    cohort = Cohort(prepared[2], mask_rules())
    same = [setting for setting in random_settings(70) if setting.thresholds == (0.5, 0.5)]
    together = cohort.counts(same)
    for number, setting in enumerate(same):
        np.testing.assert_array_equal(together.gtvn_common[number], cohort.counts([setting]).gtvn_common[0])


def test_stages_of_tables_follow_the_rule_of_the_seventh_edition(prepared: Prepared) -> None:
    """N of the decided mask in nearly all cases, since the tables take the side of the largest primary alone."""
    cases, work, tables = prepared
    cohort, same = Cohort(tables, mask_rules()), 0
    checked = [Decisions(largest_gtvp_only=True, gtvn_volume_ml=volume) for volume in (0, 0.5, 1.0, 2.0, 4.0, 8.0)]
    for setting, (number, case) in itertools.product(checked, enumerate(cases)):
        scans = read_scans(work, case)
        mask = decide(read_logits(work, case.patient_id), scans, setting)[0].argmax(0).astype(np.uint8)
        features, counts = image_features(mask, scans.ct, scans.pet, scans.grid), cohort.counts([setting])
        t_stage = counts.t_stage[0, number]
        assert (None if np.isnan(t_stage) else t_stage) == features["t_stage_7th"]
        same += counts.n_stage[0, number] == features["n_stage_7th"]
    assert same >= 28


def test_probabilities_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    work = WorkFolders(tmp_path)
    path = work.probabilities("MDA-001")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"MDA-001\.npz: unreadable"):
        read_logits(work, "MDA-001")


def test_no_decisions_are_the_argmax_of_the_stored_probabilities(prepared: Prepared) -> None:
    cases, work, _ = prepared
    logits = read_logits(work, cases[0].patient_id)
    after, _ = decide(logits, read_scans(work, cases[0]), NO_DECISIONS)
    np.testing.assert_array_equal(after.argmax(0), logits.argmax(0))
