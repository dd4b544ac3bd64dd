"""Tests of `hecktor train heads --nnunet RESULTS`, which uses out-of-fold masks of a finished nnU-Net training."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from baseline.cli import main
from baseline.release.cases import read_cases
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.images.volumes import read_volume, write_mask
from contract.io.files import read_json
from tests.baseline.package.nnunet_results import edit_training
from tests.baseline.prepared import make_block


def run_heads(work: WorkFolders, results: Path, *options: str) -> None:
    assert main(["heads", "--work", str(work.root), "--nnunet", str(results), "--jobs", "1", *options]) == 0


@pytest.mark.slow
def test_masks_of_nnunets_own_validation(
    work_with_heads: tuple[WorkFolders, Path], results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Features equal the features of the same masks by `--masks`. In this training GTVp has number 2 and GTVn number 1."""
    work, masks = work_with_heads
    rows = read_json(work.features_json)["result"]
    edit_training("dataset.json", lambda dataset: dataset["labels"].update(GTVp=2, GTVn=1))(results)
    for number, case in enumerate(read_cases(work)):
        mask = read_volume(next(masks.glob(f"{case.patient_id}.*")))
        path = results / f"fold_{number % 2}" / "validation" / f"{case.patient_id}.nii.gz"
        path.parent.mkdir(exist_ok=True)
        write_mask(path, np.array([0, 2, 1], np.uint8)[mask.array], mask.geometry)
    capsys.readouterr()
    run_heads(work, results, "--labels", "GTVp=2,GTVn=1")
    assert "fold_*/validation" in capsys.readouterr().out
    assert read_json(work.features_json)["result"] == rows
    with pytest.raises(HecktorError, match="--labels: found GTVp=7,GTVn=1"):
        run_heads(work, results, "--labels", "GTVp=7,GTVn=1")
    (results / "fold_1" / "validation" / f"{read_cases(work)[3].patient_id}.nii.gz").unlink()
    with pytest.raises(HecktorError, match=r"/fold_\*/validation: no mask of CHUM-003, expected one of each .* --val"):
        run_heads(work, results)


def test_a_patient_of_two_folds_is_refused(work_and_masks: tuple[WorkFolders, Path], results: Path) -> None:
    case = read_cases(work_and_masks[0])[1]
    for fold in (0, 1):
        path = results / f"fold_{fold}" / "validation" / f"{case.patient_id}.nii.gz"
        path.parent.mkdir()
        write_mask(path, *make_block(case))
    with pytest.raises(HecktorError, match=rf"{case.patient_id} in the validation of fold 0 and of fold 1, expected"):
        run_heads(work_and_masks[0], results)


def test_a_training_on_all_patients_is_refused(work_and_masks: tuple[WorkFolders, Path], results: Path) -> None:
    """nnU-Net validates `fold_all` on the patients that it was trained on."""
    (results / "fold_0").rename(results / "fold_all")
    shutil.rmtree(results / "fold_1")
    with pytest.raises(HecktorError, match="found only fold_all, expected numbered folds"):
        run_heads(work_and_masks[0], results)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--nnunet", ".", "--masks", "reference"], "--masks: found with --nnunet, expected one of them"),
        (["--nnunet", ".", "--networks", "."], "--nnunet: found with --networks, expected one of them"),
    ],
)
def test_options_that_do_not_go_together(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cases.json", "plans.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(HecktorError, match=message):
        main(["heads", "--work", str(tmp_path), *options])
