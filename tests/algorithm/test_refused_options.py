"""Options of `predict` that contradict each other, and paths that cannot be used, are refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from algorithm.arguments import check_case_folder
from algorithm.cli import main
from contract.errors import HecktorError, InputError
from contract.images.volumes import write_mask, write_volume
from tests.conftest import CaseFolder

CASE = "--input input --output output"
CONTOURS = f"--contours mask.mha {CASE}"
PROBABILITIES = f"--probabilities probabilities {CASE}"
SOCKETS_ONLY = "which may contain only the platform's sockets, expected a path"
CT, PET = "images/B7_0000.nii.gz", "images/B7_0001.nii.gz"
REFUSED = {
    f"--task 1 --method threshold --model model {CASE}": "--model: found with method 'threshold'",
    f"--task 1 --method threshold --passes 1 {CASE}": "--passes: method 'threshold' makes no passes",
    f"--task 1 --method threshold --port 0 {CASE}": "--port: found without --serve",
    f"--task 1 {CONTOURS}": "--contours: found with task segmentation, which answers a mask",
    f"--task 2 --method clinical {CONTOURS}": "--contours: found with method 'clinical', expected 'baseline'",
    f"--task 2 --passes 1 {CONTOURS}": "--passes: found with --contours, expected one of them",
    f"--task 3 --serve {CONTOURS}": "--serve: found with --contours, expected one of them",
    f"--task 3 --contours absent.mha {CASE}": "--contours: no such file or folder: ",
    f"--task 1 --serve {PROBABILITIES}": "found with --serve, expected one of them",
    f"--task 1 --method threshold {PROBABILITIES}": "method 'threshold' makes no passes, expected 'baseline'",
    f"--task 1 --probabilities output/images {CASE}": SOCKETS_ONLY,
    f"--task 1 --probabilities output/../input/images {CASE}": SOCKETS_ONLY,
    f"--task 2 --probabilities mask.mha/below {CASE}": "--probabilities: GTVp_probability.nii.gz cannot be replaced",
    f"--task 2 --record output/record.json {CASE}": SOCKETS_ONLY,
    "--ct images --output output --record r.json": "--record: found with many cases in --ct, expected one of them",
    "--ct images --output output --method threshold": "--method: found 'threshold' with many cases in --ct",
    "--ct images --output images": "--output: the folder of --ct, expected another folder",
    "--ct images --output output --pet absent": "--pet: no such file or folder: ",
    "--ct images": "--output: not given, expected a folder",
    "--ct images --output new.mha": "--output: the file new.mha, expected a folder, since --ct has many cases",
    f"--ct {CT} --resume --output new.mha": "--resume: found with one case, expected a folder or a table of cases",
    f"--ct {CT} --output mask.mhd": "--output: mask.mhd, expected a folder, or a mask's file in .mha, .nii.gz, .nii",
    f"--ct {CT} --output MASK.TIFF": "--output: MASK.TIFF, expected a folder, or a mask's file in .mha, .nii.gz, .nii",
    f"--ct {CT} --output {CT}": "B7_0000.nii.gz is a file of the case",
    f"--ct {CT} --output images/../{PET}": "B7_0001.nii.gz is a file of the case",
    f"--ct {CT} --output new.mha --record {PET}": "B7_0001.nii.gz is a file of the case",
    "--input input --output input/images/ct/0a1b2c3d-ct.mha": "lies within ",
    "--ct mask.mha --output new.mha": "--pet: not given, with a CT named mask.mha",
    f"--ct {CT} --pet {CT} --output new.mha": "--pet: the file of --ct",
    f"--ct {CT} --pet images/absent.mha --output new.mha": "--pet: no ",
    f"--ct input/ehr.json --pet {CT} --output new.mha": "--ct: ehr.json",
    f"--task rfs --ct {CT} --output new.mha": "--output: the image new.mha",
    f"--task rfs --ct {CT} --output new": "--ehr: not given",
}


@pytest.fixture
def folder(case_folder: CaseFolder, tiny_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a case in the platform's layout and as files with nnU-Net's names, a mask, and a link to the package."""
    case = case_folder.write()
    write_volume(tmp_path / CT, case.ct)
    write_volume(tmp_path / PET, case.pet)
    write_mask(tmp_path / "mask.mha", np.zeros(case.ct.array.shape, np.uint8), case.ct.geometry)
    (tmp_path / "model").symlink_to(tiny_package)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("words", REFUSED)
@pytest.mark.usefixtures("root_logger")
def test_refused_options(folder: Path, words: str) -> None:
    model = "" if "--method threshold" in words else " --model model"
    before = {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}
    with pytest.raises(HecktorError) as refused:
        main(f"--device cpu{model} {words}".split())
    assert REFUSED[words] in str(refused.value)
    assert {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")} == before


@pytest.mark.parametrize("words", ["--task 1 --pet mask.mha", f"--ct {CT} --input input"])
def test_options_that_exclude_each_other_are_usage_errors(folder: Path, words: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words.split())


def test_the_folder_of_a_case_that_was_meant_is_named(tmp_path: Path) -> None:
    case = tmp_path / "cohort" / "CASE" / "input"
    (case / "images").mkdir(parents=True)
    check_case_folder(case)
    for folder in (case.parent, case.parents[1]):
        with pytest.raises(InputError, match=r"expected --input .*/CASE/input$"):
            check_case_folder(folder)
    with pytest.raises(InputError, match=r"expected the folder of a case \(of a release: --ct FILE --pet FILE\)$"):
        check_case_folder(case / "images")
