"""HECKTOR 2026: the score of four answers by hand and against loops, from the platform's layout and from plain files."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from contract.errors import PredictionError
from contract.images.volumes import Volume, write_mask
from evaluation import evaluate, rank
from evaluation.cli import main
from evaluation.editions.profile import load_profile
from evaluation.metrics.overlap import WeightedSum
from evaluation.rows.mask import flatten_row
from reporting.report.cli import main as report
from reporting.viewer.cohort import ViewerRequest, find_cohort
from tests.evaluation.staging import (
    ANSWERS,
    COMBINED,
    EDITION,
    TABLE,
    make_mask,
    make_predictions,
    make_references,
    write_jobs,
    write_plain,
    write_truth,
)
from tests.reporting.cohorts import write_case

BY_HAND = {
    "gtvp_dsc_mean": 5 / 8,
    "gtvn_dsc_mean": 1 / 2,
    "dsc_mean": 9 / 16,
    "gtvp_dsc_agg": 3 / 5,
    "gtvn_dsc_agg": 1 / 2,
    "dsc_agg_mean": 11 / 20,
    "t_balanced_accuracy": 1 / 2,
    "t_recall_T1": 1 / 2,
    "t_recall_T2": 1.0,
    "t_recall_T3": None,
    "t_recall_T4": 0.0,
    "t_accuracy": 1 / 2,
    "n_balanced_accuracy": 5 / 6,
    "n_accuracy": 3 / 4,
    "tn_balanced_accuracy": 2 / 3,
    "c_index": 3 / 8,
    "score": 0.25 * 9 / 16 + 0.35 * 2 / 3 + 0.4 * 3 / 8,
    "score_pooled_dsc": 0.25 * 11 / 20 + 0.35 * 2 / 3 + 0.4 * 3 / 8,
}


@pytest.fixture
def truth(tmp_path, grid):
    return write_truth(tmp_path / "truth", grid)


@pytest.fixture
def plain(tmp_path, grid):
    return write_plain(tmp_path / "plain", make_predictions(grid), ANSWERS, grid)


def run(truth, **more: Any) -> dict[str, Any]:
    return evaluate(truth, edition="hecktor2026", bootstraps=more.pop("bootstraps", 20), **more).to_dict()


def get_values(report):
    return {name: figures["value"] for name, figures in report["aggregates"].items()}


def get_failures(report):
    return {entry["case"]: entry["why"] for entry in report["cases"]["failed"]}


def test_every_metric_by_hand(truth, tmp_path, grid):
    """Both the platform's layout and plain files give the values of `BY_HAND`.

    DSC of GTVp: P1 1, P2 2 * 4 / 16, P3 1 (empty in both), P4 0 (missing): 5/8. GTVn: 1, 1 (empty in both), 0, 0: 1/2.
    Pooled GTVp: 2 (8 + 4) / (16 + 16 + 0 + 8) = 3/5; GTVn: 2 * 4 / (8 + 0 + 4 + 4) = 1/2.
    T: T1 1 of 2, T2 1 of 1, T4 0 of 1 (P5 has no answer), no T3, P4 is T0 and does not count: 1/2.
    N: N0 1 of 1, N2 1 of 2, N3 1 of 1: 5/6.
    Times: comparable are P1 with the four others, P2 with P3, P4 and P5, and P4 with P5. In order are P1 before P4, P2
    before P3, P2 before P4; pairs with P5, which has no answer, count 0: 3/8.
    """
    of_jobs = run(truth, submission=write_jobs(tmp_path / "jobs", make_predictions(grid), ANSWERS, grid))
    of_files = run(truth, predictions=write_plain(tmp_path / "plain", make_predictions(grid), ANSWERS, grid))
    assert of_jobs["aggregates"] == of_files["aggregates"]
    values = get_values(of_jobs)
    for name, value in BY_HAND.items():
        assert values[name] == (None if value is None else pytest.approx(value)), name
    assert next(iter(values)) == "score"
    intervals = of_jobs["aggregates"]
    assert all(intervals[name]["ci95_low"] is not None for name, value in BY_HAND.items() if value is not None)
    assert of_jobs["provenance"]["ranked_metrics"] == ["score"]
    assert of_jobs["provenance"]["options"]["rfs"]["direction"] == "time"
    terms = of_jobs["provenance"]["weighted_sums"]["score"]
    assert terms == pytest.approx(
        {
            "gtvp_dsc_mean": 0.125,
            "gtvn_dsc_mean": 0.125,
            "t_balanced_accuracy": 0.175,
            "n_balanced_accuracy": 0.175,
            "c_index": 0.4,
        }
    )


def test_cases_that_do_not_count_are_named(truth, tmp_path, grid, plain):
    """P5 has no mask, so that only its T stage and its RFS count; it is in the table and has no answer.

    Without a row P4 counts only as a mask, which is missing.
    """
    result = run(truth, predictions=plain)
    cases = result["cases"]
    assert (cases["in_ground_truth"], cases["used"], cases["answered"]) == (5, 5, 3)
    assert cases["missing"] == ["P5"]
    assert get_failures(result) == {"P4": "segmentation: no prediction"}
    assert cases["skipped"] == {
        "segmentation_no_target_in_ground_truth": ["P5"],
        "t_stage_class_not_counted": ["P4"],
        "n_stage_no_target_in_ground_truth": ["P5"],
    }
    assert set(result["results"][4]) == {"case", "t_stage", "rfs"}
    table = "".join(line for line in TABLE.splitlines(keepends=True) if not line.startswith("P4"))
    short = run(write_truth(tmp_path / "short", grid, table), predictions=plain)
    assert set(short["results"][3]) == {"case", "segmentation"}
    assert (short["cases"]["unknown"], short["cases"]["skipped"]["rfs_no_target_in_ground_truth"]) == ([], ["P4"])


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        ({"t_stage.not_counted": "class"}, "t_balanced_accuracy", (0 + 1 / 2 + 1 + 0) / 4),
        ({"not_counted": "class"}, "t_recall_T0", 0.0),
        ({"gtvp_empty": "skip"}, "gtvp_dsc_mean", (1 + 1 / 2 + 0) / 3),
        ({"gtvp_empty": "zero"}, "gtvp_dsc_mean", (1 + 1 / 2 + 0 + 0) / 4),
        ({"gtvn_empty": "skip"}, "gtvn_dsc_mean", (1 + 0 + 0) / 3),
        ({"gtvn_empty": "zero"}, "gtvn_dsc_mean", (1 + 0 + 0 + 0) / 4),
        ({"missing_risk": "tie"}, "c_index", (3 + 3 / 2) / 8),
    ],
)
def test_options(truth, plain, options, name, value):
    """T0 as a class of its own: P4 is wrong. A tie: each of the three pairs with P5 counts half."""
    result = run(truth, predictions=plain, options=options)
    assert get_values(result)[name] == pytest.approx(value)
    assert "t_stage_class_not_counted" not in result["cases"]["skipped"] or "class" not in options.values()


def test_stop_at_a_missing_stage(truth, plain):
    with pytest.raises(PredictionError, match="1 cases without a usable prediction of t_stage, P5: no prediction"):
        run(truth, predictions=plain, options={"t_stage.missing": "stop"})


def test_an_undefined_metric_leaves_its_sums_undefined(tmp_path, grid, plain):
    """With all reference T stages T1 the other metrics keep their values."""
    table = TABLE.replace("T2", "T1").replace("T4a", "T1")
    truth = write_truth(tmp_path / "one", grid, table)
    result = run(truth, predictions=plain)
    null = {"t_balanced_accuracy", "tn_balanced_accuracy", "score", "score_pooled_dsc"}
    assert {name for name, value in get_values(result).items() if value is None and name in BY_HAND} - {
        "t_recall_T2",
        "t_recall_T3",
        "t_recall_T4",
    } == null
    assert get_values(result)["dsc_mean"] == pytest.approx(BY_HAND["dsc_mean"])
    assert result["warnings"][:4] == [
        "score: null, since t_balanced_accuracy has no value",
        "tn_balanced_accuracy: null, since t_balanced_accuracy has no value",
        "t_balanced_accuracy: the reference contains only one class, expected at least two",
        "score_pooled_dsc: null, since t_balanced_accuracy has no value",
    ]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("t_stage", "T2a", 't-stage.json: found "T2a", expected "T1", "T2", "T3" or "T4"'),
        ("n_stage", ["N0"], 'n-stage.json: found ["N0"], expected "N0", "N1", "N2" or "N3"'),
        ("rfs", "300", "rfs.json: found a string, expected a number"),
    ],
)
def test_an_invalid_value_fails_only_its_answer(truth, tmp_path, grid, name, value, why):
    answers = {**ANSWERS, "P3": {**ANSWERS["P3"], name: value}}
    result = run(truth, submission=write_jobs(tmp_path / "jobs", make_predictions(grid), answers, grid))
    assert get_failures(result)["P3"] == f"{name}: {why}"
    row = result["results"][2]
    assert [answer for answer in row if answer != "case" and row[answer]["error"]] == [name]
    if name == "t_stage":
        assert get_values(result)["t_recall_T2"] == 0.0


@pytest.mark.parametrize(
    ("name", "slug", "path"),
    [
        ("segmentation", "tumor-lymph-node-segmentation", "images/tumor-lymph-node-segmentation"),
        ("t_stage", "tn-staging", "tn-staging.json"),
    ],
)
def test_an_output_under_a_stale_name_is_named(truth, tmp_path, grid, name, slug, path):
    masks = {case: mask for case, mask in make_predictions(grid).items() if (case, name) != ("P1", "segmentation")}
    answers = {**ANSWERS, "P1": {key: value for key, value in ANSWERS["P1"].items() if key != name}}
    jobs = write_jobs(tmp_path / "jobs", masks, answers, grid)
    content = json.loads((jobs / "predictions.json").read_text())
    for side in ("socket", "interface"):
        content[0]["outputs"][0][side] |= {"slug": slug, "relative_path": path}
    (jobs / "predictions.json").write_text(json.dumps(content))
    result = run(truth, submission=jobs)
    declared = COMBINED.find_answer(name).socket.relative_path
    assert get_failures(result)["P1"] == f"{name}: no {declared}, found {path} instead"
    assert result["results"][0][name]["failed"]


def test_a_declared_file_under_another_slug_is_no_stale_name(truth, tmp_path, grid):
    """N's own file is not named as the reason why T's is absent, since the organisers print no slugs of outputs."""
    answers = {**ANSWERS, "P1": {key: value for key, value in ANSWERS["P1"].items() if key != "t_stage"}}
    jobs = write_jobs(tmp_path / "jobs", make_predictions(grid), answers, grid)
    content = (jobs / "predictions.json").read_text()
    (jobs / "predictions.json").write_text(content.replace('"slug": "n-stage"', '"slug": "predicted-n-stage"'))
    result = run(truth, submission=jobs)
    assert get_failures(result)["P1"] == "t_stage: no t-stage.json"
    assert result["results"][0]["n_stage"]["predicted_n_stage"] == "N0"


def test_the_published_scores():
    """GASP: 0.25 * 0.652 + 0.35 * (0.461 + 0.564) / 2 + 0.40 * 0.558 = 0.565575, printed 0.5654 from exact inputs."""
    profile = load_profile("hecktor2026").find_task(None)
    printed = {
        "gtvp_dsc_mean": 0.652,
        "gtvn_dsc_mean": 0.652,
        "t_balanced_accuracy": 0.461,
        "n_balanced_accuracy": 0.564,
        "c_index": 0.558,
    }
    score = WeightedSum(
        [
            (weight, lambda weights, value=printed[name]: np.full(len(weights), value))
            for name, weight in profile.metrics["score"].terms.items()
        ]
    )(np.ones((1, 1)))[0]
    assert score == pytest.approx(0.565575)
    assert score == pytest.approx(0.5654, abs=0.0005)


def test_teams_are_ranked_by_the_score(truth, tmp_path, grid):
    """Theirs has the masks of ours and worse stages and times; the difference of scores is tested by its draws."""
    ours = {case: {**answers, "rfs": {"P1": 100.0, "P2": 200.0}.get(case, 400.0)} for case, answers in ANSWERS.items()}
    teams = {
        "ours": run(truth, predictions=write_plain(tmp_path / "ours", make_references(grid), ours, grid)),
        "theirs": run(truth, predictions=write_plain(tmp_path / "theirs", make_references(grid), ANSWERS, grid)),
    }
    board = rank(teams, bootstraps=40).to_dict()
    assert [(entry["team"], entry["rank"]) for entry in board["teams"]] == [("ours", 1), ("theirs", 2)]
    assert board["official"] == "score"
    tests = {name: comparison["test"] for name, comparison in board["comparisons"].items()}
    recalls = {f"{stage}_balanced_accuracy" for stage in ("t", "n", "tn")}
    assert tests == {name: f"{'recall' if name in recalls else 'bootstrap'}_difference" for name in tests}
    gain = {pair["team"]: pair["difference"] for pair in board["comparisons"]["score"]["pairs"]}
    expected = get_values(teams["ours"])["score"] - get_values(teams["theirs"])["score"]
    assert gain == {"ours": pytest.approx(expected), "theirs": pytest.approx(-expected)}
    assert board["stability"]["rankings"]["score"] == board["stability"]["metrics"]["score"]
    assert board["stability"]["metrics"]["score"]["kendall_tau"]["mean"] is not None
    assert rank(teams, official="score_pooled_dsc", bootstraps=0).to_dict()["official"] == "score_pooled_dsc"


def test_the_commands_without_a_task(truth, tmp_path, grid, capsys):
    """`evaluate` and `report` for two teams; the page shows the score, both structures and the stages."""
    from evaluation.ranking.cli import main as rank_command

    results = tmp_path / "results"
    for team, masks in (("ours", make_references(grid)), ("theirs", make_predictions(grid))):
        folder = write_plain(results / "task1" / team / "predictions", masks, ANSWERS, grid)
        arguments = ["--edition", "hecktor2026", "--predictions", str(folder), "--ground-truth", str(truth)]
        output = str(results / "task1" / team)
        assert main([*arguments, "--output", output, "--bootstraps", "20", "--workers", "0"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("score ")
    assert "rfs is read as a time, higher = later recurrence\n" in printed
    files = [str(results / "task1" / team / "metrics.json") for team in ("ours", "theirs")]
    assert rank_command([*files, "--output", str(results / "task1"), "--bootstraps", "20"]) == 0
    assert (results / "task1" / "leaderboard.csv").read_text().startswith("rank,team,score_value,score_ci95_low")
    cohort, scan = tmp_path / "images", Volume(np.ones(grid.array_shape, np.float32), grid)
    for case, mask in make_references(grid).items():
        write_case(cohort, case, Volume(mask, grid), scan, scan)
    page = tmp_path / "page.html"
    shown = ["--results", str(results), "--cases", "--cohort", str(cohort), "--workers", "0", "--max-patients", "1"]
    assert report([*shown, "--output", str(page)]) == 0
    text = page.read_text()
    for words in ("T and N balanced accuracy", "ours wins with score ", "GTVn DSC", "T stage T1 · N stage N0"):
        assert words in text, words
    listing = find_cohort(ViewerRequest(cohort, results)).listing
    assert listing["edition"] == EDITION.title, "the edition is that of the results"


def mean(parts):
    return sum(parts) / len(parts)


def compute_dsc_agg(drawn, label):
    rows = [flatten_row(row["segmentation"]) for row in drawn]
    volumes = [row[f"{label}_{side}_mm3"] for row in rows for side in ("reference", "predicted")]
    return 2 * sum(row[f"{label}_intersection_mm3"] for row in rows) / sum(volumes)


def compute_balanced_accuracy(drawn, name):
    recalls = []
    for value in sorted({row[name][name] for row in drawn}):
        members = [row[name] for row in drawn if row[name][name] == value]
        recalls.append(mean([float(row[f"predicted_{name}"] == value) for row in members]))
    return mean(recalls) if len(recalls) > 1 else None


def compute_c_index(drawn):
    points = []
    rows = [row["rfs"] for row in drawn]
    for first in rows:
        for second in rows:
            censored_then = second["rfs_days"] == first["rfs_days"] and not second["relapse"]
            if first["relapse"] and (second["rfs_days"] > first["rfs_days"] or censored_then):
                points.append(
                    1.0 if second["risk"] > first["risk"] else 0.5 if second["risk"] == first["risk"] else 0.0
                )
    return mean(points) if points else None


def compute_sums(drawn):
    """Compute the weighted sums of a list of rows by loops, with patients repeated; return None if a part is undefined."""
    t, n = (compute_balanced_accuracy(drawn, name) for name in ("t_stage", "n_stage"))
    c = compute_c_index(drawn)
    if None in (t, n, c):
        return None
    dsc = mean([mean([row["segmentation"][label]["dsc"] for row in drawn]) for label in ("gtvp", "gtvn")])
    pooled = mean([compute_dsc_agg(drawn, label) for label in ("gtvp", "gtvn")])
    rest = 0.35 * (t + n) / 2 + 0.4 * c
    return {
        "dsc_mean": dsc,
        "tn_balanced_accuracy": (t + n) / 2,
        "score": 0.25 * dsc + rest,
        "score_pooled_dsc": 0.25 * pooled + rest,
    }


def draw_cohort(tmp_path, grid, count, seed=5):
    """Write references and answers of patients with all classes, partly wrong; masks are shifted by up to two voxels."""
    rng = np.random.default_rng(seed)
    lines, masks, answers = ["PatientID,CenterID,T-stage,N-stage,RFS,Relapse"], {}, {}
    folder = tmp_path / "cohort"
    folder.mkdir()
    for number in range(count):
        case = f"R{number:02d}"
        nodes = bool(rng.random() < 0.7)
        write_mask(folder / f"{case}.mha", make_mask(grid, primary=2, nodes=nodes), grid)
        masks[case] = make_mask(grid, primary=2 + int(rng.integers(0, 3)), nodes=bool(rng.random() < 0.7))
        t, n, days = int(rng.integers(1, 5)), int(rng.integers(0, 4)), int(rng.integers(100, 1000))
        lines.append(f"{case},C,T{t},N{n},{days},{int(rng.random() < 0.6)}")
        guess = [int(rng.integers(low, low + 4)) for low in (1, 0)] if rng.random() < 0.5 else [t, n]
        answers[case] = {"t_stage": f"T{guess[0]}", "n_stage": f"N{guess[1]}", "rfs": float(rng.integers(1, 9)) * 100}
    (folder / "table.csv").write_text("\n".join(lines))
    return folder, write_plain(tmp_path / "answers", masks, answers, grid)


def test_intervals_of_weighted_sums_come_from_the_draws_of_their_parts(tmp_path, grid):
    """Replicates draw patients from their own streams, again while a ranked metric is undefined.

    Weighted sums of only fractions of patients need no draws.
    """
    truth, answers = draw_cohort(tmp_path, grid, 9)
    result = evaluate(truth, edition="hecktor2026", predictions=answers, bootstraps=60, seed=11).to_dict()
    rows = result["results"]
    drawn = []
    for stream in np.random.default_rng(11).spawn(60):
        values_of = None
        while values_of is None:
            values_of = compute_sums([rows[place] for place in stream.integers(0, len(rows), len(rows))])
        drawn.append(values_of)
    whole = compute_sums(rows)
    for name in whole.keys() - {"tn_balanced_accuracy"}:
        estimate = result["aggregates"][name]
        low, high = np.quantile([sums[name] for sums in drawn], [0.025, 0.975])
        assert (estimate["value"], estimate["ci95_low"], estimate["ci95_high"]) == pytest.approx(
            (whole[name], low, high)
        )
