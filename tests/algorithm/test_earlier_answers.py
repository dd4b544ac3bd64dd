"""Earlier answers of a task are removed if its run fails; files of other tasks stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from algorithm.cli import main
from contract.errors import HecktorError, OutputError
from contract.platform import OUTPUT_DIR
from tests.algorithm.conftest import list_files
from tests.conftest import CaseFolder

MASK = "images/tumor-lymph-node-segmentation/output.mha"
TASKS = {"segmentation": ("threshold", MASK), "rfs": ("clinical", "rfs.json"), "hpv": ("clinical", "hpv-status.json")}
pytestmark = pytest.mark.usefixtures("root_logger")


def predict(case: CaseFolder, task: str, output: Path, *more: str) -> int:
    options = ["--task", task, "--method", TASKS[task][0], "--input", str(case.input), "--output", str(output)]
    return main([*options, *more])


def test_tasks_share_a_folder_and_a_failure_removes_its_own_answer(case_folder: CaseFolder) -> None:
    case_folder.write()
    for task in TASKS:
        assert predict(case_folder, task, case_folder.output) == 0
    assert list_files(case_folder.output) == sorted(name for _, name in TASKS.values())
    case_folder.ehr_path.write_text("[]")
    for task in ("rfs", "hpv"):
        with pytest.raises(HecktorError):
            predict(case_folder, task, case_folder.output)
    assert list_files(case_folder.output) == [MASK]
    case_folder.ct_path.write_bytes(case_folder.ct_path.read_bytes()[:300])
    with pytest.raises(HecktorError):
        predict(case_folder, "segmentation", case_folder.output)
    assert not list_files(case_folder.output)


@pytest.mark.parametrize(
    ("option", "value", "output"),
    [
        ("--input", "absent", "output"),
        ("--input", "absent", "mask.nii.gz"),
        ("--input", "empty", "output"),
        ("--model", "absent", "output"),
        ("--model", "empty", "output"),
        ("--edition", "absent", "output"),
        ("--code", "absent", "output"),
        ("--ct", "absent", "output"),
        ("--port", "1", "output"),
    ],
)
def test_a_run_that_is_refused_leaves_no_earlier_answer(
    case_folder: CaseFolder, option: str, value: str, output: str
) -> None:
    """An earlier answer could be mistaken for the answer of the refused run; nothing is at `absent`."""
    case_folder.write()
    (case_folder.root / "empty").mkdir()
    path = case_folder.root / output
    record = case_folder.root / "record.json"
    assert predict(case_folder, "segmentation", path, "--record", str(record)) == 0
    assert record.is_file()
    words = {"--input": str(case_folder.input), "--output": str(path), "--record": str(record)}
    if option == "--ct":
        del words["--input"]
    words[option] = value if option == "--port" else str(case_folder.root / value)
    with pytest.raises(HecktorError):
        main(["--task", "segmentation", *(word for pair in words.items() for word in pair)])
    assert not record.exists()
    assert not list_files(path) if path.is_dir() else not path.exists()


def test_without_a_package_that_tells_the_edition_answers_of_another_task_stay(case_folder: CaseFolder) -> None:
    case_folder.write()
    for task in TASKS:
        assert predict(case_folder, task, case_folder.output) == 0
    with pytest.raises(HecktorError, match="--model"):
        predict(case_folder, "rfs", case_folder.output, "--model", "absent.tar.gz")
    assert list_files(case_folder.output) == ["hpv-status.json", MASK]


def test_contours_stay_though_they_are_the_answer_of_another_task(case_folder: CaseFolder) -> None:
    """Without a readable package the first task may belong to any edition, for example HECKTOR 2026 with a mask."""
    case_folder.write()
    assert predict(case_folder, "segmentation", case_folder.output) == 0
    contours = str(case_folder.output / MASK)
    with pytest.raises(HecktorError, match="--model"):
        main(["--task", "1", "--model", "absent", "--contours", contours, "--output", str(case_folder.output)])
    assert list_files(case_folder.output) == [MASK]


@pytest.mark.parametrize("named", ["ct_0000.mha", "ct_0001.mha", "pet.mha", "lesions.mha"])
def test_a_plain_file_named_as_output_is_not_removed(case_folder: CaseFolder, named: str) -> None:
    """CT, PET with nnU-Net's name, PET with another name, and contours are not removed as mask or as record."""
    case_folder.write()
    paths = {name: case_folder.root / name for name in ("ct_0000.mha", "ct_0001.mha", "pet.mha", "lesions.mha")}
    for path in paths.values():
        path.write_bytes(b"image")
    inputs = ["--ct", str(paths["ct_0000.mha"]), "--contours", str(paths["lesions.mha"])]
    inputs += ["--pet", str(paths["pet.mha"])] if named == "pet.mha" else []
    for outputs in (["--output", str(paths[named])], ["--output", "o", "--record", str(paths[named])]):
        with pytest.raises(OutputError):
            main(["--task", "segmentation", "--code", "absent", *inputs, *outputs])
        assert paths[named].is_file()


def test_an_earlier_answer_that_cannot_be_removed_is_named(case_folder: CaseFolder) -> None:
    case_folder.write()
    (case_folder.output / "rfs.json").mkdir()
    with pytest.raises(OutputError, match=r"rfs\.json.*--output"):
        predict(case_folder, "rfs", case_folder.output)


@pytest.mark.skipif(OUTPUT_DIR.is_dir(), reason="this machine has the platform's output folder")
def test_outside_a_container_an_output_is_named(case_folder: CaseFolder, capsys: pytest.CaptureFixture[str]) -> None:
    case_folder.write()
    with pytest.raises(SystemExit, match="2"):
        main(["--task", "rfs", "--method", "clinical", "--input", str(case_folder.input)])
    assert "--output not given" in capsys.readouterr().err
