"""Rows that are read as columns are the rows that their models accept, with the same values."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from evaluation.rows.classes import ClassRow
from evaluation.rows.mask import MaskRow
from evaluation.rows.risk import RiskRow
from evaluation.rows.table import read_table
from tests.damage import ABSENT, list_paths, replace_at

REFUSED = (KeyError, TypeError, ValueError)
LESIONS = {
    "tp": 1, "fp": 1, "fn": 1, "reference_voxels": [4, 2], "predicted_voxels": [5, 1], "dsc": [0.5, None],
    "pairs": [{"reference": 0, "predicted": 0, "iou": 0.4}],
}  # fmt: skip
SURFACE = {"state": "measured", "values": {"hd95_mm": 3.0, "asd_mm": 1.5, "surface_dsc": 1}}
LABEL = {
    "dsc": 0.5, "precision": 1.0, "recall": None, "intersection_voxels": 2, "reference_voxels": 4,
    "predicted_voxels": 3, "false_positive_voxels": 0, "false_negative_voxels": 1,
}  # fmt: skip
MASK = {
    "case": "A", "error": None, "failed": False, "voxel_volume_mm3": 3,
    "gtvp": {**LABEL, "lesions": None, "surface": SURFACE}, "gtvn": {**LABEL, "lesions": LESIONS, "surface": None},
}  # fmt: skip
EMPTY = {**LABEL, "dsc": 0.0, "intersection_voxels": 0, "predicted_voxels": 0}
LOST = {"state": "no_prediction", "values": dict.fromkeys(("hd95_mm", "asd_mm", "surface_dsc"))}
VALID = {
    MaskRow: [MASK, {"case": "B", "error": "unreadable", "failed": True, "voxel_volume_mm3": 0.5,
                     "gtvp": {**EMPTY, "surface": LOST}, "gtvn": {**EMPTY, "lesions": LESIONS}}],
    RiskRow: [{"case": "A", "error": None, "failed": False, "risk": -1.5, "rfs_days": 30, "relapse": True},
              {"case": "B", "error": "none", "risk": None, "rfs_days": 0.5, "relapse": False}],
    ClassRow: [{"case": "A", "predicted": "T1", "probability": None, "actual": "T2"},
               {"case": "B", "predicted": 2, "probability": 0.5, "actual": True},
               {"case": "C", "error": "none", "failed": True, "predicted": None, "probability": 1, "actual": "T1"}],
}  # fmt: skip
NOT_STORED = ("resampled", "overlap_after_change")
JUNK = st.one_of(
    st.sampled_from([ABSENT, None, True, 0, 1, -1, 2, 0.5, 1.5, 10**400, 1e308, float("nan"), float("inf"), "", " "]),
    st.sampled_from(["1", "both_empty", "\ud800", "\x1c", [], {}, [None], LABEL, LESIONS, SURFACE, LOST]),
    st.integers() | st.floats() | st.text(max_size=3),
)


def read_rows(model, rows):
    """Return the columns of rows that the model accepts, from the model's own JSON; None if it refuses a row."""
    try:
        return read_table(model, [model.model_validate(row).model_dump() for row in rows])
    except ValidationError:
        return None


@pytest.mark.parametrize("model", VALID)
def test_valid_rows_are_accepted(model):
    assert read_table(model, VALID[model]) == read_rows(model, VALID[model])
    assert read_table(model, []).cases == []


@given(st.data())
@pytest.mark.parametrize("model", VALID)
def test_columns_accept_what_the_model_accepts(model, data):
    """Damage a value in any place, or add a key to any object."""
    rows = VALID[model]
    objects = [(n,) for n in range(len(rows))]
    paths = list(list_paths(rows))
    objects += [path for path in paths if path[-1] in ("gtvp", "gtvn", "lesions", "surface", "values")]
    inserted = [(*path, key) for path in objects for key in ("extra", "resampled", "error", "tp")]
    path = data.draw(st.sampled_from([path for path in paths if len(path) > 1] + inserted), label="path")
    junk = data.draw(JUNK, label="junk")
    try:
        rows = replace_at(rows, path, junk)
    except TypeError:  # no key inside null
        return
    expected = read_rows(model, rows)
    try:
        table = read_table(model, rows)
    except REFUSED:
        assert expected is None or path[-1] in NOT_STORED
    else:
        assert table == expected


@given(st.lists(st.booleans(), min_size=3, max_size=3))
@example([True, True, True])
@example([False, False, False])
def test_selected_rows_are_the_rows_of_a_smaller_table(is_selected):
    rows = VALID[ClassRow]
    selected = [row for row, is_kept in zip(rows, is_selected, strict=True) if is_kept]
    assert read_table(ClassRow, rows).select(is_selected) == read_table(ClassRow, selected)
