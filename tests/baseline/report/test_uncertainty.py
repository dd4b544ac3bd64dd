"""Agreement of the uncertainty with the DSC: figures by hand and against plain code."""

from __future__ import annotations

import numpy as np
import pytest

from baseline.report.sections import uncertainty_section
from baseline.report.uncertainty import estimate_uncertainty, lesion_auc_metric
from evaluation.statistics.bootstrap import Estimate
from evaluation.studies.risk_coverage import area
from tests.baseline.report.records import charts_of, uncertain_cohort, uncertainty_record

PATIENTS = 40


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
    records = {
        f"P{n}": uncertainty_record(value + 0.1, 0.5, [(value, 0.5), (0.1, 0.0)]) for n, value in enumerate(truth)
    }
    dsc: dict[str, float | None] = {f"P{n}": float(value) for n, value in enumerate(truth)}
    records |= {"missed": uncertainty_record(None), "none": uncertainty_record(None)}
    dsc |= {"missed": 0.0, "none": None}
    uncertainty = estimate_uncertainty("GTVp", records, dsc, draws=50, seed=0)
    assert (uncertainty.true_dsc.size, uncertainty.missed) == (PATIENTS, 1)
    assert uncertainty.cases == tuple(f"P{n}" for n in range(PATIENTS))
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


RISING = np.linspace(0.2, 0.8, PATIENTS)


def test_no_records() -> None:
    content, plain = uncertainty_section({}, [], draws=10, seed=0, centres={})
    assert "expected `hecktor train heads` before" in content
    assert plain == {}


def test_figures_are_plain_data() -> None:
    records, rows = uncertain_cohort(RISING, RISING)
    content, plain = uncertainty_section(records, rows, draws=20, seed=0, centres={"P0": "CHUM"})
    assert charts_of(content) == ["uncertainty-expected-dsc", "uncertainty-risk-coverage"]
    assert f'<th scope="row">GTVp</th><td data-sort="{PATIENTS}">{PATIENTS}</td><td data-sort="0">0</td>' in content
    row = '<td>GTVp</td><th scope="row">expected DSC</th><td data-sort="1">'
    assert row + '<span class="value">1.000</span> <span class="interval">1.000 to 1.000' in content
    assert plain["GTVp"]["patients"] == PATIENTS
    assert plain["GTVp"]["expected_dsc"]["spearman"] == vars(Estimate(1.0, 1.0, 1.0))
