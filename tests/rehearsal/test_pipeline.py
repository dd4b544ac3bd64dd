"""A rehearsal of an edition with four answers, from phantoms to ranked metrics, and the commands it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from contract.editions import load_edition
from contract.files import read_json
from contract.predictions import read_predictions
from rehearsal.cli import main
from rehearsal.jobs.execute import Rehearsal
from rehearsal.phantoms.cohort import CohortOptions
from rehearsal.phantoms.make import make_cohort
from rehearsal.pipeline import rehearse
from rehearsal.runners.runner import GIB, Limits, ProcessRunner

FOUR_ANSWERS = str(Path(__file__).parents[1] / "editions" / "four_answers.json")
ALGORITHM = """
import argparse, json
from pathlib import Path
from tests.rehearsal.toy_algorithm import header_of, write_mask

parser = argparse.ArgumentParser()
parser.add_argument("--input", type=Path)
parser.add_argument("--output", type=Path)
options = parser.parse_args()
age = json.loads((options.input / "health-record.json").read_text())["Years"]
write_mask(options.output / "images/tumour-mask/output.mha", header_of(options.input / "images/ct-volume"))
for name, value in (("t-stage", "T2"), ("n-stage", "N0"), ("survival", 10.0 * age)):
    (options.output / f"{name}.json").write_text(json.dumps(value))
"""
EVALUATION = """
import argparse, json
from pathlib import Path

parser = argparse.ArgumentParser()
for name in ("input", "output", "ground-truth"):
    parser.add_argument(f"--{name}", type=Path)
options = parser.parse_args()
jobs = json.loads((options.input / "predictions.json").read_text())
stages = [output["value"] for job in jobs for output in job["outputs"] if output["socket"]["slug"] == "t-stage"]
share = stages.count("T2") / len(list(options.ground_truth.glob("*.mha")))
content = {"aggregates": {"t_stage_accuracy": {"value": share}}, "provenance": {"ranked_metrics": ["t_stage_accuracy"]}}
(options.output / "metrics.json").write_text(json.dumps(content))
"""


def test_four_answers_from_phantoms_to_ranked_metrics(tmp_path: Path) -> None:
    cohort, out = tmp_path / "cohort", tmp_path / "out"
    options = CohortOptions(8, ("HMR",), "platform", "head", ct_coarsening=32, edition=FOUR_ANSWERS)
    (name,) = make_cohort(options, 1, cohort, jobs=1)
    result = rehearse(
        Rehearsal(
            task=load_edition(FOUR_ANSWERS).algorithm(),
            cohort=cohort,
            output_dir=out,
            algorithm=ProcessRunner((sys.executable, "-c", ALGORITHM)),
            limits=Limits(GIB, 60),
            evaluation=ProcessRunner((sys.executable, "-c", EVALUATION)),
            ground_truth_dir=cohort / "ground_truth",
        )
    )
    assert result.succeeded, (result.failures, result.problems)
    assert result.warnings == ()
    assert result.metrics == {"aggregates.t_stage_accuracy.value": 1.0}
    years = read_json(cohort / name / "input" / "health-record.json")["Years"]
    assert read_json(out / "predictions" / "survival" / f"{name}.json") == 10.0 * years
    assert (out / "predictions" / "mask" / f"{name}.mha").is_file()
    (job,) = read_predictions(out / "evaluation" / "input" / "predictions.json")
    assert [(output.slug, output.value) for output in job.outputs] == [
        ("tumour-mask", None), ("t-stage", "T2"), ("n-stage", "N0"), ("survival", 10.0 * years),
    ]  # fmt: skip
    assert job.input_image_name("ct-volume") == f"{name}.mha"


@pytest.mark.parametrize(
    ("edition", "algorithm", "evaluation"),
    [
        ([], "-m algorithm --task hpv", "-m evaluation --task hpv"),
        (
            ["--edition", FOUR_ANSWERS],
            f"-m algorithm --task everything --edition {FOUR_ANSWERS}",
            f"-m evaluation --task everything --edition {FOUR_ANSWERS.replace('.json', '_profile.json')}",
        ),
    ],
)
def test_commands_name_an_edition_other_than_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edition: list[str], algorithm: str, evaluation: str
) -> None:
    """The task may be left out where the edition has only one."""
    rehearsals: list[Rehearsal] = []

    def stop(rehearsal: Rehearsal, **_: object) -> None:
        rehearsals.append(rehearsal)
        raise KeyboardInterrupt

    monkeypatch.setattr("rehearsal.cli.rehearse", stop)
    task = [] if edition else ["--task", "3"]
    with pytest.raises(KeyboardInterrupt):
        main([*task, *edition, "--cases", str(tmp_path), "--output", "out", "--process", "--ground-truth", "truth"])
    (rehearsal,) = rehearsals
    assert rehearsal.algorithm.description.split(" ", 1)[1] == algorithm
    assert rehearsal.evaluation is not None
    assert rehearsal.evaluation.description.split(" ", 1)[1] == evaluation


def test_an_unknown_task_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--task", "4", "--cases", str(tmp_path), "--output", "out", "--process"])
    assert stop.value.code == 2
    assert "found task '4', expected one of segmentation, 1, rfs, 2, hpv, 3" in capsys.readouterr().err
