"""Read the reference and the submitted answers of a task, each answer by its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contract.editions.clinical import CENTRE
from contract.editions.declaration import CT
from contract.errors import Finding
from evaluation.editions.profile import EvaluationProfile
from evaluation.editions.rules import MaskRules
from evaluation.editions.task import TaskProfile
from evaluation.inputs.ground_truth import Reference
from evaluation.inputs.plain_files import read_bounding_boxes
from evaluation.inputs.prediction_folder import find_table
from evaluation.inputs.submission import JobSockets, Submission, read_submission
from evaluation.rows.kinds import scorer_of


@dataclass(frozen=True)
class Sources:
    """Files of an evaluation; `submission` is unused if there are `predictions` in plain files."""

    ground_truth: Path
    submission: Path
    predictions: Path | None = None
    bounding_boxes: Path | None = None


def read_references(sources: Sources, profile: EvaluationProfile, task: TaskProfile) -> dict[str, Reference[Any]]:
    """The reference of each answer, with the bounding boxes of masks.

    A case of one reference that another lacks is without a target there.
    """
    centre_columns = [name for one in profile.declaration.clinical if one.name == CENTRE for name in one.spellings]
    references = {}
    for name, answer in task.answers.items():
        reference = scorer_of(answer).read_reference(sources.ground_truth, centre_columns)
        if sources.bounding_boxes is not None and isinstance(answer.rules, MaskRules):
            reference = replace(reference, boxes=read_bounding_boxes(sources.bounding_boxes, reference.targets.keys()))
        references[name] = reference
    known = {case for one in references.values() for case in one.cases}
    return {name: one.with_cases(known) for name, one in references.items()}


def read_submissions(
    sources: Sources, profile: EvaluationProfile, task: TaskProfile, references: Mapping[str, Reference[Any]]
) -> tuple[dict[str, Submission], tuple[Finding, ...]]:
    """Each submitted answer, and findings about the files; names that any reference has are not unknown."""
    known = {case for one in references.values() for case in one.cases}
    table = sources.predictions
    findings: tuple[Finding, ...] = ()
    if table is not None and task.has_several_answers:
        table, findings = find_table(table, task.algorithm.heads)
    outputs = tuple(answer.socket for answer in task.algorithm.answers)
    submissions = {}
    for name, one in task.answers.items():
        cases = references[name].targets.keys()
        path = sources.predictions if one.answer.kind == "mask" else table
        if path is not None:
            submissions[name] = scorer_of(one).read_files(path, cases, known - cases)
        else:
            sockets = JobSockets(profile.declaration.inputs[CT], one.answer.socket, outputs)
            submissions[name] = read_submission(sources.submission, sockets, cases, known - cases)
    return submissions, findings
