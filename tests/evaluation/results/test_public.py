"""Public results and standard error reveal no number of the reference, no class of a case and no path."""

from __future__ import annotations

import json
import re
import shutil
from importlib.resources import files

import numpy as np
import pytest

from contract.errors import GroundTruthError, HecktorError
from contract.images.volumes import Volume, write_mask, write_volume
from evaluation.cli import main
from evaluation.editions.profile import load_profile
from evaluation.ranking.leaderboard import leaderboard
from evaluation.results.teams import load_teams
from evaluation.statistics.intervals import wilson_interval
from tests.evaluation.staging import ANSWERS, predictions, write_plain, write_truth
from tests.evaluation.tasks import HPV, RFS, SEGMENTATION


def test_a_public_file_holds_nothing_but_rounded_aggregates(phase_of, blank, capsys):
    """Eleven cases of two centres, one missing and one broken: no row, no centre, no name, no analysis, no seed."""
    phase = phase_of(SEGMENTATION)
    phase.truth_table("PatientID,CenterID\n" + "".join(f"P{n},{'few' if n < 3 else 'C'}\n" for n in range(11)))
    for number in range(11):
        mask = blank()
        mask.reshape(-1)[: 31 + number] = 1
        mask[7, 9, : 1 + number] = 2
        phase.truth_mask(f"P{number}", mask)
        if number == 1:
            (phase.job("P1") / "m.mha").write_bytes(b"no image")
        elif number != 2:
            phase.mask(f"P{number}", np.roll(mask, 1, axis=2))
    phase.input_dir.joinpath("predictions.json").write_text(json.dumps(phase.jobs))
    arguments = ["--task", "1", "--input", str(phase.input_dir), "--ground-truth", str(phase.truth_dir)]
    arguments += ["--output", str(phase.output_dir), "--bootstraps", "20", "--workers", "0", "--public"]
    assert main([*arguments, "--option", "surfaces=both", "--seed", "77"]) == 0
    shown = capsys.readouterr().err
    text = (phase.output_dir / "metrics.json").read_text()
    public, full = json.loads(text), phase.run(options={"surfaces": "both"})
    assert set(public) == {"aggregates", "cases", "warnings", "provenance"}
    assert (public["cases"], public["warnings"]) == ({"in_ground_truth": 11, "used": 11}, [])
    assert set(public["provenance"]) == set(full["provenance"]) - PRIVATE | {"public_digits"}
    for name, figures in public["aggregates"].items():
        digits = 1 if name.endswith("_mm") else 3
        assert figures["value"] == (
            None if figures["value"] is None else round(full["aggregates"][name]["value"], digits)
        )
        ends = figures["ci95_low"], figures["ci95_high"]
        half_width = None if None in ends else round((ends[1] - ends[0]) / 2, 6)  # of the rounded ends
        assert figures.pop("ci95_half_width") == half_width
        assert all(one is None or isinstance(one, list) or round(one, digits) == one for one in figures.values())
    assert not re.search(r"P\d|few", re.sub(r'"case_set_sha256": "\w+"', "", text))
    assert str(phase.root) not in text + shown


PRIVATE = {"seed", "redraws", "redraws_of_extra_metrics"}


@pytest.mark.parametrize(
    ("task", "table", "hidden"),
    [
        (RFS, "PatientID,Relapse,RFS\nP0,1,5\nP1,0,9\nP2,1,7\n", {"c_index_ipcw", "c_index_censoring"}),
        (HPV, "PatientID,HPV Status\nP0,1\nP1,0\nP2,1\n", {"auc", "brier", "accuracy"}),
    ],
)
def test_outcomes_have_their_ranked_metrics_alone(phase_of, task, table, hidden):
    phase = phase_of(task)
    phase.truth_table(table)
    for number in range(3):
        phase.value(f"P{number}", "true" if task is HPV else str(number))
    public = phase.run(public=True)
    assert set(public["aggregates"]) == set(load_profile().task(task.name).metrics)
    assert not set(public["aggregates"]) & hidden


def test_intervals_come_from_a_secret_seed_and_the_reference(phase_of):
    """The same for all runs of one seed; neither the known seed alone nor another one gives its draws."""
    phase = phase_of(RFS)
    phase.truth_table("PatientID,Relapse,RFS\n" + "".join(f"P{n:02d},{int(n % 3 > 0)},{10 + n}\n" for n in range(14)))
    for number in range(14):
        phase.value(f"P{number:02d}", f"{number * 5 % 11}.0")

    def ends(**changes):
        figures = phase.run(bootstraps=300, **changes)["aggregates"]["c_index"]
        return [figures["ci95_low"], figures["ci95_high"]]

    secret = ends(public=True, seed=987654321)
    assert secret == ends(public=True, seed=987654321)
    assert secret != ends(public=True, seed=1)
    assert [round(one, 3) for one in ends(seed=1)] != ends(public=True, seed=1)


