"""Find the scans and references of a cohort, in the platform's or the release's layout."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from contract.editions import Edition
from contract.errors import GroundTruthError
from contract.images.volumes import image_suffix, list_images
from evaluation.analyses.sources import GROUND_TRUTH, PatientFiles, find_patients

_RELEASE_MARKS: Final = {"ct": "__CT", "pet": "__PT", "mask": ""}


def find_scans(cohort: Path, edition: Edition) -> list[PatientFiles]:
    """Every case of a cohort, sorted.

    The cohort has the platform's layout as `find_patients` reads it, or the release's: `<case>/<case>__CT.nii.gz`,
    `<case>/<case>__PT.nii.gz` and `<case>/<case>.nii.gz`.

    Raises:
        GroundTruthError: no case, or a case that lacks one of the three.
    """
    if (cohort / GROUND_TRUTH).is_dir():
        return find_patients(cohort, edition)
    folders = sorted(path for path in cohort.iterdir() if path.is_dir()) if cohort.is_dir() else []
    cases = [_released(folder) for folder in folders if _of_release(folder)]
    if not cases:
        wanted = f"{GROUND_TRUTH}/<case>.mha beside <case>/input, or <case>/<case>__CT, __PT and mask"
        raise GroundTruthError(cohort.name, "no case found", wanted)
    return cases


def _of_release(folder: Path) -> dict[str, Path]:
    by_stem = {path.name[: -len(image_suffix(path) or "")]: path for path in list_images(folder)}
    stems = {kind: f"{folder.name}{mark}" for kind, mark in _RELEASE_MARKS.items()}
    return {kind: by_stem[stem] for kind, stem in stems.items() if stem in by_stem}


def _released(folder: Path) -> PatientFiles:
    paths = _of_release(folder)
    absent = sorted(set(_RELEASE_MARKS) - set(paths))
    if absent:
        raise GroundTruthError(folder.name, f"no {' and no '.join(absent)}", "CT, PET and mask")
    return PatientFiles(folder.name, paths["ct"], paths["pet"], paths["mask"])
