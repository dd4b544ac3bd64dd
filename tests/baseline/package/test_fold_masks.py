"""`hecktor train heads --nnunet RESULTS --splits FILE`: out-of-fold masks of a finished nnU-Net training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithm import Predictor
from baseline.cli import main
from baseline.release.cases import read_cases
from baseline.work import WorkFolders
from contract.errors import HecktorError
from contract.files import read_json, write_json
from contract.images.volumes import read_volume, write_mask
from tests.baseline.package.nnunet_results import edit_training, package
from tests.baseline.test_given_masks import block

Splits = list[dict[str, list[str]]]


def heads(work: WorkFolders, results: Path, splits: Path, *options: str) -> None:
    given = ["--nnunet", str(results), "--splits", str(splits), "--jobs", "1", "--device", "cpu", *options]
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
def test_each_patient_is_segmented_as_a_package_of_its_fold_would(
    prepared: tuple[WorkFolders, Path], results: Path, splits: Path, tmp_path: Path
) -> None:
    """Voxel by voxel, the masks of the first patients of both folds are those of packages with one fold alone and two
    passes: as it is, and mirrored along z. Heads are fitted on them, and a second run segments nothing.
    """
    work = prepared[0]
    heads(work, results, splits, "--passes", "2")
    folds = read_json(splits)
    for fold in (0, 1):
        name = folds[fold]["val"][0]
        case = next(case for case in read_cases(work) if case.patient_id == name)
        assert package(results, tmp_path / f"alone_{fold}", "--folds", str(fold)) == 0
        alone = Predictor(tmp_path / f"alone_{fold}", device="cpu", passes=2).predict_files(case.ct, case.pet)
        mask = read_volume(work.mask(name)).array
        assert mask.any()
        np.testing.assert_array_equal(mask, alone.mask)
    assert sorted(read_json(work.heads_json)) == ["hpv", "hpv_clinical", "rfs", "rfs_clinical"]
    masks = sorted((work.measured / "nnunet" / "masks").iterdir())
    times = [path.stat().st_mtime_ns for path in masks]
    heads(work, results, splits, "--passes", "2")
    assert [path.stat().st_mtime_ns for path in masks] == times
    assert len(times) == 8


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
    assert not (work.measured / "nnunet").exists()
    with pytest.raises(HecktorError, match="--labels: found GTVp=7,GTVn=1"):
        heads(work, results, splits, "--labels", "GTVp=7,GTVn=1")


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
        (["--passes", "1"], "--passes: found without --nnunet, expected both"),
        (["--channels", "CT=0,PET=1"], "--channels: found without --nnunet, expected both"),
        (["--nnunet", "x"], "--nnunet: found without --splits, expected splits_final.json"),
        (["--nnunet", "x", "--masks", "reference"], "--masks: found with --nnunet, expected one of them"),
        (["--nnunet", "x", "--networks", "y"], "--nnunet: found with --networks, expected one of them"),
    ],
)
def test_options_that_do_not_go_together(options: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(HecktorError, match=message):
        main(["heads", "--work", str(tmp_path), *options])
