"""Comparison of reference masks with predicted masks: one row for each case, and warnings about probable mistakes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from contract import labels
from contract.errors import Finding, GroundTruthError, HecktorError, PredictionError
from contract.images.volumes import Volume
from contract.patient import format_names
from evaluation.execution import DEATH, Workers, map_cases
from evaluation.inputs.ground_truth import Reference, read_mask_folder
from evaluation.inputs.masks import WHOLE_IMAGE, BoundingBox, BoxRegion, read_labels, read_prediction
from evaluation.inputs.plain_files import read_mask_files
from evaluation.inputs.submission import Submission, SubmittedAnswer, find_answer_file, make_unusable_answer
from evaluation.metrics.lesions import compare_lesions, count_false_voxels
from evaluation.metrics.masks import LABELS, MaskColumns, list_mask_metrics
from evaluation.metrics.overlap import count_overlaps, find_foreground_box
from evaluation.metrics.rules import SURFACES_OF, MaskRules, Metric
from evaluation.metrics.surface import Spacing, compare_surfaces, make_missing_values
from evaluation.rows.mask import ComparedLabel, MaskRow, make_columns, make_mask_row
from evaluation.rows.scorer import RowMetrics, build_metrics, make_table, parse_stored_row, read_stored_table
from evaluation.rows.table import RowTable, read_table

_N_LABELS: Final = 1 + len(labels.FOREGROUND)

# Changes of a mask that may reveal a mistake, by name.
_EXCHANGED: Final = "GTVp and GTVn exchanged"
# Axes of an array (z, y, x). Reading the array of a RAS mask as LPS mirrors x and y.
_MIRRORED_AXES: Final = {"x mirrored": (2,), "y mirrored": (1,), "z mirrored": (0,), "x and y mirrored": (1, 2)}
# A DSC over the voxels of both labels is poor below this limit.
_MAX_POOR_DSC: Final = 0.5
# A change is named in a warning if it raises the DSC by at least this much.
_MIN_DSC_GAIN: Final = 0.2


@dataclass(frozen=True)
class MaskPair:
    """A reference mask and a submitted mask; if there is a box, both are compared only inside it."""

    reference: Path
    answer: SubmittedAnswer
    rules: MaskRules
    box: BoundingBox | None = None


def compare_pair(pair: MaskPair) -> MaskRow:
    """Compare a prediction with its reference on the reference's grid.

    If the prediction is absent, unreadable, on another grid (unless the rules resample it) or has a value other than
    0, 1 and 2, the row has the voxels and lesions of the reference, and the error.
    """
    (row,) = compare_case((pair,))
    return row


def compare_case(pairs: Sequence[MaskPair]) -> list[MaskRow]:
    """Compare the predictions of several teams with one reference, which is read once; rows as in `compare_pair`."""
    reference = read_labels(pairs[0].reference, GroundTruthError)
    return [_compare(pair, reference) for pair in pairs]


def _compare(pair: MaskPair, reference: Volume) -> MaskRow:
    region = pair.box.find_region(reference.geometry) if pair.box else WHOLE_IMAGE
    if pair.box and region.is_empty:
        raise GroundTruthError(
            f"bounding box of {pair.answer.case}", "lies outside the image", "a box inside the image"
        )
    reference_mask, spacing_mm = region.cut(reference.array), reference.geometry.array_spacing_mm
    try:
        path = find_answer_file(pair.answer, is_image=True)
        mask = read_prediction(path, reference.geometry, pair.rules.geometry)
    except PredictionError as problem:
        row = compare_masks(pair.answer.case, reference_mask, problem.message, spacing_mm, pair.rules)
        return row.model_copy(update={"failed": pair.answer.is_submitted})
    row = compare_masks(pair.answer.case, reference_mask, region.cut(mask.array), spacing_mm, pair.rules)
    changed = count_changed_overlaps(reference_mask, mask.array, region) if _is_poor(row) else {}
    return row.model_copy(update={"resampled": mask.resampled, "overlap_after_change": changed})


def compare_masks(
    case: str, reference: npt.NDArray[Any], predicted: npt.NDArray[Any] | str, spacing_mm: Spacing, rules: MaskRules
) -> MaskRow:
    """Compare two masks of the same shape with values 0, 1 and 2; shape and spacing are (z, y, x).

    `predicted` is the error message if there is no usable prediction.
    """
    error = predicted if isinstance(predicted, str) else None
    box = find_foreground_box(reference) if isinstance(predicted, str) else find_foreground_box(reference, predicted)
    reference_mask = reference[box].astype(np.uint8)
    predicted_mask = np.zeros_like(reference_mask) if isinstance(predicted, str) else predicted[box].astype(np.uint8)
    z_mm, y_mm, x_mm = spacing_mm
    overlaps = count_overlaps(reference_mask, predicted_mask, _N_LABELS)
    gtvp = reference_mask == labels.GTVP, predicted_mask == labels.GTVP
    gtvn = reference_mask == labels.GTVN, predicted_mask == labels.GTVN
    surfaces = {
        name: make_missing_values()
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
    """Scorer of masks."""

    rules: MaskRules

    def read_reference(self, source: Path, centre_columns: Sequence[str]) -> Reference[Path]:
        """Find the reference masks of all cases in a folder."""
        return read_mask_folder(source, centre_columns)

    def read_files(self, source: Path, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
        """Find the predicted masks in a folder."""
        return read_mask_files(source, cases, not_evaluated)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that the rules measure."""
        return list_mask_metrics(self.rules.surfaces)

    def score(
        self, reference: Reference[Path], submissions: Sequence[Submission], workers: Workers
    ) -> list[Sequence[MaskRow]]:
        """Return the rows of each submission; masks are compared inside the case's bounding box if it has one."""
        cases = [
            [
                MaskPair(reference.targets[answer.case], answer, self.rules, reference.boxes.get(answer.case))
                for answer in answers
            ]
            for answers in zip(*(submission.answers for submission in submissions), strict=True)
        ]
        rows = map_cases(compare_case, cases, workers, partial(_compare_after_death, workers))
        return list(zip(*rows, strict=True))

    def make_table(self, rows: Sequence[MaskRow]) -> RowTable:
        """Return rows that were just scored as columns."""
        return make_table(rows, MaskRow)

    def read_table(self, rows: Sequence[Mapping[str, Any]], source: str) -> RowTable:
        """Read rows of metrics.json, which must have the surfaces that the rules measure, as columns."""
        return read_stored_table(rows, self._read_columns, lambda row: self.parse_row(row, f"{source}, {row['case']}"))

    def _read_columns(self, rows: Sequence[Mapping[str, Any]]) -> RowTable:
        """Read the columns; raise an exception of `read_table` for a row with a fault."""
        table = read_table(MaskRow, rows)
        if any(None in table.columns[f"{name}.surface"] for name in SURFACES_OF[self.rules.surfaces]):
            raise ValueError("no surfaces, which the rules measure")
        return table

    def measure(self, table: RowTable) -> RowMetrics:
        """Return the metrics of overlap, lesions and surfaces."""
        columns = make_columns(table, self.rules.volume_unit)
        return RowMetrics(build_metrics(self.metrics, columns), excluded=_find_cases_without_dsc(columns))

    def find_problems(self, rows: Sequence[MaskRow]) -> tuple[Finding, ...]:
        """Find masks on another grid, and masks that fit far better after a change, such as exchanged labels."""
        return find_grid_problems(rows) + find_mask_changes(rows)

    def parse_row(self, content: Mapping[str, Any], place: str) -> MaskRow:
        """Parse a row of metrics.json, which must have the surfaces that the rules measure."""
        row = parse_stored_row(content, MaskRow, place)
        for name in SURFACES_OF[self.rules.surfaces]:
            if getattr(row, name).surface is None:
                raise HecktorError(place, "found nothing", f"the surfaces of {name}, which these rules measure")
        return row

    def row_as_json(self, row: MaskRow) -> dict[str, Any]:
        """Return the row as it is stored in metrics.json."""
        return row.model_dump()

    def list_references(self, table: RowTable) -> list[tuple[object, ...]]:
        """Return each reference's volumes and, where each lesion has one partner, its number of lesions."""
        names = ["voxel_volume_mm3", *(f"{label}.reference_voxels" for label in LABELS)]
        columns = [table.columns[name] for name in names]
        if self.rules.matching != "any_overlap":
            columns.append((table.numbers("gtvn.lesions.tp") + table.numbers("gtvn.lesions.fn")).tolist())
        return list(zip(*columns, strict=True))


