"""Whether the uncertainty finds the bad cases: figures by hand and against plain code, and the sentences they lead to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from baseline.report.trust import judge_trust, lesion_auc_metric
from baseline.report.trust_section import in_words, trust_section

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
    trust = judge_trust("GTVp", records, dsc, draws=50, seed=0)
    assert (trust.true_dsc.size, trust.missed) == (PATIENTS, 1)
    found = {name: one.value for name, one in trust.estimates["expected_dsc"].items()}
    assert found["spearman"] == pytest.approx(1)
    assert found["mean_error"] == found["mean_absolute_error"] == pytest.approx(0.1)
    assert found["excess_aurc"] == pytest.approx(0)
    assert found["aurc"] == pytest.approx(area(truth, 1 - truth))
    flat = trust.estimates["pairwise_dsc"]
    assert flat["spearman"].value is None
    assert flat["aurc"].value == pytest.approx(0.5)
    assert trust.lesions == {"all": 2 * PATIENTS, "false": PATIENTS}
    assert trust.lesion_auc.value == 1
    plain = trust.as_json()
    assert plain["random_aurc"] == pytest.approx(0.5)
    assert plain["oracle_aurc"] == pytest.approx(found["aurc"])
    nodes = judge_trust("GTVn", records, dict.fromkeys(records), draws=50, seed=0)
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


@pytest.mark.parametrize(
    ("expected", "says"),
    [
        (RISING + 0.1, ("finds the bad cases (Spearman's rho 1.00", "from 0.500 to 0.562", "promises 0.100 too much")),
        (RISING[::-1], ("misleads: it is higher where the mask is worse",)),
        (RISING - 0.1, ("promises 0.100 too little",)),
        (
            np.tile([0.3, 0.7], PATIENTS // 2),
            ("cannot be said from this many patients", "neither too high nor too low"),
        ),
        (np.full(PATIENTS, 0.5), ("the rank correlation of expected and true DSC does not exist",)),
    ],
    ids=["finds", "misleads", "too little", "unsure", "flat"],
)
def test_the_verdict_in_words(expected: np.ndarray, says: tuple[str, ...]) -> None:
    """Of 40 DSCs from 0.2 to 0.8 the upper 32 have the mean (0.2 + 8 x 0.6 / 39 + 0.8) / 2 = 0.562."""
    records, rows = cohort(expected, RISING)
    content, plain = trust_section(records, rows, draws=100, seed=0)
    for text in says:
        assert text in plain["in_words"][0]
    assert content.count("<svg") == 2
    assert plain["in_words"][-2] == "GTVn: no patient whose expected and true DSC could be compared."


def test_what_was_missed_and_what_was_invented() -> None:
    records = {"A": record(0.5, lesions=[(0.9, 0.4), (0.3, 0.0)]), "B": record(None)}
    trust = judge_trust("GTVp", records, {"A": 0.5, "B": 0.0}, draws=20, seed=0)
    _, missed, lesions = in_words("GTVp", trust)
    assert missed == "1 patient has a GTVp of which the mask has nothing: DSC 0, with no expected DSC to warn of it."
    assert lesions.startswith("GTVp: 1 of 2 lesions found do not touch the reference; their mean probability tells")


def test_nothing_kept() -> None:
    content, plain = trust_section({}, [], draws=10, seed=0)
    assert "expected `hecktor train heads` before" in content
    assert plain == {}


def test_figures_are_plain_data() -> None:
    records, rows = cohort(RISING, RISING)
    _, plain = trust_section(records, rows, draws=20, seed=0)
    assert plain["GTVp"]["patients"] == PATIENTS
    assert plain["GTVp"]["expected_dsc"]["spearman"] == vars(Estimate(1.0, 1.0, 1.0))
