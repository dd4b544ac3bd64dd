"""Scores masks: one row for each case, in several processes, and the metrics of the rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from contract.errors import GroundTruthError
from evaluation.editions.rules import MaskRules
from evaluation.execution.pool import Workers, map_cases
from evaluation.inputs.ground_truth import Reference, read_mask_folder
from evaluation.inputs.masks import read_labels
from evaluation.inputs.plain_files import read_mask_files
from evaluation.inputs.submission import Submission, unusable
from evaluation.rows.mask.metrics import dsc_by_volume, mask_metrics
from evaluation.rows.mask.pair import MaskPair, MaskRow, compare_pair
from evaluation.rows.mask.restored import restored_row
from evaluation.rows.raw import RawRow
from evaluation.rows.scorer import RowMetrics


@dataclass(frozen=True)
class MaskScorer:
    """Scores masks."""

    rules: MaskRules
    scores_outcomes: bool = False

    def read_reference(self, source: Path, centre_columns: Sequence[str]) -> Reference[Path]:
        return read_mask_folder(source, centre_columns)

    def read_files(self, source: Path, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
        return read_mask_files(source, cases, not_evaluated)

    def score(self, reference: Reference[Path], submission: Submission, workers: int | Workers) -> list[MaskRow]:
        """One row for each case, compared inside its bounding box if there is one."""
        pairs = [
            MaskPair(reference.targets[answer.case], answer, self.rules, reference.boxes.get(answer.case))
            for answer in submission.answers
        ]
        return map_cases(compare_pair, pairs, workers, _row_of_dead_worker)

    def measure(self, rows: Sequence[MaskRow]) -> RowMetrics:
        """Overlap, lesions and surfaces; and the GTVp's DSC by its volume."""
        not_in_mean = {
            "gtvp_empty_not_in_mean_dsc": tuple(row.case for row in rows if row.gtvp_dsc is None),
            "gtvn_empty_not_in_mean_dsc": tuple(row.case for row in rows if row.gtvn_dsc is None),
        }
        by_volume = dsc_by_volume(rows)
        return RowMetrics(
            mask_metrics(rows, self.rules),
            excluded={why: cases for why, cases in not_in_mean.items() if cases},
            analyses={} if by_volume is None else {"gtvp_dsc_by_volume": by_volume},
        )

    def restore(self, raw: RawRow) -> MaskRow:
        return restored_row(raw, self.rules)

    def reference_of(self, row: MaskRow) -> tuple[object, ...]:
        """The row's own part and, where each lesion has one partner, the number of lesions."""
        lesions = row.gtvn_lesions.true_positives + row.gtvn_lesions.false_negatives
        return row.reference if self.rules.matching == "any_overlap" else (*row.reference, lesions)


def _row_of_dead_worker(pair: MaskPair) -> MaskRow:
    # The reference alone must be readable here; if the reference kills a process, the run stops with it.
    read_labels(pair.reference, GroundTruthError)
    why = "the process that compared it died, out of memory perhaps"
    return compare_pair(replace(pair, answer=unusable(pair.answer.case, why)))
