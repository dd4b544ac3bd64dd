"""Held-out masks and answers of a training: scored and drawn for the report, and written as plain files."""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from algorithm.case.inputs import Notices
from baseline.fit import check_heads
from baseline.heads.record import ModelAnswers, TargetRecord, read_cross_validation
from baseline.postprocessing.rules import find_mask_task, list_mask_metric_titles
from baseline.release.cases import ReleaseCase, image_path, list_head_specs, read_cases
from baseline.work import WorkFolders, read_training_edition
from contract.editions import AnswerSpec, Edition, parse_edition, write_edition_file
from contract.errors import HecktorError, OutputError
from contract.images.volumes import Volume, find_image_suffix, read_header, write_volume
from contract.io.files import atomic_folder
from contract.io.tables import write_csv
from evaluation.editions.profile import build_profile
from evaluation.metrics.rules import MaskRules
from evaluation.options import EvaluationRequest
from evaluation.pipeline import evaluate_submission
from evaluation.results.documents import MetricsJson
from evaluation.rows.mask import flatten_row
from reporting.analyses.analysis import Analysis
from reporting.analyses.lesions import analyse_lesions
from reporting.analyses.masks import FAILED_BELOW
from reporting.analyses.scans import PatientFiles
from reporting.analyses.tables import AnswerRows
from reporting.page.html import TEAM_COLOURS
from reporting.report.pictures import PictureRequest, draw_patient

NETWORK: Final = "out-of-fold"
COLOUR: Final = TEAM_COLOURS[0]
RECALL: Final = "gtvn-recall-by-volume"
MAX_WORST_CASES: Final = 6
MAX_NAMED_PATIENTS: Final = 4
# Keys of a declared algorithm that do not depend on its answers.
_ALGORITHM_KEYS: Final = ("name", "title", "inputs", "optional_inputs", "time_limit_s")

HEADS: Final = "heads"
UNFILTERED: Final = "unfiltered"
REFERENCE: Final = "reference"
PROBABILITIES: Final = "probabilities"
_ID: Final = "PatientID"
_PROBABILITY: Final = "probability"
_Rows = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class WorstCase:
    """A patient's picture (JPEG) and the facts of the evaluation."""

    case: str
    facts: str
    jpeg: bytes


def score_masks(
    work: WorkFolders, cases: Sequence[ReleaseCase], edition: Edition, seed: int, jobs: int
) -> dict[str, Any]:
    """Score the out-of-fold masks of `cases`, which all have a reference; return the content of `metrics.json`."""
    report = evaluate_submission(
        EvaluationRequest(
            task=find_mask_task(edition),
            submission=work.report,
            ground_truth=write_references(work.report / "reference", cases),
            output_dir=work.segmentation,
            edition=write_mask_edition(edition, work.report / "edition.json"),
            seed=seed,
            workers=jobs,
            predictions=work.masks,
        )
    )
    require_all_scored(report, "out-of-fold masks")
    return report.to_dict()


def require_all_scored(metrics: MetricsJson, answers: str) -> None:
    """Check that all answers were scored; otherwise raise `HecktorError`."""
    unusable = [f"{failure.case}: {failure.why}" for failure in metrics.cases.failed]
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

    `answered` has the patients whose outcome counts, by the name of the head's answer.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for case in cases:
        if case.mask is not None:
            link_or_copy(case.mask, folder / f"{case.patient_id}{find_image_suffix(case.mask)}")
    rows = []
    for case in cases:
        known = [answer for answer in heads if answered is not None and case.patient_id in answered[answer.name]]
        outcomes = {column: case.outcomes[column] for answer in known for column in answer.columns.values()}
        rows.append({"PatientID": case.patient_id, "CenterID": case.centre, **outcomes})
    columns = [column for answer in heads for column in answer.columns.values()]
    write_csv(folder / "outcomes.csv", ["PatientID", "CenterID", *columns], rows)
    return folder


