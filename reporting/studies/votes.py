"""All teams' masks of one case, read one at a time and combined into one: STAPLE, or the average of the votes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import GroundTruthError, HecktorError, PredictionError
from contract.images.geometry import Geometry
from contract.images.volumes import read_header, write_mask
from contract.predictions import case_of
from evaluation.inputs.ground_truth import check_shared, read_mask_folder
from evaluation.inputs.mask_files import list_masks
from evaluation.inputs.masks import read_prediction
from evaluation.inputs.plain_files import read_mask_files
from evaluation.inputs.submission import SubmittedAnswer, catch_file_errors, find_answer_file
from evaluation.metrics.overlap import MM3_PER_ML, Booleans, Box, Floats, foreground_box
from evaluation.metrics.rules import EXACT
from evaluation.metrics.surface import Spacing

Labels: TypeAlias = npt.NDArray[np.uint8]

STAPLE_MARGIN_MM: Final = 10.0
_MAX_ITERATIONS: Final = 1000
_ENOUGH: Final = 0.5


@dataclass(frozen=True)
class CompactMask:
    """A (z, y, x) label mask without the background around it: `inside` fills `box` of the whole grid."""

    box: Box
    inside: Labels

    @classmethod
    def of(cls, mask: npt.NDArray[Any]) -> CompactMask:
        """A mask cut to its foreground."""
        box = foreground_box(mask)
        return cls(box, mask[box].astype(np.uint8))


def average(votes: Booleans, spacing_mm: Spacing) -> Floats:
    """The fraction of masks that include each voxel; `votes` has shape (masks, z, y, x)."""
    del spacing_mm
    return np.asarray(np.mean(votes, axis=0))


def staple(votes: Booleans, spacing_mm: Spacing) -> Floats:
    """The probability of each voxel under STAPLE, which takes the masks as noisy observations of one truth.

    `votes` has shape (masks, z, y, x), the spacing (z, y, x). STAPLE runs on the votes' bounding box and 10 mm around
    it, cut at the image's border, since the amount of air in an image would change the raters' specificity and the
    prior. If all masks agree in every voxel, the probability is their vote; STAPLE is undefined if such a box has no
    background. Voxels outside all masks have probability 0, even if strong disagreement makes STAPLE assign another
    value.
    Source: Warfield et al. 2004, IEEE Trans Med Imaging 23:903-921, as SimpleITK's filter has it.
    """
    import SimpleITK as sitk

    held = np.asarray(votes.any(axis=0), dtype=np.uint8)
    if np.array_equal(held, votes.all(axis=0)):
        return held.astype(np.float64)
    probability: Floats = np.zeros(held.shape)
    region = _widened(foreground_box(held), held.shape, spacing_mm)
    staples = sitk.STAPLEImageFilter()
    staples.SetForegroundValue(1.0)
    staples.SetMaximumIterations(_MAX_ITERATIONS)
    images = [sitk.GetImageFromArray(vote[region].astype(np.uint8)) for vote in votes]
    probability[region] = sitk.GetArrayFromImage(staples.Execute(images)) * held[region]
    return probability


METHODS: Final[dict[str, Callable[[Booleans, Spacing], Floats]]] = {"staple": staple, "average": average}


def combine(masks: Sequence[CompactMask], shape: tuple[int, int, int], spacing_mm: Spacing, method: str) -> CompactMask:
    """One mask from several of the same grid: each label where its probability is at least 0.5.

    The grid has the shape and spacing (z, y, x); `method` is a key of `METHODS`. Each label is voted on separately. If
    both reach 0.5, the more probable one wins, GTVp if equal.
    Source: the HECKTOR 2021 overview.
    """
    region = _widened(_union([mask.box for mask in masks]), shape, spacing_mm)
    stack = np.stack([_within(mask, region) for mask in masks])
    gtvp, gtvn = (METHODS[method](stack == label, spacing_mm) for label in labels.FOREGROUND)
    combined = np.zeros(gtvp.shape, dtype=np.uint8)
    combined[gtvn >= _ENOUGH] = labels.GTVN
    combined[(gtvp >= _ENOUGH) & (gtvp >= gtvn)] = labels.GTVP
    return CompactMask(region, combined)


def stack_masks(masks: Sequence[CompactMask]) -> list[Labels]:
    """The masks over the smallest box that holds all of their foreground, (z, y, x)."""
    region = _union([mask.box for mask in masks])
    return [_within(mask, region) for mask in masks]


def _union(boxes: Sequence[Box]) -> Box:
    """The smallest box around all non-empty boxes; empty if all are empty."""
    filled = [box for box in boxes if all(part.stop > part.start for part in box)]
    if not filled:
        return (slice(0, 0), slice(0, 0), slice(0, 0))
    z, y, x = (slice(min(s.start for s in parts), max(s.stop for s in parts)) for parts in zip(*filled, strict=True))
    return (z, y, x)


def _widened(box: Box, shape: tuple[int, ...], spacing_mm: Spacing) -> Box:
    if any(part.stop == part.start for part in box):
        return box
    steps = [int(np.ceil(STAPLE_MARGIN_MM / spacing)) for spacing in spacing_mm]
    z, y, x = (
        slice(max(0, part.start - step), min(size, part.stop + step))
        for part, step, size in zip(box, steps, shape, strict=True)
    )
    return (z, y, x)


def _within(mask: CompactMask, region: Box) -> Labels:
    """The mask inside a region that contains all of its foreground."""
    inside = np.zeros(tuple(part.stop - part.start for part in region), dtype=np.uint8)
    if mask.inside.size:
        place = tuple(
            slice(part.start - outer.start, part.stop - outer.start)
            for part, outer in zip(mask.box, region, strict=True)
        )
        inside[place] = mask.inside
    return inside


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
    answered = {
        team: {case_of(path.name) for path in list_masks(one).masks} for team, one in teams.items() if one.is_dir()
    }
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
        path = find_answer_file(answer, is_image=True)
        if grid is None:
            with catch_file_errors(path.name):
                grid = read_header(path, error=PredictionError).geometry
        return grid, CompactMask.of(read_prediction(path, grid, EXACT).array)
    except PredictionError as problem:
        return problem.message


def _write_combined(target: Path, voting: Sequence[CompactMask], grid: Geometry, method: str) -> dict[str, float]:
    combined = combine(voting, grid.array_shape, grid.array_spacing_mm, method)
    mask = np.zeros(grid.array_shape, dtype=np.uint8)
    mask[combined.box] = combined.inside
    write_mask(target, mask, grid)
    return {
        f"{labels.NAMES[label].lower()}_ml": int((combined.inside == label).sum()) * grid.voxel_volume_mm3 / MM3_PER_ML
        for label in labels.FOREGROUND
    }
