"""Held-out answers of a training in plain files, as `hecktor evaluate --predictions` reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from baseline.fit import check_heads
from baseline.heads.record import ModelAnswers, TargetRecord, read_cross_validation
from baseline.preparation import edition_of
from baseline.release.cases import ReleaseCase, head_answers, image_path, read_cases
from baseline.report.masks import link, write_references
from baseline.work import WorkFolders
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


def write_answers(work: WorkFolders, output: Path, *, probabilities: bool = False) -> list[str]:
    """Write the held-out answers into folders below `output`; returns the folders' names.

    `heads` and the folder of each comparator hold the masks and `answers.csv`, `unfiltered` the masks before
    postprocessing, `reference` the reference masks and the outcomes of the patients whom the heads answered.

    Args:
        work: the training.
        output: a new folder.
        probabilities: also write those of GTVp and GTVn, from 0 to 1 on the network's grid.

    Raises:
        HecktorError: the heads are not fitted or not current, or `output` exists.
    """
    check_heads(work)
    if output.exists():
        raise OutputError(output.name, "exists", "a new folder")
    cases, answers = read_cases(work), head_answers(edition_of(work))
    records = read_cross_validation(work).targets
    models = [HEADS, *dict.fromkeys(name for one in records.values() for name in one.nested.comparators)]
    answers_of = {name: {one.name: _answered(records.get(one.name), one, name) for one in answers} for name in models}
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
        return sorted(path.name for path in folder.iterdir())


def _answered(record: TargetRecord | None, answer: AnswerSpec, model: str) -> _Rows:
    """The nested held-out answers of the heads or of a comparator by patient, as cells of a table."""
    nested = None if record is None else record.nested if model == HEADS else record.nested.comparators.get(model)
    if record is None or nested is None:
        return {}
    return dict(zip([row.id for row in record.patients], _rows(answer, nested), strict=False))


def _rows(answer: AnswerSpec, nested: ModelAnswers) -> list[dict[str, Any]]:
    if answer.kind == "risk":
        # A column of times holds later recurrences as higher values.
        column, sign = ("risk", 1.0) if answer.direction == "risk" else (answer.columns["time"], -1.0)
        return [{column: sign * float(score)} for score in np.asarray(nested.score or (), np.float64)]
    column = answer.columns["class"]
    if answer.is_binary:
        pairs = zip(nested.positive or (), nested.probability or (), strict=True)
        return [{column: answer.classes[int(positive)], _PROBABILITY: probability} for positive, probability in pairs]
    return [{column: value} for value in nested.given or ()]


def _write_table(path: Path, answers: Mapping[str, _Rows]) -> None:
    rows: _Rows = {}
    for of_answer in answers.values():
        for name, row in of_answer.items():
            rows.setdefault(name, {_ID: name}).update(row)
    if rows:
        columns = dict.fromkeys(key for row in rows.values() for key in row)
        write_csv(path, list(columns), [rows[name] for name in sorted(rows)])


def _write_masks(masks: Path, folder: Path, cases: Sequence[ReleaseCase]) -> None:
    folder.mkdir()
    for case in cases:
        if (mask := masks / f"{case.patient_id}.nii.gz").is_file():
            link(mask, folder / mask.name)


def _write_probabilities(work: WorkFolders, folder: Path, case: ReleaseCase) -> None:
    if not (stored := work.probabilities(case.patient_id)).is_file():  # the masks were given
        raise OutputError("--probabilities", f"no {stored.name}", "networks: given masks have none")
    grid = read_header(image_path(work.raw, case, 0)).geometry
    with np.load(stored) as arrays:
        for name in ("gtvp", "gtvn"):
            volume = Volume(arrays[name].astype(np.float32) / np.float32(255), grid)
            write_volume(folder / f"{case.patient_id}__{name}.nii.gz", volume)
