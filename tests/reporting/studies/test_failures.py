"""Whether an expected DSC predicts which masks failed: figures by hand, edge cases, and the command end to end."""

from __future__ import annotations

import json

import pytest

from contract.errors import HecktorError, PredictionError
from evaluation.editions.profile import load_profile
from evaluation.inputs.submission import SubmittedAnswer
from evaluation.metrics.lesions import ComparedLesions, FalseVoxels, LesionCounts
from evaluation.metrics.overlap import Overlap
from evaluation.rows.mask import ComparedLabel, MaskRow, make_mask_row
from evaluation.rows.scorer import make_table
from reporting.studies.failures import build_risk_coverage_curve, pair_dsc, read_expected_dsc
from tests.evaluation.tables import read_lines
from tests.evaluation.tasks import SEGMENTATION
from tests.reporting.studies.runs import run_study


def pair_expected_dsc(expected, shared, failed_below=0.5):
    """Pair expected DSCs with GTVps of ten voxels in reference and mask, `shared` in both: a DSC of shared / 10."""
    answers = [SubmittedAnswer(f"P{n}", None, value=value) for n, value in enumerate(expected)]
    rules = load_profile("hecktor2025").mask_rules
    lesions = ComparedLesions(LesionCounts(0, 0, 0), FalseVoxels())
    gtvn = ComparedLabel(Overlap(0, 0, 0), FalseVoxels(), rules.gtvn_empty, lesions)
    rows = [
        make_mask_row(f"P{n}", 1.0, ComparedLabel(Overlap(both, 10, 10), FalseVoxels(), rules.gtvp_empty), gtvn)
        for n, both in enumerate(shared)
    ]
    return pair_dsc("gtvp", make_table(rows, MaskRow), answers, failed_below)


def get_values(pairs):
    return {name: metric.value for name, metric in pairs.estimate(0, 1).by_metric.items()}


def test_four_cases_by_hand():
    """DSC 0.9, 0.4, 0.7, 0.2, expected 0.8, 0.7, 0.6, 0.3: risks by falling expectation 0.1, 0.6, 0.3, 0.8.

    Curve 0.1, 0.7 / 2, 1 / 3, 1.8 / 4; the oracle's 0.1, 0.2, 1 / 3, 0.45; random order's 0.45. Ranks 4, 3, 2, 1
    and 4, 2, 3, 1: rho 1 - 6 * 2 / (4 * 15) = 0.8. The cases expected at 0.7 and 0.3 failed: of the four pairs with
    0.8 and 0.6 all but (0.6, 0.7) are right. Errors -0.1, 0.3, -0.1, 0.1.
    """
    pairs = pair_expected_dsc([0.8, 0.7, 0.6, 0.3], [9, 4, 7, 2])
    own, oracle = (0.1 + 0.35 + 1 / 3 + 0.45) / 4, (0.1 + 0.2 + 1 / 3 + 0.45) / 4
    assert get_values(pairs) == pytest.approx(
        {
            "spearman": 0.8,
            "mean_error": 0.05,
            "mean_absolute_error": 0.15,
            "aurc": own,
            "excess_aurc": own - oracle,
            "below_random": 0.45 - own,
            "oracle_aurc": oracle,
            "random_aurc": 0.45,
            "failed_auc": 0.75,
        }
    )
    lines = build_risk_coverage_curve("gtvp", pairs)
    assert [line["risk"] for line in lines] == pytest.approx([0.1, 0.35, 1 / 3, 0.45])
    assert [line["oracle_risk"] for line in lines] == pytest.approx([0.1, 0.2, 1 / 3, 0.45])
    assert [(line["kept"], line["coverage"]) for line in lines] == [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1)]


