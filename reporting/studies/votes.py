"""Combination of all teams' masks of one case into one mask: STAPLE, or the average of the votes."""

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
from contract.predictions import parse_case
from evaluation.inputs.ground_truth import check_cases_overlap, read_mask_folder
from evaluation.inputs.mask_files import list_masks
from evaluation.inputs.masks import read_prediction
from evaluation.inputs.plain_files import read_mask_files
from evaluation.inputs.submission import SubmittedAnswer, catch_file_errors, find_answer_file
from evaluation.metrics.overlap import MM3_PER_ML, Booleans, Box, Floats, find_foreground_box
from evaluation.metrics.rules import EXACT
from evaluation.metrics.surface import Spacing

Labels: TypeAlias = npt.NDArray[np.uint8]

STAPLE_MARGIN_MM: Final = 10.0
_MAX_ITERATIONS: Final = 1000
_MIN_PROBABILITY: Final = 0.5


@dataclass(frozen=True)
class CompactMask:
    """A (z, y, x) label mask without the background around it: `inside` fills `box` of the whole grid."""

    box: Box
    inside: Labels

    @classmethod
    def from_mask(cls, mask: npt.NDArray[Any]) -> CompactMask:
        """Crop a mask to its foreground."""
        box = find_foreground_box(mask)
        return cls(box, mask[box].astype(np.uint8))


def average(votes: Booleans, spacing_mm: Spacing) -> Floats:
    """Return the fraction of masks that include each voxel; `votes` has shape (masks, z, y, x)."""
    del spacing_mm  # only STAPLE needs it
    return np.asarray(np.mean(votes, axis=0))


def staple(votes: Booleans, spacing_mm: Spacing) -> Floats:
    """Return the probability of each voxel under STAPLE, which treats the masks as noisy observations of one truth.

    STAPLE runs on the votes' bounding box with a margin of 10 mm, clipped at the image's border, since the amount of
    air in an image would change the raters' specificity and the prior. If all masks agree in every voxel, the
    probability is their vote, because STAPLE is undefined in a box without background. Voxels outside all masks have
    probability 0, even if strong disagreement makes STAPLE assign another value.

    Args:
        votes: True where a mask includes a voxel, shape (masks, z, y, x).
        spacing_mm: Voxel spacing (z, y, x).

    Source: Warfield et al. 2004, IEEE Trans Med Imaging 23:903-921, as implemented by SimpleITK's filter.
    """
    import SimpleITK as sitk

    union = np.asarray(votes.any(axis=0), dtype=np.uint8)
    if np.array_equal(union, votes.all(axis=0)):
        return union.astype(np.float64)
    probability: Floats = np.zeros(union.shape)
    region = _widen_box(find_foreground_box(union), union.shape, spacing_mm)
    staple_filter = sitk.STAPLEImageFilter()
    staple_filter.SetForegroundValue(1.0)
    staple_filter.SetMaximumIterations(_MAX_ITERATIONS)
    images = [sitk.GetImageFromArray(vote[region].astype(np.uint8)) for vote in votes]
    probability[region] = sitk.GetArrayFromImage(staple_filter.Execute(images)) * union[region]
    return probability


METHODS: Final[dict[str, Callable[[Booleans, Spacing], Floats]]] = {"staple": staple, "average": average}


def combine_masks(
    masks: Sequence[CompactMask], shape: tuple[int, int, int], spacing_mm: Spacing, method: str
) -> CompactMask:
    """Combine masks of one grid into one: each label is set where its probability is at least 0.5.

    Each label is voted on separately. If both labels reach 0.5, the more probable one wins, and GTVp if equal.

    Args:
        masks: Masks of one grid.
        shape: Shape of the grid (z, y, x).
        spacing_mm: Spacing of the grid (z, y, x).
        method: Key of `METHODS`.

    Source: the HECKTOR 2021 overview.
    """
    compute_probability = METHODS[method]
    region = _widen_box(_unite_boxes([mask.box for mask in masks]), shape, spacing_mm)
    stack = np.stack([_expand_mask(mask, region) for mask in masks])
    gtvp, gtvn = (compute_probability(stack == label, spacing_mm) for label in labels.FOREGROUND)
    combined = np.zeros(gtvp.shape, dtype=np.uint8)
    combined[gtvn >= _MIN_PROBABILITY] = labels.GTVN
    combined[(gtvp >= _MIN_PROBABILITY) & (gtvp >= gtvn)] = labels.GTVP
    return CompactMask(region, combined)


def stack_masks(masks: Sequence[CompactMask]) -> list[Labels]:
    """Return the masks in the smallest box that contains the foreground of all, (z, y, x)."""
    region = _unite_boxes([mask.box for mask in masks])
    return [_expand_mask(mask, region) for mask in masks]


