"""The masks of one case from every team, read one at a time, combined and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from contract import labels
from contract.errors import GroundTruthError, HecktorError, PredictionError
from contract.images.geometry import Geometry
from contract.images.volumes import list_images, read_header, write_mask
from evaluation.execution.pool import DEATH
from evaluation.inputs.ground_truth import case_of, check_shared, read_mask_folder
from evaluation.inputs.hostile import hostile
from evaluation.inputs.masks import read_prediction
from evaluation.inputs.plain_files import read_mask_files
from evaluation.inputs.submission import SubmittedAnswer, answer_file
from evaluation.studies.ensembles.votes import METHODS, CompactMask, combine

_MM3_A_ML: Final = 1000.0


@dataclass(frozen=True)
class EnsembleCase:
    """One case: each team's answer, the reference that defines the grid (or None), and the output folder.

    `selections` are the teams of each ensemble by its name; masks go to `output/<ensemble>_<method>/<case>.mha`.
    """

    case: str
    answers: Mapping[str, SubmittedAnswer]
    reference: Path | None
    selections: Mapping[str, tuple[str, ...]]
    output: Path


@dataclass(frozen=True)
class EnsembleRow:
    """Results of one case: a line for each written mask, teams without a vote and why, and ensembles without votes."""

    case: str
    lines: tuple[Mapping[str, Any], ...]
    without_vote: tuple[Mapping[str, str], ...]
    not_written: tuple[str, ...]


def find_cases(
    teams: Mapping[str, Path], ground_truth: Path | None, selections: Mapping[str, tuple[str, ...]], output: Path
) -> list[EnsembleCase]:
    """The cases of the reference masks, or without references the cases with any team's mask, sorted.

    Raises HecktorError for a folder that does not exist, without a case or without one that another team has.
    """
    references = read_mask_folder(ground_truth).targets if ground_truth is not None else {}
    answered = {team: {case_of(path.name) for path in list_images(one)} for team, one in teams.items() if one.is_dir()}
    cases = sorted(references or {case for of_team in answered.values() for case in of_team})
    of_team = {
        team: {answer.case: answer for answer in read_mask_files(folder, cases, ()).answers}
        for team, folder in teams.items()
    }
    if not cases:
        raise HecktorError("no mask in any team's folder, expected <case>.mha or <case>.nii.gz")
    check_shared(answered)
    return [
        EnsembleCase(case, {team: of_team[team][case] for team in teams}, references.get(case), selections, output)
        for case in cases
    ]


def combine_case(item: EnsembleCase) -> EnsembleRow:
    """Combine one case's masks and write the mask of every ensemble.

    A team whose mask is absent, unreadable or on another grid has no vote; the grid is the reference's, or without a
    reference the first usable mask's. An ensemble without any vote is not written.
    """
    masks: dict[str, CompactMask] = {}
    problems: list[Mapping[str, str]] = []
    grid = None if item.reference is None else read_header(item.reference, error=GroundTruthError).geometry
    for team, answer in item.answers.items():
        vote = _vote(answer, grid)
        if isinstance(vote, str):
            problems.append({"case": item.case, "team": team, "why": vote})
        else:
            grid, masks[team] = vote
    lines: list[Mapping[str, Any]] = []
    not_written = []
    for selection, members in item.selections.items():
        voting = [masks[team] for team in members if team in masks]
        for method in METHODS:
            ensemble = f"{selection}_{method}"
            target = item.output / ensemble / f"{item.case}.mha"
            if grid is None or not voting:
                # The mask of an earlier run must not pass for a result of this one.
                target.unlink(missing_ok=True)
                not_written.append(ensemble)
            else:
                volumes = _write_combined(target, voting, grid, method)
                lines.append({"case": item.case, "ensemble": ensemble, "votes": len(voting), **volumes})
    return EnsembleRow(item.case, tuple(lines), tuple(problems), tuple(not_written))


def _vote(answer: SubmittedAnswer, grid: Geometry | None) -> tuple[Geometry, CompactMask] | str:
    """The mask and its grid (its own if none is given), or the reason why there is none."""
    try:
        path = answer_file(answer, is_image=True)
        if grid is None:
            with hostile(path.name):
                grid = read_header(path, error=PredictionError).geometry
        return grid, CompactMask.of(read_prediction(path, grid, "exact"))
    except PredictionError as problem:
        return problem.message


def _write_combined(target: Path, voting: Sequence[CompactMask], grid: Geometry, method: str) -> dict[str, float]:
    combined = combine(voting, grid.array_shape, grid.array_spacing_mm, method)
    mask = np.zeros(grid.array_shape, dtype=np.uint8)
    mask[combined.box] = combined.inside
    write_mask(target, mask, grid)
    return {
        f"{labels.NAMES[label].lower()}_ml": int((combined.inside == label).sum()) * grid.voxel_volume_mm3 / _MM3_A_ML
        for label in labels.FOREGROUND
    }


def row_of_dead_worker(item: EnsembleCase) -> EnsembleRow:
    """The row of a case that kills its process: no team has a vote."""
    why = f"the process that combined the case ended ({DEATH})"
    lost = {team: SubmittedAnswer(item.case, None, why, failed=True) for team in item.answers}
    return combine_case(replace(item, answers=lost))