def test_expected_dsc_of_a_rehearsal(tmp_path):
    """Three cases: with an expected DSC, without a record, and missing; older records have no expected DSC."""
    path = tmp_path / "rehearsal.json"
    cases = [{"case": "P0", "record": {"expected_dsc": {"GTVp": 0.8, "GTVn": None}}}, {"case": "P1", "record": None}]
    path.write_text(json.dumps({"cases": cases}))
    expected = read_expected_dsc(path, ["P0", "P1", "P2"])
    assert [answer.value for answer in expected.answers["gtvp"]] == [0.8, None, None]
    assert [answer.problem for answer in expected.answers["gtvn"]] == [
        "no expected DSC of gtvn",
        "no record",
        "no record",
    ]
    assert (expected.unknown, expected.duplicate, expected.missing) == ([], [], ["P1", "P2"])
    for content, message in (
        ({"cases": [{"case": "P0", "record": {}}]}, r"rehearsal\.json: no expected_dsc in its records"),
        (
            {"cases": [{"case": "P0", "record": {"expected_dsc": {"GTVp": 2}}}]},
            r"json: P0: no expected_dsc from 0 to 1",
        ),
        ({"cases": {}}, r"rehearsal\.json: no cases with their records"),
        ([], r"rehearsal\.json: no cases with their records"),
    ):
        path.write_text(json.dumps(content))
        with pytest.raises(PredictionError, match=message):
            read_expected_dsc(path, ["P0"])


def test_expected_dsc_of_a_folder_of_records(tmp_path):
    """Two of three cases have a record, one without a pass of a network; another patient's is unknown."""
    for name, expected in (("P0", {"GTVp": 0.8, "GTVn": None}), ("P1", {}), ("other", {"GTVp": 0.5})):
        (tmp_path / f"{name}.json").write_text(json.dumps({"expected_dsc": expected}))
    expected = read_expected_dsc(tmp_path, ["P0", "P1", "P2"])
    assert {label: [answer.value for answer in answers] for label, answers in expected.answers.items()} == {
        "gtvp": [0.8, None, None],
        "gtvn": [None, None, None],
    }
    assert [answer.problem for answer in expected.answers["gtvp"]] == [None, "no expected DSC of gtvp", "no record"]
    assert (expected.unknown, expected.duplicate, expected.missing) == (["other"], [], ["P2"])
    (tmp_path / "P2.json").write_text("[]")
    with pytest.raises(PredictionError, match=r"P2\.json: no expected_dsc from 0 to 1"):
        read_expected_dsc(tmp_path, ["P0"])


def test_one_case_none_and_a_mask_at_the_bound():
    """DSC 0.5 is not below 0.5; it is below 0.6, and correctly separated from 0.9."""
    metrics = pair_expected_dsc([0.5], [8]).estimate(30, 1).by_metric
    assert metrics["spearman"].value is None
    assert (metrics["aurc"].value, metrics["aurc"].ci95_low, metrics["aurc"].ci95_high) == pytest.approx(
        (0.2, 0.2, 0.2)
    )
    without_expected = pair_expected_dsc([None, None], [5, 2])
    assert set(get_values(without_expected).values()) == {None}
    assert (without_expected.failed_without_expected, build_risk_coverage_curve("gtvp", without_expected)) == (1, [])
    assert get_values(pair_expected_dsc([0.4, 0.8], [5, 9]))["failed_auc"] is None
    assert get_values(pair_expected_dsc([0.4, 0.8], [5, 9], failed_below=0.6))["failed_auc"] == 1


# The command


@pytest.fixture
def metrics(phase_of, blank):
    """Write four cases: GTVp of four voxels; the mask has 4, 2 and no voxels, and P4 has no mask.

    DSC 1, 2 * 2 / 6 and 0 twice. P1 has a GTVn of two voxels, one in the mask: DSC 2 / 3.
    """
    phase = phase_of(SEGMENTATION)
    for case, voxels in (("P1", 4), ("P2", 2), ("P3", 0), ("P4", None)):
        truth, mask = blank(), blank()
        truth[2, 2, :4] = 1
        if case == "P1":
            truth[5, 5, :2], mask[5, 5, 0] = 2, 2
        phase.add_truth_mask(case, truth)
        if voxels is not None:
            mask[2, 2, :voxels] = 1
            phase.add_mask(case, mask)
    phase.run()
    return phase.output_dir / "metrics.json"


def study(metrics, tmp_path, table, *more):
    (tmp_path / "expected.csv").write_text(table)
    options = ["--expected", tmp_path / "expected.csv", "--bootstraps", 20]
    return run_study("failures", tmp_path / "out", metrics, *options, *more)


