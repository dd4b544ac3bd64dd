"""Agreement of the uncertainty with the DSC: figures by hand and against plain code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baseline.report.sections import uncertainty_section
from baseline.report.uncertainty import estimate_uncertainty, lesion_auc_metric
from evaluation.statistics.bootstrap import Estimate
from evaluation.studies.failures.risk_coverage import area

PATIENTS = 40


def record(expected: float | None, pairwise: float | None = 0.8, lesions: Any = ()) -> dict[str, Any]:
    """A patient whose GTVp is as sure as `expected`, and who has no GTVn."""
    none = {"expected_dsc": None, "pairwise_dsc": None}
    rows = [
        {"label": "GTVp", "mean_probability": probability, "reference_overlap": overlap}
        for probability, overlap in lesions
    ]
    return {"labels": {"GTVp": {"expected_dsc": expected, "pairwise_dsc": pairwise}, "GTVn": none}, "lesions": rows}


# Figures


def test_lesions_told_apart_by_hand() -> None:
    """True 0.9 and 0.6, false 0.6 and 0.2: pairs won 1, 1, a half and 1 of four. Twice the first patient, with the true
    0.9 and the false 0.2: pairs 4, 2 and 2, 1; won 4, 2 and 2, a half of 9."""
    case, found = np.array([0, 0, 1, 1]), np.array([True, False, True, False])
    auc = lesion_auc_metric(case, found, np.array([0.9, 0.2, 0.6, 0.6]), 3)
    weights = np.array([[1.0, 1, 1], [2, 1, 0], [1, 0, 5], [0, 0, 1]])
    np.testing.assert_allclose(auc(weights), [3.5 / 4, 8.5 / 9, 1, np.nan])


def test_one_label_of_a_cohort() -> None:
    """Expected DSCs 0.1 above the true ones and in their order; one patient missed, one without the label."""
    truth = np.linspace(0.2, 0.8, PATIENTS)
    records = {f"P{n}": record(value + 0.1, 0.5, [(value, 0.5), (0.1, 0.0)]) for n, value in enumerate(truth)}
    dsc: dict[str, float | None] = {f"P{n}": float(value) for n, value in enumerate(truth)}
    records |= {"missed": record(None), "none": record(None)}
    dsc |= {"missed": 0.0, "none": None}
    uncertainty = estimate_uncertainty("GTVp", records, dsc, draws=50, seed=0)
    assert (uncertainty.true_dsc.size, uncertainty.missed) == (PATIENTS, 1)
    found = {name: one.value for name, one in uncertainty.estimates["expected_dsc"].items()}
    assert found["spearman"] == pytest.approx(1)
    assert found["mean_error"] == found["mean_absolute_error"] == pytest.approx(0.1)
    assert found["excess_aurc"] == pytest.approx(0)
    assert found["aurc"] == pytest.approx(area(truth, 1 - truth))
    flat = uncertainty.estimates["pairwise_dsc"]
    assert flat["spearman"].value is None
    assert flat["aurc"].value == pytest.approx(0.5)
    assert uncertainty.lesions == {"all": 2 * PATIENTS, "false": PATIENTS}
    assert uncertainty.lesion_auc.value == 1
    plain = uncertainty.as_json()
    assert plain["random_aurc"] == pytest.approx(0.5)
    assert plain["oracle_aurc"] == pytest.approx(found["aurc"])
    nodes = estimate_uncertainty("GTVn", records, dict.fromkeys(records), draws=50, seed=0)
    assert (nodes.true_dsc.size, nodes.missed, dict(nodes.values)) == (0, 0, {})
    assert nodes.as_json()["oracle_aurc"] is None


# Words and the section


def cohort(expected: np.ndarray, truth: np.ndarray) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Records and the evaluation's rows, in voxels of 1000 each in mask and reference."""
    records = {f"P{n}": record(float(value)) for n, value in enumerate(expected)}
    rows: list[dict[str, Any]] = [
        {
            "case": f"P{n}",
            **dict.fromkeys(("gtvp_reference_voxels", "gtvp_predicted_voxels"), 1000),
            **dict.fromkeys(("gtvn_intersection_voxels", "gtvn_reference_voxels", "gtvn_predicted_voxels"), 0),
            "gtvp_intersection_voxels": round(1000 * value),
        }
        for n, value in enumerate(truth)
    ]
    return records, rows


RISING = np.linspace(0.2, 0.8, PATIENTS)


def test_missed_patients_and_false_lesions() -> None:
    """Patient B has a GTVp that the mask misses; of the lesions in A one lies outside the reference."""
    records = {"A": record(0.5, lesions=[(0.9, 0.4), (0.3, 0.0)]), "B": record(None)}
    uncertainty = estimate_uncertainty("GTVp", records, {"A": 0.5, "B": 0.0}, draws=20, seed=0)
    assert (uncertainty.missed, uncertainty.lesions) == (1, {"all": 2, "false": 1})
    assert uncertainty.bounds == {"oracle_aurc": 0.5, "random_aurc": 0.5}


def test_no_records() -> None:
    content, plain = uncertainty_section({}, [], draws=10, seed=0)
    assert "expected `hecktor train heads` before" in content
    assert plain == {}


def test_figures_are_plain_data() -> None:
    records, rows = cohort(RISING, RISING)
    content, plain = uncertainty_section(records, rows, draws=20, seed=0)
    assert content.count("<svg") == 2
    row = f"<tr><td>GTVp</td><td>expected DSC</td><td>{PATIENTS}</td><td>0</td>"
    assert row + '<td><span class="value">1.000</span> <span class="interval">1.000 to 1.000' in content
    assert plain["GTVp"]["patients"] == PATIENTS
    assert plain["GTVp"]["expected_dsc"]["spearman"] == vars(Estimate(1.0, 1.0, 1.0))
