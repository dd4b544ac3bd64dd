"""Task 1 on the out-of-fold masks, by the evaluation package itself and on the CT's own grid, and the worst cases."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from baseline.release.cases import ReleaseCase
from baseline.work import Work
from contract.errors import HecktorError
from contract.files import write_text
from contract.images.volumes import image_suffix
from contract.tasks import SEGMENTATION
from evaluation.editions.profile import DEFAULT_EDITION, load_edition
from evaluation.pipeline import DEFAULT_BOOTSTRAPS, Request, evaluate
from evaluation.report.pictures import PictureRequest, draw_patient
from evaluation.report.sources import PatientFiles

NETWORK: Final = "out-of-fold"
COLOUR: Final = "#1ba3e8"
WORST: Final = 6


@dataclass(frozen=True)
class WorstCase:
    """A patient with a picture (JPEG) and what the evaluation says of the masks."""

    case: str
    facts: str
    jpeg: bytes


def metric_titles() -> dict[str, str]:
    """The ranked metrics of the task, in order, with their titles."""
    return {name: one.title for name, one in load_edition(DEFAULT_EDITION).profile(SEGMENTATION).metrics.items()}


def score_out_of_fold(work: Work, cases: Sequence[ReleaseCase], seed: int, jobs: int) -> dict[str, Any]:
    """The content of `metrics.json` for the masks of all `cases`, which must have a reference.

    Raises:
        HecktorError: a mask is absent or cannot be used; the evaluation would count it as an empty one.
    """
    reference = _linked_references(work.report / "reference", cases)
    report = evaluate(
        Request(
            task=SEGMENTATION,
            input_dir=work.report,
            ground_truth_dir=reference,
            output_dir=work.report / "task1",
            edition=DEFAULT_EDITION,
            seed=seed,
            bootstraps=DEFAULT_BOOTSTRAPS,
            workers=0 if jobs <= 1 else jobs,
            predictions=work.out_of_fold.masks,
        )
    )
    unusable = [f"{one['case']}: {one['why']}" for one in report["cases"]["failed"]]
    unusable += [f"{name}: no out-of-fold mask" for name in report["cases"]["missing"]]
    if unusable:
        raise HecktorError(f"{len(unusable)} out-of-fold masks cannot be scored, expected all", f"{unusable[0]}")
    return report


def worst_cases(work: Work, cases: Sequence[ReleaseCase], rows: Sequence[Mapping[str, Any]]) -> list[WorstCase]:
    """The patients with the lowest mean of the GTVp's and the GTVn's DSC, the worst first, as pictures."""
    of_id = {case.patient_id: case for case in cases}
    ranked = sorted((found, row["case"]) for row in rows if (found := mean_dsc(row)) is not None)
    row_of = {row["case"]: row for row in rows}
    return [_drawn(work, of_id[name], row_of[name]) for _, name in ranked[:WORST]]


def mean_dsc(row: Mapping[str, Any]) -> float | None:
    """The mean DSC of the structures that either mask has; None where neither has any."""
    known = [found for name in ("gtvp", "gtvn") if (found := dsc_of(row, name)) is not None]
    return sum(known) / len(known) if known else None


def dsc_of(row: Mapping[str, Any], name: str) -> float | None:
    """The DSC of "gtvp" or "gtvn" in an evaluation's row; None where neither mask has any."""
    both = row[f"{name}_reference_voxels"] + row[f"{name}_predicted_voxels"]
    return 2 * row[f"{name}_intersection_voxels"] / both if both else None


def _drawn(work: Work, case: ReleaseCase, row: Mapping[str, Any]) -> WorstCase:
    if case.mask is None:
        raise ValueError(f"{case.patient_id}: no reference, expected one of a case that was scored")
    files = PatientFiles(
        case.patient_id, case.ct, case.pet, case.mask, {NETWORK: work.out_of_fold.mask(case.patient_id)}
    )
    picture = draw_patient(PictureRequest(files, {NETWORK: COLOUR}))
    return WorstCase(case.patient_id, _facts(case, row), picture.jpeg)


def _facts(case: ReleaseCase, row: Mapping[str, Any]) -> str:
    told = [case.centre]
    for name, title in (("gtvp", "GTVp"), ("gtvn", "GTVn")):
        dsc = dsc_of(row, name)
        sizes = f"{row[f'{name}_reference_mm3'] / 1000:.1f} ml, found {row[f'{name}_predicted_mm3'] / 1000:.1f} ml"
        told.append(f"{title} {sizes}" + ("" if dsc is None else f", DSC {dsc:.3f}"))
    nodes = "/".join(str(row[f"gtvn_lesions_{part}"]) for part in ("tp", "fp", "fn"))
    return " · ".join([*told, f"nodes found/invented/missed {nodes}"])


def _linked_references(folder: Path, cases: Sequence[ReleaseCase]) -> Path:
    """A folder with every reference mask by case and the centres, as the evaluation reads it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["PatientID", "CenterID"])
    for case in cases:
        if case.mask is not None:
            (folder / f"{case.patient_id}{image_suffix(case.mask)}").symlink_to(case.mask.resolve())
            table.writerow([case.patient_id, case.centre])
    write_text(folder / "centres.csv", text.getvalue())
    return folder
