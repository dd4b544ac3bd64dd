"""Invariants of all metrics: the order of cases, doubling of the cohort, the order of lesions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.editions.profile import load_profile
from evaluation.metrics.lesions import ComparedLesions, FalseVoxels, LesionCounts
from evaluation.metrics.overlap import Overlap
from evaluation.metrics.surface import SurfaceValues
from evaluation.rows.classes import ClassRow
from evaluation.rows.mask import ComparedLabel, make_mask_row
from evaluation.rows.risk import RiskRow
from tests.evaluation.tasks import HPV, RFS, SEGMENTATION


def make_mask_row_of(number, rng):
    def draw_overlap():
        both = int(rng.integers(0, 50))
        return Overlap(both, both + int(rng.integers(0, 30)), both + int(rng.integers(0, 30)))

    surface = SurfaceValues(
        "measured", {"hd95_mm": rng.choice([1.5, 2.5, np.inf]), "asd_mm": rng.random(), "surface_dsc": rng.random()}
    )
    lesions = ComparedLesions(LesionCounts(*rng.integers(0, 4, 3).tolist()), FalseVoxels())
    rules = load_profile("hecktor2021").find_task(SEGMENTATION.name).answers["segmentation"].rules
    voxel_mm3 = float(rng.choice([0.5, 3.0]))
    gtvp = ComparedLabel(draw_overlap(), FalseVoxels(), rules.gtvp_empty, surface=surface)
    gtvn = ComparedLabel(draw_overlap(), FalseVoxels(), rules.gtvn_empty, lesions)
    return make_mask_row(f"P{number}", voxel_mm3, gtvp, gtvn)


def make_risk_row(number, rng):
    days = 10.0 if number == 0 else float(rng.integers(300, 1500))
    risk, error = (None, "absent") if rng.random() < 0.2 else (float(rng.integers(0, 6)), None)
    relapse = bool(number == 0 or rng.random() < 0.4)
    return RiskRow(case=f"P{number}", risk=risk, rfs_days=days, relapse=relapse, error=error)


def make_class_row(number, rng):
    probability = None if rng.random() < 0.2 else round(float(rng.random()), 1)
    predicted = bool(rng.random() < 0.5)
    return ClassRow(case=f"P{number}", predicted=predicted, probability=probability, actual=number % 2 == 0)


MAKERS = {SEGMENTATION.name: make_mask_row_of, RFS.name: make_risk_row, HPV.name: make_class_row}


def compute_values(task, rows):
    profile = load_profile("hecktor2021" if task == SEGMENTATION.name else "hecktor2025").find_task(task)
    (answer,) = profile.answers.values()
    metrics = answer.scorer.measure(answer.scorer.make_table(rows)).metrics
    return {name: float(metric(np.ones((1, len(rows))))[0]) for name, metric in metrics.items()}


@pytest.mark.parametrize("task", list(MAKERS))
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), count=st.integers(2, 12))
def test_order_and_doubling_of_the_cohort_change_no_metric(task, seed, count):
    rng = np.random.default_rng(seed)
    rows = [MAKERS[task](number, rng) for number in range(count)]
    values = compute_values(task, rows)
    assert len(values) >= 3
    shuffled = [rows[index] for index in rng.permutation(count)]
    assert compute_values(task, shuffled) == pytest.approx(values, nan_ok=True)
    assert compute_values(task, [*rows, *rows]) == pytest.approx(values, nan_ok=True)
