"""Out-of-fold masks of a finished nnU-Net training: those that nnU-Net writes when it validates each fold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from baseline.package.nnunet_results import check_folder, folds_of
from baseline.package.order import lesion_numbers
from baseline.release.cases import read_cases
from baseline.work import WorkFolders
from contract.errors import InputError
from contract.files import read_json
from contract.patient import difference_of_ids, listed

_MOST_NAMES: Final = 5


@dataclass(frozen=True)
class FoldMasks:
    """Out-of-fold masks by patient ID, the numbers of GTVp and GTVn in them, and a line on their origin."""

    paths: Mapping[str, Path]
    lesions: tuple[int, ...]
    origin: str


def fold_masks(work: WorkFolders, folder: Path, lesions: tuple[int, ...] | None) -> FoldMasks:
    """A mask of each prepared patient by the network of a finished training that held the patient out.

    Args:
        work: the prepared working directory.
        folder: nnU-Net's results folder, whose `fold_*/validation` hold the masks.
        lesions: numbers of GTVp and GTVn; None if `dataset.json` has these names.

    Raises:
        HecktorError: no numbered folds, or a patient has no mask or several.
    """
    check_folder(folder)
    name, dataset = folder.resolve().name, read_json(folder / "dataset.json")
    masks = _validation_masks(folder, name, str(dataset.get("file_ending", ".nii.gz")))
    wanted = {case.patient_id for case in read_cases(work)}
    others = sorted(masks.keys() - wanted)
    if absent := sorted(wanted - masks.keys()):
        expected = "one of each prepared patient (`nnUNetv2_train DATASET CONFIGURATION FOLD --val` writes a fold's)"
        found = f"no mask of {listed(absent, _MOST_NAMES)}"
        raise InputError(f"{name}/fold_*/validation", found, expected + difference_of_ids(others, absent))
    rest = f"; {listed(others, _MOST_NAMES)} not prepared, left out" if others else ""
    origin = f"masks of nnU-Net's own validation, {name}/fold_*/validation{rest}"
    return FoldMasks({patient: masks[patient] for patient in wanted}, lesion_numbers(dataset, lesions), origin)


def _validation_masks(folder: Path, name: str, ending: str) -> dict[str, Path]:
    """nnU-Net's own masks of the patients whom each fold held out, by patient ID."""
    masks: dict[str, Path] = {}
    for fold in folds_of(folder):
        if fold == "all":  # it is validated on its own training patients
            raise InputError(name, "found fold_all alone", "numbered folds, whose networks held patients out")
        for path in sorted((folder / f"fold_{fold}" / "validation").glob(f"*{ending}")):
            patient = path.name.removesuffix(ending)
            if patient in masks:
                twice = f"{patient} in the validation of fold {masks[patient].parts[-3][5:]} and of fold {fold}"
                raise InputError(name, twice, "each patient held out by one fold")
            masks[patient] = path
    return masks
