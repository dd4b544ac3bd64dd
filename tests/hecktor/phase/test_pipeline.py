"""The files of a phase get their names once all tries have passed."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.archives import unpack
from contract.editions import Algorithm, Edition, load_edition
from contract.errors import HecktorError
from contract.images.geometry import Geometry
from contract.images.volumes import Volume, read_volume, write_mask, write_volume
from contract.io.files import read_json, write_json
from contract.predictions import read_predictions
from evaluation.__main__ import main as evaluate
from evaluation.editions.profile import load_profile
from hecktor.cli import main
from hecktor.phase import pipeline
from hecktor.phase.pipeline import PhaseOptions, make_phase
from rehearsal.runners.monitor import RunOutcome
from rehearsal.runners.runner import Call, ProcessRunner, Runner

GRID = Geometry((6, 5, 4), (1.0, 2.0, 3.0), (-10.0, 4.0, 100.0))
EVALUATION = (*shlex.split(sys.executable), "-m", "evaluation", "--task", "rfs", "--workers", "1")
# A and B end on the same day, A by a recurrence; D is the second recurrence; E has no follow-up.
FOLLOW_UP = "PatientID,Relapse,RFS\nA-1,1,100\nB-2,0,100\nC-3,0,300\nD-4,1,200\nE-5,,\n"
FOUR_ANSWERS = Path(__file__).parents[2] / "editions" / "four_answers.json"


@dataclass
class StubImages:
    """A stub that saves an archive of a few bytes, whose image is a command."""

    command: tuple[str, ...] = EVALUATION
    built: list[str] = field(default_factory=list)

    def name(self, task: Algorithm) -> str:
        return f"toy-{task.evaluation_image}:latest"

    def build(self, _: Edition, tasks: Sequence[Algorithm], log: Path) -> None:
        log.write_text("built\n")
        self.built += [task.name for task in tasks]

    def save(self, task: Algorithm, folder: Path, log: Path) -> Path:
        archive = folder / "toy_20260101.tar.gz"
        archive.write_text(task.name)
        return archive

    def load(self, archive: Path) -> Runner:
        return ProcessRunner(self.command)


def make_options(ground_truth: Path, output: Path, task: str | None = "rfs", edition: str = "hecktor2025", **more: Any):
    profile = load_profile(edition)
    return PhaseOptions(load_edition(edition), profile, profile.find_task(task), ground_truth, output, **more)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "follow_up.csv"
    path.write_text(FOLLOW_UP)
    return path


@pytest.fixture
def masks(tmp_path: Path) -> Path:
    """P1 has both structures, P2 a GTVp in a floating NIfTI; the folder also holds a table of centres and a note."""
    folder = tmp_path / "reference"
    first, second = np.zeros((2, *GRID.array_shape), dtype=np.uint8)
    first[1, 1, 1:3], first[2, 3, 1:5], second[1, 2, 2:4] = 1, 2, 1
    folder.mkdir()
    write_mask(folder / "P1.mha", first, GRID)
    write_volume(folder / "P2.nii.gz", Volume(second.astype(np.float32), GRID))
    (folder / "outcomes.csv").write_text(
        "PatientID,CenterID,T-stage,N-stage,Relapse,RFS\nP1,X,T1,N1,1,100\nP2,Y,T2,N0,0,900\nP3,Y,T3,N2,1,50\nP4,Y,T4,N3,1,9\n"
    )
    (folder / "note.txt").write_text("not for the platform")
    return folder


class InProcessRunner(ProcessRunner):
    """A runner that evaluates in this process, since a new process needs longer to start than to evaluate."""

    def run(self, call: Call) -> RunOutcome:
        for log in (call.stdout, call.stderr):
            log.parent.mkdir(parents=True, exist_ok=True)
            log.touch()
        words = self._build_command(call, ("--workers", "1"))
        return RunOutcome(evaluate(words[words.index("evaluation") + 1 :]), 0.0, False, None)


def map_in_this_process(work: Callable[[Any], Any], items: Sequence[Any], *_: object) -> Iterator[tuple[int, Any]]:
    for number, item in enumerate(items):
        yield number, work(item)


@pytest.fixture(autouse=True)
def evaluate_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "ProcessRunner", InProcessRunner)
    monkeypatch.setattr("evaluation.execution._apply", map_in_this_process)


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def read_values(folder: Path) -> dict[str, Any]:
    """Return the JSON value of each case of a staged submission."""
    jobs = read_predictions(folder / "predictions.json")
    return {
        (job.find_input_image_name("ct-image") or "").removesuffix(".mha"): read_json(
            folder / job.pk / "output" / "rfs.json"
        )
        for job in jobs
    }


def test_files_of_a_phase(table: Path, tmp_path: Path) -> None:
    """Comparable pairs: A before B, C and D, and D before C; perfect risks order all four, equal ones none.

    Ranks of the follow-up: A 1, B 2 (censored on the same day), D 3, C 4, and risks are their negatives.
    """
    output, images, lines = tmp_path / "phase", StubImages(), list[str]()
    (tmp_path / "risks.csv").write_text("PatientID,risk\nA-1,9\nB-2,1\nC-3,2\nD-4,2\nE-5,1\n")
    tries = make_phase(make_options(table, output, predictions=tmp_path / "risks.csv"), images, lines.append)
    assert list_names(output) == [
        "README.md", "ground_truth.tar.gz", "hecktor-evaluation-rfs.tar.gz", "phase.json", "rehearsal",
    ]  # fmt: skip
    assert (images.built, (output / "hecktor-evaluation-rfs.tar.gz").read_text()) == (["rfs"], "rfs")
    unpack(output / "ground_truth.tar.gz", tmp_path / "unpacked")
    assert (list_names(tmp_path / "unpacked"), (tmp_path / "unpacked" / table.name).read_text()) == (
        [table.name],
        FOLLOW_UP,
    )
    folder = output / "rehearsal"
    assert read_values(folder / "perfect" / "input") == {"A-1": -1, "B-2": -2, "D-4": -3, "C-3": -4}
    assert read_values(folder / "empty" / "input") == dict.fromkeys(("A-1", "B-2", "C-3", "D-4"), 1)
    results = {name: read_json(folder / name / "metrics.json") for name in tries}
    c_index = {name: metrics["aggregates"]["c_index"]["value"] for name, metrics in results.items()}
    assert c_index == {"perfect": 1.0, "empty": 0.5, "predictions": 3.5 / 4}  # C and D are tied
    readme = (output / "README.md").read_text()
    assert "| `score_jsonpath` | aggregates.c_index.value |" in readme
    assert "| `score_error_jsonpath` | aggregates.c_index.ci95_half_width |" in readme
    assert "| aggregates.c_index.value | 1.0000 | 0.5000 | 0.8750 |" in readme
    assert "| optional input | `rt-dose` | RT Dose | Image | `images/rt-dose` |" in readme
    assert "The reference has 4 cases." in readme
    assert "- API method (label `org.grand-challenge.api-method`): `exec`." in readme
    assert any(line.endswith(" GB, loaded, API method exec") for line in lines)
    assert read_json(output / "phase.json")["score_error_jsonpath"] == "aggregates.c_index.ci95_half_width"
    assert "predictions submission: aggregates.c_index.value 0.8750" in lines


@pytest.mark.parametrize(
    ("task", "needs"), [("segmentation", "the masks <case>.nii.gz of all patients"), ("rfs", "its table")]
)
def test_a_release_is_no_ground_truth_of_the_platform(tmp_path: Path, task: str, needs: str) -> None:
    release = tmp_path / "release"
    for name in ("CHUM-001.nii.gz", "CHUM-001__CT.nii.gz", "CHUM-001__PT.nii.gz"):
        (release / "Task 1" / "CHUM-001").mkdir(parents=True, exist_ok=True)
        write_mask(release / "Task 1" / "CHUM-001" / name, np.zeros(GRID.array_shape, dtype=np.uint8), GRID)
    message = f"release: a release, with a folder for each patient, expected {needs} in one folder"
    with pytest.raises(HecktorError, match=message):
        make_phase(make_options(release, tmp_path / "phase", task), None, print)


@pytest.mark.slow
def test_a_phase_of_another_task_replaces_all_files(table: Path, tmp_path: Path) -> None:
    output, hpv = tmp_path / "phase", tmp_path / "hpv.csv"
    hpv.write_text("PatientID,HPV Status\nA-1,1\nB-2,0\n")
    make_phase(make_options(table, output), StubImages(), lambda _: None)
    lines: list[str] = []
    make_phase(make_options(hpv, output, "hpv"), None, lines.append)
    assert list_names(output) == ["README.md", "ground_truth.tar.gz", "phase.json", "rehearsal"]
    removed = [line for line in lines if "removed" in line]
    assert [line.partition(":")[0] for line in removed] == ["hecktor-evaluation-rfs.tar.gz"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "columns"),
    [("segmentation", ["PatientID", "CenterID"]), ("rfs", ["PatientID", "CenterID", "Relapse", "RFS"])],
)
def test_only_columns_that_score_a_task_are_packed(masks: Path, tmp_path: Path, task: str, columns: list[str]) -> None:
    """Recurrences, times and HPV status do not belong to the ground truth of masks."""
    (masks / "outcomes.csv").unlink()
    (masks / "all.csv").write_text(
        "Patient ID;Center_ID;Relapse;HPV Status;RFS\nP1;CHUM;1;1;100,5\nP2;CHUM;0;0;900,5\nP3;X;1;1;50,5\n"
    )
    lines: list[str] = []
    tries = make_phase(make_options(masks, tmp_path / "phase", task), None, lines.append)
    unpack(tmp_path / "phase" / "ground_truth.tar.gz", tmp_path / "unpacked")
    header, first, *_ = (tmp_path / "unpacked" / "all.csv").read_text().splitlines()
    assert header.split(",") == columns
    assert first == ("P1,CHUM" if task == "segmentation" else "P1,CHUM,1,100.5")
    assert any("all.csv: packed without " in line and "HPV Status" in line for line in lines)
    assert set(tries["perfect"].metrics["centres"]) == {"CHUM"} | ({"X"} if task == "rfs" else set())


def test_bounding_boxes_are_packed_where_an_edition_requires_them(
    masks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All voxels, from (-11, 3, 98.5) to (-5, 13, 110.5) mm, are inside the boxes; other editions refuse boxes."""
    boxes = tmp_path / "boxes.csv"
    boxes.write_text("PatientID,x1,x2,y1,y2,z1,z2\nP1,-11,-5,3,13,98,110\nP2,-11,-5,3,13,98,110\n")
    (masks / "outcomes.csv").unlink()
    options = ["phase", "--no-image", "--ground-truth", str(masks), "--output", str(tmp_path / "phase")]
    own = ["--edition", "hecktor2020", "--task", "1"]
    assert main([*options, *own]) == 1
    assert (
        "--bounding-boxes: found none for edition hecktor2020, expected a CSV file of boxes" in capsys.readouterr().err
    )
    assert main([*options, "--task", "1", "--bounding-boxes", str(boxes)]) == 1
    assert (
        "--bounding-boxes: found with edition hecktor2025, expected an edition with the rule bounding_box required"
        in capsys.readouterr().err
    )
    assert main([*options, *own, "--bounding-boxes", str(boxes)]) == 0
    unpack(tmp_path / "phase" / "ground_truth.tar.gz", tmp_path / "unpacked")
    assert list_names(tmp_path / "unpacked") == ["P1.mha", "P2.nii.gz", "bounding_boxes.csv"]
    metrics = read_json(tmp_path / "phase" / "rehearsal" / "perfect" / "metrics.json")
    assert len(metrics["provenance"]["options"]["bounding_boxes_sha256"]) == 64


