"""Out-of-fold masks of a finished nnU-Net training: those that nnU-Net writes when it validates each fold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from baseline.package.nnunet_results import check_folder, folds_of
from baseline.package.order import lesion_numbers
from baseline.release.cases import ReleaseCase, read_cases
from baseline.work import WorkFolders
from contract.documents import Document, parse_document
from contract.errors import InputError
from contract.files import read_json
from contract.patient import difference_of_ids, listed

_MOST_NAMES: Final = 5


class NnunetSplit(Document):
    """One entry of nnU-Net's `splits_final.json`: IDs of the patients of one fold."""

    train: tuple[str, ...]
    val: tuple[str, ...]


@dataclass(frozen=True)
class FoldMasks:
    """Out-of-fold masks by patient ID, the numbers of GTVp and GTVn in them, and a line on their origin."""

    paths: Mapping[str, Path]
    lesions: tuple[int, ...]
    origin: str


def fold_masks(work: WorkFolders, folder: Path, splits: Path, lesions: tuple[int, ...] | None) -> FoldMasks:
    """A mask of each prepared patient by the network of a finished training that never saw the patient.

    Args:
        work: the prepared working directory.
        folder: nnU-Net's results folder, whose `fold_*/validation` hold the masks.
        splits: nnU-Net's `splits_final.json` of that training.
        lesions: numbers of GTVp and GTVn; None if `dataset.json` has these names.

    Raises:
        HecktorError: the splits do not fit the results, a mask is missing, or a patient was in the training of its
            fold or of all folds.
    """
    check_folder(folder)
    cases, folds, dataset = read_cases(work), _read_splits(splits), read_json(folder / "dataset.json")
    fold_of = _held_out_folds(splits.name, folds, cases, folder)
    masks = _validation_masks(folder, splits.name, folds, str(dataset.get("file_ending", ".nii.gz")))
    if absent := sorted(fold_of.keys() - masks.keys()):
        found = f"no mask of {listed(absent, _MOST_NAMES)}"
        expected = f"one of each prepared patient: `nnUNetv2_train DATASET CONFIGURATION {fold_of[absent[0]]} --val`"
        raise InputError(f"fold_{fold_of[absent[0]]}/validation", found, f"{expected} writes those of a fold")
    others = {name for fold in folds for name in fold.val} - fold_of.keys()
    rest = f"; {listed(sorted(others), _MOST_NAMES)} of {splits.name} not prepared, left out" if others else ""
    origin = f"masks of nnU-Net's own validation, {folder.resolve().name}/fold_*/validation{rest}"
    return FoldMasks({name: masks[name] for name in fold_of}, lesion_numbers(dataset, lesions), origin)


def _read_splits(path: Path) -> list[NnunetSplit]:
    content = read_json(path)
    if not isinstance(content, list) or not content:
        raise InputError(path.name, f"found {type(content).__name__}", "a list of folds, each with train and val")
    return [parse_document(fold, NnunetSplit, f"{path.name}[{number}]") for number, fold in enumerate(content)]


def _held_out_folds(
    name: str, folds: Sequence[NnunetSplit], cases: Sequence[ReleaseCase], folder: Path
) -> dict[str, str]:
    """The fold that held each prepared patient out, by patient ID."""
    trained = folds_of(folder)
    if sorted(trained) != sorted(map(str, range(len(folds)))):
        found = f"{len(folds)} folds, and in {folder.resolve().name} {', '.join(f'fold_{one}' for one in trained)}"
        raise InputError(name, found, "one trained network for each fold")
    times = Counter(patient for fold in folds for patient in fold.val)
    wanted = [case.patient_id for case in cases]
    if absent := [patient for patient in wanted if not times[patient]]:
        expected = "each prepared patient in the val of one fold" + difference_of_ids(sorted(times), absent)
        raise InputError(name, f"no {listed(absent, _MOST_NAMES)}", expected)
    if twice := [patient for patient in wanted if times[patient] > 1]:
        raise InputError(name, f"{listed(twice, _MOST_NAMES)} in the val of several folds", "each in one")
    for number, fold in enumerate(folds):
        if seen := sorted(set(fold.train) & set(fold.val)):
            raise InputError(f"{name}[{number}]", f"{seen[0]} in train and in val", "each patient in one of them")
    return {patient: str(number) for number, fold in enumerate(folds) for patient in fold.val if patient in wanted}


def _validation_masks(folder: Path, name: str, folds: Sequence[NnunetSplit], ending: str) -> dict[str, Path]:
    """nnU-Net's own masks of the held-out patients, by patient ID.

    Raises `InputError` if nnU-Net validated a fold on patients that the splits do not hold out there.
    """
    masks: dict[str, Path] = {}
    for number, fold in enumerate(folds):
        paths = sorted((folder / f"fold_{number}" / "validation").glob(f"*{ending}"))
        of_fold = {path.name.removesuffix(ending): path for path in paths}
        if others := sorted(of_fold.keys() - set(fold.val)):
            found = f"fold_{number}/validation has {listed(others, _MOST_NAMES)}"
            raise InputError(name, found, f"its patients in the val of fold {number}: the splits of this training")
        masks |= of_fold
    return masks