def _unite_boxes(boxes: Sequence[Box]) -> Box:
    """Return the smallest box around all boxes that are not empty; it is empty if all are empty."""
    filled = [box for box in boxes if all(part.stop > part.start for part in box)]
    if not filled:
        return (slice(0, 0), slice(0, 0), slice(0, 0))
    z, y, x = (
        slice(min(part.start for part in parts), max(part.stop for part in parts))
        for parts in zip(*filled, strict=True)
    )
    return (z, y, x)


def _widen_box(box: Box, shape: tuple[int, ...], spacing_mm: Spacing) -> Box:
    """Widen a box by the margin of STAPLE, clipped at the border of the grid; an empty box stays empty."""
    if any(part.stop == part.start for part in box):
        return box
    steps = [int(np.ceil(STAPLE_MARGIN_MM / spacing)) for spacing in spacing_mm]
    z, y, x = (
        slice(max(0, part.start - step), min(size, part.stop + step))
        for part, step, size in zip(box, steps, shape, strict=True)
    )
    return (z, y, x)


def _expand_mask(mask: CompactMask, region: Box) -> Labels:
    """Return the mask in a region that contains all of its foreground."""
    expanded = np.zeros(tuple(part.stop - part.start for part in region), dtype=np.uint8)
    if mask.inside.size:
        slices = tuple(
            slice(part.start - outer.start, part.stop - outer.start)
            for part, outer in zip(mask.box, region, strict=True)
        )
        expanded[slices] = mask.inside
    return expanded


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
    """Return the cases of the reference masks, or without references the cases with a mask of any team, sorted.

    Raises:
        HecktorError: A folder does not exist, or has no case, or no case that another team has.
    """
    references = read_mask_folder(ground_truth).targets if ground_truth is not None else {}
    cases_by_team = {
        team: {parse_case(path.name) for path in list_masks(folder).masks}
        for team, folder in teams.items()
        if folder.is_dir()
    }
    cases = sorted(references or {case for team_cases in cases_by_team.values() for case in team_cases})
    answers_by_team = {
        team: {answer.case: answer for answer in read_mask_files(folder, cases, ()).answers}
        for team, folder in teams.items()
    }
    if not cases:
        raise HecktorError("no mask in any team's folder, expected <case>.mha or <case>.nii.gz")
    check_cases_overlap(cases_by_team)
    return [
        EnsembleCase(
            case, {team: answers_by_team[team][case] for team in teams}, references.get(case), selections, output
        )
        for case in cases
    ]


def combine_case(item: EnsembleCase) -> EnsembleRow:
    """Combine the teams' masks of one case and write the mask of every ensemble.

    A team whose mask is absent, unreadable or on another grid has no vote. The grid is the reference's grid, or
    without a reference the first usable mask's grid. An ensemble without votes is not written.
    """
    masks: dict[str, CompactMask] = {}
    problems: list[Mapping[str, str]] = []
    grid = None if item.reference is None else read_header(item.reference, error=GroundTruthError).geometry
    for team, answer in item.answers.items():
        try:
            path = find_answer_file(answer, is_image=True)
            mask_grid = _read_grid(path) if grid is None else grid
            masks[team] = CompactMask.from_mask(read_prediction(path, mask_grid, EXACT).array)
            grid = mask_grid
        except PredictionError as problem:
            problems.append({"case": item.case, "team": team, "why": problem.message})
    lines: list[Mapping[str, Any]] = []
    not_written = []
    for selection, members in item.selections.items():
        votes = [masks[team] for team in members if team in masks]
        for method in METHODS:
            ensemble = f"{selection}_{method}"
            target = item.output / ensemble / f"{item.case}.mha"
            if grid is None or not votes:
                # A mask of an earlier run must not be mistaken for a result of this run.
                target.unlink(missing_ok=True)
                not_written.append(ensemble)
            else:
                volumes = _write_combined_mask(target, votes, grid, method)
                lines.append({"case": item.case, "ensemble": ensemble, "votes": len(votes), **volumes})
    return EnsembleRow(item.case, tuple(lines), tuple(problems), tuple(not_written))


def _read_grid(path: Path) -> Geometry:
    with catch_file_errors(path.name):
        return read_header(path, error=PredictionError).geometry


def _write_combined_mask(target: Path, votes: Sequence[CompactMask], grid: Geometry, method: str) -> dict[str, float]:
    """Combine and write one mask; return the volume of each label in ml."""
    combined = combine_masks(votes, grid.array_shape, grid.array_spacing_mm, method)
    mask = np.zeros(grid.array_shape, dtype=np.uint8)
    mask[combined.box] = combined.inside
    write_mask(target, mask, grid)
    return {
        f"{labels.NAMES[label].lower()}_ml": int((combined.inside == label).sum()) * grid.voxel_volume_mm3 / MM3_PER_ML
        for label in labels.FOREGROUND
    }
