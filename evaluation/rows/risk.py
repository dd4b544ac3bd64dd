"""Risks: the row of a patient and its scorer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from contract.editions import AnswerSpec
from contract.errors import Finding
from evaluation.execution import Workers
from evaluation.inputs.ground_truth import FollowUp, Reference, read_follow_up
from evaluation.inputs.plain_files import read_risk_table
from evaluation.inputs.submission import Submission, SubmittedAnswer, read_risk
from evaluation.metrics.rules import DIRECTIONS, NO_COMPARABLE_PAIR, Metric, RiskRules
from evaluation.metrics.survival import RISK_METRICS, RiskCohort, SurvivalCohort
from evaluation.rows.scorer import (
    RowMetrics,
    ScoredRow,
    build_metrics,
    compute_cohort_value,
    make_prediction_rule,
    make_table,
    parse_stored_row,
    read_stored_table,
    read_submitted_value,
)
from evaluation.rows.table import RowRule, RowTable, read_table


class RiskRow(ScoredRow):
    """A patient's predicted risk, None where missing, and follow-up."""

    risk: float | None
    rfs_days: Annotated[float, Field(ge=0)]
    relapse: bool

    RULES: ClassVar[tuple[RowRule, ...]] = (*ScoredRow.RULES, make_prediction_rule("risk"))


def make_survival_cohort(table: RowTable, rules: RiskRules) -> SurvivalCohort:
    """Return the rows as arrays; risks are higher for earlier recurrence, independent of the rule `direction`."""
    sign = -1.0 if rules.direction == "time" else 1.0
    return SurvivalCohort(
        times_days=table.numbers("rfs_days"),
        events=table.numbers("relapse").astype(np.bool_),
        risks=sign * table.numbers("risk"),
    )


@dataclass(frozen=True)
class RiskScorer:
    """Scorer of the risks of one answer."""

    answer: AnswerSpec
    rules: RiskRules
    metrics: tuple[Metric, ...] = RISK_METRICS

    def read_reference(self, source: Path, centre_columns: Sequence[str]) -> Reference[FollowUp]:
        """Read the follow-up of all patients from a table."""
        return read_follow_up(source, self.answer, centre_columns)

    def read_files(self, source: Path, cases: Collection[str], not_evaluated: Collection[str]) -> Submission:
        """Read a table of predicted risks."""
        return read_risk_table(source, self.answer, self.rules.direction, cases, not_evaluated)

    def score(
        self, reference: Reference[FollowUp], submissions: Sequence[Submission], _workers: Workers
    ) -> list[Sequence[RiskRow]]:
        """Return the rows of each submission."""
        targets = reference.targets
        return [
            [self._score_answer(answer, targets[answer.case]) for answer in submission.answers]
            for submission in submissions
        ]

    def _score_answer(self, answer: SubmittedAnswer, follow_up: FollowUp) -> RiskRow:
        risk = read_submitted_value(answer, read_risk)
        return RiskRow(case=answer.case, error=risk.error, failed=risk.failed, risk=risk.value, **vars(follow_up))

    def make_table(self, rows: Sequence[RiskRow]) -> RowTable:
        """Return rows that were just scored as columns."""
        return make_table(rows, RiskRow)

    def read_table(self, rows: Sequence[Mapping[str, Any]], source: str) -> RowTable:
        """Read rows of metrics.json as columns, sorted by case."""
        return read_stored_table(
            rows, partial(read_table, RiskRow), lambda row: self.parse_row(row, f"{source}, {row['case']}")
        )

    def measure(self, table: RowTable) -> RowMetrics:
        """Return C-indices and AUCs; a C-index below 0.5 gives a warning about the direction."""
        metrics = build_metrics(
            self.metrics, RiskCohort(make_survival_cohort(table, self.rules), self.rules.missing_risk)
        )
        is_undefined = np.isnan(compute_cohort_value(metrics["c_index"], len(table.cases)))
        # Without risks there is no sign that could be wrong.
        has_risks = any(risk is not None for risk in table.columns["risk"])
        return RowMetrics(
            metrics,
            warnings={"c_index": self._make_below_chance_warning} if has_risks else {},
            undefined=(NO_COMPARABLE_PAIR.format(n=len(table.cases)),) if is_undefined else (),
        )

    def _make_below_chance_warning(self, c_index: float, upper: float | None) -> str | None:
        """Return a warning if the C-index and its interval lie below 0.5."""
        if (c_index if upper is None else upper) >= 0.5:
            return None
        hint = f"expected: {DIRECTIONS[self.rules.direction]}; negating a risk gives a time, and vice versa"
        return f"the C-index is {c_index:.3f}, below 0.5: the sign may be flipped ({hint})"

    def find_problems(self, _rows: Sequence[RiskRow]) -> tuple[Finding, ...]:
        """Return no warning: the warnings about risks follow from their metrics."""
        return ()

    def parse_row(self, content: Mapping[str, Any], place: str) -> RiskRow:
        """Parse a row of metrics.json."""
        return parse_stored_row(content, RiskRow, place)

    def row_as_json(self, row: RiskRow) -> dict[str, Any]:
        """Return the row as it is stored in metrics.json."""
        return row.model_dump()

    def list_references(self, table: RowTable) -> list[tuple[object, ...]]:
        """Return the follow-up of each patient."""
        return list(zip(table.columns["rfs_days"], table.columns["relapse"], strict=True))
