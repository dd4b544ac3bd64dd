"""Public results and standard error reveal no number of the reference, no class of a case and no path."""

from __future__ import annotations

import json
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
from tests.evaluation.tasks import HPV, RFS, SEGMENTATION


def numbers_in(value):
    """Every number of a JSON document, however deep."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for item in value for number in numbers_in(item)]
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def keys_in(value):
    inside = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return (set(value) if isinstance(value, dict) else set()).union(*map(keys_in, inside))


def public_report(phase, capsys, *more):
    phase.input_dir.joinpath("predictions.json").write_text(json.dumps(phase.jobs))
    arguments = ["--task", phase.task.name, "--input", str(phase.input_dir), "--ground-truth", str(phase.truth_dir)]
    arguments += ["--output", str(phase.output_dir), "--bootstraps", "20", "--workers", "0", "--public", *more]
    assert main(arguments) == 0
    shown = capsys.readouterr().err
    text = (phase.output_dir / "metrics.json").read_text()
    assert not [place for place in (phase.root, phase.truth_dir) if str(place) in text + shown]
    return json.loads(text), shown


def test_of_masks(phase_of, blank, capsys):
    """Eleven cases of 31 to 41 voxels of 6 mm3; one is missing, one broken. Their volumes are nowhere."""
    phase = phase_of(SEGMENTATION)
    phase.truth_table("PatientID,CenterID\n" + "".join(f"P{n},{'few' if n < 3 else 'C'}\n" for n in range(11)))
    secret = set()
    for number in range(11):
        mask = blank()
        mask.reshape(-1)[: 31 + number] = 1
        mask[7, 9, : 1 + number] = 2
        secret |= {voxels * factor for voxels in (31 + number,) for factor in (1.0, 6.0, 0.006)}
        phase.truth_mask(f"P{number}", mask)
        if number == 1:
            (phase.job("P1") / "m.mha").write_bytes(b"no image")
        elif number != 2:
            phase.mask(f"P{number}", np.roll(mask, 1, axis=2))
    report, shown = public_report(phase, capsys, "--option", "surfaces=both")
    assert report["results"] == []
    assert not {round(number, 9) for number in numbers_in(report)} & {round(number, 9) for number in secret}
    assert report["cases"]["missing"] == ["P2"]
    assert list(report["centres"]) == []
    assert "volume_ml_low" not in keys_in(report)
    assert "P1 failed: m.mha" in shown


def test_of_risks(phase_of, capsys):
    phase = phase_of(RFS)
    days = [1013, 1117, 1229, 1327]
    phase.truth_table("PatientID,Relapse,RFS\n" + "".join(f"P{n},{n % 2},{day}\n" for n, day in enumerate(days)))
    for number in range(3):
        phase.value(f"P{number}", str(number / 7))
    report, shown = public_report(phase, capsys)
    assert not set(numbers_in(report)) & set(map(float, days))
    assert not [day for day in days if str(day) in shown]
    assert not keys_in(report) & {"rfs_days", "relapse", "risk"}


def test_of_statuses(phase_of, capsys, tmp_path):
    """With probabilities there is a calibration table, whose bins of one patient are that patient's status."""
    phase = phase_of(HPV)
    phase.truth_table("PatientID,HPV Status\nP0,1\nP1,0\nP2,1\nP3,0\n")
    table = tmp_path / "hpv.csv"
    table.write_text("PatientID,hpv,probability\nP0,1,0.9\nP1,0,0.1\nP2,0,0.3\nP3,1,2\n")
    arguments = ["--task", "3", "--predictions", str(table), "--ground-truth", str(phase.truth_dir), "--public"]
    assert main([*arguments, "--output", str(phase.output_dir), "--bootstraps", "20"]) == 0
    text = (phase.output_dir / "metrics.json").read_text()
    report = json.loads(text)
    assert report["analyses"] == {}
    assert not keys_in(report) & {"hpv_positive", "positive_share", "predicted_hpv_positive"}
    assert [failed["case"] for failed in report["cases"]["failed"]] == ["P3"]
    assert str(tmp_path) not in text + capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "table", "answer"),
    [
        (RFS, "PatientID,Relapse,RFS,CenterID\n{}Q0,1,5,D\nQ1,0,9,D\n", "1"),
        (HPV, "PatientID,HPV Status,,CenterID\n{}Q0,1,,D\nQ1,0,,D\n", "true"),
    ],
)
def test_a_centre_of_one_class_does_not_give_itself_away(phase_of, capsys, task, table, answer):
    """Twelve patients of a centre that all lack a recurrence, or are negative: its C-index or sensitivity is null."""
    phase = phase_of(task)
    cases = [f"P{n:02d}" for n in range(12)]
    phase.truth_table(table.format("".join(f"{case},0,7,C\n" for case in cases)))
    for case in [*cases, "Q0", "Q1"]:
        phase.value(case, answer)
    centre = phase.run()["centres"]["C"]
    assert (centre["cases"], centre["names"]) == (12, cases)
    report, _ = public_report(phase, capsys)
    assert report["centres"] == {}


