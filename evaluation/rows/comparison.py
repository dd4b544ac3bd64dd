"""Compare reference masks with predicted ones: one small row a case, from which every metric of masks is computed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import Finding, GroundTruthError, PredictionError
from contract.images.volumes import Volume
from contract.patient import format_names
from evaluation.execution import DEATH, Workers, map_cases
from evaluation.inputs.grids import Resampling
from evaluation.inputs.ground_truth import Reference, read_mask_folder
from evaluation.inputs.masks import WHOLE_IMAGE, BoundingBox, read_labels, read_prediction
from evaluation.inputs.plain_files import read_mask_files
from evaluation.inputs.submission import Submission, SubmittedAnswer, find_answer_file, make_unusable_answer
from evaluation.metrics.lesions import compare_lesions, count_false_voxels
from evaluation.metrics.masks import LABELS, mask_metrics
from evaluation.metrics.overlap import count_overlaps, foreground_box
from evaluation.metrics.rules import SURFACES_OF, MaskRules, Metric
from evaluation.metrics.surface import Spacing, compare_surfaces, make_missing_row
from evaluation.rows.mask import ComparedLabel, MaskRow, make_columns, make_mask_row
from evaluation.rows.mistakes import count_changed_overlaps, find_mask_changes, is_poor
from evaluation.rows.scorer import RowMetrics, measured

_N_LABELS: Final = 1 + len(labels.FOREGROUND)


@dataclass(frozen=True)
class MaskPair:
    """A reference mask and the submitted one; with a box, both are compared inside it only."""

    reference: Path
    answer: SubmittedAnswer
    rules: MaskRules
    box: BoundingBox | None = None


def compare_pair(pair: MaskPair) -> MaskRow:
    """Compare a prediction with its reference on the reference's grid.

    A prediction that is absent, unreadable, on another grid (unless the rules resample it) or has a value other than
    0, 1 and 2 gives a row with the reference's voxels and lesions alone, and the reason.
    """
    (row,) = compare_case((pair,))
    return row


def compare_case(pairs: Sequence[MaskPair]) -> list[MaskRow]:
    """Compare the predictions of several teams with one reference, which is read once; rows as of `compare_pair`."""
    reference = read_labels(pairs[0].reference, GroundTruthError)
    return [_compare(pair, reference) for pair in pairs]


def _compare(pair: MaskPair, reference: Volume) -> MaskRow:
    region = pair.box.find_region(reference.geometry) if pair.box else WHOLE_IMAGE
    if pair.box and region.is_empty:
        raise GroundTruthError(f"bounding box of {pair.answer.case}", "lies beside the image", "one inside it")
    predicted: npt.NDArray[Any] | str
    resampled: Resampling | None = None
    try:
        path = find_answer_file(pair.answer, is_image=True)
        mask = read_prediction(path, reference.geometry, pair.rules.geometry)
        predicted, resampled = region.cut(mask.array), mask.resampled
    except PredictionError as problem:
        predicted = problem.message
    reference_mask, spacing_mm = region.cut(reference.array), reference.geometry.array_spacing_mm
    row = compare_masks(pair.answer.case, reference_mask, predicted, spacing_mm, pair.rules)
    if row.error is None and is_poor(row):
        row = row.model_copy(
            update={"overlap_after_change": count_changed_overlaps(reference_mask, mask.array, region)}
        )
    return row.model_copy(update={"failed": row.error is not None and pair.answer.is_submitted, "resampled": resampled})


def compare_masks(
    case: str, reference: npt.NDArray[Any], predicted: npt.NDArray[Any] | str, spacing_mm: Spacing, rules: MaskRules
) -> MaskRow:
    """The row of two masks of the same shape with values 0, 1 and 2; shape and spacing are (z, y, x).

    `predicted` is a text, the reason, if there is no usable prediction.
    """
    error = predicted if isinstance(predicted, str) else None
    box = foreground_box(reference) if isinstance(predicted, str) else foreground_box(reference, predicted)
    reference_mask = reference[box].astype(np.uint8)
    predicted_mask = np.zeros_like(reference_mask) if isinstance(predicted, str) else predicted[box].astype(np.uint8)
    z_mm, y_mm, x_mm = spacing_mm
    overlaps = count_overlaps(reference_mask, predicted_mask, _N_LABELS)
    gtvp = reference_mask == labels.GTVP, predicted_mask == labels.GTVP
    gtvn = reference_mask == labels.GTVN, predicted_mask == labels.GTVN
    surfaces = {
        name: make_missing_row()
        if error is not None
        else compare_surfaces(reference_mask == LABELS[name], predicted_mask == LABELS[name], spacing_mm, rules)
        for name in SURFACES_OF[rules.surfaces]
    }
    lesions = compare_lesions(*gtvn, rules)
    false = count_false_voxels(*gtvp, rules.connectivity)
    return make_mask_row(
        case,
        z_mm * y_mm * x_mm,
        ComparedLabel(overlaps[labels.GTVP], false, rules.gtvp_empty, surface=surfaces.get("gtvp")),
        ComparedLabel(overlaps[labels.GTVN], lesions.false, rules.gtvn_empty, lesions, surfaces.get("gtvn")),
        error,
    )


@dataclass(frozen=True)
class MaskScorer:
    """Scores masks."""

    rules: MaskRules

    def read_reference(self, source: Path, centre_columns: Sequence[str]) -> Reference[Path]:
        return read_mask_folder(source, centre_columns)

    def read_files(self, source: Path, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
        return read_mask_files(source, cases, not_evaluated)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return mask_metrics(self.rules.surfaces)

    @property
    def row(self) -> type[MaskRow]:
        return MaskRow

    def score(
        self, reference: Reference[Path], submissions: Sequence[Submission], workers: Workers
    ) -> list[Sequence[MaskRow]]:
        """The rows of each submission, one for each case, compared inside its bounding box if there is one."""
        cases = [
            [MaskPair(reference.targets[one.case], one, self.rules, reference.boxes.get(one.case)) for one in answers]
            for answers in zip(*(submission.answers for submission in submissions), strict=True)
        ]
        rows = map_cases(compare_case, cases, workers, partial(_rows_after_death, workers))
        return list(zip(*rows, strict=True))

    def measure(self, rows: Sequence[MaskRow]) -> RowMetrics:
        """Overlap, lesions and surfaces."""
        not_in_mean = {
            f"{name}_empty_not_in_mean_dsc": tuple(row.case for row in rows if row.label(name).dsc is None)
            for name in LABELS
        }
        return RowMetrics(
            measured(self.metrics, make_columns(rows, self.rules.volume_unit)),
            excluded={why: cases for why, cases in not_in_mean.items() if cases},
            findings=_about_grids(rows) + find_mask_changes(rows),
        )

    def check_row(self, row: MaskRow) -> None:
        for name in SURFACES_OF[self.rules.surfaces]:
            if row.label(name).surface is None:
                raise ValueError(f"the surfaces of {name}, which these rules measure")

    def reference_of(self, row: MaskRow) -> tuple[object, ...]:
        """Volumes and, where each lesion has one partner, the number of lesions."""
        volumes = row.voxel_volume_mm3, row.gtvp.reference_voxels, row.gtvn.reference_voxels
        lesions = row.nodes.tp + row.nodes.fn
        return volumes if self.rules.matching == "any_overlap" else (*volumes, lesions)


def _rows_after_death(workers: Workers, pairs: Sequence[MaskPair]) -> list[MaskRow]:
    """One by one, so that the mask of one team that ends its process costs no other team's."""
    return (
        map_cases(compare_pair, pairs, workers, _row_of_dead_worker)
        if len(pairs) > 1
        else [_row_of_dead_worker(*pairs)]
    )


def _row_of_dead_worker(pair: MaskPair) -> MaskRow:
    # The reference alone must be readable here; if the reference kills a process, the run stops with it.
    read_labels(pair.reference, GroundTruthError)
    why = f"the process that compared this mask ended ({DEATH})"
    return compare_pair(replace(pair, answer=make_unusable_answer(pair.answer.case, why)))


def _about_grids(rows: Sequence[MaskRow]) -> tuple[Finding, ...]:
    """One warning for masks that lie beside the reference, and one for others that were resampled."""
    findings = []
    moved = [(row.case, row.resampled) for row in rows if row.resampled is not None]
    for is_beside in (True, False):
        if some := [(case, one) for case, one in moved if one.is_outside == is_beside]:
            (first, grids), cases = some[0], [case for case, _ in some]
            findings.append(grids.make_finding(format_names(cases), f"{first}: " if len(cases) > 1 else ""))
    return tuple(findings)
