"""Kinds of answers, a module for each: the row of a case, its form in metrics.json, its metrics and its scorer."""

from __future__ import annotations

from typing import TypeAlias

from evaluation.rows.classes import ClassRow
from evaluation.rows.mask import MaskRow
from evaluation.rows.risk import RiskRow

# Every row has a `case`, the `error` why there is no usable prediction (None if there is one), and `failed`: whether
# something was submitted that cannot be used.
CaseRow: TypeAlias = MaskRow | RiskRow | ClassRow
