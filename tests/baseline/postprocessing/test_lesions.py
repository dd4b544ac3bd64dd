"""The counts of the tables equal those of masks that are filtered and evaluated one by one."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from algorithm.masks.postprocessing import apply_rules
from baseline.postprocessing.lesions import PatientLesions, measure_patient, read_images, read_logits
from baseline.release.cases import ReleaseCase, label_path
from baseline.work import WorkFolders
from contract import labels
from contract.errors import InputError
from contract.images.volumes import read_volume
from contract.packages import PostprocessingRules
from evaluation.editions.profile import load_profile
from evaluation.metrics.lesions import compare_lesions
from evaluation.metrics.overlap import count_overlaps
from evaluation.metrics.rules import MaskRules
from tests.baseline.postprocessing.patients import write_patients

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
