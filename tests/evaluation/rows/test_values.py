"""Risks and classes, end to end."""

from __future__ import annotations

import json

import numpy as np
import pytest

from contract.errors import MetricError, PredictionError
from evaluation import evaluate
from evaluation.editions.profile import load_profile
from evaluation.metrics.survival import RISK_METRICS, RiskCohort, SurvivalCohort
from evaluation.rows.classes import ClassRow, ClassScorer
from evaluation.rows.scorer import build_metrics
from tests.evaluation.tasks import HPV, RFS

FOLLOW_UP = "PatientID;Relapse;RFS\nP1;1;1\nP2;1;2\nP3;0;3\nP4;1;4\nP5;;\n"


@pytest.fixture
def rfs(phase_of):
    phase = phase_of(RFS)
    phase.add_truth_table(FOLLOW_UP, encoding="utf-8-sig")
    return phase


@pytest.fixture
def hpv(phase_of):
    """Three patients are positive, two negative, one is unknown."""
    phase = phase_of(HPV)
    phase.add_truth_table("PatientID,HPV Status\nP1,1\nP2,1.0\nP3,1\nP4,0\nP5,0\nP6,\n")
    return phase


def evaluate_answers(phase, **texts):
    for case, text in texts.items():
        phase.add_value(case, text)
    return phase.run()


def test_c_index_counts_a_patient_without_target_apart(rfs):
    report = evaluate_answers(rfs, P1="4", P2="3.0", P3="2", P4="1", P5="9")
    assert report["aggregates"]["c_index"]["value"] == 1.0
    cases = report["cases"]
    assert (cases["in_ground_truth"], cases["used"]) == (5, 4)
    assert cases["skipped"] == {"no_target_in_ground_truth": ["P5"]}
    assert cases["unknown"] == []
    target = {"rfs_days": 2.0, "relapse": True}
    assert report["results"][1] == {"case": "P2", "error": None, "failed": False, "risk": 3.0, **target}


def test_hpv_by_hand(hpv):
    """Positive: 2 of 3 right, negative: 1 of 2; P5's 0 is no boolean and thus wrong."""
    report = evaluate_answers(hpv, P1="true", P2="true", P3="false", P4="false", P5="0")
    values = {name: figures["value"] for name, figures in report["aggregates"].items()}
    assert values == pytest.approx({"balanced_accuracy": 7 / 12, "sensitivity": 2 / 3, "specificity": 1 / 2})
    assert report["provenance"]["redraws"] > 0


@pytest.fixture
def warnings_of(tmp_path):
    """Evaluate answers to HPV, 0 or 1, None for a missing one, perhaps with probabilities, and return the warnings."""

    def run(truth, answers, probabilities=None, bootstraps=200):
        names = [f"CHUV-{i:03d}" for i in range(len(truth))]
        lines = [f"{name},{int(value)}" for name, value in zip(names, truth, strict=True)]
        (tmp_path / "truth.csv").write_text("\n".join(["PatientID,HPV Status", *lines]))
        lines = [
            f"{name},{int(value)},{'' if probabilities is None else probabilities[i]}"
            for i, (name, value) in enumerate(zip(names, answers, strict=True))
            if value is not None
        ]
        (tmp_path / "answers.csv").write_text("\n".join(["PatientID,hpv,probability", *lines]))
        options = {"task": "hpv", "predictions": tmp_path / "answers.csv", "bootstraps": bootstraps}
        return evaluate(tmp_path / "truth.csv", **options).to_dict()["warnings"]

    return run


@pytest.mark.parametrize("bootstraps", [0, 200])
def test_inverted_classes_are_a_warning(warnings_of, bootstraps):
    """With two inverted classes the balanced accuracy is 0, where chance is 0.5."""
    truth = [i % 3 > 0 for i in range(30)]
    assert warnings_of(truth, [not positive for positive in truth], bootstraps=bootstraps) == [
        "balanced_accuracy is 0.000, below chance (0.5 for 2 classes): are the classes inverted?"
    ]


def test_the_probability_of_the_other_class_is_a_warning(warnings_of):
    truth = [i % 3 > 0 for i in range(30)]
    inverted = [0.1 if positive else 0.9 for positive in truth]
    assert warnings_of(truth, truth, inverted) == [
        "auc is 0.000, below chance (0.5): is it the probability of the other class? (expected: the probability of class true)"
    ]
    assert warnings_of(truth, truth, [1 - value for value in inverted]) == []


def test_chance_of_stages_is_one_in_the_stages_that_occur():
    """T1, T2 and T4 occur: a balanced accuracy of 1/3 is chance. All of one stage is 1/3, all wrong 0."""
    stage = load_profile("hecktor2026").find_task(None).answers["t_stage"].answer
    actual = ["T1"] * 10 + ["T2"] * 10 + ["T4"] * 10
    next_stage = {"T1": "T2", "T2": "T4", "T4": "T3"}
    lines = []
    for predicted in (["T1"] * 30, [next_stage[value] for value in actual]):
        rows = [
            ClassRow(case=f"P{number}", predicted=prediction, probability=None, actual=reference)
            for number, (reference, prediction) in enumerate(zip(actual, predicted, strict=True))
        ]
        scorer = ClassScorer(stage)
        measurement = scorer.measure(scorer.make_table(rows))
        value = float(measurement.metrics["balanced_accuracy"](np.ones((1, 30)))[0])
        lines.append(measurement.warnings["balanced_accuracy"](value, value))
    assert lines == [
        None,
        "balanced_accuracy is 0.000, below chance (0.333 for 3 classes): are the classes inverted?",
    ]


