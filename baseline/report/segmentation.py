"""Score the out-of-fold masks with the evaluation package, and draw the worst cases."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from algorithm.case.notices import Notices
from baseline.heads.metrics import mask_task
from baseline.release.cases import ReleaseCase
from baseline.report.mask_profile import mask_profile
from baseline.work import WorkFolders
from contract.editions import Edition
from contract.errors import HecktorError
from contract.files import write_csv
from contract.images.volumes import image_suffix
from evaluation.analyses.sources import PatientFiles
from evaluation.page.colours import TEAM_COLOURS
from evaluation.pipeline import EvaluationRequest, evaluate_submission
from evaluation.report.pictures import PictureRequest, draw_patient

NETWORK: Final = "out-of-fold"
COLOUR: Final = TEAM_COLOURS[0]
WORST: Final = 6


@dataclass(frozen=True)
class WorstCase:
    """A patient's picture (JPEG) and the facts of the evaluation."""

    case: str
    facts: str
    jpeg: bytes


def score_masks(
    work: WorkFolders, cases: Sequence[ReleaseCase], edition: Edition, seed: int, jobs: int
) -> dict[str, Any]:
    """The content of `metrics.json` for the out-of-fold masks of `cases`, which all have a reference.

    Raises:
        HecktorError: a mask is missing or unusable; the evaluation would score it as empty.
    """
    report = evaluate_submission(
        EvaluationRequest(
            task=mask_task(edition),
            submission=work.report,
            ground_truth=_linked_references(work.report / "reference", cases),
            output_dir=work.segmentation,
            edition=mask_profile(edition, work.report),
            seed=seed,
            workers=0 if jobs <= 1 else jobs,
            predictions=work.masks,
        )
    )
    unusable = [f"{one['case']}: {one['why']}" for one in report["cases"]["failed"]]
    unusable += [f"{name}: no out-of-fold mask" for name in report["cases"]["missing"]]
    if unusable:
        raise HecktorError(f"{len(unusable)} out-of-fold masks cannot be scored, expected all", f"{unusable[0]}")
    return report


def worst_cases(work: WorkFolders, cases: Sequence[ReleaseCase], rows: Sequence[Mapping[str, Any]]) -> list[WorstCase]:
    """Pictures of the patients with the lowest mean DSC of GTVp and GTVn, the lowest first."""
    of_id = {case.patient_id: case for case in cases}
    row_of = {row["case"]: row for row in rows}
    ranked = sorted((dsc, name) for name, row in row_of.items() if (dsc := mean_dsc(row)) is not None)
    return [_draw(work, of_id[name], row_of[name]) for _, name in ranked[:WORST]]


def mean_dsc(row: Mapping[str, Any]) -> float | None:
    """Mean DSC of the structures that either mask contains; None if neither contains any."""
    known = [dsc for name in ("gtvp", "gtvn") if (dsc := dsc_of(row, name)) is not None]
    return sum(known) / len(known) if known else None


def dsc_of(row: Mapping[str, Any], name: str) -> float | None:
    """DSC of "gtvp" or "gtvn" in an evaluation's row; None if neither mask contains the structure."""
    both = row[f"{name}_reference_voxels"] + row[f"{name}_predicted_voxels"]
    return 2 * row[f"{name}_intersection_voxels"] / both if both else None


def _draw(work: WorkFolders, case: ReleaseCase, row: Mapping[str, Any]) -> WorstCase:
    if case.mask is None:
        raise ValueError(f"{case.patient_id}: no reference, expected one of a case that was scored")
    from baseline.release.data_set import read_training_images  # imports torch

    files = PatientFiles(case.patient_id, case.ct, case.pet, case.mask, {NETWORK: work.mask(case.patient_id)})
    pet = read_training_images(case, Notices()).pet
    picture = draw_patient(PictureRequest(files, {NETWORK: COLOUR}, pet))
    return WorstCase(case.patient_id, _facts(case, row), picture.jpeg)


def _facts(case: ReleaseCase, row: Mapping[str, Any]) -> str:
    facts = [case.centre]
    for name, title in (("gtvp", "GTVp"), ("gtvn", "GTVn")):
        dsc = dsc_of(row, name)
        reference, predicted = (row[f"{name}_{part}_mm3"] / 1000 for part in ("reference", "predicted"))
        shown = "" if dsc is None else f", DSC {dsc:.3f}"
        facts.append(f"{title} {reference:.1f} ml, predicted {predicted:.1f} ml{shown}")
    nodes = "/".join(str(row[f"gtvn_lesions_{part}"]) for part in ("tp", "fp", "fn"))
    return " · ".join([*facts, f"nodes true/false/missed {nodes}"])


def _linked_references(folder: Path, cases: Sequence[ReleaseCase]) -> Path:
    """Link every reference mask and write the centres, in the layout that the evaluation reads."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for case in cases:
        if case.mask is not None:
            (folder / f"{case.patient_id}{image_suffix(case.mask)}").symlink_to(case.mask.resolve())
    rows = [{"PatientID": case.patient_id, "CenterID": case.centre} for case in cases if case.mask is not None]
    write_csv(folder / "centres.csv", ["PatientID", "CenterID"], rows)
    return folder
