"""Find the scans, reference masks and tables of a cohort's patients, and read figures of the scans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from contract.editions import Edition
from contract.editions.inputs import CT, PET
from contract.errors import GroundTruthError, HecktorError
from contract.images.volumes import find_image_suffix, find_single_image, list_images
from contract.io.files import suggest_folder
from contract.io.tables import remove_apostrophes
from contract.platform import is_system_name, normalise_unicode
from contract.release.layout import TASK_FOLDERS, find_release_folders, list_csv_files
from evaluation.inputs.ground_truth import read_mask_folder
from evaluation.inputs.tables import parse_number, read_table

GROUND_TRUTH: Final = "ground_truth"
_RELEASE_MARKS: Final = {"ct": "__CT", "pet": "__PT", "mask": ""}


@dataclass(frozen=True)
class PatientFiles:
    """CT, PET (SUV) and reference mask of one patient, and the predicted masks by team."""

    case: str
    ct: Path
    pet: Path
    reference: Path
    predictions: Mapping[str, Path] = field(default_factory=dict)


def find_scans(cohort: Path, edition: Edition) -> list[PatientFiles]:
    """Find every case of a cohort, sorted.

    The cohort has the platform's layout, `<case>/input/...` and `ground_truth/<case>.mha`, or the release's:
    `<case>/<case>__CT.nii.gz`, `<case>/<case>__PT.nii.gz` and `<case>/<case>.nii.gz`.

    Raises:
        GroundTruthError: There is no case, or a case does not have exactly one CT, one PET and one mask.
    """
    if CT not in edition.inputs:
        raise GroundTruthError(
            cohort.name, f"edition {edition.name} without CT and PET", "an edition with both, which the pictures show"
        )
    if (cohort / GROUND_TRUTH).is_dir():
        references = read_mask_folder(cohort / GROUND_TRUTH).targets
        return [_find_platform_files(cohort / case / "input", case, path, edition) for case, path in references.items()]
    return [_find_release_files(folder) for folder in list_release_cases(cohort)]


def list_release_cases(cohort: Path) -> list[Path]:
    """List the folders of the cases of a cohort in the release's layout; the list is empty in the platform's layout.

    Raises:
        GroundTruthError: The cohort has neither of the two layouts.
    """
    if (cohort / GROUND_TRUTH).is_dir():
        return []
    folders = sorted(path for path in cohort.iterdir() if path.is_dir()) if cohort.is_dir() else []
    cases = [folder for folder in folders if not is_system_name(folder.name) and _find_release_images(folder)]
    if not cases:
        expected = f"{GROUND_TRUTH}/<case>.mha next to <case>/input, or <case>/<case>__CT, __PT and mask"
        nearby = suggest_folder(cohort, lambda path: (path / GROUND_TRUTH).is_dir())
        raise GroundTruthError(cohort.absolute().name, f"no case found{nearby}", expected)
    return cases


def list_tables(cohort: Path, edition: Edition) -> list[Path]:
    """List the tables next to a cohort's reference masks or, for a release, the tables of its folders."""
    if (cohort / GROUND_TRUTH).is_dir():
        return list(list_csv_files(cohort / GROUND_TRUTH))
    root = cohort.parent if cohort.name in TASK_FOLDERS else cohort
    return [table for folder in find_release_folders(root, edition) for table in folder.tables] or list(
        list_csv_files(cohort)
    )


def _find_platform_files(inputs: Path, case: str, reference: Path, edition: Edition) -> PatientFiles:
    folders = (edition.inputs[scan].path_under(inputs) for scan in (CT, PET))
    ct, pet = (find_single_image(folder, error=GroundTruthError) for folder in folders)
    return PatientFiles(case, ct, pet, reference)


def _find_release_images(folder: Path) -> dict[str, Path]:
    by_stem = {
        normalise_unicode(path.name[: -len(find_image_suffix(path) or "")]): path for path in list_images(folder)
    }
    stems = {kind: f"{normalise_unicode(folder.name)}{mark}" for kind, mark in _RELEASE_MARKS.items()}
    return {kind: by_stem[stem] for kind, stem in stems.items() if stem in by_stem}


def _find_release_files(folder: Path) -> PatientFiles:
    paths = _find_release_images(folder)
    absent = sorted(set(_RELEASE_MARKS) - set(paths))
    if absent:
        raise GroundTruthError(folder.name, f"no {' and no '.join(absent)}", "CT, PET and mask")
    return PatientFiles(normalise_unicode(folder.name), paths["ct"], paths["pet"], paths["mask"])


def read_scans(path: Path) -> dict[str, dict[str, float]]:
    """Read the numbers of a table by case and column; raise `HecktorError` if it has no column `case`."""
    table = read_table(path, HecktorError)
    if "case" not in table.header:
        raise HecktorError(table.name, "no column `case`", "the baselines.csv of `hecktor study baselines`")
    scans: dict[str, dict[str, float]] = {}
    for index, row in enumerate(table.rows):
        texts = [(name, text) for name, text in row.items() if name != "case"]
        figures = [
            (name, parse_number(text, f"{table.locate(index)}: {name}", "a number", HecktorError))
            for name, text in texts
        ]
        scans[remove_apostrophes(row["case"])] = {name: value for name, value in figures if value is not None}
    return scans
