"""Out-of-fold answers of an experiment in the evaluation's own plain files: masks, risks and classes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from baseline.release.cases import ReleaseCase
from baseline.work import WorkFolders
from contract.editions import Algorithm, Answer
from contract.errors import HecktorError
from contract.files import read_json, write_csv
from contract.images.volumes import image_suffix

UNDECIDED: Final = ":undecided"
_ID: Final = "PatientID"
_PROBABILITY: Final = "probability"


@dataclass(frozen=True)
class Experiment:
    """Out-of-fold masks and heads to compare; `masks` is their folder, `has_heads` false for masks alone."""

    name: str
    work: WorkFolders
    masks: Path
    has_heads: bool

    def mask(self, patient_id: str) -> Path:
        """A patient's mask on the CT's grid."""
        return self.masks / f"{patient_id}.nii.gz"

    def records(self) -> Mapping[str, Any]:
        """The content of `cross_validation.json`; empty without heads."""
        path = self.work.cross_validation_json
        return read_json(path) if self.has_heads and path.is_file() else {}


def experiment_of(shared: Path, name: str) -> Experiment:
    """The experiment of a plan or ensemble, or of its masks before `decide` if the name ends in `:undecided`.

    Raises:
        HecktorError: there are no out-of-fold masks.
    """
    plan, colon, _ = name.partition(":")
    if colon and not name.endswith(UNDECIDED):
        raise HecktorError(name, "not an experiment", "the name of a plan, NAME:undecided, or a model package")
    work = WorkFolders(shared, plan)
    masks = work.undecided / "masks" if colon else work.masks
    if not masks.is_dir():
        step = "decide" if colon else "heads"
        raise HecktorError(name, "no out-of-fold masks", f"`hecktor train {step} --name {plan}` before")
    return Experiment(work.name + UNDECIDED * bool(colon), work, masks, has_heads=not colon)


def answered_by(answer: Answer, experiments: Sequence[Experiment]) -> frozenset[str]:
    """Patients to whom the heads of every experiment gave an out-of-fold answer; empty if one has no such head."""
    return frozenset.intersection(*(frozenset(_rows(answer, one.records())) for one in experiments))


def write_answers(folder: Path, experiment: Experiment, algorithm: Algorithm, patients: Set[str]) -> Path:
    """Write the answers of an experiment to one algorithm; returns the path that the evaluation reads."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if algorithm.mask is not None:
        for name in sorted(patients):
            _link(experiment.mask(name).resolve(), folder / f"{name}.nii.gz")
    if not algorithm.heads:
        return folder
    columns: dict[str, dict[str, Any]] = {}
    for answer in algorithm.heads:
        for name, row in _rows(answer, experiment.records()).items():
            if name in patients:
                columns.setdefault(name, {_ID: name}).update(row)
    header = list(dict.fromkeys(key for row in columns.values() for key in row))
    table = folder / "answers.csv"
    write_csv(table, header, [columns[name] for name in sorted(columns)])
    return folder if algorithm.mask is not None else table


def _link(source: Path, target: Path) -> None:
    """Link a file, or copy it to another file system; the evaluation accepts no symbolic links as predictions."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def write_references(
    folder: Path, cases: Sequence[ReleaseCase], algorithm: Algorithm, answered: Mapping[str, Set[str]]
) -> Path:
    """Link the reference masks and write outcomes and centres, in the layout that the evaluation reads.

    `answered` holds, by answer, the patients whose outcome counts.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if algorithm.mask is not None:
        for case in cases:
            if case.mask is not None:
                (folder / f"{case.patient_id}{image_suffix(case.mask)}").symlink_to(case.mask.resolve())
    rows = []
    for case in cases:
        known = [answer for answer in algorithm.heads if case.patient_id in answered[answer.name]]
        columns = {column: case.outcomes[column] for answer in known for column in answer.columns.values()}
        rows.append({_ID: case.patient_id, "CenterID": case.centre, **columns})
    header = [_ID, "CenterID", *(column for answer in algorithm.heads for column in answer.columns.values())]
    write_csv(folder / "outcomes.csv", header, rows)
    return folder


def _rows(answer: Answer, records: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Nested out-of-fold answers by patient, as rows of a table; empty if there are none."""
    record = records.get(answer.name, {})
    nested = record.get("nested", {})
    ids = [row["id"] for row in record.get("patients", ())]
    if answer.kind == "risk":
        # A column of times holds later recurrences as higher values.
        column, sign = ("risk", 1.0) if answer.direction == "risk" else (answer.columns["time"], -1.0)
        values: list[dict[str, Any]] = [{column: sign * score} for score in nested.get("score", ())]
    elif answer.is_binary:
        pairs = zip(nested.get("positive", ()), nested.get("probability", ()), strict=True)
        values = [
            {answer.columns["class"]: answer.classes[int(positive)], _PROBABILITY: probability}
            for positive, probability in pairs
        ]
    else:
        values = [{answer.columns["class"]: value} for value in nested.get("class", ())]
    return dict(zip(ids, values, strict=False))
