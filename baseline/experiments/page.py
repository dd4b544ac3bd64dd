"""The page of a comparison: tables and charts of the challenge's report, and the patients that differ most."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

from algorithm.case.notices import Notices
from baseline.experiments.answers import Experiment
from baseline.release.cases import ReleaseCase
from baseline.report.segmentation import mean_dsc
from contract.errors import HecktorError
from contract.files import whole_folder, write_bytes, write_text
from evaluation.analyses.analysis import Analysis
from evaluation.analyses.pipeline import task_analyses
from evaluation.analyses.sources import PatientFiles, TaskResults
from evaluation.inputs.masks import read_labels
from evaluation.metrics.lesions import label_components
from evaluation.page.colours import colours_of
from evaluation.report.cases import CasePicture
from evaluation.report.page import PageContent, build_page
from evaluation.report.pictures import PictureRequest, draw_patient, lesion_points
from evaluation.report.planes import CONNECTIVITY, Floats, components_in_planes, lesion_centre_mm

# Number of patients with pictures.
SHOWN: Final = 6
_QUALITY: Final = 85
_ABOUT: Final = "Out-of-fold answers. Each plan, decision or package stands as a team."


def write_comparison(
    page: Path,
    results: Sequence[TaskResults],
    experiments: Sequence[Experiment],
    cases: Sequence[ReleaseCase],
    lines: Sequence[str],
) -> None:
    """Write the page and, beside it, pictures of the patients whose mean DSC differs most between experiments.

    `lines` say what could not be compared.
    """
    colours = colours_of([one.name for one in experiments])
    of_id = {case.patient_id: case for case in cases}
    folder = page.with_name(f"{page.stem}_files")
    chosen = [of_id[name] for name in most_different(results)]
    with whole_folder(folder) as partial:
        for case in chosen:
            write_bytes(partial / f"{case.patient_id}.jpg", picture(case, experiments, colours))
    pictures = [CasePicture(case.patient_id, f"{folder.name}/{case.patient_id}.jpg") for case in chosen]
    analyses: dict[str, Sequence[Analysis]] = {one.task.name: task_analyses(one) for one in results}
    title = " against ".join(colours)
    about = " ".join([_ABOUT, *(f"{line}." for line in lines), *_differing(chosen)])
    write_text(page, build_page(PageContent(title, about, results, analyses, pictures, colours)))


def _differing(cases: Sequence[ReleaseCase]) -> list[str]:
    names = ", ".join(case.patient_id for case in cases)
    if not names:
        return []
    return [
        f"Mean DSC differs most for {names}: their pictures are below, under Cases.",
        "Planes called 'other difference' go through the largest one that those through the reference's lesions miss.",
    ]


def most_different(results: Sequence[TaskResults]) -> list[str]:
    """Up to six patients with the largest difference of mean DSC between two experiments, the largest first."""
    with_mask = next((one for one in results if one.task.mask is not None), None)
    if with_mask is None or with_mask.task.mask is None:
        return []
    scores: dict[str, list[float]] = {}
    for team in with_mask.teams:
        for row in with_mask.rows_of(team, with_mask.task.mask.name):
            if (dsc := mean_dsc(row)) is not None:
                scores.setdefault(str(row["case"]), []).append(dsc)
    spread = {case: max(values) - min(values) for case, values in scores.items()}
    ranked = sorted((case for case, gap in spread.items() if gap > 0), key=lambda case: (-spread[case], case))
    return ranked[:SHOWN]


def picture(case: ReleaseCase, experiments: Sequence[Experiment], colours: Mapping[str, str]) -> bytes:
    """A JPEG with one block for each experiment, below each other: the same planes, the reference and its contours.

    Where masks differ in a place that no plane through the reference's lesions cuts, such as a false lesion, a row of
    planes goes through the largest such difference.
    """
    from baseline.release.data_set import read_training_images  # imports torch

    if case.mask is None:
        raise ValueError(f"{case.patient_id}: no reference, expected one of a case that was scored")
    pet = read_training_images(case, Notices()).pet
    point = difference_mm(case.mask, [one.mask(case.patient_id) for one in experiments])
    points = [] if point is None else [("other difference", point)]
    blocks = []
    for one in experiments:
        masks = {one.name: one.mask(case.patient_id)}
        files = PatientFiles(case.patient_id, case.ct, case.pet, case.mask, masks)
        blocks.append(Image.open(io.BytesIO(draw_patient(PictureRequest(files, colours, pet, points)).jpeg)))
    return _stacked(blocks)


def difference_mm(reference: Path, masks: Sequence[Path]) -> Floats | None:
    """A point, LPS mm, in the largest difference between masks that no plane through the reference's lesions cuts.

    A difference is a 26-connected component of the voxels whose label is not the same in all masks, which are on one
    grid. None if the planes cut them all.
    """
    first, *others = [read_labels(path, HecktorError) for path in masks]
    differs = np.any([other.array != first.array for other in others], axis=0)
    numbered, _ = label_components(differs, CONNECTIVITY)
    for _, point in lesion_points([read_labels(reference, HecktorError)]):
        differs[np.isin(numbered, components_in_planes(numbered, first.geometry, point))] = False
    return lesion_centre_mm(differs, first.geometry)


def _stacked(blocks: Sequence[Image.Image]) -> bytes:
    whole = Image.new("RGB", (max(one.width for one in blocks), sum(one.height for one in blocks)))
    top = 0
    for one in blocks:
        whole.paste(one, (0, top))
        top += one.height
    target = io.BytesIO()
    whole.save(target, format="JPEG", quality=_QUALITY)
    return target.getvalue()
