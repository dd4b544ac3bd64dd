"""`hecktor train heads --nnunet RESULTS --splits FILE`: out-of-fold masks of a finished nnU-Net training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baseline.cli import main
from baseline.release.cases import read_cases
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.files import read_json, write_json
from contract.images.volumes import write_mask
from tests.baseline.package.nnunet_results import edit_training
from tests.baseline.test_given_masks import block

Splits = list[dict[str, list[str]]]


def heads(work: WorkFolders, results: Path, splits: Path, *options: str) -> None:
    given = ["--nnunet", str(results), "--splits", str(splits), "--jobs", "1", *options]
    assert main(["heads", "--work", str(work.root), *given]) == 0


@pytest.fixture
def splits(prepared: tuple[WorkFolders, Path], tmp_path: Path) -> Path:
    """nnU-Net's splits of the eight patients: even numbers are held out by fold 0, odd ones by fold 1."""
    names = [case.patient_id for case in read_cases(prepared[0])]
    write_json(
        tmp_path / "splits_final.json",
        [{"train": names[1 - fold :: 2], "val": names[fold::2]} for fold in (0, 1)],
    )
    return tmp_path / "splits_final.json"


@pytest.mark.slow
def test_masks_of_nnunets_own_validation(
    prepared: tuple[WorkFolders, Path], results: Path, splits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Features are those of the same masks by `--masks`. In this training GTVp has number 2 and GTVn number 1."""
    work, masks = prepared
    assert main(["heads", "--work", str(work.root), "--masks", str(masks), "--jobs", "1"]) == 0
    rows = read_json(work.features_json)["result"]
    edit_training("dataset.json", lambda dataset: dataset["labels"].update(GTVp=2, GTVn=1))(results)
    for number, case in enumerate(read_cases(work)):
        mask, grid = block(case)
        path = results / f"fold_{number % 2}" / "validation" / f"{case.patient_id}.nii.gz"
        path.parent.mkdir(exist_ok=True)
        write_mask(path, np.array([0, 2, 1], np.uint8)[mask], grid)
    capsys.readouterr()
    heads(work, results, splits, "--labels", "GTVp=2,GTVn=1")
    assert "fold_*/validation" in capsys.readouterr().out
    assert read_json(work.features_json)["result"] == rows
    with pytest.raises(HecktorError, match="--labels: found GTVp=7,GTVn=1"):
        heads(work, results, splits, "--labels", "GTVp=7,GTVn=1")
    (results / "fold_1" / "validation" / f"{read_cases(work)[3].patient_id}.nii.gz").unlink()
    with pytest.raises(HecktorError, match=r"^fold_1/validation: no mask of CHUM-003, expected .* 1 --val"):
        heads(work, results, splits)


def _in_both(folds: Splits) -> None:
    folds[1]["val"].append(folds[0]["val"][0])


def _in_its_own_training(folds: Splits) -> None:
    folds[0]["train"].append(folds[0]["val"][0])


FAULTS: dict[str, tuple[Callable[[Splits], Any], str]] = {
    "a patient of no fold": (
        lambda folds: folds[0]["val"].pop(0),
        r"splits_final\.json: no CHUM-000, expected each prepared patient in the val of one fold",
    ),
    "a patient of two folds": (_in_both, r"CHUM-000 in the val of several folds, expected each in one"),
    "a patient of training and fold": (_in_its_own_training, r"splits_final\.json\[0\]: CHUM-000 in train and in val"),
    "fewer folds than networks": (
        lambda folds: folds.pop(),
        r"splits_final\.json: 1 folds, and in .* fold_0, fold_1, expected one trained network for each fold",
    ),
    "another key": (
        lambda folds: folds[0].update(test=[]),
        r"splits_final\.json\[0\]\.test: found \[\], expected no such key",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_splits_of_another_training_are_refused(
    fault: str, prepared: tuple[WorkFolders, Path], results: Path, splits: Path
) -> None:
    change, message = FAULTS[fault]
    folds = read_json(splits)
    change(folds)
    write_json(splits, folds)
    with pytest.raises(HecktorError, match=message):
        heads(prepared[0], results, splits)


def test_validation_of_other_patients_refuses_the_splits(
    prepared: tuple[WorkFolders, Path], results: Path, splits: Path
) -> None:
    """Fold 0 was validated on a patient whom the splits hold out in fold 1."""
    case = read_cases(prepared[0])[1]
    path = results / "fold_0" / "validation" / f"{case.patient_id}.nii.gz"
    path.parent.mkdir()
    write_mask(path, *block(case))
    with pytest.raises(HecktorError, match=rf"splits_final\.json: fold_0/validation has {case.patient_id}, expected"):
        heads(prepared[0], results, splits)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--splits", "."], "--splits: found without --nnunet, expected both"),
        (["--nnunet", "."], "--nnunet: found without --splits, expected splits_final.json"),
        (["--nnunet", ".", "--masks", "reference"], "--masks: found with --nnunet, expected one of them"),
        (["--nnunet", ".", "--networks", "."], "--nnunet: found with --networks, expected one of them"),
    ],
)
def test_options_that_do_not_go_together(options: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(HecktorError, match=message):
        main(["heads", "--work", str(tmp_path), *options])
