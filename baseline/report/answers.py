"""Held-out answers of a training in plain files, as `hecktor evaluate --predictions` reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from baseline.fit import check_heads
from baseline.heads.record import ModelAnswers, TargetRecord, read_cross_validation
from baseline.release.cases import ReleaseCase, image_path, list_head_specs, read_cases
from baseline.report.masks import link_or_copy, write_references
from baseline.work import WorkFolders, read_training_edition
from contract.editions import AnswerSpec
from contract.errors import OutputError
from contract.images.volumes import Volume, read_header, write_volume
from contract.io.files import atomic_folder
from contract.io.tables import write_csv

HEADS: Final = "heads"
UNFILTERED: Final = "unfiltered"
REFERENCE: Final = "reference"
PROBABILITIES: Final = "probabilities"
_ID: Final = "PatientID"
_PROBABILITY: Final = "probability"
_Rows = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class WrittenAnswers:
    """The folders of held-out answers, and the reason for each answer of the heads that has none."""

    folders: list[str]
    missing: dict[str, str]


def write_answers(work: WorkFolders, output: Path, *, probabilities: bool = False) -> WrittenAnswers:
    """Write the held-out answers into folders below `output`.

    `heads` and the folder of each comparator hold the masks and `answers.csv`, `unfiltered` holds the masks before
    postprocessing, `reference` holds the reference masks and the outcomes of the patients with answers of the heads.

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
        # A column of times holds later recurrences as higher values.
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
        expected = "masks by the networks: other masks have no probabilities"
        raise OutputError("--probabilities", f"no {stored.name}", expected)
    grid = read_header(image_path(work.raw, case, 0)).geometry
    with np.load(stored) as arrays:
        for name in ("gtvp", "gtvn"):
            volume = Volume(arrays[name].astype(np.float32) / np.float32(255), grid)
            write_volume(folder / f"{case.patient_id}__{name}.nii.gz", volume)