def _find_cases_without_dsc(columns: MaskColumns) -> dict[str, tuple[str, ...]]:
    """Return the cases whose masks of a label do not count in its mean DSC, by the reason."""
    excluded = {
        f"{name}_empty_not_in_mean_dsc": tuple(compress(columns.cases, np.isnan(columns.labels[name].dsc)))
        for name in LABELS
    }
    return {reason: cases for reason, cases in excluded.items() if cases}


def _compare_after_death(workers: Workers, pairs: Sequence[MaskPair]) -> list[MaskRow]:
    """Compare the masks of one case in separate processes, after the process that compared all of them died.

    A mask that ends its process then fails only for its own team.
    """
    if len(pairs) > 1:
        return map_cases(compare_pair, pairs, workers, _make_row_after_death)
    return [_make_row_after_death(*pairs)]


def _make_row_after_death(pair: MaskPair) -> MaskRow:
    # Only the reference is read here; if reading it crashes the process, the whole run ends.
    read_labels(pair.reference, GroundTruthError)
    why = f"the process that compared this mask ended ({DEATH})"
    return compare_pair(replace(pair, answer=make_unusable_answer(pair.answer.case, why)))


def find_grid_problems(rows: Sequence[MaskRow]) -> tuple[Finding, ...]:
    """Return a warning for masks that do not touch the reference's image, and a warning for other resampled masks."""
    findings = []
    resampled = [(row.case, row.resampled) for row in rows if row.resampled is not None]
    for is_outside in (True, False):
        group = [(case, grids) for case, grids in resampled if grids.is_outside == is_outside]
        if group:
            first_case, grids = group[0]
            cases = [case for case, _ in group]
            findings.append(grids.make_finding(format_names(cases), f"{first_case}: " if len(cases) > 1 else ""))
    return tuple(findings)