def test_a_job_without_a_ct_is_unknown(rfs):
    rfs.add_value("P1", "1")
    rfs.add_value("P2", "2")
    rfs.jobs[0]["inputs"] = []
    report = rfs.run()
    assert report["cases"]["unknown"] == ["job job-0 without a CT's name"]
    assert "P1" in report["cases"]["missing"]


def test_options_change_what_counts(rfs):
    """NaN as a tie gives the golden 0.7; a time turns every pair; without P2 the two pairs left are concordant."""
    for case, text in {"P1": "4", "P2": "NaN", "P3": "2", "P4": "1"}.items():
        rfs.add_value(case, text)

    def c_index(**rules):
        report = rfs.run(options=rules)
        return report["aggregates"]["c_index"]["value"], report

    assert c_index(missing_risk="tie")[0] == pytest.approx(0.7)
    assert c_index(direction="time")[0] == 0.0
    value, report = c_index(missing="skip")
    assert value == 1.0
    assert report["cases"]["skipped"]["no_usable_prediction"] == ["P2"]
    with pytest.raises(PredictionError, match="P2"):
        c_index(missing="stop")
    rfs.jobs = rfs.jobs[1:2]
    with pytest.raises(PredictionError, match="none of 4"):
        c_index(missing="skip")


@pytest.mark.parametrize(
    ("task", "table", "message"),
    [
        (RFS, "PatientID,Relapse,RFS\nA,0,5\nB,0,6\n", "no comparable pair"),
        (HPV, "PatientID,HPV Status\nA,1\nB,1\n", "only one class"),
    ],
)
def test_a_reference_that_cannot_be_scored_is_an_error_and_no_file(phase_of, task, table, message):
    phase = phase_of(task)
    phase.add_truth_table(table)
    phase.add_value("A", "1" if task is RFS else "true")
    with pytest.raises(MetricError, match=message):
        phase.run()
    assert not phase.output_dir.exists()


def test_a_flipped_sign_is_a_warning(rfs):
    """With risks in the order 1, 3, 4, 2 two of five pairs are right, and the interval of four patients contains 0.5.

    Without an interval the value decides.
    """
    paths = [rfs.add_job(f"P{number}") for number in range(1, 5)]

    def run(risks, **changes):
        for path, risk in zip(paths, risks, strict=True):
            path.write_text(risk)
        report = rfs.run(**changes)
        return report["aggregates"]["c_index"], report["warnings"][0]

    figures, warning = run("1234")
    assert figures["value"] == 0.0
    assert "sign may be flipped" in warning
    assert "higher = earlier" in warning
    assert "sign may be flipped" in run("1432", bootstraps=0)[1]
    figures, warning = run("1432", bootstraps=200)
    assert figures["ci95_high"] > 0.5
    assert "sign may be flipped" not in warning


def test_the_horizons_of_the_aucs_are_years() -> None:
    """Recurrence after 200, 300 and 366 days with risks 3, 1 and 0; followed for 400 and 800 days with risks 2 and 0.5.

    No patient is censored before the last recurrence, so that every pair counts once. After one year (365.25 days) the
    first two have recurred and the other three not: of the pairs 3 against 0, 2, 0.5 and 1 against 0, 2, 0.5 only
    1 against 2 is wrong, 5/6. After two years three have recurred and one is followed for longer: 3, 1 and 0 against
    0.5, 2/3. No patient is followed for three years.
    """
    patients = SurvivalCohort(
        times_days=np.array([200.0, 300.0, 366.0, 400.0, 800.0]),
        events=np.array([True, True, True, False, False]),
        risks=np.array([3.0, 1.0, 0.0, 2.0, 0.5]),
    )
    cohort, once = RiskCohort(patients, "tie"), np.ones((1, 5))
    metrics = build_metrics(RISK_METRICS, cohort)
    aucs = {name: metric(once)[0] for name, metric in metrics.items() if name.startswith("auc_")}
    assert aucs == {
        "auc_1y": pytest.approx(5 / 6),
        "auc_2y": pytest.approx(2 / 3),
        "auc_3y": pytest.approx(np.nan, nan_ok=True),
    }


@pytest.mark.parametrize("text", ["NaN", '"3"', None])
def test_an_unusable_risk_is_non_concordant(rfs, text):
    """Of the pairs (1,2) (1,3) (1,4) (2,3) (2,4) those with patient 2 are lost: 2 of 5 remain."""
    texts = {"P1": "4", "P3": "2", "P4": "1"} | ({"P2": text} if text else {})
    report = evaluate_answers(rfs, **texts)
    assert report["aggregates"]["c_index"]["value"] == pytest.approx(0.4)
    listed = report["cases"]["missing"] if text is None else [item["case"] for item in report["cases"]["failed"]]
    assert listed == ["P2"]
    written = (rfs.output_dir / "metrics.json").read_text()
    json.loads(written, parse_constant=lambda constant: pytest.fail(f"{constant} in metrics.json"))
