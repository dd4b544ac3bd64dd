"""`rehearse --case` is scored by the references of the selected cases only."""

import sys
from pathlib import Path

import pytest

from contract.io.files import read_json
from rehearsal.cli import main

TOYS = Path(__file__).parents[1]


@pytest.mark.parametrize("task", ["segmentation", "rfs"])
def test_selected_case_is_scored_alone(
    cohort: Path, tmp_path: Path, task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The toy evaluation divides the answers by the masks of the ground truth: 1 / 1 for one case of two."""
    truth, out = cohort / "ground_truth", tmp_path / "out"
    (truth / "outcomes.csv").write_text('PatientID;Relapse;RFS;note\n"A-1";1;300,5;"two\nlines"\nB-2;0;900;\n')
    (truth / "atlas.bin").write_bytes(b"read by a custom evaluation")
    (truth / "notes").mkdir()
    (truth / "notes" / "B-2.txt").write_text("kept")
    before = {path: path.read_bytes() for path in truth.rglob("*") if path.is_file()}
    toys = [
        f"--{kind}={sys.executable} {TOYS / name}"
        for kind, name in (("command", "toy_algorithm.py"), ("evaluation-command", "toy_evaluation.py"))
    ]
    folders = ["--cases", str(cohort), "--ground-truth", str(truth), "--output", str(out)]
    assert main([*toys, *folders, "--task", task, "--case", "A-1"]) == 0
    assert read_json(out / "metrics.json")["aggregates"]["c_index"]["value"] == 1
    selected = out / "evaluation" / "ground_truth"
    files = {str(path.relative_to(selected)) for path in selected.rglob("*") if path.is_file()}
    assert files == {"A-1.mha", "atlas.bin", "notes/B-2.txt", "outcomes.csv"}
    assert (selected / "outcomes.csv").read_text() == 'PatientID;Relapse;RFS;note\nA-1;1;300,5;"two\nlines"\n'
    assert "count as missing" not in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before