def _is_poor(row: MaskRow) -> bool:
    """Return whether few lesion voxels have the right label."""
    return 2 * _count_correct(row) < _MAX_POOR_DSC * _count_lesion_voxels(row)


def count_changed_overlaps(
    reference: npt.NDArray[Any], predicted: npt.NDArray[Any], region: BoxRegion
) -> Mapping[str, int]:
    """Count the lesion voxels that have the reference's label after each change of the prediction, by the change.

    Args:
        reference: Reference mask, cut to the region.
        predicted: Predicted mask of the whole image, which is mirrored about the middle of the image.
        region: Region in which both masks are compared.
    """
    box = find_foreground_box(reference)
    is_lesion = reference[box] > 0
    reference_labels = reference[box][is_lesion]
    exchanged = sum(labels.FOREGROUND) - region.cut(predicted)[box][is_lesion]
    counts = {_EXCHANGED: int(np.count_nonzero(reference_labels == exchanged))}
    for change, axes in _MIRRORED_AXES.items():
        mirrored = region.cut(np.flip(predicted, axes))[box][is_lesion]
        counts[change] = int(np.count_nonzero(reference_labels == mirrored))
    return counts


def find_mask_changes(rows: Sequence[MaskRow]) -> tuple[Finding, ...]:
    """Return a warning if one change of all poor masks would raise a poor DSC of the cohort by 0.2.

    The DSC of the cohort is over the summed volumes of both labels.
    """
    usable = [row for row in rows if row.error is None]
    total_mm3 = sum(_count_lesion_voxels(row) * row.voxel_volume_mm3 for row in usable)
    if not total_mm3:
        return ()

    def compute_dsc(change: str) -> float:
        return 2 * sum(_count_correct(row, change) * row.voxel_volume_mm3 for row in usable) / total_mm3

    unchanged_dsc = compute_dsc("")
    change = max((_EXCHANGED, *_MIRRORED_AXES), key=compute_dsc)
    if unchanged_dsc >= _MAX_POOR_DSC or compute_dsc(change) < unchanged_dsc + _MIN_DSC_GAIN:
        return ()
    problem = (
        f"the DSC of all lesion voxels is {unchanged_dsc:.2f}; with {change} it would be {compute_dsc(change):.2f}"
    )
    return (Finding("masks", problem, action="check how they are written"),)


def _count_correct(row: MaskRow, change: str = "") -> int:
    """Count the lesion voxels that have the right label, after a change of a poor mask if `change` names it."""
    return row.overlap_after_change.get(change, row.gtvp.intersection_voxels + row.gtvn.intersection_voxels)


def _count_lesion_voxels(row: MaskRow) -> int:
    """Count the voxels of both labels in both masks."""
    return sum(label.reference_voxels + label.predicted_voxels for label in (row.gtvp, row.gtvn))