def link_or_copy(source: Path, target: Path) -> None:
    """Link a file, or copy it to another file system; the evaluation accepts no symbolic links as predictions."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def write_mask_edition(edition: Edition, file: Path) -> str:
    """Return the name of an edition with only masks, or write such an edition to `file` and return its path."""
    task = build_profile(edition).find_task(find_mask_task(edition))
    mask = task.algorithm.mask_spec
    if mask is None or not task.has_several_answers:
        return write_edition_file(edition, file).source
    declared = edition.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"algorithms_of"})
    (algorithm,) = (entry for entry in declared["algorithms"] if entry["name"] == task.algorithm.name)
    answers = [answer for answer in algorithm["answers"] if answer["name"] == mask.name]
    plain = {key: value for key, value in algorithm.items() if key in _ALGORITHM_KEYS}
    profile, titles = task.answers[mask.name], list_mask_metric_titles(edition)
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


def analyse_recall(edition: Edition, rows: Sequence[Mapping[str, Any]]) -> Analysis | None:
    """Analyse the recall of GTVn by volume of the out-of-fold masks; None if there are too few GTVn for bins.

    Args:
        edition: Edition of the training.
        rows: Rows of the evaluation's `metrics.json`.
    """
    task = build_profile(edition).find_task(find_mask_task(edition))
    profile = next(profile for profile in task.answers.values() if profile.answer.kind == "mask")
    flat = [flatten_row(row) for row in rows]
    cases = tuple(row["case"] for row in flat)
    table = AnswerRows(profile.answer, "", (NETWORK,), cases, (tuple(flat),), {}, cast("MaskRules", profile.rules))
    return next((analysis for analysis in analyse_lesions(table) if analysis.name == RECALL), None)


def describe_failed_masks(rows: Sequence[Mapping[str, Any]]) -> str:
    """Describe in one sentence which patients' masks fail, and how large the tumours of these patients are.

    A mask fails if the mean DSC of its structures is below `FAILED_BELOW`.

    Args:
        rows: Rows of the evaluation's `metrics.json`.
    """
    flat = [row for row in map(flatten_row, rows) if mean_dsc(row) is not None]
    failed = [name for dsc, name in sort_by_mean_dsc(flat) if dsc < FAILED_BELOW]
    if not failed:
        return f"No mask of {len(flat)} patients has a mean DSC below {FAILED_BELOW}."
    volumes_ml = {row["case"]: (row["gtvp_reference_mm3"] + row["gtvn_reference_mm3"]) / 1000 for row in flat}
    failed_ml = statistics.median(volumes_ml.pop(name) for name in failed)
    other_patients = (
        f", against {statistics.median(volumes_ml.values()):.1f} ml in the other patients" if volumes_ml else ""
    )
    names = ", ".join(failed[:MAX_NAMED_PATIENTS])
    more = f" and {len(failed) - MAX_NAMED_PATIENTS} more" if len(failed) > MAX_NAMED_PATIENTS else ""
    return (
        f"The masks of {len(failed)} of {len(flat)} patients fail (mean DSC below {FAILED_BELOW}): {names}{more}. The "
        f"median volume of GTVp and GTVn is {failed_ml:.1f} ml in their references{other_patients}."
    )


def draw_worst_cases(
    work: WorkFolders, cases: Sequence[ReleaseCase], rows: Sequence[Mapping[str, Any]]
) -> list[WorstCase]:
    """Draw the patients with the lowest mean DSC of GTVp and GTVn, the lowest first; patients of MR are not drawn."""
    case_of = {case.patient_id: case for case in cases if not case.is_mr}
    row_of = {row["case"]: flatten_row(row) for row in rows if row["case"] in case_of}
    worst = [(case_of[name], row_of[name]) for _, name in sort_by_mean_dsc([*row_of.values()])[:MAX_WORST_CASES]]
    return [
        WorstCase(
            case.patient_id,
            _describe_case(case, row),
            draw_case(case, work.mask(case.patient_id)),
        )
        for case, row in worst
    ]


def sort_by_mean_dsc(rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, str]]:
    """Return mean DSC and patient ID of flattened rows with a DSC, the lowest first."""
    return sorted((dsc, row["case"]) for row in rows if (dsc := mean_dsc(row)) is not None)


def mean_dsc(row: Mapping[str, Any]) -> float | None:
    """Compute the mean DSC of the structures in either mask; None if both masks are empty."""
    known = [dsc for name in ("gtvp", "gtvn") if (dsc := compute_dsc(row, name)) is not None]
    return sum(known) / len(known) if known else None


def compute_dsc(row: Mapping[str, Any], name: str) -> float | None:
    """Compute the DSC of "gtvp" or "gtvn" from an evaluation's row; None if neither mask contains the structure."""
    both = row[f"{name}_reference_voxels"] + row[f"{name}_predicted_voxels"]
    return 2 * row[f"{name}_intersection_voxels"] / both if both else None


def draw_case(case: ReleaseCase, mask: Path) -> bytes:
    """Draw a patient with the contours of the reference and of the out-of-fold mask, as a JPEG."""
    if case.mask is None or case.pet is None:
        raise ValueError(f"{case.patient_id}: no reference or no PET, expected both of a case that was scored")
    from baseline.release.data_set import read_training_images  # imports torch

    pet = read_training_images(case, Notices()).pet
    patient = PatientFiles(case.patient_id, case.ct, case.pet, case.mask, {NETWORK: mask})
    return draw_patient(PictureRequest(patient, {NETWORK: COLOUR}, pet, draws_contours=True)).jpeg


def _describe_case(case: ReleaseCase, row: Mapping[str, Any]) -> str:
    facts = [case.centre]
    for name, title in (("gtvp", "GTVp"), ("gtvn", "GTVn")):
        dsc = compute_dsc(row, name)
        reference_ml, predicted_ml = (row[f"{name}_{part}_mm3"] / 1000 for part in ("reference", "predicted"))
        dsc_text = "" if dsc is None else f", DSC {dsc:.3f}"
        facts.append(f"{title} {reference_ml:.1f} ml, predicted {predicted_ml:.1f} ml{dsc_text}")
    nodes = "/".join(str(row[f"gtvn_lesions_{part}"]) for part in ("tp", "fp", "fn"))
    return " · ".join([*facts, f"nodes true/false/missed {nodes}"])


