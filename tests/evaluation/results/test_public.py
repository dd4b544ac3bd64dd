"""Public results and standard error reveal no number of the reference, no class of a case and no path."""

from __future__ import annotations

import json

import numpy as np
import pytest

from contract.errors import GroundTruthError
from contract.images.volumes import Volume, write_mask, write_volume
from evaluation.cli import main
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