def test_intervals_of_fractions_tell_no_more_than_counts(phase_of):
    """Wilson's ends follow from the recall and the size of the class, so that no seed is needed: 5 of 7 and 3 of 7."""
    phase = phase_of(HPV)
    phase.truth_table("PatientID,HPV Status\n" + "".join(f"P{n:02d},{n % 2}\n" for n in range(14)))
    for number in range(14):
        phase.value(f"P{number:02d}", "true" if number % 3 else "false")
    found = phase.run(public=True)["aggregates"]
    for name, right in (("sensitivity", 5), ("specificity", 3)):
        low, high = wilson_interval(right, 7)
        assert (found[name]["ci95_low"], found[name]["ci95_high"]) == (round(low, 3), round(high, 3))


def test_a_warning_shows_no_digit_that_the_figure_hides(phase_of, profile_with):
    """Five recurrences one after the other, 10 pairs, of which 1.5 are concordant, ties by half."""
    phase = phase_of(RFS)
    phase.truth_table("PatientID,Relapse,RFS\n" + "".join(f"P{day},1,{day}\n" for day in range(1, 6)))
    table = phase.root / "risks.csv"
    table.write_text("PatientID,risk\nP1,2\nP2,1\nP3,2\nP4,3\nP5,4\n")
    changes = {"predictions": table, "bootstraps": 0, "edition": profile_with(1)}
    full, shown = phase.run(**changes), phase.run(**changes, public=True)
    assert "c_index is 0.150" in full["warnings"][0]
    assert (shown["aggregates"]["c_index"]["value"], shown["warnings"][0][:16]) == (0.1, "c_index is 0.100")


@pytest.mark.parametrize(
    ("task", "option", "value", "expected"),
    [
        (SEGMENTATION, "missing", "skip", "worst"),  # a submitter of one mask would read this patient's DSC
        (HPV, "missing", "stop", "worst"),  # the error would tell which patients count
        (RFS, "missing_risk", "non_concordant", "tie"),
    ],
)
def test_rules_that_tell_single_patients_are_refused(phase_of, task, option, value, expected):
    with pytest.raises(
        HecktorError, match=rf"--public: found together with {option}={value}, expected {option}={expected}$"
    ):
        phase_of(task).run(public=True, options={option: value})


def test_a_missing_risk_is_a_tie(phase_of):
    """Equal risks have a C-index of 0.5; a risk that is left out and lost all pairs would tell their number."""
    phase = phase_of(RFS)
    phase.truth_table("PatientID,Relapse,RFS\n" + "".join(f"P{n},{n % 2},{n}\n" for n in range(1, 8)))
    reports = []
    for absent in range(8):
        table = phase.root / "risks.csv"
        table.write_text("PatientID,risk\n" + "".join(f"P{n},1\n" for n in range(1, 8) if n != absent))
        reports.append(phase.run(predictions=table, public=True, bootstraps=50))
    assert reports[0]["aggregates"]["c_index"]["value"] == 0.5
    assert reports[0]["provenance"]["options"]["missing_risk"] == "tie"
    assert reports == [reports[0]] * 8


def test_a_job_of_a_patient_without_a_target_is_no_error(phase_of):
    """P2's follow-up is unknown. Its job alone gives the file of P1's alone, whose pairs are ties."""
    reports = []
    for case in ("P1", "P2"):
        phase = phase_of(RFS)
        phase.truth_table("PatientID,Relapse,RFS\nP1,1,5\nP2,,\nP3,0,9\n")
        phase.value(case, "1")
        reports.append(phase.run(public=True, bootstraps=20))
        shutil.rmtree(phase.root)
    assert reports[0] == reports[1]
    assert reports[0]["aggregates"]["c_index"]["value"] == 0.5


def test_an_answer_that_does_not_count_leaves_no_trace(tmp_path, grid, capsys):
    """P4 is T0. Output, errors and file are equal with and without its T; also if its T is the only one, as a wrong T1."""
    truth = write_truth(tmp_path / "truth", grid)

    def seen(name, **stages):
        answers = {case: {**row, "t_stage": stages.get(case, "")} for case, row in ANSWERS.items()}
        folder = write_plain(tmp_path / name, predictions(grid), answers, grid)
        arguments = ["--edition", "hecktor2026", "--predictions", str(folder), "--ground-truth", str(truth)]
        assert main([*arguments, "--output", str(tmp_path / "out"), "--bootstraps", "20", "--public"]) == 0
        return capsys.readouterr(), (tmp_path / "out" / "metrics.json").read_text()

    stages = {case: row["t_stage"] for case, row in ANSWERS.items()}
    assert seen("all", **stages) == seen("without", **{case: stages[case] for case in ("P1", "P2", "P3")})
    assert seen("alone", P4="T4") == seen("wrong", P1="T4")


