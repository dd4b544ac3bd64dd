"""What a row of the segmentation task is kept under between runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Final

from contract.errors import PredictionError
from contract.sockets import MASK
from evaluation.execution.pool import Kept
from evaluation.inputs.masks import MAX_PREDICTION_VOXELS
from evaluation.inputs.submission import answer_file
from evaluation.row_store import RowStore, key_of
from evaluation.rows.mask import MaskPair, SegmentationRow

# No mask that may be compared is larger; a file without end would be hashed to its end.
MAX_KEYED_BYTES: Final = 9 * MAX_PREDICTION_VOXELS


def kept_rows(folder: Path | None) -> Kept[MaskPair, SegmentationRow] | None:
    """The kept rows in a folder; None where none are to be kept."""
    if folder is None:
        return None
    return Kept(RowStore(folder, SegmentationRow.as_json, SegmentationRow.from_json), _key, _is_final)


def _is_final(row: SegmentationRow) -> bool:
    # What could not be read may be the fault of the machine: no memory, a disk that fails.
    return row.error is None


def _key(pair: MaskPair) -> str | None:
    """Of both masks' bytes, the rules, the box and the case; None where there is no file of a prediction's size."""
    try:
        prediction = answer_file(pair.answer, MASK)
        if prediction.stat().st_size > MAX_KEYED_BYTES:
            return None
        box = None if pair.box is None else asdict(pair.box)
        options = {"case": pair.answer.case, "rules": asdict(pair.rules), "box": box}
        return key_of(options, pair.reference, prediction)
    except (PredictionError, OSError):
        return None