def decimals(number):
    """Digits behind the point of a number as JSON writes it."""
    return len(repr(number).partition(".")[2]) if number != int(number) else 0


def figures_in(report):
    """Every figure of the aggregates and of the centres, by metric."""
    blocks = [report["aggregates"], *(block["aggregates"] for block in report["centres"].values())]
    return [(name, one) for block in blocks for name, figures in block.items() for one in numbers_in(figures)]


@pytest.mark.parametrize(("public_digits", "digits", "digits_of_mm"), [(None, 3, 1), (2, 2, 0), (6, 6, 4)])
def test_figures_are_rounded(phase_of, grid, profile_with, public_digits, digits, digits_of_mm):
    """Twelve tumours of 20 to 31 voxels, 19 of them found: 3 digits below 100 cases, of millimetres 2 fewer."""
    phase = phase_of(SEGMENTATION)
    phase.truth_table("PatientID,CenterID\n" + "".join(f"P{n:02d},C\n" for n in range(12)))
    for number in range(12):
        mask = np.zeros(grid.array_shape, np.uint8)
        mask.reshape(-1)[: 20 + number] = 1
        phase.truth_mask(f"P{number:02d}", mask)
        mask.reshape(-1)[19:] = 0
        phase.mask(f"P{number:02d}", mask)
    changes = {"options": {"surfaces": "gtvp"}, "edition": profile_with(public_digits)}
    full, public = phase.run(**changes), phase.run(**changes, public=True)
    assert public["provenance"]["public_digits"] == digits
    assert set(public["centres"]) == {"C"}
    rounded = {name: digits_of_mm if name.endswith("_mm") else digits for name in full["aggregates"]}
    assert {name: one["value"] for name, one in public["aggregates"].items()} == {
        name: None if one["value"] is None else round(one["value"], rounded[name])
        for name, one in full["aggregates"].items()
    }
    assert max(decimals(one) for name, one in figures_in(public) if not name.endswith("_mm")) == digits
    assert not [name for name, one in figures_in(public) if decimals(one) > rounded[name]]


@pytest.fixture
def profile_with(tmp_path):
    """Write the default profile with a number of public digits and more ranked metrics of task 3; returns its path."""

    def write(public_digits=None, **metrics):
        content = json.loads(files("evaluation.editions").joinpath("hecktor2025.json").read_text())
        content["name"] = "ours"
        if public_digits is not None:
            content["tasks"]["segmentation"]["public_digits"] = public_digits
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
    with pytest.raises(
        HecktorError, match=r"ours\.json: tasks\.segmentation\.public_digits: found .*, expected one of 1, 2, 3"
    ):
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
    with pytest.raises(HecktorError, match=f"--public: {next(iter(metric))} ranks and comes from probabilities"):
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
    with pytest.raises(GroundTruthError, match=r"A\.mha") as found:
        phase.run()
    assert "97" not in str(found.value)
    write_volume(phase.job("A") / "m.mha", Volume(mask, grid))
    write_mask(phase.truth_dir / "A.mha", blank(), grid)
    assert "97" in phase.run()["cases"]["failed"][0]["why"]