def test_end_to_end(metrics, tmp_path, capsys):
    """Only P1 and P2 have an expected DSC of the GTVp, in the right order; P3 and P4 failed."""
    table = "PatientID;gtvp_expected_dsc;gtvn_expected_dsc\nP1;0,9;0.5\nP2;0,8;\nP3;;\nP9;0,3;\n"
    content = study(metrics, tmp_path, table)
    assert (content["cases"], content["unknown"], content["duplicate"], content["missing"]) == (4, ["P9"], [], ["P4"])
    gtvp, gtvn = content["labels"]["gtvp"], content["labels"]["gtvn"]
    assert (gtvp["cases"], gtvp["failed"], gtvp["failed_without_expected"]) == (2, 0, 2)
    assert gtvp["without_expected"] == [
        {"case": "P3", "why": "no gtvp_expected_dsc"},
        {"case": "P4", "why": "no prediction"},
    ]
    assert gtvp["aggregates"]["spearman"]["value"] == pytest.approx(1)
    assert gtvp["aggregates"]["mean_error"]["value"] == pytest.approx((0.9 - 1 + 0.8 - 2 / 3) / 2)
    assert gtvp["aggregates"]["failed_auc"]["value"] is None
    # No voxel in mask and reference of P2 and P3; P4 has no mask, which counts as DSC 0.
    assert (gtvn["cases"], gtvn["without_dsc"]) == (1, ["P2", "P3"])
    assert gtvn["aggregates"]["aurc"]["value"] == pytest.approx(1 / 3)
    lines = [(line["label"], line["kept"]) for line in read_lines(tmp_path / "out" / "failures.csv")]
    assert lines == [("gtvp", "1"), ("gtvp", "2"), ("gtvn", "1")]
    printed = capsys.readouterr()
    assert printed.err == "warning: P9: not a case of the metrics.json\nwarning: P4: no row in the table, no record\n"
    assert "gtvp: 2 cases, 0 failed; 2 without an expected DSC, of which 2 failed" in printed.out


def test_one_column_is_enough_and_a_bad_line_fails_only_its_case(metrics, tmp_path):
    table = "PatientID,gtvp_expected_dsc\nP1,0.9\nP2,1.5\nP3,0.2\nP3,0.1\nP4,0\n"
    content = study(metrics, tmp_path, table, "--failed-below", "0.7")
    assert set(content["labels"]) == {"gtvp"}
    assert content["duplicate"] == ["P3"]
    why = {entry["case"]: entry["why"] for entry in content["labels"]["gtvp"]["without_expected"]}
    assert why == {
        "P2": "expected.csv, line 3: gtvp_expected_dsc 1.5, expected a number from 0 to 1",
        "P3": "2 rows, expected one",
    }
    # P1 with DSC 1, and P4 without a mask, expected at 0.
    assert content["labels"]["gtvp"]["failed"] == 1
    assert content["labels"]["gtvp"]["failed_without_expected"] == 2
    assert content["labels"]["gtvp"]["aggregates"]["failed_auc"]["value"] == 1


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("PatientID,gtvp\nP1,0.9\n", "columns PatientID, gtvp"),
        ("gtvp_expected_dsc\n0.9\n", "columns gtvp_expected_dsc"),
        ("PatientID,gtvp_expected_dsc\nP1,\nP7,0.9\n", "expected.csv: no case has a true and an expected DSC"),
    ],
)
def test_tables_that_cannot_be_used(metrics, tmp_path, table, message):
    with pytest.raises(HecktorError, match=message):
        study(metrics, tmp_path, table)
    assert not (tmp_path / "out").exists()


def test_metrics_that_cannot_be_used(metrics, tmp_path):
    content = json.loads(metrics.read_text())
    content["provenance"]["options"]["missing"] = "skip"
    metrics.write_text(json.dumps({**content, "aggregates": {}}))
    result = study(metrics, tmp_path, "PatientID,gtvp_expected_dsc\nP1,0.9\nP2,0.8\nP3,0.1\nP4,0.1\n")
    assert (result["not_counted"], result["labels"]["gtvp"]["cases"]) == (["P4"], 3)
    metrics.write_text(json.dumps({**content, "results": []}))
    with pytest.raises(HecktorError, match=r"no rows of masks"):
        study(metrics, tmp_path, "PatientID,gtvp_expected_dsc\nP1,0.9\n")
