"""Score out-of-fold masks with the evaluation package, and draw patients."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from algorithm.case.inputs import Notices
from baseline.postprocessing.volumes import mask_metric_titles, mask_task
from baseline.release.cases import ReleaseCase
from baseline.work import WorkFolders
from contract.editions import AnswerSpec, Edition, parse_edition, write_edition_file
from contract.errors import HecktorError
from contract.images.volumes import find_image_suffix
from contract.io.tables import write_csv
from evaluation.editions.profile import build_profile
from evaluation.options import EvaluationRequest
from evaluation.pipeline import evaluate_submission
from evaluation.results.documents import MetricsJson
from evaluation.rows.mask import flatten_row
from reporting.analyses.scans import PatientFiles
from reporting.page.html import TEAM_COLOURS
from reporting.report.pictures import PictureRequest, draw_patient

NETWORK: Final = "out-of-fold"
COLOUR: Final = TEAM_COLOURS[0]
WORST: Final = 6
# Keys of a declared algorithm that name none of its answers.
_ALGORITHM_KEYS: Final = ("name", "title", "inputs", "optional_inputs", "time_limit_s")


@dataclass(frozen=True)
class WorstCase:
    """A patient's picture (JPEG) and the facts of the evaluation."""

    case: str
    facts: str
    jpeg: bytes


def score_masks(
    work: WorkFolders, cases: Sequence[ReleaseCase], edition: Edition, seed: int, jobs: int
) -> dict[str, Any]:
    """The content of `metrics.json` for the out-of-fold masks of `cases`, which all have a reference."""
    report = evaluate_submission(
        EvaluationRequest(
            task=mask_task(edition),
            submission=work.report,
            ground_truth=write_references(work.report / "reference", cases),
            output_dir=work.segmentation,
            edition=mask_edition(edition, work.report / "edition.json"),
            seed=seed,
            workers=jobs,
            predictions=work.masks,
        )
    )
    require_all_scored(report, "out-of-fold masks")
    return report.to_dict()


def require_all_scored(metrics: MetricsJson, answers: str) -> None:
    """Raise HecktorError if the evaluation counted an answer as missing or unusable."""
    unusable = [f"{one.case}: {one.why}" for one in metrics.cases.failed]
    unusable += [f"{name}: not found" for name in metrics.cases.missing]
    if unusable:
        raise HecktorError(answers, f"{len(unusable)} cannot be scored ({unusable[0]})", "all")


def write_references(
    folder: Path,
    cases: Sequence[ReleaseCase],
    heads: Sequence[AnswerSpec] = (),
    answered: Mapping[str, Set[str]] | None = None,
) -> Path:
    """Link the reference masks and write centres and outcomes, in the layout that the evaluation reads.

    `answered` holds, by the name of a head's answer, the patients whose outcome counts.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for case in cases:
        if case.mask is not None:
            link(case.mask, folder / f"{case.patient_id}{find_image_suffix(case.mask)}")
    rows = []
    for case in cases:
        known = [answer for answer in heads if answered is not None and case.patient_id in answered[answer.name]]
        outcomes = {column: case.outcomes[column] for answer in known for column in answer.columns.values()}
        rows.append({"PatientID": case.patient_id, "CenterID": case.centre, **outcomes})
    columns = [column for answer in heads for column in answer.columns.values()]
    write_csv(folder / "outcomes.csv", ["PatientID", "CenterID", *columns], rows)
    return folder


def link(source: Path, target: Path) -> None:
    """Link a file, or copy it to another file system; the evaluation accepts no symbolic links as predictions."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def mask_edition(edition: Edition, file: Path) -> str:
    """Name or file of the edition with only its masks; `file` is written unless that is the edition itself."""
    task = build_profile(edition).task(mask_task(edition))
    mask = task.algorithm.mask_spec
    if mask is None or not task.has_several_answers:
        return write_edition_file(edition, file).source
    declared = edition.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"algorithms_of"})
    (algorithm,) = (one for one in declared["algorithms"] if one["name"] == task.algorithm.name)
    answers = [answer for answer in algorithm["answers"] if answer["name"] == mask.name]
    plain = {key: value for key, value in algorithm.items() if key in _ALGORITHM_KEYS}
    profile, titles = task.answers[mask.name], mask_metric_titles(edition)
    metrics = {
        metric: {"title": title, "higher_is_better": task.metrics[profile.prefix + metric].higher_is_better}
        for metric, title in titles.items()
    }
    first = next(iter(titles))
    content = {
        "answers": {mask.name: {"rules": profile.rules.model_dump()}},
        "metrics": metrics,
        "ranking": {"official": first, "ties": "min", "schemes": {first: first}},
    }
    declared |= {
        "name": f"{edition.name}-masks",
        "algorithms": [plain | {"answers": answers}],
        "task_aliases": {},
        "scoring": {task.algorithm.name: content},
    }
    return write_edition_file(parse_edition(declared), file).source