@dataclass(frozen=True)
class WrittenAnswers:
    """The folders of held-out answers, and the reason for each head whose answers are missing."""

    folders: list[str]
    missing: dict[str, str]


def write_answers(work: WorkFolders, output: Path, *, probabilities: bool = False) -> WrittenAnswers:
    """Write the held-out answers into folders below `output`.

    `heads` and the folder of each comparator contain the masks and `answers.csv`. `unfiltered` contains the masks
    before postprocessing. `reference` contains the reference masks and the outcomes of the patients with answers of the
    heads.

    Args:
        work: Working directory of the training.
        output: New folder.
        probabilities: Whether to write the probabilities of GTVp and GTVn, too, from 0 to 1 on the network's grid.

    Raises:
        HecktorError: The heads are not fitted or not current, or `output` exists.
    """
    check_heads(work)
    if output.exists():
        raise OutputError(output.name, "exists", "a new folder")
    cases, answers = read_cases(work), list_head_specs(read_training_edition(work))
    records = read_cross_validation(work).targets
    models = [HEADS, *dict.fromkeys(name for record in records.values() for name in record.nested.comparators)]
    answers_of = {
        model: {answer.name: _collect_rows(records.get(answer.name), answer, model) for answer in answers}
        for model in models
    }
    with atomic_folder(output) as folder:
        answered = {name: frozenset(rows) for name, rows in answers_of[HEADS].items()}
        write_references(folder / REFERENCE, cases, answers, answered)
        for name, rows in answers_of.items():
            _write_masks(work.masks, folder / name.replace(":", "-"), cases)
            _write_table(folder / name.replace(":", "-") / "answers.csv", rows)
        if (unfiltered := work.unfiltered / "masks").is_dir():
            _write_masks(unfiltered, folder / UNFILTERED, cases)
        if probabilities:
            for case in cases:
                _write_probabilities(work, folder / PROBABILITIES, case)
        folders = sorted(path.name for path in folder.iterdir())
    missing = {name: _explain_missing(records.get(name)) for name, rows in answers_of[HEADS].items() if not rows}
    return WrittenAnswers(folders, missing)


def _explain_missing(record: TargetRecord | None) -> str:
    return "no head was fitted" if record is None else record.nested.why_not or "no patient has an outcome"


def _collect_rows(record: TargetRecord | None, answer: AnswerSpec, model: str) -> _Rows:
    """Collect the nested held-out answers of the heads or of a comparator by patient, as cells of a table."""
    nested = None if record is None else record.nested if model == HEADS else record.nested.comparators.get(model)
    if record is None or nested is None:
        return {}
    return dict(zip([row.id for row in record.patients], _make_rows(answer, nested), strict=False))


def _make_rows(answer: AnswerSpec, nested: ModelAnswers) -> list[dict[str, Any]]:
    if answer.kind == "risk":
        # In a column of times a higher value means a later recurrence.
        column, sign = ("risk", 1.0) if answer.direction == "risk" else (answer.columns["time"], -1.0)
        return [{column: sign * float(score)} for score in np.asarray(nested.score or (), np.float64)]
    column = answer.columns["class"]
    if answer.is_binary:
        pairs = zip(nested.positive or (), nested.probability or (), strict=True)
        return [{column: answer.classes[int(positive)], _PROBABILITY: probability} for positive, probability in pairs]
    return [{column: value} for value in nested.predicted_classes or ()]


def _write_table(path: Path, answers: Mapping[str, _Rows]) -> None:
    rows: _Rows = {}
    for answer_rows in answers.values():
        for name, row in answer_rows.items():
            rows.setdefault(name, {_ID: name}).update(row)
    if rows:
        columns = dict.fromkeys(key for row in rows.values() for key in row)
        write_csv(path, list(columns), [rows[name] for name in sorted(rows)])


def _write_masks(masks: Path, folder: Path, cases: Sequence[ReleaseCase]) -> None:
    folder.mkdir()
    for case in cases:
        if (mask := masks / f"{case.patient_id}.nii.gz").is_file():
            link_or_copy(mask, folder / mask.name)


def _write_probabilities(work: WorkFolders, folder: Path, case: ReleaseCase) -> None:
    if not (stored := work.probabilities(case.patient_id)).is_file():  # the masks come from a user
        expected = "masks from the networks: other masks have no probabilities"
        raise OutputError("--probabilities", f"no {stored.name}", expected)
    grid = read_header(image_path(work.raw, case, 0)).geometry
    with np.load(stored) as arrays:
        for name in ("gtvp", "gtvn"):
            volume = Volume(arrays[name].astype(np.float32) / np.float32(255), grid)
            write_volume(folder / f"{case.patient_id}__{name}.nii.gz", volume)
