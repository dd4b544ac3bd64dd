"""Commands that a rehearsal runs, for the default edition and another one."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pytest

from algorithm.cli import main as predict
from contract.errors import GroundTruthError
from contract.io.files import read_json, write_json
from contract.predictions import read_predictions
from rehearsal.cli import main, parse_memory_bytes
from rehearsal.jobs.execution import Rehearsal
from rehearsal.runners.runner import GIB, Limits
from rehearsal.submission.cli import main as submit
from tests.rehearsal.conftest import Rehearse

FOUR_ANSWERS = str(Path(__file__).parents[1] / "editions" / "four_answers.json")


def parse_rehearsal(monkeypatch: pytest.MonkeyPatch, options: list[str]) -> Rehearsal:
    """Return the rehearsal of a command line without running it."""
    rehearsals: list[Rehearsal] = []

    def stop(rehearsal: Rehearsal, **_: object) -> None:
        rehearsals.append(rehearsal)
        raise KeyboardInterrupt

    monkeypatch.setattr("rehearsal.pipeline.rehearse", stop)
    with pytest.raises(KeyboardInterrupt):
        main([*options, "--output", "out"])
    return rehearsals[0]


@pytest.mark.parametrize(
    ("edition", "algorithm", "evaluation"),
    [
        ([], "-m algorithm --task hpv", "-m evaluation --task hpv"),
        (
            ["--edition", FOUR_ANSWERS],
            f"-m algorithm --task everything --edition {FOUR_ANSWERS}",
            f"-m evaluation --task everything --edition {FOUR_ANSWERS}",
        ),
    ],
)
def test_commands_name_an_edition_other_than_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edition: list[str], algorithm: str, evaluation: str
) -> None:
    """Editions with one task need no --task."""
    task = [] if edition else ["--task", "3"]
    (tmp_path / "reference.csv").write_text("PatientID\n")
    options = [*task, *edition, "--cases", str(tmp_path), "--process", "--ground-truth", str(tmp_path)]
    rehearsal = parse_rehearsal(monkeypatch, options)
    assert rehearsal.algorithm.description.split(" ", 1)[1] == algorithm
    assert rehearsal.evaluation is not None
    assert rehearsal.evaluation.description.split(" ", 1)[1] == evaluation


def test_four_answers_reach_the_evaluation(rehearse_toy: Rehearse, tmp_path: Path) -> None:
    """Answers have HECKTOR 2026's paths in `predictions.json`, and are files by answer."""
    result = rehearse_toy(task=None, edition="hecktor2026", arguments=("--four-answers",), evaluation="well")
    assert result.succeeded, (result.failures, result.problems)
    jobs = read_predictions(tmp_path / "out" / "evaluation" / "input" / "predictions.json")
    slugs = ["head-neck-tumor-segmentation", "t-stage", "n-stage", "rfs"]
    assert [[job.find_output(slug).relative_path for slug in slugs] for job in jobs] == [
        ["images/head-neck-tumor-segmentation", "t-stage.json", "n-stage.json", "rfs.json"]
    ] * 2
    predictions = tmp_path / "out" / "predictions"
    assert {path.name: read_json(path / "A-1.json") for path in predictions.iterdir() if path.name != "segmentation"} == {
        "t_stage": "T2", "n_stage": "N1", "rfs": 800.5
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpus"], "argument --gpus: found without --algorithm-image, expected both"),
        (["--engine", "podman"], "argument --engine: found without --algorithm-image or --evaluation-image"),
        (["--evaluation-arguments=--no-rows"], "argument --evaluation-arguments: found without --ground-truth"),
        (["--on-failure", "mark-missing"], "argument --on-failure: found without --ground-truth, expected both"),
    ],
)
def test_an_option_that_is_not_used_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--task", "3", "--cases", str(tmp_path), "--output", "out", "--process", *options])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_ground_truth_one_level_too_high_is_refused_before_cases_run(tmp_path: Path) -> None:
    """`evaluate` refuses it too; the masks lie in `references/ground_truth`."""
    (tmp_path / "references" / "ground_truth").mkdir(parents=True)
    (tmp_path / "references" / "ground_truth" / "A-1.mha").touch()
    options = ["--task", "1", "--cases", str(tmp_path), "--output", str(tmp_path / "out"), "--command", "false"]
    with pytest.raises(GroundTruthError, match=r"^ground truth references: no file in it, but in ground_truth/, "):
        main([*options, "--ground-truth", str(tmp_path / "references")])
    assert not (tmp_path / "out").exists()


def test_a_task_that_the_package_s_edition_lacks_names_the_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For `rehearse`, `submission` and `predict` the package gave the edition, not the user."""
    package = tmp_path / "staging_package"
    package.mkdir()
    write_json(package / "manifest.json", {"name": "x", "edition": "hecktor2026"})
    place = str(tmp_path)
    for run, options in (
        (main, ["--model", str(package), "--cases", place, "--output", place, "--process"]),
        (submit, ["--package", str(package), "--output", place]),
        (predict, ["--model", str(package), "--input", place, "--output", place]),
    ):
        with pytest.raises(SystemExit):
            run(["--task", "hpv", *options])
        error = " ".join(capsys.readouterr().err.split())
        assert f"(the package {package} has the edition hecktor2026; --edition names another one)" in error


def test_files_of_a_command_are_found_from_each_cases_folder(
    cohort: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python my_algorithm.py` runs in another folder than the command; `-m algorithm` is not a file."""
    shutil.copy(Path(__file__).with_name("toy_algorithm.py"), tmp_path / "my_algorithm.py")
    monkeypatch.chdir(tmp_path)
    options = ["--task", "hpv", "--cases", str(cohort), "--output", "out"]
    assert main([*options, "--command", "python my_algorithm.py --behave well"]) == 0
    assert read_json(tmp_path / "out" / "predictions" / "A-1.json") is True


@pytest.mark.parametrize(
    ("options", "memory_gib", "cpus"), [([], 16, None), (["--memory", "32g", "--cpus", "8"], 32, 8.0)]
)
def test_memory_is_the_platforms_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], memory_gib: int, cpus: float | None
) -> None:
    """Half of the memory is shared memory, and a process may have 1 GiB less than all."""
    limits = parse_rehearsal(monkeypatch, ["--task", "3", "--cases", str(tmp_path), "--process", *options]).limits
    assert (limits.memory_bytes, limits.cpus) == (memory_gib * GIB, cpus)
    assert (limits.shared_memory_bytes, limits.data_segment_bytes) == (memory_gib * GIB // 2, (memory_gib - 1) * GIB)


def test_a_process_with_1_gib_is_not_limited() -> None:
    assert Limits(GIB, 600).data_segment_bytes is None


@pytest.mark.parametrize(
    ("text", "size"), [("16g", 16 * GIB), ("512M", 2**29), ("1.5GiB", 3 * 2**29), ("33554432", 2**25)]
)
def test_memory_sizes(text: str, size: int) -> None:
    assert parse_memory_bytes(text) == size


@pytest.mark.parametrize("text", ["", "g", "16x", "-1g", "1k", "nan"])
def test_invalid_memory_sizes(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_memory_bytes(text)