def worst_cases(work: WorkFolders, cases: Sequence[ReleaseCase], rows: Sequence[Mapping[str, Any]]) -> list[WorstCase]:
    """Pictures of the patients with the lowest mean DSC of GTVp and GTVn, the lowest first; none of MR."""
    case_of = {case.patient_id: case for case in cases if not case.is_mr}
    row_of = {row["case"]: flatten_row(row) for row in rows if row["case"] in case_of}
    worst = [(case_of[name], row_of[name]) for _, name in sort_by_mean_dsc([*row_of.values()])[:WORST]]
    return [
        WorstCase(
            case.patient_id,
            _facts(case, row),
            draw_case(case, work.mask(case.patient_id)),
        )
        for case, row in worst
    ]


def sort_by_mean_dsc(rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, str]]:
    """Return mean DSC and patient ID of flattened rows with a DSC, the lowest first."""
    return sorted((dsc, row["case"]) for row in rows if (dsc := mean_dsc(row)) is not None)


def mean_dsc(row: Mapping[str, Any]) -> float | None:
    """Mean DSC of the structures that either mask contains; None if neither contains any."""
    known = [dsc for name in ("gtvp", "gtvn") if (dsc := dsc_of(row, name)) is not None]
    return sum(known) / len(known) if known else None


def dsc_of(row: Mapping[str, Any], name: str) -> float | None:
    """DSC of "gtvp" or "gtvn" in an evaluation's row; None if neither mask contains the structure."""
    both = row[f"{name}_reference_voxels"] + row[f"{name}_predicted_voxels"]
    return 2 * row[f"{name}_intersection_voxels"] / both if both else None


def draw_case(case: ReleaseCase, mask: Path) -> bytes:
    """A JPEG of a patient who has a reference, with its contour and that of the out-of-fold mask."""
    if case.mask is None or case.pet is None:
        raise ValueError(f"{case.patient_id}: no reference or no PET, expected both of a case that was scored")
    from baseline.release.data_set import read_training_images  # imports torch

    pet = read_training_images(case, Notices()).pet
    patient = PatientFiles(case.patient_id, case.ct, case.pet, case.mask, {NETWORK: mask})
    return draw_patient(PictureRequest(patient, {NETWORK: COLOUR}, pet, draws_contours=True)).jpeg


def _facts(case: ReleaseCase, row: Mapping[str, Any]) -> str:
    facts = [case.centre]
    for name, title in (("gtvp", "GTVp"), ("gtvn", "GTVn")):
        dsc = dsc_of(row, name)
        reference, predicted = (row[f"{name}_{part}_mm3"] / 1000 for part in ("reference", "predicted"))
        shown = "" if dsc is None else f", DSC {dsc:.3f}"
        facts.append(f"{title} {reference:.1f} ml, predicted {predicted:.1f} ml{shown}")
    nodes = "/".join(str(row[f"gtvn_lesions_{part}"]) for part in ("tp", "fp", "fn"))
    return " · ".join([*facts, f"nodes true/false/missed {nodes}"])
