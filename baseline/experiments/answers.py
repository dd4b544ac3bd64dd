"""Out-of-fold answers of a plan in the evaluation's plain files: masks, risks and classes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from algorithm.heads.feature_hook import OUTCOME_NETWORK
from algorithm.outcome.plan import OutcomeTask
from baseline.heads.record import stored_targets
from baseline.outcome.folds import outcome_features, trained_outcome
from baseline.release.cases import ReleaseCase, read_cases
from baseline.work import WorkFolders, planned
from contract.editions import Algorithm, Answer
from contract.errors import HecktorError
from contract.files import write_csv

UNFILTERED: Final = ":unfiltered"
_ID: Final = "PatientID"
_PROBABILITY: Final = "probability"


@dataclass(frozen=True)
class Experiment:
    """Out-of-fold masks and heads to compare.

    `masks` is their folder, `has_heads` false for masks alone, and `model` a comparator that answers in place of the
    heads, such as an entrant's head, or the outcome network; empty for the heads.
    """

    name: str
    work: WorkFolders
    masks: Path
    has_heads: bool
    model: str = ""

    def mask(self, patient_id: str) -> Path:
        return self.masks / f"{patient_id}.nii.gz"

    def nested_answers(self, answer: Answer) -> dict[str, dict[str, Any]]:
        """The head's nested out-of-fold answers by patient, as rows of a table; empty if there are none."""
        if self.model == OUTCOME_NETWORK and self.has_heads:
            return _of_outcome_network(self.work, answer)
        record = stored_targets(self.work).get(answer.name, {}) if self.has_heads else {}
        nested = record.get("nested", {})
        if self.model:
            nested = nested.get("comparators", {}).get(self.model, {})
        return dict(zip([row["id"] for row in record.get("patients", ())], _rows(answer, nested), strict=False))


def experiment_of(shared: Path, name: str) -> Experiment:
    """The experiment of a plan or ensemble.

    A name that ends in `:unfiltered` means its masks before postprocessing, and one that ends in a comparator, such as
    `:my_model:Head`, this model in place of the heads.
    """
    plan, colon, model = name.partition(":")
    if Path(name).exists() and plan not in [one.name for one in planned(shared)]:
        advice = "the name of a plan; `hecktor train heads --name NAME --networks PACKAGE` makes one of a package"
        raise HecktorError(name, "a file or folder", advice)
    work, unfiltered = WorkFolders(shared, plan), name.endswith(UNFILTERED)
    masks = work.unfiltered / "masks" if unfiltered else work.masks
    if colon and not unfiltered and model not in (known := _comparators(work)):
        expected = " or ".join(["the name of a plan, NAME:unfiltered", *(f"NAME:{one}" for one in known)])
        raise HecktorError(name, "not an experiment", expected)
    if not masks.is_dir():
        step = "postprocess" if unfiltered else "heads"
        raise HecktorError(name, "no out-of-fold masks", f"`hecktor train {step} --name {plan}` before")
    if unfiltered:
        return Experiment(work.name + UNFILTERED, work, masks, has_heads=False)
    return Experiment(f"{work.name}{colon}{model}", work, masks, has_heads=True, model=model)


def _comparators(work: WorkFolders) -> list[str]:
    """The single models that were compared with a plan's heads, and its outcome network."""
    nested = [record["nested"] for record in stored_targets(work).values()]
    names = list(dict.fromkeys(name for one in nested for name in one.get("comparators", {})))
    return names if trained_outcome(work) is None else [*names, OUTCOME_NETWORK]


def _of_outcome_network(work: WorkFolders, answer: Answer) -> dict[str, dict[str, Any]]:
    """The risk of each patient by the network of the balanced fold that held the patient out; none for classes."""
    (name,) = OutcomeTask(answer=answer.name).features
    rows = outcome_features(work, read_cases(work)) if answer.kind == "risk" else {}
    scores = {patient: score for patient, row in rows.items() if (score := row.get(name)) is not None}
    return dict(zip(scores, _rows(answer, {"score": scores.values()}), strict=True))


def answered_by_all(answer: Answer, experiments: Sequence[Experiment], cases: Sequence[ReleaseCase]) -> frozenset[str]:
    """Patients with a known outcome to whom the heads of every experiment gave an out-of-fold answer."""
    known = frozenset(case.patient_id for case in cases if case.has(answer))
    return known.intersection(*(one.nested_answers(answer) for one in experiments))


def write_answers(folder: Path, experiment: Experiment, algorithm: Algorithm, patients: Set[str]) -> Path:
    """Write the answers of an experiment to one algorithm; returns the path that the evaluation reads."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if algorithm.mask is not None:
        for name in sorted(patients):
            _link(experiment.mask(name).resolve(), folder / f"{name}.nii.gz")
    if not algorithm.heads:
        return folder
    rows: dict[str, dict[str, Any]] = {}
    for answer in algorithm.heads:
        for name, row in experiment.nested_answers(answer).items():
            if name in patients:
                rows.setdefault(name, {_ID: name}).update(row)
    header = list(dict.fromkeys(key for row in rows.values() for key in row))
    table = folder / "answers.csv"
    write_csv(table, header, [rows[name] for name in sorted(rows)])
    return folder if algorithm.mask is not None else table


def _link(source: Path, target: Path) -> None:
    """Link a file, or copy it to another file system; the evaluation accepts no symbolic links as predictions."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _rows(answer: Answer, nested: Mapping[str, Any]) -> list[dict[str, Any]]:
    if answer.kind == "risk":
        # A column of times holds later recurrences as higher values.
        column, sign = ("risk", 1.0) if answer.direction == "risk" else (answer.columns["time"], -1.0)
        return [{column: sign * score} for score in nested.get("score", ())]
    column = answer.columns["class"]
    if answer.is_binary:
        pairs = zip(nested.get("positive", ()), nested.get("probability", ()), strict=True)
        return [{column: answer.classes[int(positive)], _PROBABILITY: probability} for positive, probability in pairs]
    return [{column: value} for value in nested.get("class", ())]