def test_a_number_among_the_aliases_precedes_the_number_of_the_task(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here the edition calls the second task, `rfs`, 1."""
    edition = read_json(Path(__file__).parents[3] / "contract" / "editions" / "hecktor2025.json")
    scoring = {"rfs": edition["scoring"]["rfs"]}
    write_json(tmp_path / "mine.json", edition | {"name": "mine", "task_aliases": {"rfs": ["1"]}, "scoring": scoring})
    options = ["phase", "--edition", str(tmp_path / "mine.json"), "--no-image", "--ground-truth", str(table)]
    for task in ([], ["--task", "1"]):
        assert main([*options, *task, "--output", str(tmp_path / "phase")]) == 0
    with pytest.raises(SystemExit):
        main([*options, "--task", "9", "--output", str(tmp_path / "phase")])
    assert "argument --task: edition mine: found task '9'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_phase_of_four_answers_of_an_own_edition(masks: Path, tmp_path: Path) -> None:
    """Masks become 8-bit .mha; P3 and P4 have no reference mask, and so no output; days are ranks of the follow-up.

    Only the table with all columns of the four answers is packed.
    """
    output = tmp_path / "phase"
    (masks / "secret.csv").write_text("PatientID,address\nP1,here\n")
    tries = make_phase(make_options(masks, output, None, str(FOUR_ANSWERS)), None, lambda _: None)
    unpack(output / "ground_truth.tar.gz", tmp_path / "unpacked")
    assert list_names(tmp_path / "unpacked") == ["P1.mha", "P2.nii.gz", "outcomes.csv"]
    folder = output / "rehearsal" / "perfect" / "input"
    jobs = {job.find_input_image_name("ct-volume"): job for job in read_predictions(folder / "predictions.json")}
    assert sorted(jobs) == ["P1.mha", "P2.mha", "P3.mha", "P4.mha"]
    (mask,) = (folder / jobs["P2.mha"].pk / "output" / "images" / "tumour-mask").iterdir()
    array = read_volume(mask).array
    assert (array.dtype, array.sum(), mask.suffix) == (np.uint8, 2, ".mha")
    assert [output.slug for output in jobs["P3.mha"].outputs] == ["t-stage", "n-stage", "survival"]
    folders = [folder / jobs[f"{name}.mha"].pk / "output" for name in ("P4", "P3", "P1", "P2")]
    assert [read_json(path / "survival.json") for path in folders] == [1, 2, 3, 4]
    blank = output / "rehearsal" / "empty" / "input"
    assert all(read_volume(path).array.max() == 0 for path in blank.rglob("*.mha"))
    perfect = tries["perfect"].metrics["aggregates"]
    ranked = tries["perfect"].metrics["provenance"]["ranked_metrics"]
    assert {name: perfect[name]["value"] for name in ranked} == dict.fromkeys(ranked, 1.0)
    assert "No image was made" in (output / "README.md").read_text()


ONE_CLASS = "PatientID,HPV Status\nA-1,1\nB-2,1\n"


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("rfs", None, "truth.csv: not found in "),
        ("hpv", ONE_CLASS, "balanced_accuracy: the reference contains only one class, expected at least two"),
        ("hpv", FOLLOW_UP, "truth.csv: columns PatientID, Relapse, RFS; expected one CSV file with the columns PatientID, HPV Status"),
        ("segmentation", FOLLOW_UP, "ground truth: no folder 'truth.csv', expected a folder with the reference data"),
    ],
)  # fmt: skip
def test_a_wrong_ground_truth_ends_before_an_image_is_built(
    task: str, content: str | None, message: str, tmp_path: Path
) -> None:
    truth, images = tmp_path / "truth.csv", StubImages()
    if content is not None:
        truth.write_text(content)
    with pytest.raises(HecktorError) as error:
        make_phase(make_options(truth, tmp_path / "phase", task), images, lambda _: None)
    assert str(error.value).startswith(message)
    assert (images.built, (tmp_path / "phase").exists()) == ([], False)


def test_predictions_without_a_case_are_tested_as_files_are(table: Path, tmp_path: Path) -> None:
    """Cases without an answer count as missing, with a warning that names them; an unusable answer ends the command."""
    (tmp_path / "risks.csv").write_text("PatientID,risk\nA-1,9\nB-2,1\nC-3,2\n")
    lines: list[str] = []
    options = make_options(table, tmp_path / "phase", predictions=tmp_path / "risks.csv")
    tries = make_phase(options, None, lines.append)
    assert "predictions submission: warning: no rfs of D-4, which count as missing" in lines
    assert tries["predictions"].metrics["cases"]["missing"] == ["D-4"]
    (tmp_path / "risks.csv").write_text("PatientID,risk\nA-1,9\nB-2,1\nC-3,2\nD-4,high\n")
    with pytest.raises(HecktorError, match=r"rfs of D-4: risks.csv, line 5: .*expected a usable prediction"):
        make_phase(options, None, lines.append)


def test_unusable_masks_end_before_an_image_is_built(masks: Path, tmp_path: Path) -> None:
    """A prediction lies on another grid; then a reference has another label."""
    predictions, images = Path(shutil.copytree(masks, tmp_path / "predictions")), StubImages()
    moved = replace(GRID, origin_mm=(0.0, 0.0, 0.0))
    write_mask(predictions / "P1.mha", np.zeros(moved.array_shape, np.uint8), moved)
    options = make_options(masks, tmp_path / "phase", "segmentation", predictions=predictions)
    with pytest.raises(HecktorError, match=r"^predictions submission: P1: .*its grid is"):
        make_phase(options, images, lambda _: None)
    write_volume(masks / "P1.mha", Volume(np.full(GRID.array_shape, 7, np.uint8), GRID))
    with pytest.raises(HecktorError, match=r"^P1\.mha: "):
        make_phase(options, images, lambda _: None)
    assert (images.built, (tmp_path / "phase" / "phase.json").exists()) == ([], False)


def test_a_failed_try_keeps_the_earlier_files(table: Path, tmp_path: Path) -> None:
    """Evaluations without one of the leaderboard's figures, or that end with an error, leave logs and no new file."""
    output = tmp_path / "phase"
    make_phase(make_options(table, output), None, lambda _: None)
    earlier = (output / "phase.json").read_bytes()
    python = shlex.split(sys.executable)
    script = tmp_path / "evaluation.py"
    script.write_text(
        "import json, sys\n"
        "folder = sys.argv[sys.argv.index('--output') + 1]\n"
        "json.dump({'aggregates': {'c_index': {'value': 1}}}, open(folder + '/metrics.json', 'w'))\n"
    )
    for command, message in (
        ((*python, str(script)), r"^perfect submission: metrics\.json: found no aggregates\.c_index\.ci95_half_width; no"),
        ((*python, "-c", "raise SystemExit('broken')"), r"^perfect submission: evaluation: exit status 1.*broken.*logs in f"),
    ):  # fmt: skip
        with pytest.raises(HecktorError, match=message):
            make_phase(make_options(table, output), StubImages(command), lambda _: None)
        assert (output / "phase.json").read_bytes() == earlier
        assert list_names(output) == ["README.md", "failed", "ground_truth.tar.gz", "phase.json", "rehearsal"]
        assert (output / "failed" / "images.log").read_text() == "built\n"


def test_a_folder_with_other_content_is_refused(table: Path, tmp_path: Path) -> None:
    with pytest.raises(HecktorError, match="exists and is not the folder of a phase"):
        make_phase(make_options(table, table.parent), None, lambda _: None)


def test_a_phase_is_made_where_a_killed_run_left_its_temporary_folder(table: Path, tmp_path: Path) -> None:
    """Two earlier runs were killed, one while it wrote, one while it moved the earlier phase aside."""
    output = tmp_path / "phase"
    (output / ".partial-first" / "ground_truth").mkdir(parents=True)
    make_phase(make_options(table, output), None, lambda _: None)
    written = sorted(path.name for path in output.iterdir())
    assert written == ["README.md", "ground_truth.tar.gz", "phase.json", "rehearsal"]
    moved = output / ".partial-second" / "earlier"
    moved.mkdir(parents=True)
    (output / "phase.json").rename(moved / "phase.json")
    make_phase(make_options(table, output), None, lambda _: None)
    assert sorted(path.name for path in output.iterdir()) == written


def test_without_an_engine_only_the_ground_truth_is_made(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["phase", "--task", "2", "--ground-truth", str(table), "--output", str(tmp_path / "phase")]
    assert main([*options, "--engine", "no-such-client"]) == 1
    message = capsys.readouterr().err
    assert message.startswith("error: no container engine can build images (tried no-such-client)")
    assert message.endswith("(`scripts/engine` on Debian) and run this again, or use --no-image\n")
    assert list_names(tmp_path / "phase") == ["README.md", "ground_truth.tar.gz", "phase.json", "rehearsal"]
    with pytest.raises(SystemExit):
        main([*options, "--no-image", "--level", "3"])
    assert "argument --level: found with --no-image" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*options, "--no-image", "--api-method", "invoke"])
    assert "argument --api-method: found with --no-image" in capsys.readouterr().err