@pytest.fixture
def profile_with(tmp_path):
    """Write the default profile with a number of public digits and more ranked metrics of task 3; returns its path."""

    def write(public_digits=None, **metrics):
        content = json.loads(files("evaluation.editions").joinpath("hecktor2025.json").read_text())
        content["name"] = "ours"
        if public_digits is not None:
            for task in content["tasks"].values():
                task["public_digits"] = public_digits
        content["tasks"]["hpv"]["metrics"] |= metrics
        path = tmp_path / "ours.json"
        path.write_text(json.dumps(content))
        return str(path)

    return write


@pytest.mark.parametrize(("cases", "digits"), [(99, 3), (100, 4)])
def test_a_cohort_of_a_hundred_has_one_digit_more(phase_of, cases, digits):
    """Two of three positives are answered right, as is every negative."""
    phase = phase_of(HPV)
    phase.truth_table("PatientID,HPV Status\n" + "".join(f"P{n:03d},{int(n < 3)}\n" for n in range(cases)))
    for number in range(cases):
        phase.value(f"P{number:03d}", "true" if number < 2 else "false")
    report = phase.run(public=True, bootstraps=0)
    assert report["aggregates"]["sensitivity"]["value"] == round(2 / 3, digits)


@pytest.mark.parametrize("digits", [0, 7, 3.0, "4", True])
def test_public_digits_are_checked(profile_with, digits):
    with pytest.raises(HecktorError, match=r"ours\.json\.tasks\.segmentation\.public_digits: found "):
        load_profile(profile_with(digits))


@pytest.mark.parametrize(
    "metric",
    [
        {"brier": {"title": "Brier score", "higher_is_better": False}},
        {
            "sum": {
                "title": "Sum",
                "higher_is_better": True,
                "weighted_sum": ["balanced_accuracy", "auc"],
                "weights": [0.5, 0.5],
            }
        },
    ],
)
def test_a_ranking_by_probabilities_has_no_public_results(phase_of, profile_with, metric):
    phase, edition = phase_of(HPV), profile_with(**metric)
    phase.truth_table("PatientID,HPV Status\nP0,1\nP1,0\n")
    phase.value("P0", "true")
    with pytest.raises(HecktorError, match=f"--public: {next(iter(metric))} ranks"):
        phase.run(edition=edition, public=True)


def test_public_files_can_be_ranked(phase_of):
    """Sensitivity 1 and 2 / 3 with the same specificity; 0.667 has three digits."""
    teams = []
    for team, right in (("a", 2), ("b", 3)):
        phase = phase_of(HPV)
        phase.truth_table("PatientID,HPV Status\nP0,1\nP1,1\nP2,1\nP3,0\n")
        for number in range(4):
            phase.value(f"P{number}", "true" if number < right else "false")
        teams.append((team, phase.run(public=True)))
        shutil.rmtree(phase.root)
    board = leaderboard(load_teams(teams))
    assert [(entry["team"], entry["metrics"]["sensitivity"]["value"]) for entry in board["teams"]] == [
        ("b", 1.0),
        ("a", 0.667),
    ]


@pytest.mark.parametrize(
    ("task", "bad"),
    [
        ("rfs", "PatientID,Relapse,RFS\nP1,1,-987\n"),
        ("rfs", "PatientID,Relapse,RFS\nP1,987,5\n"),
        ("hpv", "PatientID,HPV Status\nP1,987\n"),
    ],
)
def test_an_error_of_a_table_shows_no_value(phase_of, task, bad):
    phase = phase_of({"rfs": RFS, "hpv": HPV}[task])
    phase.truth_table(bad)
    with pytest.raises(Exception, match="line 2") as found:
        phase.run()
    assert "987" not in str(found.value)
    assert str(phase.root) not in str(found.value)


@pytest.mark.parametrize(("value", "dtype"), [(97, np.uint8), (97, np.float32), (1.97, np.float32), (-97, np.int16)])
def test_an_error_of_a_reference_mask_shows_no_value(phase_of, blank, grid, value, dtype):
    phase = phase_of(SEGMENTATION)
    mask = blank().astype(dtype)
    mask[3, 3, 3] = value
    write_volume(phase.truth_dir / "A.mha", Volume(mask, grid))
    write_volume(phase.job("A") / "m.mha", Volume(mask, grid))
    with pytest.raises(GroundTruthError, match=r"A\.mha") as found:
        phase.run()
    assert "97" not in str(found.value)
    write_mask(phase.truth_dir / "A.mha", blank(), grid)
    assert "97" in phase.run()["cases"]["failed"][0]["why"]
