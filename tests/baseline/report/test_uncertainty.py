"""Agreement of the uncertainty with the DSC: figures by hand and against plain code."""

from __future__ import annotations

import numpy as np
import pytest

from baseline.report.sections import estimate_uncertainty, uncertainty_section
from evaluation.metrics.confidence import area
from evaluation.statistics.bootstrap import Estimate
from tests.baseline.report.records import uncertain_cohort, uncertainty_record

PATIENTS = 40


def test_one_label_of_a_cohort() -> None:
    """Expected DSCs 0.1 above the true ones and in their order; one patient missed, one without the label."""
    truth = np.linspace(0.2, 0.8, PATIENTS)
    records = {f"P{n}": uncertainty_record(value + 0.1) for n, value in enumerate(truth)}
    dsc: dict[str, float | None] = {f"P{n}": float(value) for n, value in enumerate(truth)}
    records |= {"missed": uncertainty_record(None), "none": uncertainty_record(None)}
    dsc |= {"missed": 0.0, "none": None}
    uncertainty = estimate_uncertainty("GTVp", records, dsc, draws=50, seed=0)
    assert (uncertainty.true_dsc.size, uncertainty.missed) == (PATIENTS, 1)
    found = {name: one.value for name, one in uncertainty.estimates.items()}
    assert found["spearman"] == pytest.approx(1)
    assert found["mean_error"] == found["mean_absolute_error"] == pytest.approx(0.1)
    assert found["excess_aurc"] == pytest.approx(0)
    assert found["aurc"] == pytest.approx(area(truth, 1 - truth))
    plain = uncertainty.as_json()
    assert plain["random_aurc"] == pytest.approx(0.5)
    assert plain["oracle_aurc"] == pytest.approx(found["aurc"])
    nodes = estimate_uncertainty("GTVn", records, dict.fromkeys(records), draws=50, seed=0)
    assert (nodes.true_dsc.size, nodes.missed, dict(nodes.estimates)) == (0, 0, {})
    assert nodes.as_json()["oracle_aurc"] is None


# Words and the section


RISING = np.linspace(0.2, 0.8, PATIENTS)


def test_no_records() -> None:
    content, plain = uncertainty_section({}, [], draws=10, seed=0)
    assert "expected `hecktor train heads` before" in content
    assert plain == {}


def test_figures_are_plain_data() -> None:
    records, rows = uncertain_cohort(RISING, RISING)
    content, plain = uncertainty_section(records, rows, draws=20, seed=0)
    assert f'<th scope="row">GTVp</th><td data-sort="{PATIENTS}">{PATIENTS}</td><td data-sort="0">0</td>' in content
    row = '<th scope="row">GTVp</th><td data-sort="1">'
    assert row + '<span class="value">1.000</span> <span class="interval">1.000 to 1.000' in content
    assert plain["GTVp"]["patients"] == PATIENTS
    assert plain["GTVp"]["expected_dsc"]["spearman"] == vars(Estimate(1.0, 1.0, 1.0))
