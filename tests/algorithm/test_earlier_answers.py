"""A run that fails leaves no earlier answer of its task in its place, and touches nothing of other tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from algorithm.cli import main
from contract.errors import HecktorError, OutputError
from contract.platform import OUTPUT_DIR
from tests.conftest import CaseFolder

MASK = "images/tumor-lymph-node-segmentation/output.mha"
TASKS = {"segmentation": ("threshold", MASK), "rfs": ("clinical", "rfs.json"), "hpv": ("clinical", "hpv-status.json")}
pytestmark = pytest.mark.usefixtures("root_logger")


def answer(case: CaseFolder, task: str, output: Path, *more: str) -> int:
    options = ["--task", task, "--method", TASKS[task][0], "--input", str(case.input), "--output", str(output)]
    return main([*options, *more])


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_tasks_share_a_folder_and_a_failure_removes_its_own_answer(case_folder: CaseFolder) -> None:
    case_folder.write()
    for task in TASKS:
        assert answer(case_folder, task, case_folder.output) == 0
    assert files(case_folder.output) == {name for _, name in TASKS.values()}
    case_folder.ehr_path.write_text("[]")
    for task in ("rfs", "hpv"):
        with pytest.raises(HecktorError):
            answer(case_folder, task, case_folder.output)
    assert files(case_folder.output) == {MASK}
    case_folder.ct_path.write_bytes(case_folder.ct_path.read_bytes()[:300])
    with pytest.raises(HecktorError):
        answer(case_folder, "segmentation", case_folder.output)
    assert not files(case_folder.output)


@pytest.mark.parametrize("failure", ["ct", "model"])
def test_a_named_mask_of_an_earlier_run_goes(case_folder: CaseFolder, failure: str) -> None:
    case_folder.write()
    mask = case_folder.root / "mask.nii.gz"
    assert answer(case_folder, "segmentation", mask) == 0
    assert mask.is_file()
    more = (
        ("--edition", "hecktor2025", "--method", "baseline", "--model", str(case_folder.root))
        if failure == "model"
        else ()
    )
    if failure == "ct":
        case_folder.ct_path.write_bytes(b"")
    with pytest.raises(HecktorError):
        answer(case_folder, "segmentation", mask, *more)
    assert not mask.exists()


def test_an_input_named_as_output_is_not_removed(case_folder: CaseFolder) -> None:
    case_folder.write()
    with pytest.raises(OutputError):
        answer(case_folder, "segmentation", case_folder.ct_path)
    assert case_folder.ct_path.is_file()


def test_an_earlier_answer_that_cannot_be_removed_is_named(case_folder: CaseFolder) -> None:
    case_folder.write()
    (case_folder.output / "rfs.json").mkdir()
    with pytest.raises(OutputError, match=r"rfs\.json.*--output"):
        answer(case_folder, "rfs", case_folder.output)


@pytest.mark.skipif(OUTPUT_DIR.is_dir(), reason="this machine has the platform's output folder")
def test_outside_a_container_an_output_is_named(case_folder: CaseFolder, capsys: pytest.CaptureFixture[str]) -> None:
    case_folder.write()
    with pytest.raises(SystemExit, match="2"):
        main(["--task", "rfs", "--method", "clinical", "--input", str(case_folder.input)])
    assert "--output not given" in capsys.readouterr().err
